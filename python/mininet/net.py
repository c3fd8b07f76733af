"""Networks: what they consist of comes from a topology or from calls, and is a lab of Trivet from start to stop."""
from __future__ import annotations

import dis
import math
import os
import random  # noqa: F401 (found here by programs)
import re  # noqa: F401 (found here by programs)
import select  # noqa: F401 (found here by programs)
import selectors
import signal  # noqa: F401 (found here by programs)
import subprocess
import time
from itertools import chain, groupby  # noqa: F401 (found here by programs)
from math import ceil  # noqa: F401 (found here by programs)
from sys import exit  # noqa: F401 (found here by programs)
from time import sleep
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple, Union

from mininet import _fabric, _trace  # noqa: F401 (shows what a script fails with)
from mininet._measure import Measuring
from mininet._members import Members
from mininet.cli import CLI
from mininet.link import Intf, Link
from mininet.log import debug, error, info, output, warn  # noqa: F401 (found here by programs)
from mininet.node import Controller, DefaultController, Host, Node, OVSKernelSwitch
from mininet.nodelib import NAT  # noqa: F401 (found here by programs)
from mininet.term import cleanUpScreens, makeTerms
from mininet.util import (BaseString, ensureRoot, fixLimits, ipAdd, ipParse, ipStr, macColonHex, macColons, netParse, numCores,  # noqa: F401
                          quietRun, waitListening)

VERSION = "2.3.0"


def _step(title: str, things: Iterable[Any], do: Callable[[Any], Any], label: Callable[[Any], str] = "{} ".format,
          after: bool = False, end: str = "\n") -> None:
    """Do something with each of some things, and show the label of each, before it or after it."""
    info("*** %s\n" % title)
    for thing in things:
        for act in (do, lambda it: info(label(it))) if after else (lambda it: info(label(it)), do):
            act(thing)
    info(end)


class Mininet(Members, Measuring):
    """A network. It is a lab once it is started, or once something is run in a node."""

    inited = False

    def __init__(self, topo: Any = None, switch: Any = OVSKernelSwitch, host: Any = Host, controller: Any = DefaultController,
                 link: Any = Link, intf: Any = Intf, build: bool = True, xterms: bool = False, cleanup: bool = False,
                 ipBase: str = "10.0.0.0/8", inNamespace: bool = False, autoSetMacs: bool = False, autoStaticArp: bool = False,
                 autoPinCpus: bool = False, listenPort: Optional[int] = None,
                 waitConnected: Union[bool, float] = False) -> None:
        super().__init__()
        self.topo, self.built = topo, False
        # What nodes and links are, unless they say another class
        self.switch, self.controller, self.host = switch, controller, host
        self.intf, self.link = intf, link
        # How hosts are numbered: the first has the address that ipBase says, or the first of that network
        self.ipBase = ipBase
        number, self.prefixLen = netParse(ipBase)
        self.ipBaseNum, self.nextIP = number, number % (1 << 32 - self.prefixLen) or 1
        self.autoSetMacs, self.autoStaticArp = autoSetMacs, autoStaticArp
        self.autoPinCpus, self.nextCore, self.numCores = autoPinCpus, 0, numCores()
        # What there is besides
        self.inNamespace, self.listenPort = inNamespace, listenPort
        self.waitConn, self.cleanup = waitConnected, cleanup
        self.xterms, self.terms = xterms, []  # type: bool, List[Any]
        self.init()
        self.fabric = _fabric.begin(self)
        if build and topo:
            self.build()

    @classmethod
    def init(cls) -> None:
        """What the first network of a program needs."""
        if not cls.inited:
            for need in (ensureRoot, fixLimits):
                need()
        cls.inited = True

    # From a topology to nodes and links

    def build(self) -> None:
        """Make what the topology says, and configure the hosts, also those that were added before."""
        if self.topo:
            self.buildFromTopo(self.topo)
        if self.inNamespace:
            self.configureControlNetwork()
        self.configHosts()
        if self.xterms:
            self.startTerms()
        if self.autoStaticArp:
            self.staticArp()
        self.built = True

    def buildFromTopo(self, topo: Any = None) -> None:
        """Make the nodes and links of a topology, and the network's controllers unless some were added."""
        info("*** Creating network\n")
        if self.controller and not self.controllers:
            info("*** Adding controller\n")
            self._addControllers(self.controller if isinstance(self.controller, list) else [self.controller])
        _step("Adding hosts:", topo.hosts(), lambda name: self.addHost(name, **topo.nodeInfo(name)), after=True)
        _step("Adding switches:", topo.switches(), lambda name: self.addSwitch(name, **self._switchOptions(topo.nodeInfo(name))),
              after=True)
        _step("Adding links:", topo.links(sort=True, withInfo=True), self._addTopoLink, lambda link: "(%s, %s) " % link[:2],
              after=True)

    def _addControllers(self, kinds: Iterable[Any]) -> None:
        """Add a controller of each class, or that one itself."""
        for number, kind in enumerate(kinds):
            if isinstance(kind, Controller):
                self.addController(kind)
            else:
                self.addController("c%d" % number, kind)

    def _switchOptions(self, info: Any) -> Any:
        """The options of a topology's switch; one of a class that starts many at once is told that it is one of many."""
        given = dict(info)
        given.pop("isSwitch", None)
        return {"batch": True, **given} if hasattr(given.get("cls", self.switch), "batchStartup") else given

    def _addTopoLink(self, link: Tuple[str, str, Any]) -> None:
        src, dst, options = link
        self.addLink(src, dst, **{key: value for key, value in options.items() if key not in ("node1", "node2")})

    def configHosts(self) -> None:
        """Give hosts what their parameters say. The lab makes them so where it can, which is told before any is asked."""
        for host in filter(_handsOn, self.hosts):
            host.preset(*map(host.params.get, ("ip", "mac", "defaultRoute")))
        with self.fabric.during("configuring"):
            _step("Configuring hosts", self.hosts, lambda host: host.configDefault(
                **({} if host.defaultIntf() else {"ip": None, "mac": None})))

    def configureControlNetwork(self) -> None:
        """Mininet's is in MininetWithControlNet; switches of a lab reach their controllers without one."""

    def staticArp(self) -> None:
        """Have each host know the MACs of all others."""
        known = [(ip, macColons(mac)) for ip, mac in ((host.IP(), host.MAC()) for host in self.hosts if host.intfs) if ip and mac]
        for host in self.hosts:
            device = host.defaultIntf()
            if device is not None:
                entries = ("neigh replace %s lladdr %s nud permanent dev %s\n" % (*pair, device) for pair in known
                           if pair[0] != host.IP())
                host.popen(["ip", "-force", "-batch", "-"], stdin=subprocess.PIPE).communicate("".join(entries).encode())

    # Terminals

    def startTerms(self) -> None:
        """Open a terminal for each node."""
        display = os.environ.get("DISPLAY")
        if display is None:
            error("*** no terminals: DISPLAY is not set\n")
            return
        info("*** Running terms on %s\n" % display)
        cleanUpScreens()
        for title, nodes in zip(("host", "switch", "controller"), self._kinds()):
            self.terms.extend(makeTerms(nodes, title))

    def stopXterms(self) -> None:
        for process in self.terms:
            if process.poll() is None:
                process.terminate()
        cleanUpScreens()

    # Its life

    def start(self) -> None:
        """Bring the lab up, with controllers first and then switches."""
        if not self.built:
            self.build()
        self.fabric.choose()
        _step("Starting controller", self.controllers, lambda controller: controller.start())
        with self.fabric.during("starting"):
            _step("Starting %d switches" % len(self.switches), self.switches, lambda switch: switch.start(self.controllers), end="")
        self.fabric.ensure()
        info("...\n" if any(hasattr(switch, "batchStartup") for switch in self.switches) else "\n")
        if self.waitConn:
            self.waitConnected(timeout=self.waitConn)

    def waitConnected(self, timeout: Union[None, bool, float] = None, delay: float = 0.5) -> bool:
        """Wait until each switch is connected to a controller, for ever unless timeout says how long; returns whether they are."""
        info("*** Waiting for switches to connect\n")
        begin = time.monotonic()
        until = begin + (math.inf if timeout is None or timeout is True else timeout)
        missing = list(self.switches)
        while missing:
            missing, asked = [], missing
            for switch in asked:
                if switch.connected():
                    info("%s " % switch)
                else:
                    missing.append(switch)
            if missing and time.monotonic() >= until:
                warn("Timed out after %d seconds\n" % (time.monotonic() - begin))
                for switch in missing:
                    warn("Warning: %s is not connected to a controller\n" % switch)
                return False
            if missing:
                sleep(min(delay, 0.1))
        info("\n")
        return True

    def stop(self) -> None:
        """Take the lab down; nothing of it is left."""
        self.fabric.ending = True
        _stop("controllers", self.controllers)
        if self.terms:
            info("*** Stopping %d terms\n" % len(self.terms))
            self.stopXterms()
        _stop("links", self.links, label=lambda _link: ".")
        _stop("switches", self.switches, "stop", "terminate")
        _stop("hosts", self.hosts, "terminate")
        self.fabric.end()
        info("*** Done\n")

    def run(self, test: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start, call a function, stop; returns what the function does."""
        self.start()
        info("*** Running test\n")
        result = test(*args, **kwargs)
        self.stop()
        return result

    def interact(self) -> Any:
        """Start, a prompt, stop."""
        self.start()
        prompt = CLI(self)
        self.stop()
        return prompt

    # While it runs

    def monitor(self, hosts: Optional[Iterable[Any]] = None, timeoutms: float = -1) -> Iterator[Tuple[Any, Optional[str]]]:
        """Yield (host, line) of what the commands of hosts print, and (None, None) when nothing has come for timeoutms."""
        with selectors.DefaultSelector() as outputs:
            for host in self.hosts if hosts is None else hosts:
                outputs.register(host.stdout, selectors.EVENT_READ, host)
            while True:
                ready = outputs.select(None if timeoutms < 0 else timeoutms / 1000)
                if not ready:
                    yield None, None
                for host in (key.data for key, _events in ready):
                    line = host.readline()
                    while line is not None:
                        yield host, line
                        line = host.readline() if "\n" in host.readbuf else None

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """Set the links between two nodes, which are given by their names, up or down."""
        for which, name in (("src", src), ("dst", dst)):
            if name not in self:
                error("%s not in network: %s\n" % (which, name))
                return
        pairs = self[src].connectionsTo(self[dst])
        if not pairs:
            error("src and dst not connected: %s %s\n" % (src, dst))
        for intf in chain.from_iterable(pairs):
            said = intf.ifconfig(status)
            if said:
                error("link status change failed: %s\n" % said)


def _handsOn(host: Any) -> bool:
    """Whether config() of a host's class surely hands on all parameters as they are, so that what they say can be foretold.
    Where one names an address, takes it away, or calls no other config(), it is seen when it runs."""
    if type(host).configDefault is not Node.configDefault or "config" in vars(host):
        return False
    for kind in type(host).__mro__:
        config = vars(kind).get("config")
        if config is None:
            continue
        if kind.__module__.startswith("mininet.") and not kind.__module__.startswith("mininet.examples"):
            return True
        code = getattr(config, "__code__", None)
        if code is None or "config" not in code.co_names:
            return False
        named = {*code.co_varnames[:code.co_argcount + code.co_kwonlyargcount], *code.co_consts}
        handed = any(step.opname == "CALL_FUNCTION_EX" for step in dis.get_instructions(code))
        if not handed or named & {"ip", "mac", "defaultRoute"}:
            return False
    return True


def _stop(kind: str, things: List[Any], *methods: str, label: Callable[[Any], str] = "{} ".format) -> None:
    _step("Stopping %d %s" % (len(things), kind), things, lambda thing: [getattr(thing, end)() for end in methods or ("stop",)], label)


class MininetWithControlNet(Mininet):
    """Mininet's has a network of its own for controllers; switches of a lab reach them without one."""

    def configureRoutedControlNetwork(self, ip: str = "192.168.123.1", prefixLen: int = 16) -> None:
        """There is nothing to configure."""
