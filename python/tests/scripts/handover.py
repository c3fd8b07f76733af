r"""A host moves from one switch to another: its link is deleted and made anew while pings go on.

expect: before: 0%
expect: at s2: 0%
expect: s1 has 1 ports besides lo, s2 has 3
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import LinearTopo

setLogLevel('warning')
net = Mininet(topo=LinearTopo(2), waitConnected=True)
net.start()
h1, h2, s1, s2 = net.get('h1', 'h2', 's1', 's2')
print('before: %d%%' % net.ping([h1, h2]))
net.delLinkBetween(h1, s1)
link = net.addLink(h1, s2)
s2.attach(link.intf2)
h1.setIP('10.0.0.1/8', intf=link.intf1)
print('at s2: %d%%' % net.ping([h1, h2]))
print('s1 has %d ports besides lo, s2 has %d' % (len(s1.intfList()) - 1, len(s2.intfList()) - 1))
net.stop()
