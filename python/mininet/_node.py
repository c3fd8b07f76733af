"""Nodes and hosts: a node has interfaces and addresses, and runs programs."""
from __future__ import annotations

import os
import re
import shlex
from typing import Any, Dict, List, Optional, Tuple

from mininet import _fabric, _groups
from mininet._shell import Shell
from mininet.link import Link
from mininet.log import debug, warn

_VIA = re.compile(r"\s*via\s+([\d.]+)\s*")


class Node(Shell):
    """A host of the lab, or with inNamespace=False the machine itself."""

    portBase = 0
    isSetup = False

    def __init__(self, name: str, inNamespace: bool = True, **params: Any) -> None:
        type(self).checkSetup()
        super().__init__()
        self.name, self.inNamespace, self.params = name, inNamespace, params
        self.privateDirs: List[Any] = params.get("privateDirs", [])
        self.intfs: Dict[int, Any] = {}
        self.ports: Dict[Any, int] = {}
        self.nameToIntf: Dict[str, Any] = {}
        self._cpu: Optional[float] = None  # share of the machine
        self._cores: Optional[List[int]] = None
        self._gateway: Optional[str] = None
        self._fabric = _fabric.current()
        self._fabric.add(self)
        for theirs, ours in ((type(self).startShell, Node.startShell), (type(self).mountPrivateDirs, Node.mountPrivateDirs)):
            if theirs is not ours:  # a subclass has a way of its own, and expects that it is gone at once
                theirs(self)

    @classmethod
    def checkSetup(cls) -> None:
        """Have setup called once for each class that has one."""
        for kind in cls.__mro__:
            if issubclass(kind, Node) and "setup" in vars(kind) and not vars(kind).get("isSetup"):
                kind.setup()
                kind.isSetup = True

    @classmethod
    def setup(cls) -> None:
        """What must be there; subclasses look for programs here."""

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        addresses = ",".join("%s:%s" % (intf, intf.IP()) for intf in self.intfList())
        return "<%s %s: %s pid=%s> " % (type(self).__name__, self, addresses, self.pid)

    def stop(self, deleteIntfs: bool = False) -> None:
        """End what runs in it; it leaves the lab."""
        if deleteIntfs:
            self.deleteIntfs()
        self.terminate()
        if not self.fabric.ending:
            self.fabric.remove(self)

    # What it is in the lab

    @property
    def fabric(self) -> Any:
        return self._fabric

    def join(self, fabric: Any) -> None:
        """Move to the fabric of a network that was made after it."""
        if fabric is not self._fabric:
            self._fabric.nodes.remove(self)
            self._fabric = fabric
            fabric.add(self)

    def fabricKind(self) -> Optional[str]:
        """host, switch, router or nat; None: it is the machine itself."""
        return "host" if self.inNamespace else None

    def isForwarder(self) -> bool:
        """Whether it is a switch of the lab, whose ports have no addresses."""
        return self.fabricKind() == "switch"

    def fabricControllers(self) -> List[str]:
        """What decides for it, if it is a switch."""
        return []

    def fabricOptions(self, fabric: Any) -> Dict[str, Any]:
        """Its options in a topology."""
        said = {"gateway": self._gateway, "cpu": self._cpu and "%.7f%%" % (100 * self._cpu), "cores": self._cores,
                "dirs": list(map(self._private, self.privateDirs))}
        return {option: value for option, value in said.items() if value}

    def _private(self, said: Any) -> Any:
        """A directory of its own, in Trivet YAML: empty and in memory, or a directory of the machine, which is made."""
        if not isinstance(said, tuple):
            return said
        inside, pattern = said
        source = pattern % vars(self)
        os.makedirs(source, exist_ok=True)
        return {inside: source}

    def mountPrivateDirs(self) -> None:
        """The lab has made them."""

    unmountPrivateDirs = mountPrivateDirs

    def _ready(self) -> None:
        if self.fabricKind() or any(intf._wire for intf in self.intfs.values()):
            self.fabric.ensure()

    def _enter(self) -> List[str]:
        if not self.fabricKind():
            return []
        self.fabric.ensure()
        groups = shlex.join(_groups.of(self.fabric.name, self.name))
        join = "for g in %s; do echo $$ >$g/cgroup.procs; done 2>/dev/null; exec \"$@\"" % groups
        return ["/bin/sh", "-c", join, "sh", "nsenter", *self.fabric.spaces(self), "env", "-C", os.getcwd(),
                *([] if self.isForwarder() else ["PATH=" + self.fabric.path()])]

    # Its interfaces

    def newPort(self) -> int:
        """The next port number."""
        return max(self.ports.values(), default=self.portBase - 1) + 1

    def addIntf(self, intf: Any, port: Optional[int] = None, moveIntfFn: Any = None) -> None:
        """Add an interface. One that was another node's has its link made anew."""
        number = self.newPort() if port is None else port
        if intf.node is not self and intf._wire is not None:
            intf._device, intf._given, intf._made = "%s-eth%d" % (self.name, number), None, False
            self.fabric.changed(self)
        intf.node = self
        self.ports[intf] = number
        self.intfs[number] = self.nameToIntf[intf.name] = intf
        debug("*** %s is port %d of %s\n" % (intf, number, self))

    def delIntf(self, intf: Any) -> None:
        """Forget an interface."""
        number = self.ports.pop(intf, None)
        if number is not None:
            self.intfs.pop(number)
            self.nameToIntf.pop(intf.name, None)

    def deleteIntfs(self, checkName: bool = True) -> None:
        """Remove its interfaces; with checkName those that are called after it."""
        for intf in self.intfList():
            if not checkName or self.name in intf.name:
                intf.delete()

    def intfList(self) -> List[Any]:
        """Its interfaces, by port."""
        return [intf for _port, intf in sorted(self.intfs.items())]

    def intfNames(self) -> List[str]:
        return list(map(str, self.intfList()))

    def defaultIntf(self) -> Any:
        """The interface of the lowest port."""
        for intf in self.intfList():
            return intf
        warn("*** defaultIntf: warning: %s has no interfaces\n" % self)
        return None

    def intf(self, intf: Any = "") -> Any:
        """The interface of a name (or that itself), or the default one; a name that it does not have is a KeyError."""
        found = self.nameToIntf[intf] if intf and isinstance(intf, str) else intf
        return found or self.defaultIntf()

    def intfIsUp(self, intf: Any = None) -> Any:
        return self.intf(intf).isUp()

    def connectionsTo(self, node: Any) -> List[Tuple[Any, Any]]:
        """Pairs of interfaces (its own, the other's) of links to a node."""
        ends = ((intf.link.intf1, intf.link.intf2) for intf in self.intfList() if intf.link)
        return [pair if pair[0].node is self else pair[::-1] for pair in ends
                if (pair[0].node, pair[1].node) in ((self, node), (node, self))]

    def linkTo(self, node: Any, link: Any = Link) -> Any:
        """Link it to another node."""
        return link(self, node)

    # Its addresses

    def IP(self, intf: Any = None) -> Optional[str]:
        """The address of an interface, or of the default one."""
        found = self.intf(intf)
        return found and found.IP()

    def MAC(self, intf: Any = None) -> Optional[str]:
        return self.intf(intf).MAC()

    def setIP(self, ip: str, prefixLen: int = 8, intf: Any = None, **kwargs: Any) -> Any:
        return self.intf(intf).setIP(ip, prefixLen, **kwargs)

    def setMAC(self, mac: str, intf: Any = None) -> Any:
        return self.intf(intf).setMAC(mac)

    def setARP(self, ip: str, mac: str) -> Any:
        """A static entry in its neighbour table."""
        return self.cmd("arp -s", ip, mac)

    def setHostRoute(self, ip: str, intf: Any) -> Any:
        """A route to a host by an interface."""
        return self.cmd("ip route replace", ip, "dev", intf)

    def setDefaultRoute(self, intf: Any = None) -> Any:
        """The default route: an interface, or text like "via 10.0.0.1" or "dev h1-eth0 via 10.0.0.1"."""
        if self._routed(intf):
            return None
        where = intf if isinstance(intf, str) and " " in intf else "dev %s" % intf
        return self.cmd("ip route del default; ip route add default", where)

    def _routed(self, said: Any) -> bool:
        """Whether the lab makes a default route, or has just made it."""
        via = _VIA.fullmatch(said) if isinstance(said, str) else None
        if not via or self.fabricKind() not in ("host", "router"):
            return False
        if self.fabric.lab is not None:
            return bool(self.fabric.configuring) and self._gateway == via.group(1)
        self._gateway = via.group(1)
        self.fabric.changed(self)
        return True

    # Configuration by parameters

    def setParam(self, results: Dict[str, Any], method: str, **param: Any) -> Any:
        """What Intf.setParam does, with the methods of the node."""
        (name, given), = param.items()
        setter = getattr(self, method, None)
        if given is None or setter is None:
            return None
        results[name] = setter(**given) if isinstance(given, dict) else setter(*(given if isinstance(given, list) else (given,)))
        return results[name]

    def config(self, mac: Optional[str] = None, ip: Optional[str] = None, defaultRoute: Any = None, lo: str = "up",
               **_params: Any) -> Dict[str, Any]:
        """Give it what its parameters say; subclasses add to it."""
        done: Dict[str, Any] = {}
        for method, param in (("setMAC", {"mac": mac}), ("setIP", {"ip": ip}), ("setDefaultRoute", {"defaultRoute": defaultRoute})):
            self.setParam(done, method, **param)
        if lo not in ("up", "", None):  # it is up
            self.cmd("ifconfig lo", lo)
        return done

    def configDefault(self, **moreParams: Any) -> Any:
        """Configure it by its parameters, and by those given."""
        self.params.update(moreParams)
        return self.config(**self.params)

    def preset(self, ip: Optional[str] = None, mac: Optional[str] = None, defaultRoute: Any = None) -> None:
        """Have the lab make its first interface with an address: config() then need not change it."""
        self._routed(defaultRoute)
        first = self.intfs[min(self.intfs)] if self.intfs else None
        if first is None or not self.fabricKind() or first.live():
            return
        if ip:
            first.ip, _, length = ip.partition("/")
            first.prefixLen = int(length or 8)
        first.mac = mac or first.mac


class Host(Node):
    """A host."""
