"""A network as names: nodes, links and their options, before anything of it is made."""
from __future__ import annotations

from dataclasses import dataclass, field
from itertools import filterfalse
from typing import Any, Callable, Dict, FrozenSet, Hashable, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

from mininet.util import irange, natural, naturalSeq

Info = Dict[str, Any]


@dataclass
class _Neighbours:
    """Two nodes, the one that was there first before the other, and what lies between them by key."""
    ends: Tuple[str, str]
    links: Dict[Hashable, Info] = field(default_factory=dict)

    def nextKey(self) -> int:
        return 1 + max((key for key in self.links if isinstance(key, int)), default=0)

    def _which(self, key: Hashable) -> Hashable:
        return min(self.links) if key is None else key  # type: ignore[type-var]

    def __getitem__(self, key: Hashable) -> Info:
        """What lies between them by a key; the first, if that is None."""
        return self.links[self._which(key)]

    def __setitem__(self, key: Hashable, info: Info) -> None:
        self.links[self._which(key)] = info


def _row(ends: Tuple[str, str], *more: Tuple[bool, Any]) -> Tuple[Any, ...]:
    """Two ends, with what is wanted behind."""
    return (*ends, *(what for wanted, what in more if wanted))


class MultiGraph:
    """Nodes by name, and any number of edges between two of them. Edges have no direction; everything is listed in the order in
    which it has been added."""

    def __init__(self) -> None:
        self.node: Dict[str, Info] = {}
        self._pairs: Dict[FrozenSet[str], _Neighbours] = {}

    @property
    def edge(self) -> Dict[str, Dict[str, Dict[Hashable, Info]]]:
        """For each node its neighbours, and the edges to each by key."""
        near: Dict[str, Dict[str, Dict[Hashable, Info]]] = {name: {} for name in self.node}
        for pair in self._pairs.values():
            a, b = pair.ends
            near[a][b] = near[b][a] = pair.links
        return near

    def __getitem__(self, node: str) -> Dict[str, Dict[Hashable, Info]]:
        return self.edge[node]

    def __len__(self) -> int:
        return len(self.node)

    def between(self, *ends: str) -> _Neighbours:
        """The edges of two nodes."""
        return self._pairs[frozenset(ends)]

    def add_node(self, node: str, attr_dict: Optional[Info] = None, **attrs: Any) -> None:
        """Add a node; one that is there gets these attributes instead of its own."""
        self.node[node] = dict(attr_dict or {}, **attrs)

    def add_edge(self, src: str, dst: str, key: Hashable = None, attr_dict: Optional[Info] = None, **attrs: Any) -> Hashable:
        """Add an edge, and those of its ends that are missing; returns its key, which is a number unless one is given."""
        for name in (src, dst):
            self.node.setdefault(name, {})
        pair = self._pairs.get(frozenset((src, dst)))
        if pair is None:
            first = src if src == dst else next(name for name in self.node if name in (src, dst))
            pair = self._pairs[frozenset((src, dst))] = _Neighbours((first, dst if first == src else src))
        key = pair.nextKey() if key is None else key
        pair.links[key] = dict(attr_dict or {}, **attrs)
        return key

    def nodes(self, data: bool = False) -> Iterable[Any]:
        """The names, or with data (name, attributes)."""
        return self.node.items() if data else self.node.keys()

    def edges_iter(self, data: bool = False, keys: bool = False) -> Iterator[Tuple[Any, ...]]:
        """(end, end), with its key and its attributes behind if they are wanted; a node's edges before those of later nodes."""
        place = {name: number for number, name in enumerate(self.node)}
        for pair in sorted(self._pairs.values(), key=lambda p: place[p.ends[0]]):
            for key, attributes in pair.links.items():
                yield _row(pair.ends, (keys, key), (data, attributes))

    def edges(self, data: bool = False, keys: bool = False) -> List[Tuple[Any, ...]]:
        return [*self.edges_iter(data, keys)]

    def convertTo(self, cls: Callable[[], Any], data: bool = False, keys: bool = False) -> Any:
        """The same graph as another class has it: networkx.MultiGraph, or what has its methods. Keys come with attributes behind
        them, as networkx wants."""
        other = cls()
        other.add_nodes_from(self.nodes(data))
        other.add_edges_from(self.edges(data or keys, keys))
        return other


class Topo:
    """A network as names. Subclasses add nodes and links in build(), or after this constructor in their own. hopts, sopts and lopts
    are options of hosts, switches and links that are added without any."""

    def __init__(self, *args: Any, hopts: Optional[Info] = None, sopts: Optional[Info] = None, lopts: Optional[Info] = None,
                 **params: Any) -> None:
        self.hopts, self.sopts, self.lopts = (opts or {} for opts in (hopts, sopts, lopts))
        self.ports: Dict[str, Dict[int, Tuple[str, int]]] = {}  # node: its port: what is at the other end
        self.g = MultiGraph()
        self.build(*args, **params)

    def build(self, *_args: Any, **_params: Any) -> None:
        """What a subclass consists of; it gets the constructor's arguments."""

    # Adding

    def addNode(self, name: str, **opts: Any) -> str:
        self.g.add_node(name, opts)
        return name

    def addHost(self, name: str, **opts: Any) -> str:
        return self.addNode(name, **(opts or self.hopts))

    def addSwitch(self, name: str, **opts: Any) -> str:
        return self.addNode(name, **{"isSwitch": True, **(opts or self.sopts)})

    def addLink(self, node1: str, node2: str, port1: Optional[int] = None, port2: Optional[int] = None, key: Hashable = None,
                **opts: Any) -> Hashable:
        """Link two nodes, at their next ports unless others are said; returns the link's key."""
        ports = self.addPort(node1, node2, sport=port1, dport=port2)
        ends = {"node1": node1, "node2": node2, **dict(zip(("port1", "port2"), ports))}
        return self.g.add_edge(node1, node2, key=key, attr_dict={**(opts or self.lopts), **ends})

    def addPort(self, src: str, dst: str, sport: Optional[int] = None, dport: Optional[int] = None) -> Tuple[int, int]:
        """Take a port of each of two nodes for a link; returns both."""
        mine, theirs = (self.ports.setdefault(name, {}) for name in (src, dst))
        here = self._nextPort(src) if sport is None else sport
        there = self._nextPort(dst) if dport is None else dport
        mine[here], theirs[there] = (dst, there), (src, here)
        return here, there

    def _nextPort(self, name: str) -> int:
        """Hosts count their ports from 0, switches from 1."""
        return len(self.ports[name]) + int(self.isSwitch(name))

    def _star(self, switch: str, hosts: Mapping[str, Optional[int]], **opts: Any) -> str:
        """Add a switch, and hosts linked to it: at the port that is said for each, or the next."""
        self.addSwitch(switch, **opts)
        for host, port in hosts.items():
            self.addLink(self.addHost(host), switch, port2=port)
        return switch

    # Asking

    def isSwitch(self, n: str) -> bool:
        return bool(self.nodeInfo(n).get("isSwitch"))

    def nodes(self, sort: bool = True) -> Iterable[str]:
        names = self.g.nodes()
        return self.sorted(names) if sort else names

    def switches(self, sort: bool = True) -> List[str]:
        return list(filter(self.isSwitch, self.nodes(sort)))

    def hosts(self, sort: bool = True) -> List[str]:
        """All that are no switches."""
        return list(filterfalse(self.isSwitch, self.nodes(sort)))

    def iterLinks(self, withKeys: bool = False, withInfo: bool = False) -> Iterator[Tuple[Any, ...]]:
        """(node1, node2) as they were given to addLink, with the link's key and options behind if they are wanted."""
        for *_ends, key, info in self.g.edges_iter(True, True):
            yield _row((info["node1"], info["node2"]), (withKeys, key), (withInfo, info))

    def links(self, sort: bool = False, withKeys: bool = False, withInfo: bool = False) -> List[Tuple[Any, ...]]:
        """As iterLinks, as a list; with sort by names, and by keys if they are wanted."""
        rows = self.iterLinks(withKeys, withInfo)
        return sorted(rows, key=lambda row: naturalSeq(row[:2 + withKeys])) if sort else [*rows]

    def port(self, src: str, dst: str) -> Union[Tuple[int, int], List[Tuple[int, int]]]:
        """The ports (of src, of dst) of the link between two nodes; a list of such pairs unless there is one link."""
        pairs = [(here, there) for here, (name, there) in self.ports[src].items() if name == dst]
        return pairs[0] if len(pairs) == 1 else pairs

    # Options of what is there; of several links between two nodes the first one's, unless a key is said

    def nodeInfo(self, name: str) -> Info:
        return self.g.node[name]

    def setNodeInfo(self, name: str, info: Info) -> None:
        self.g.node[name] = info

    def linkInfo(self, src: str, dst: str, key: Hashable = None) -> Info:
        return self.g.between(src, dst)[key]

    def setlinkInfo(self, src: str, dst: str, info: Info, key: Hashable = None) -> None:
        self.g.between(src, dst)[key] = info

    def convertTo(self, cls: Callable[[], Any], data: bool = True, keys: bool = True) -> Any:
        """The graph as another class has it, networkx.MultiGraph for one."""
        return self.g.convertTo(cls, data, keys)

    @staticmethod
    def sorted(items: Iterable[str]) -> List[str]:
        """Names with their numbers in order: h2 before h10."""
        return sorted(items, key=natural)


def _numbered(kind: str, count: int) -> List[str]:
    return [kind + str(number) for number in irange(1, count)]


class SingleSwitchTopo(Topo):
    """A switch with k hosts."""

    def build(self, k: int = 2, **_opts: Any) -> None:
        self.k = k
        self._star("s1", dict.fromkeys(_numbered("h", k)))


class SingleSwitchReversedTopo(Topo):
    """A switch with k hosts, the first of them at the last port."""

    def build(self, k: int = 2) -> None:
        self.k = k
        self._star("s1", dict(zip(_numbered("h", k), range(k, 0, -1))))


class MinimalTopo(SingleSwitchTopo):
    """A switch with two hosts."""

    def build(self) -> None:  # type: ignore[override]
        super().build()


class LinearTopo(Topo):
    """k switches in a row with n hosts each. A switch is linked to its hosts first, then to the switch before it."""

    def build(self, k: int = 2, n: int = 1, **_opts: Any) -> None:
        self.k, self.n = k, n
        row: List[str] = []
        for number, name in enumerate(_numbered("s", k), 1):
            hosts = ["h%d" % number] if n == 1 else [host + name for host in _numbered("h", n)]
            self._star(name, dict.fromkeys(hosts))
            if row:
                self.addLink(name, row[-1])
            row.append(name)
