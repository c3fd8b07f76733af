r"""Links with bandwidth and delay, measured with net.iperf and pings.

needs: iperf
expect: h1-h2: ([6-9]|1[0-2])\.?\d* Mbits/sec
expect: h3-h4: [345]\.?\d* Mbits/sec
expect: round trip: [4-9]\d\.
"""
import re

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo


class Bottlenecks(Topo):
    def build(self):
        s1 = self.addSwitch('s1')
        for n, options in enumerate((dict(bw=10), dict(bw=100), dict(bw=5, delay='20ms', max_queue_size=100), dict(bw=100)), 1):
            self.addLink(self.addHost('h%d' % n), s1, **options)


setLogLevel('warning')
net = Mininet(topo=Bottlenecks(), link=TCLink, autoStaticArp=True)
net.start()
for a, b in (('h1', 'h2'), ('h3', 'h4')):
    rates = net.iperf(net.get(a, b), seconds=4)
    print('%s-%s: %s' % (a, b, rates[0]))
out = net['h3'].cmd('ping -c 4 -i 0.2', net['h4'].IP())
print('round trip: %s' % re.search(r'= [\d.]+/([\d.]+)/', out).group(1))
net.stop()
