"""Switches: those that the lab forwards for, and those that run programs of their own."""
from __future__ import annotations

import re
import time
from typing import Any, Dict, Iterable, List, Optional

from mininet._node import Node
from mininet.link import Intf
from mininet.log import debug, error, info

_VERSIONS = {"OpenFlow10": "1.0", "OpenFlow13": "1.3"}


class Switch(Node):
    """A switch. One that is no OVSSwitch, UserSwitch or LinuxBridge starts programs of its own; it has namespaces of its own for
    these, where its ports are."""

    portBase = 1
    dpidLen = 16

    def __init__(self, name: str, dpid: Optional[str] = None, opts: str = "", listenPort: Optional[int] = None, **params: Any) -> None:
        super().__init__(name, **{"inNamespace": False, **params})
        self.opts = opts
        self.listenPort = listenPort
        try:
            self.dpid = self.defaultDpid(dpid)
        except Exception:
            self.fabric.remove(self)  # the program may go on without it
            raise
        self._controllers: Optional[List[Any]] = None
        self._started = False
        if not self.inNamespace:
            self.controlIntf = Intf("lo", self, port=0)

    def defaultDpid(self, dpid: Optional[str] = None) -> str:
        """The datapath id as hexadecimal digits: what is given, or the number in the name."""
        if not dpid:
            number = re.search(r"\d+", self.name)
            if not number:
                raise Exception("Unable to derive default datapath ID - please either specify a dpid or use a canonical switch "
                                "name such as s23. (%s has no number)" % self.name)
            dpid = "%x" % int(number.group())
        digits = dpid.replace(":", "")
        if len(digits) > self.dpidLen or int(digits, 16) < 0:
            raise AssertionError("dpid %s is longer than %d digits" % (dpid, self.dpidLen))
        return digits.zfill(self.dpidLen)

    def defaultIntf(self) -> Any:
        """The interface by which it is controlled, if it has no namespace of its own; else that of the lowest port."""
        return super().defaultIntf() if self.inNamespace or 0 not in self.intfs else self.intfs[0]

    def fabricKind(self) -> Optional[str]:
        return "host"

    def fabricOVS(self) -> bool:
        """Whether Open vSwitch could be what forwards."""
        return False

    def fabricSecure(self) -> bool:
        """Whether it forwards nothing but what it is told, and nobody tells it."""
        return False

    # Its life

    def start(self, controllers: List[Any]) -> Any:
        """Start it, controlled by controllers."""

    def stop(self, deleteIntfs: bool = True) -> None:
        """Stop it. Its shell goes on."""
        if deleteIntfs:
            self.deleteIntfs()

    def terminate(self) -> None:
        super().terminate()
        if not self.fabric.ending:
            self.fabric.remove(self)

    def connected(self) -> bool:
        """Whether a controller is connected; subclasses know."""
        debug("*** %r is taken to be connected to its controller\n" % self)
        return True

    # Commands

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:
        """What Node.sendCmd does, unless another program has taken the shell's place."""
        if self.execed:
            error("*** Error: %s is another program now, and runs no commands\n" % self)
        else:
            super().sendCmd(*args, **kwargs)

    def dpctl(self, *args: Any) -> Any:
        raise NotImplementedError("%s has no flow table of OpenFlow to talk to" % self)


class _LabSwitch(Switch):
    """A switch that the lab's datapaths forward for."""

    def fabricKind(self) -> Optional[str]:
        return "switch"

    def _deciders(self) -> List[Any]:
        """The controllers that it has, or, where it has not been started, those that it is going to have."""
        if self._controllers is None:
            return self.fabric.net.controllers if self.fabric.net is not None else []
        return self._controllers

    def fabricControllers(self) -> List[str]:
        known = [address for address in (controller.fabricAddress() for controller in self._deciders()) if address]
        others = [address for address in known if address != "trivet"]
        return others or (["trivet"] if known else ["none"])

    def start(self, controllers: List[Any]) -> Any:
        before, first = self.fabricControllers(), not self._started
        self._controllers, self._started = list(controllers), True
        if first or before != self.fabricControllers():
            self.fabric.changed(self)
        for intf in self.intfList():
            self._plug(intf)
        if not self.fabric.starting and all(switch._started for switch in self.fabric.nodes if isinstance(switch, _LabSwitch)):
            self.fabric.ensure()

    def stop(self, deleteIntfs: bool = True) -> None:
        """Stop it: its cables are pulled, or with deleteIntfs removed."""
        self._started = False
        if self.fabric.ending:
            return
        super().stop(deleteIntfs)
        for intf in self.intfList():
            self._pull(intf)

    def connected(self) -> bool:
        """Whether it is connected to a controller of its own, if it has any."""
        self.fabric.ensure()
        mine = [said["controllers"] for said in self.fabric.lab.controllers if said["switch"] == self.name]
        return all(not controllers or any(one["connected"] for one in controllers) for controllers in mine)

    # Ports

    def attach(self, intf: Any) -> None:
        """Have a port; those of links are there when the lab is. One that was detached has its cable again."""
        self._plug(self.nameToIntf.get(intf) if isinstance(intf, str) else intf)
        self.fabric.ensure()

    def detach(self, intf: Any) -> None:
        """Take a port away: its cable is pulled."""
        self._pull(self.nameToIntf.get(intf) if isinstance(intf, str) else intf)

    def _pull(self, intf: Any) -> None:
        wire = getattr(intf, "_wire", None)
        if wire is not None:
            wire.pulled.add(self)
            self.fabric.setLink(wire, False)

    def _plug(self, intf: Any) -> None:
        """Put a cable in again that it has pulled, unless the switch at the other end has, too."""
        wire = getattr(intf, "_wire", None)
        if wire is not None and self in wire.pulled:
            wire.pulled.remove(self)
            if not wire.pulled:
                self.fabric.setLink(wire, True)


class OVSSwitch(_LabSwitch):
    """A switch of OpenFlow: Trivet's own, or Open vSwitch where something asks for it (TRIVET_DATAPATH chooses)."""

    argmax = 128000
    OVSVersion: Optional[str] = None

    def __init__(self, name: str, failMode: str = "secure", datapath: str = "kernel", inband: bool = False,
                 protocols: Optional[str] = None, reconnectms: int = 1000, stp: bool = False, batch: bool = False,
                 **params: Any) -> None:
        super().__init__(name, **params)
        self.failMode, self.protocols, self.stp = failMode, protocols, stp
        self.datapath, self.inband, self.reconnectms = datapath, inband, reconnectms  # Mininet's; the lab has no use for them
        self.batch, self.commands = batch, []  # type: bool, List[str]
        self._uuids: List[str] = []

    @classmethod
    def setup(cls) -> None:
        """Nothing need be installed: the lab has Open vSwitch of its own, where there is any."""

    @classmethod
    def isOldOVS(cls) -> bool:
        return False

    @classmethod
    def batchStartup(cls, switches: Iterable[Any], run: Any = None) -> Iterable[Any]:
        """The lab starts switches all at once."""
        info("...")
        return switches

    @classmethod
    def batchShutdown(cls, switches: Iterable[Any], run: Any = None) -> Iterable[Any]:
        """The lab stops them all at once."""
        return switches

    def start(self, controllers: List[Any]) -> Any:
        if self.inNamespace:
            raise Exception("%s: inNamespace=True: switches of a lab have no namespace of their own" % self)
        super().start(controllers)

    # What it is in the lab

    def fabricOVS(self) -> bool:
        return True

    def fabricSecure(self) -> bool:
        return self.failMode == "secure" and self.fabricControllers() == ["none"]

    def fabricOptions(self, fabric: Any) -> Dict[str, Any]:
        spoken = [_VERSIONS[version] for version in (self.protocols or "").split(",") if version in _VERSIONS]
        options = {"datapath": fabric.datapath, "controller": self.fabricControllers(), "fail_mode": self.failMode,
                   "dpid": int(self.dpid, 16) and self.dpid.zfill(16), "openflow": spoken, "stp": bool(self.stp)}
        return {option: value for option, value in options.items() if value}

    # The commands of Open vSwitch, which know the switch whatever it is

    def _enter(self) -> List[str]:
        self.fabric.tell()
        return super()._enter()

    def dpctl(self, *args: Any) -> Any:
        """Run a command of ovs-ofctl for the switch, as in dpctl("dump-flows")."""
        self.fabric.tell()
        command, *rest = args
        said = self.cmd("ovs-ofctl", command, self, *rest)
        if command == "del-flows" and self.fabricControllers() == ["trivet"]:
            until = time.monotonic() + 2
            while not self.fabric.lab.flows(self.name) and time.monotonic() < until:
                time.sleep(0.01)  # the controller makes its own again
        return said

    def vsctl(self, *args: Any, **kwargs: Any) -> Any:
        """Run ovs-vsctl."""
        self.fabric.tell()
        return self.cmd("ovs-vsctl", *args, **kwargs)

    def bridgeOpts(self) -> str:
        """What ovs-vsctl would be told of it, to make it."""
        return " other_config:datapath-id=%s fail_mode=%s" % (self.dpid, self.failMode)

    def intfOpts(self, intf: Any) -> str:
        """What ovs-vsctl would be told of a port, to make it."""
        return " ofport_request=%d" % self.ports[intf]

    def controlIntfs(self) -> List[Any]:
        """Interfaces that are no ports, for control in band."""
        return []

    def controllerUUIDs(self, update: bool = False) -> List[str]:
        """The ids of its rows in Open vSwitch's table of controllers."""
        if update or not self._uuids:
            listed = self.vsctl("get Bridge", self, "controller")
            self._uuids = re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", listed)
        return self._uuids

    @staticmethod
    def TCReapply(intf: Any) -> None:
        """Links keep what shapes them."""


OVSKernelSwitch = OVSSwitch


class OVSBridge(OVSSwitch):
    """A switch that learns by itself, without a controller."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "failMode": "standalone"})

    def fabricControllers(self) -> List[str]:
        return ["none"]

    def connected(self) -> bool:
        return True


class UserSwitch(OVSSwitch):
    """Mininet's is the reference user switch; here it is what an OVSSwitch is."""

    dpidLen = 12

    def __init__(self, name: str, dpopts: str = "--no-slicing", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self.dpopts = dpopts


class IVSSwitch(OVSSwitch):
    """Mininet's is the Indigo switch; here it is what an OVSSwitch is."""

    def __init__(self, name: str, verbose: bool = False, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self.verbose = verbose
