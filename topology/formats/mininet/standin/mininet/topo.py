"""Topo: a network as a graph of names, before any node is made."""
from mininet import _record as record
from mininet.util import irange, natural, naturalSeq


class MultiGraph:
    """A graph that may have several edges between two nodes, told apart by their keys."""

    def __init__(self):
        self.node, self.edge = {}, {}

    def add_node(self, node, attr_dict=None, **attrs):
        self.node[node] = {**(attr_dict or {}), **attrs}
        self.edge.setdefault(node, {})

    def add_edge(self, src, dst, key=None, attr_dict=None, **attrs):
        for end in (src, dst):
            if end not in self.node:
                self.add_node(end)
        entry = self.edge[src].setdefault(dst, {})
        self.edge[dst][src] = entry
        if key is None:
            key = max([k for k in entry if isinstance(k, int)], default=-1) + 1
        entry[key] = {**(attr_dict or {}), **attrs}
        return key

    def nodes(self, data=False):
        return self.node.items() if data else self.node.keys()

    def edges_iter(self, data=False, keys=False):
        seen = set()
        for src, neighbours in self.edge.items():
            for dst, entry in neighbours.items():
                if dst in seen:
                    continue
                for key, attrs in entry.items():
                    yield (src, dst) + ((key,) if keys else ()) + ((attrs,) if data else ())
            seen.add(src)

    def edges(self, data=False, keys=False):
        return list(self.edges_iter(data=data, keys=keys))

    def __getitem__(self, node):
        return self.edge[node]

    def __len__(self):
        return len(self.node)

    def convertTo(self, cls, data=False, keys=False):
        graph = cls()
        graph.add_nodes_from(self.nodes(data=data))
        graph.add_edges_from(self.edges(data=(data or keys), keys=keys))
        return graph


class Topo:
    def __init__(self, *args, **params):
        self.g = MultiGraph()
        self.hopts = params.pop("hopts", {})
        self.sopts = params.pop("sopts", {})
        self.lopts = params.pop("lopts", {})
        self.ports = {}
        self.build(*args, **params)

    def build(self, *_args, **_params):
        """Subclasses make their nodes and links here."""

    def addNode(self, name, **opts):
        self.g.add_node(name, **opts)
        self.places()[name] = record.here(), 0
        return name

    def addHost(self, name, **opts):
        return self.addNode(name, **(opts or self.hopts))

    def addSwitch(self, name, **opts):
        return self.addNode(name, isSwitch=True, **(opts or self.sopts))

    def addLink(self, node1, node2, port1=None, port2=None, key=None, **opts):
        given = port1 is not None, port2 is not None
        port1, port2 = self.addPort(node1, node2, port1, port2)
        info = {**(opts or self.lopts), "node1": node1, "node2": node2, "port1": port1, "port2": port2}
        key = self.g.add_edge(node1, node2, key, info)
        self.places()[node1, port1, node2, port2] = record.here(), record.sequence(), given
        return key

    def places(self):
        """Where in the user's file nodes and links were added, and which ports were given."""
        return self.__dict__.setdefault("_places", {})

    def addPort(self, src, dst, sport=None, dport=None):
        for end in (src, dst):
            self.ports.setdefault(end, {})
        if sport is None:
            sport = len(self.ports[src]) + self.isSwitch(src)
        if dport is None:
            dport = len(self.ports[dst]) + self.isSwitch(dst)
        self.ports[src][sport] = dst, dport
        self.ports[dst][dport] = src, sport
        return sport, dport

    def port(self, src, dst):
        found = [(sport, to[1]) for sport, to in self.ports[src].items() if to[0] == dst]
        return found[0] if len(found) == 1 else found

    def isSwitch(self, n):
        return bool(self.g.node[n].get("isSwitch", False))

    def nodes(self, sort=True):
        return self.sorted(self.g.nodes()) if sort else self.g.nodes()

    def switches(self, sort=True):
        return [n for n in self.nodes(sort) if self.isSwitch(n)]

    def hosts(self, sort=True):
        return [n for n in self.nodes(sort) if not self.isSwitch(n)]

    def iterLinks(self, withKeys=False, withInfo=False):
        for _src, _dst, key, info in self.g.edges_iter(data=True, keys=True):
            yield (info["node1"], info["node2"]) + ((key,) if withKeys else ()) + ((info,) if withInfo else ())

    def links(self, sort=False, withKeys=False, withInfo=False):
        links = list(self.iterLinks(withKeys, withInfo))
        return sorted(links, key=lambda link: naturalSeq(link[:3 if withKeys else 2])) if sort else links

    def _linkEntry(self, src, dst, key=None):
        entry = self.g[src][dst]
        return entry, min(entry) if key is None else key

    def linkInfo(self, src, dst, key=None):
        entry, key = self._linkEntry(src, dst, key)
        return entry[key]

    def setlinkInfo(self, src, dst, info, key=None):
        entry, key = self._linkEntry(src, dst, key)
        entry[key] = info

    def nodeInfo(self, name):
        return self.g.node[name]

    def setNodeInfo(self, name, info):
        self.g.node[name] = info

    def convertTo(self, cls, data=True, keys=True):
        return self.g.convertTo(cls, data=data, keys=keys)

    @staticmethod
    def sorted(items):
        return sorted(items, key=natural)


class SingleSwitchTopo(Topo):
    def build(self, k=2, **_opts):
        self.k = k
        switch = self.addSwitch("s1")
        for h in irange(1, k):
            self.addLink(self.addHost("h%d" % h), switch)


class SingleSwitchReversedTopo(Topo):
    """The k-th host at port 1, the first at port k."""

    def build(self, k=2):
        self.k = k
        switch = self.addSwitch("s1")
        for h in irange(1, k):
            self.addLink(self.addHost("h%d" % h), switch, port1=0, port2=k - h + 1)


class MinimalTopo(SingleSwitchTopo):
    def build(self):
        return super().build(k=2)


class LinearTopo(Topo):
    """k switches in a row with n hosts each."""

    def build(self, k=2, n=1, **_opts):
        self.k, self.n = k, n
        last = None
        for i in irange(1, k):
            switch = self.addSwitch("s%d" % i)
            for j in irange(1, n):
                self.addLink(self.addHost("h%d" % i if n == 1 else "h%ds%d" % (j, i)), switch)
            if last:
                self.addLink(switch, last)
            last = switch
