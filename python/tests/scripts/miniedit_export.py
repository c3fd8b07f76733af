#!/usr/bin/env python
r"""As MiniEdit writes it.

input: pingall; h2 ifconfig h2-eth0; exit
expect: Results: 0% dropped \(6/6 received\)
expect: inet 10.0.0.2
expect: \*\*\* Post configure switches and hosts
"""

from mininet.net import Mininet
from mininet.node import Controller, RemoteController, OVSController
from mininet.node import CPULimitedHost, Host, Node
from mininet.node import OVSKernelSwitch, UserSwitch
from mininet.node import IVSSwitch
from mininet.cli import CLI
from mininet.log import setLogLevel, info
from mininet.link import TCLink, Intf
from subprocess import call


def myNetwork():

    net = Mininet(topo=None,
                  build=False,
                  ipBase='10.0.0.0/8')

    info('*** Adding controller\n')
    c0 = net.addController(name='c0',
                           controller=Controller,
                           protocol='tcp',
                           port=6633)

    info('*** Add switches\n')
    s1 = net.addSwitch('s1', cls=OVSKernelSwitch)
    s2 = net.addSwitch('s2', cls=OVSKernelSwitch, dpid='0000000000000002')
    r3 = net.addHost('r3', cls=Node, ip='0.0.0.0')
    r3.cmd('sysctl -w net.ipv4.ip_forward=1')

    info('*** Add hosts\n')
    h1 = net.addHost('h1', cls=Host, ip='10.0.0.1', defaultRoute=None)
    h2 = net.addHost('h2', cls=Host, ip='10.0.0.2', defaultRoute=None)
    h3 = net.addHost('h3', cls=CPULimitedHost, ip='10.0.0.3', defaultRoute=None)
    h3.setCPUs(cores='0')
    h3.setCPUFrac(f=0.5, sched='cfs')

    info('*** Add links\n')
    s1s2 = {'bw': 20, 'delay': '5ms', 'max_queue_size': 200}
    net.addLink(s1, s2, cls=TCLink, **s1s2)
    net.addLink(h1, s1)
    net.addLink(h2, s2)
    net.addLink(h3, s2)
    net.addLink(r3, s1)

    info('*** Starting network\n')
    net.build()
    info('*** Starting controllers\n')
    for controller in net.controllers:
        controller.start()

    info('*** Starting switches\n')
    net.get('s1').start([c0])
    net.get('s2').start([c0])

    info('*** Post configure switches and hosts\n')
    s1.cmd('ifconfig s1 10.1.0.1')

    net.delHost(r3)
    CLI(net)
    net.stop()


if __name__ == '__main__':
    setLogLevel('info')
    myNetwork()
