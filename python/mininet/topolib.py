"""Trees and tori."""
from __future__ import annotations

from collections import Counter
from typing import Any

from mininet.net import Mininet
from mininet.topo import Topo


class TreeTopo(Topo):
    """Switches `depth` levels deep, with `fanout` switches below each, or hosts below the last."""

    def build(self, depth: int = 1, fanout: int = 2) -> None:
        self.made: Counter[str] = Counter()
        self.addTree(depth, fanout)

    def _next(self, kind: str) -> str:
        self.made[kind] += 1
        return kind + str(self.made[kind])

    def addTree(self, depth: int, fanout: int) -> str:
        """Add a tree, depth first, and return its root. A switch is linked to each tree below it when that is complete, so its
        last port leads up."""
        if depth < 1:
            return self.addHost(self._next("h"))
        root = self.addSwitch(self._next("s"))
        for _branch in range(fanout):
            self.addLink(root, self.addTree(depth - 1, fanout))
        return root


class TorusTopo(Topo):
    """x by y switches with n hosts each, a row's last one linked to its first, and so the columns'. A name tells the place."""

    def build(self, x: int, y: int, n: int = 1) -> None:
        if min(x, y) < 3:  # two would be linked twice
            raise Exception("a torus is at least 3 x 3, not %s x %s" % (x, y))
        places = [(row, column) for row in range(x) for column in range(y)]
        for row, column in places:
            host = self._at("h", row, column)
            hosts = [host] if n == 1 else ["%sx%d" % (host, number + 1) for number in range(n)]
            self._star(self._at("s", row, column), dict.fromkeys(hosts), dpid="%x" % ((row + 1) * 256 + column + 1))
        for row, column in places:
            for beside in ((row, (column + 1) % y), ((row + 1) % x, column)):
                self.addLink(self._at("s", row, column), self._at("s", *beside))

    @staticmethod
    def _at(kind: str, row: int, column: int) -> str:
        return "%s%dx%d" % (kind, row + 1, column + 1)


def TreeNet(depth: int = 1, fanout: int = 2, **kwargs: Any) -> Mininet:
    """A network that is a tree."""
    return Mininet(topo=TreeTopo(depth=depth, fanout=fanout), **kwargs)
