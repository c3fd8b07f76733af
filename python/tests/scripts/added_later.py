r"""Hosts and switches that come when the network runs, and one that goes.

expect: new host: 0%
expect: behind a new switch: 0%
expect: hosts: h1 h3 h4
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import MinimalTopo

setLogLevel('warning')
net = Mininet(topo=MinimalTopo())
net.start()
h1, h2, s1 = net.get('h1', 'h2', 's1')
h3 = net.addHost('h3')
link = net.addLink(h3, s1)
s1.attach(link.intf2)
h3.configDefault(ip='10.0.0.3/8')
print('new host: %d%%' % net.ping([h1, h3]))
s2 = net.addSwitch('s2')
net.addLink(s2, s1)
h4 = net.addHost('h4', ip='10.0.0.4/8')
net.addLink(h4, s2)
s2.start(net.controllers)
h4.configDefault()
print('behind a new switch: %d%%' % net.ping([h1, h4]))
net.delHost(h2)
print('hosts:', *[h.name for h in net.hosts])
net.stop()
