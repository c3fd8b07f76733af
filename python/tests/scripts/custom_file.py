r"""A file for mn --custom: topologies, tests, hosts and links of one's own.

run: mn --custom SCRIPT --topo mytopo,3 --link slow --host tagged --test mytest
expect: tag of h1: yes
expect: Results: 0% dropped
expect: round trip above 20 ms
"""
from functools import partial

from mininet.link import TCLink
from mininet.node import Host
from mininet.topo import Topo


class MyTopo(Topo):
    """n hosts left and right of two switches."""

    def build(self, n=2):
        left, right = self.addSwitch('s3'), self.addSwitch('s4')
        self.addLink(left, right)
        for i in range(n):
            self.addLink(self.addHost('h%d' % (i + 1)), (left, right)[i % 2])


class Tagged(Host):
    tag = 'yes'


def mytest(net):
    print('tag of h1:', net['h1'].tag)
    net.pingAll()
    out = net['h1'].cmd('ping -c 3 -i 0.2', net['h2'].IP())
    print('round trip above 20 ms' if float(out.split(' = ')[1].split('/')[0]) > 20 else out)


topos = {'mytopo': MyTopo}
links = {'slow': partial(TCLink, delay='6ms')}
hosts = {'tagged': Tagged}
tests = {'mytest': mytest}
