r"""Round trips of all pairs as numbers.

expect: h1->h2: 1/1, rtt min/avg/max/mdev \d+\.\d{3}/
expect: mean of 6 pairs: [2-9]\d\.
"""
from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo
from mininet.util import custom

setLogLevel('info')
net = Mininet(topo=SingleSwitchTopo(3), link=custom(TCLink, delay='5ms', bw=100))
net.start()
net.pingAll()
results = net.pingAllFull()
times = [r[2][3] for r in results]
print('mean of %d pairs: %.2f ms' % (len(times), sum(times) / len(times)))
net.stop()
