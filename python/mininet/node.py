"""Nodes: hosts, switches, controllers; and what else programs find here."""
# ruff: noqa: F401
import os
import pty
import re
import select
import signal
from re import findall
from subprocess import PIPE, STDOUT, Popen
from sys import exit
from time import sleep

from mininet._controllers import (NOX, Controller, DefaultController, DefaultControllers, NullController, OVSController,
                                  RemoteController, Ryu, findController)
from mininet._limits import CPULimitedHost
from mininet._node import Host, Node
from mininet._switches import IVSSwitch, OVSBridge, OVSKernelSwitch, OVSSwitch, Switch, UserSwitch, _LabSwitch
from mininet.link import Intf, Link, OVSIntf, TCIntf
from mininet.log import debug, error, info, warn
from mininet.moduledeps import OVS_KMOD, TUN, moduleDeps, pathCheck
from mininet.util import (BaseString, Python3, StrictVersion, decode, encode, errFail, errRun, getincrementaldecoder, isShellBuiltin,
                          macColonHex, mountCgroups, moveIntf, numCores, quietRun, retry, which)
