"""What a network consists of: its nodes by kind and by name, and its links."""
from __future__ import annotations

import random
from typing import Any, Dict, Iterator, List, Optional, Tuple

from mininet.node import Controller, Node
from mininet.nodelib import NAT
from mininet.util import ipAdd, macColonHex


class Members:
    """The part of a network that holds nodes and links, adds and deletes them. It is a mapping from names to nodes.

    What is added without saying its class, address, MAC, core or port to listen at gets those of the network."""

    fabric: Any
    host: Any
    switch: Any
    controller: Any
    link: Any
    intf: Any
    ipBase: str
    ipBaseNum: int
    prefixLen: int
    nextIP: int
    nextCore: int
    numCores: int
    autoSetMacs: bool
    autoPinCpus: bool
    inNamespace: bool
    listenPort: Optional[int]

    def __init__(self) -> None:
        self.hosts: List[Any] = []
        self.switches: List[Any] = []
        self.controllers: List[Any] = []
        self.links: List[Any] = []
        self.nameToNode: Dict[str, Any] = {}

    # As a mapping

    def _kinds(self) -> Tuple[List[Any], ...]:
        return self.hosts, self.switches, self.controllers

    def __iter__(self) -> Iterator[str]:
        return (node.name for kind in self._kinds() for node in kind)

    def __len__(self) -> int:
        return sum(map(len, self._kinds()))

    def __contains__(self, item: object) -> bool:
        return item in self.nameToNode.keys()

    def __getitem__(self, key: str) -> Any:
        return self.getNodeByName(key)

    def __delitem__(self, key: str) -> None:
        self.delNode(self[key])

    def getNodeByName(self, *args: str) -> Any:
        """The node of a name, or a list of the nodes of several."""
        found = list(map(self.nameToNode.__getitem__, args))
        return found.pop() if len(args) == 1 else found

    def get(self, *args: str) -> Any:
        return self.getNodeByName(*args)

    def keys(self) -> List[str]:
        return list(self)

    def values(self) -> List[Any]:
        return list(map(self.getNodeByName, self))

    def items(self) -> Iterator[Tuple[str, Any]]:
        return ((name, self.nameToNode[name]) for name in self)

    # Adding nodes

    def _join(self, kind: List[Any], name: str, node: Any) -> Any:
        self.nameToNode[name] = node
        kind.append(node)
        return node

    def _identity(self) -> Dict[str, Any]:
        """What the next host is by itself: the counter goes on for each, also for one that will say its own address."""
        number = self.nextIP
        identity: Dict[str, Any] = {"ip": "%s/%d" % (ipAdd(number, self.prefixLen, self.ipBaseNum), self.prefixLen)}
        if self.autoSetMacs:
            identity["mac"] = macColonHex(number)
        if self.autoPinCpus:
            identity["cores"] = self.nextCore
            self.nextCore = (identity["cores"] + 1) % self.numCores
        self.nextIP = number + 1
        return identity

    def addHost(self, name: str, cls: Any = None, **params: Any) -> Any:
        """Add a host."""
        make = cls or self.host
        return self._join(self.hosts, name, make(name, **{**self._identity(), **params}))

    def addSwitch(self, name: str, cls: Any = None, **params: Any) -> Any:
        """Add a switch."""
        make, usual = cls or self.switch, {"listenPort": self.listenPort, "inNamespace": self.inNamespace}
        switch = make(name, **{**usual, **params})
        if self.listenPort and not self.inNamespace:
            self.listenPort += 1
        return self._join(self.switches, name, switch)

    def addController(self, name: Any = "c0", controller: Any = None, **params: Any) -> Any:
        """Add a controller: one of a class by its name, or a ready one in place of the name. A class may say that there is none."""
        if isinstance(name, Controller):
            name.join(self.fabric)
            return self._join(self.controllers, name.name, name)
        made = (controller or self.controller)(name, **params)
        return made and self._join(self.controllers, name, made)

    def addNAT(self, name: str = "nat0", connect: Any = True, inNamespace: bool = False, **params: Any) -> Any:
        """Add a way out of the lab, which is the gateway of all hosts. It is linked to the first switch, or to the node that
        connect is; without connect there is neither a link nor a gateway."""
        nat = self.addHost(name, NAT, **{"inNamespace": inNamespace, "subnet": self.ipBase, **params})
        if connect:
            self.addLink(nat, connect if isinstance(connect, Node) else self.switches[0])
            address, _, _length = nat.params["ip"].partition("/")
            for inside in (host for host in self.hosts if host.inNamespace):
                inside.setDefaultRoute("via " + address)
        return nat

    # Deleting nodes

    def delNode(self, node: Any, nodes: Optional[List[Any]] = None) -> None:
        """Delete a node, with its links. nodes is the list that has it, if that is known."""
        kind = [some for some in self._kinds() if node in some] if nodes is None else [nodes]
        node.stop(**({} if isinstance(node, Controller) else {"deleteIntfs": True}))
        node.terminate()
        self.links = [link for link in self.links if not {None, node} & set(_ends(link))]
        for some in kind:
            if node in some:
                some.remove(node)
        self.nameToNode.pop(node.name)

    def delHost(self, host: Any) -> None:
        self.delNode(host, self.hosts)

    def delSwitch(self, switch: Any) -> None:
        self.delNode(switch, self.switches)

    def delController(self, controller: Any) -> None:
        self.delNode(controller, self.controllers)

    # Links

    def addLink(self, node1: Any, node2: Any, port1: Optional[int] = None, port2: Optional[int] = None, cls: Any = None,
                **params: Any) -> Any:
        """Link two nodes, or the nodes of two names."""
        ends = [self[node] if isinstance(node, str) else node for node in (node1, node2)]
        own = {"port1": port1, "port2": port2, "intf": self.intf, "addr1": self.randMac(), "addr2": self.randMac()}
        made = (cls or self.link)(*ends, **{**{key: value for key, value in own.items() if value is not None}, **params})
        self.links.append(made)
        return made

    @staticmethod
    def randMac() -> str:
        """46 random bits, and two that say: given by hand, and to one device."""
        high, low = divmod(random.getrandbits(46), 1 << 40)
        return macColonHex((high << 2 | 2) << 40 | low)

    def linksBetween(self, node1: Any, node2: Any) -> List[Any]:
        wanted = {node1, node2}
        return [link for link in self.links if set(_ends(link)) == wanted]

    def delLink(self, link: Any) -> None:
        self.links.remove(link)
        link.delete()

    def delLinkBetween(self, node1: Any, node2: Any, index: int = 0, allLinks: bool = False) -> List[Any]:
        """Delete the links between two nodes, or the one of an index; returns what was deleted."""
        going = self.linksBetween(node1, node2)
        going = going if allLinks else [going[index]]
        for link in going:
            self.delLink(link)
        return going


def _ends(link: Any) -> Tuple[Any, Any]:
    """The nodes of a link; None for an end that is deleted."""
    first, second = (intf and intf.node for intf in (link.intf1, link.intf2))
    return first, second
