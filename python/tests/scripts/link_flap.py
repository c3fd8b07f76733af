r"""A ring of switches loses a link, and pings go the other way; then a host loses its only one.

expect: whole: 0%
expect: without s1-s2: 0%
expect: without h1-s1: 100%
expect: again: 0%
"""
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo


class Ring(Topo):
    def build(self, n=3):
        switches = [self.addSwitch('s%d' % (i + 1)) for i in range(n)]
        for i, s in enumerate(switches):
            self.addLink(s, switches[(i + 1) % n])
            self.addLink(s, self.addHost('h%d' % (i + 1)))


setLogLevel('warning')
net = Mininet(topo=Ring())
net.start()
pair = net.get('h1', 'h2')


def loss():
    for _ in range(10):
        lost = net.ping(pair, timeout='1')
        if lost == 0:
            break
        time.sleep(0.5)
    return lost


print('whole: %d%%' % loss())
net.configLinkStatus('s1', 's2', 'down')
print('without s1-s2: %d%%' % loss())
net.configLinkStatus('h1', 's1', 'down')
print('without h1-s1: %d%%' % net.ping(pair, timeout='1'))
net.configLinkStatus('h1', 's1', 'up')
net.configLinkStatus('s1', 's2', 'up')
print('again: %d%%' % loss())
net.stop()
