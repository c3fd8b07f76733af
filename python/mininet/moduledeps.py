"""What must be there for a node to work."""
from __future__ import annotations

import sys
from os import environ  # noqa: F401 (found here by programs)
from sys import exit  # noqa: F401 (found here by programs)
from typing import Any, Tuple

from mininet.log import debug, error, info  # noqa: F401 (found here by programs)
from mininet.util import BaseString, errRun, quietRun, which  # noqa: F401 (found here by programs)

OF_KMOD, OVS_KMOD, TUN = "ofdatapath", "openvswitch", "tun"


def lsmod() -> str:
    """The kernel's modules, as a list of text."""
    return errRun("lsmod")[0]


def rmmod(mod: str) -> Tuple[str, str, int]:
    return errRun("rmmod", mod)


def modprobe(mod: str) -> Tuple[str, str, int]:
    return errRun("modprobe", mod)


def moduleDeps(subtract: Any = None, add: Any = None) -> None:
    """Kernel modules that a node of Mininet would load; labs load what they need themselves, so nothing is done."""


def pathCheck(*args: str, **kwargs: Any) -> None:
    """End with a message where programs are not installed; moduleName= is what they come with."""
    missing = [program for program in args if not which(program)]
    if missing:
        error("%s not found in PATH: is %s installed?\n" % (", ".join(missing), kwargs.get("moduleName", "it")))
        sys.exit(1)
