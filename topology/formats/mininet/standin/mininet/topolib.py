"""Trees and tori."""
from mininet.net import Mininet
from mininet.topo import Topo


class TreeTopo(Topo):
    def build(self, depth=1, fanout=2):
        self.hostNum = self.switchNum = 1
        self.addTree(depth, fanout)

    def addTree(self, depth, fanout):
        if depth <= 0:
            self.hostNum += 1
            return self.addHost("h%d" % (self.hostNum - 1))
        node = self.addSwitch("s%d" % self.switchNum)
        self.switchNum += 1
        for _ in range(fanout):
            self.addLink(node, self.addTree(depth - 1, fanout))
        return node


def TreeNet(depth=1, fanout=2, **kwargs):
    return Mininet(TreeTopo(depth, fanout), **kwargs)


class TorusTopo(Topo):
    def build(self, x, y, n=1):
        if x < 3 or y < 3:
            raise Exception("Please use 3x3 or greater for compatibility with 2.1")
        places = [(i, j) for i in range(x) for j in range(y)]
        for i, j in places:
            name = "%dx%d" % (i + 1, j + 1)
            switch = self.addSwitch("s" + name, dpid="%x" % (256 * (i + 1) + j + 1))
            for k in range(n):
                self.addLink(self.addHost("h" + name + ("x%d" % (k + 1) if n > 1 else "")), switch)
        for i, j in places:
            here = "s%dx%d" % (i + 1, j + 1)
            self.addLink(here, "s%dx%d" % (i + 1, (j + 1) % y + 1))
            self.addLink(here, "s%dx%d" % ((i + 1) % x + 1, j + 1))
