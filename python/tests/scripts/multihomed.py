r"""A host in two networks with names and addresses of its own for its interfaces, and parallel links.

expect: eth-red UP? *10.1.0.1/24|eth-red@\S+ +UP +10.1.0.1/24
expect: red: 0%
expect: blue: 0%
expect: between s1 and s2: 2 links
"""
import re

from mininet.log import setLogLevel
from mininet.net import Mininet

setLogLevel('warning')
net = Mininet(controller=None)
s1, s2 = [net.addSwitch(s, failMode='standalone') for s in ('s1', 's2')]
h1 = net.addHost('h1', ip=None)
red, blue = net.addHost('red', ip='10.1.0.2/24'), net.addHost('blue', ip='10.2.0.2/24')
net.addLink(h1, s1, intfName1='eth-red', params1={'ip': '10.1.0.1/24'})
net.addLink(h1, s2, intfName1='eth-blue')
net.addLink(red, s1)
net.addLink(blue, s2)
net.start()
h1.setIP('10.2.0.1/24', intf='eth-blue')
print(h1.cmd('ip -4 -br addr'))
for other in (red, blue):
    print('%s: %s' % (other, re.search(r'(\d+%) packet loss', h1.cmd('ping -c 1 -W 5', other.IP())).group(1)))
net.addLink(s1, s2)
net.addLink(s1, s2)
print('between s1 and s2: %d links' % len(net.linksBetween(s1, s2)))
net.stop()
