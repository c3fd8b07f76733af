"""The drop-in's topologies; beside what they hold there, they know where in the user's file nodes and links were added."""
from mininet import _record as record
from mininet import _topo
from mininet._topo import *  # noqa: F401,F403

Topo = _topo.Topo
_addNode, _addLink = Topo.addNode, Topo.addLink


def _places(self):
    """Where nodes and links were added, the order of links, and which of their ports were given."""
    return self.__dict__.setdefault("_places", {})


def _recordNode(self, name, **opts):
    self.places()[name] = record.here(), 0
    return _addNode(self, name, **opts)


def _recordLink(self, node1, node2, port1=None, port2=None, key=None, **opts):
    key = _addLink(self, node1, node2, port1, port2, key, **opts)
    made = self.linkInfo(node1, node2, key)
    self.places()[node1, made["port1"], node2, made["port2"]] = record.here(), record.sequence(), (port1 is not None, port2 is not None)
    return key


Topo.places, Topo.addNode, Topo.addLink = _places, _recordNode, _recordLink
