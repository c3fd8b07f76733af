"""LinuxBridge and NAT."""
from mininet.node import Node, Switch
from mininet.log import info, warn  # noqa: F401
from mininet.util import netParse, ipAdd, ipStr  # noqa: F401


class LinuxBridge(Switch):
    datapath_ = "bridge"
    learns = True
    nextPrio = 100

    def __init__(self, name, stp=False, prio=None, **kwargs):
        super().__init__(name, **kwargs)
        self.stp = stp
        self.params["stp"] = stp


class NAT(Node):
    """A router to the outside of the network."""

    def __init__(self, name, subnet="10.0/8", localIntf=None, flush=False, **params):
        super().__init__(name, **params)
        self.subnet, self.localIntf, self.forwards = subnet, localIntf, True
        self.isNAT = not self.inNamespace   # of the outside; else of the network it is in
        if self.inNamespace:
            self.masquerade.append(["%s/%d" % (ipStr(netParse(subnet)[0]), netParse(subnet)[1]), ""])

    def setManualConfig(self, intf):
        pass
