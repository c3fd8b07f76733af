#!/usr/bin/env python3
r"""Three subnets around a Linux router; ends in a prompt.

needs: traceroute
input: pingall; r0 ip route; h1 traceroute -n -w1 h3; exit
expect: Results: 0% dropped \(12/12 received\)
expect: 172.16.0.0/12 dev r0-eth2
expect:  1  192.168.1.1 .*\n 2  10.0.0.100
"""
from mininet.cli import CLI
from mininet.log import info, setLogLevel
from mininet.net import Mininet
from mininet.node import Node
from mininet.topo import Topo


class LinuxRouter(Node):
    """A node that forwards."""

    def config(self, **params):
        super(LinuxRouter, self).config(**params)
        self.cmd('sysctl net.ipv4.ip_forward=1')

    def terminate(self):
        self.cmd('sysctl net.ipv4.ip_forward=0')
        super(LinuxRouter, self).terminate()


class NetworkTopo(Topo):
    def build(self, **_opts):
        router = self.addNode('r0', cls=LinuxRouter, ip='192.168.1.1/24')
        s1, s2, s3 = [self.addSwitch(s) for s in ('s1', 's2', 's3')]
        self.addLink(s1, router, intfName2='r0-eth1', params2={'ip': '192.168.1.1/24'})
        self.addLink(s2, router, intfName2='r0-eth2', params2={'ip': '172.16.0.1/12'})
        self.addLink(s3, router, intfName2='r0-eth3', params2={'ip': '10.0.0.1/8'})
        h1 = self.addHost(name='h1', ip='192.168.1.100/24', defaultRoute='via 192.168.1.1')
        h2 = self.addHost(name='h2', ip='172.16.0.100/12', defaultRoute='via 172.16.0.1')
        h3 = self.addHost(name='h3', ip='10.0.0.100/8', defaultRoute='via 10.0.0.1')
        for h, s in [(h1, s1), (h2, s2), (h3, s3)]:
            self.addLink(h, s)


if __name__ == '__main__':
    setLogLevel('info')
    net = Mininet(topo=NetworkTopo(), waitConnected=True)
    net.start()
    info('*** Routing Table on Router:\n')
    info(net['r0'].cmd('route'))
    CLI(net)
    net.stop()
