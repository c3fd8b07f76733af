"""Nodes that Mininet's library has besides: a Linux bridge, and a NAT."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

from mininet.link import Intf
from mininet.log import info, warn  # noqa: F401 (found here by programs)
from mininet.moduledeps import pathCheck  # noqa: F401 (found here by programs)
from mininet.node import Node, Switch, _LabSwitch  # noqa: F401 (found here by programs)
from mininet.util import ipStr, netParse, quietRun  # noqa: F401 (found here by programs)


class LinuxBridge(_LabSwitch):
    """A Linux bridge, with the spanning tree protocol if stp is true."""

    nextPrio = 100  # one that is made before others is rather the root

    def __init__(self, name: str, stp: bool = False, prio: Optional[int] = None, **kwargs: Any) -> None:
        self.stp = stp
        self.prio = prio or LinuxBridge.nextPrio
        LinuxBridge.nextPrio += 1
        super().__init__(name, **kwargs)

    def fabricControllers(self) -> List[str]:
        return ["none"]

    def fabricOptions(self, _fabric: Any) -> Dict[str, Any]:
        return {"dpid": self.dpid, "datapath": "bridge", **({"stp": True} if self.stp else {})}

    def connected(self) -> bool:
        """Whether it forwards: with the spanning tree protocol that takes a while."""
        if self.stp:
            self.fabric.ensure()
            states = self.cmd("cat /sys/class/net/%s/brif/*/state 2>/dev/null" % self.name)
            return {"3", "4"} >= {*states.split()}  # forwarding, blocking
        return True

    def dpctl(self, *args: Any) -> str:
        """Run brctl in place of ovs-ofctl."""
        return self.cmd("brctl", *args)


class NAT(Node):
    """Translates the addresses of a network. As addNAT() makes it, it is the lab's way out; one in a namespace hides its subnet
    behind its own address towards its other interfaces."""

    def __init__(self, name: str, subnet: str = "10.0/8", localIntf: Any = None, flush: bool = False, **params: Any) -> None:
        self.subnet, self.flush = subnet, flush
        self.localIntf = localIntf
        super().__init__(name, **params)

    def fabricKind(self) -> str:
        return "router" if self.inNamespace else "nat"

    def fabricOptions(self, fabric: Any) -> Dict[str, Any]:
        if not self.inNamespace:
            return {}
        number, prefix = netParse(self.subnet)
        return {**super().fabricOptions(fabric), "datapath": "kernel", "masquerade": ["%s/%d" % (ipStr(number), prefix)]}

    def setManualConfig(self, intf: Intf) -> None:
        """The lab keeps its devices out of sight of the machine's network manager; there is nothing to do."""

    def config(self, **params: Any) -> Dict[str, Any]:
        """The lab forwards and translates."""
        results = super().config(**params)
        self.localIntf = self.localIntf or self.defaultIntf()
        return results
