r"""A fat-tree of bridges with the spanning tree protocol, by Open vSwitch or what stands for it.

args: 4
expect: 20 switches, 16 hosts, 48 links
expect: Results: 0% dropped \(240/240 received\)
"""
import sys
import time

from mininet.log import output, setLogLevel
from mininet.net import Mininet
from mininet.node import OVSKernelSwitch
from mininet.topo import Topo


class FatTree(Topo):
    def __init__(self, k):
        self.k = k
        super(FatTree, self).__init__()

    def build(self):
        half = self.k // 2
        opts = dict(cls=OVSKernelSwitch, failMode='standalone', stp=True)
        core = [self.addSwitch('c%d' % (i + 1), dpid='%016x' % (0x1000 + i), **opts) for i in range(half * half)]
        hosts = 0
        for pod in range(self.k):
            aggs = [self.addSwitch('a%d%d' % (pod, i), dpid='%016x' % (0x2000 + pod * half + i), **opts) for i in range(half)]
            edges = [self.addSwitch('e%d%d' % (pod, i), dpid='%016x' % (0x3000 + pod * half + i), **opts) for i in range(half)]
            for i, agg in enumerate(aggs):
                for j in range(half):
                    self.addLink(agg, core[i * half + j])
                for edge in edges:
                    self.addLink(agg, edge)
            for edge in edges:
                for _ in range(half):
                    hosts += 1
                    self.addLink(edge, self.addHost('h%d' % hosts))


if __name__ == '__main__':
    setLogLevel('output')
    net = Mininet(topo=FatTree(int(sys.argv[1])), controller=None)
    net.start()
    output('%d switches, %d hosts, %d links\n' % (len(net.switches), len(net.hosts), len(net.links)))
    for _ in range(30):  # the spanning tree
        if net.ping([net['h1'], net['h16']], timeout='1') == 0:
            break
        time.sleep(2)
    net.pingAll()
    net.stop()
