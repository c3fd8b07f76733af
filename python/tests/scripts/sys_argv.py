r"""How many hosts, and how fast their links: from the command line.

args: 5 10
expect: 5 hosts at 10 Mbit/s
expect: Results: 0% dropped \(20/20 received\)
"""
import sys

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo
from mininet.util import dumpNodeConnections


class Star(Topo):
    def build(self, n=2, bw=1):
        switch = self.addSwitch('s1')
        for h in range(n):
            host = self.addHost('h%s' % (h + 1), cpu=.5 / n)
            self.addLink(host, switch, bw=bw, delay='1ms', loss=0, max_queue_size=1000, use_htb=True)


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit('usage: %s HOSTS MBITS' % sys.argv[0])
    setLogLevel('info')
    n, bw = int(sys.argv[1]), float(sys.argv[2])
    net = Mininet(topo=Star(n=n, bw=bw), link=TCLink)
    net.start()
    dumpNodeConnections(net.hosts)
    print('%d hosts at %g Mbit/s' % (len(net.hosts), bw))
    net.pingAll()
    net.stop()
