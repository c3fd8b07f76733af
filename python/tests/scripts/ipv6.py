r"""IPv6 addresses by hand, between two subnets with a router.

expect: from 2001:db8:2::2: icmp_seq=[1-3] ttl=63
expect: 0% packet loss
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo


class V6(Topo):
    def build(self):
        r = self.addHost('r1', ip=None)
        for n in (1, 2):
            s, h = self.addSwitch('s%d' % n), self.addHost('h%d' % n, ip=None)
            self.addLink(h, s)
            self.addLink(r, s)


setLogLevel('warning')
net = Mininet(topo=V6())
net.start()
h1, h2, r1 = net.get('h1', 'h2', 'r1')
r1.cmd('sysctl -w net.ipv6.conf.all.forwarding=1')
for n, h in ((1, h1), (2, h2)):
    r1.cmd('ip -6 addr add 2001:db8:%d::1/64 dev r1-eth%d nodad' % (n, n - 1))
    h.cmd('ip -6 addr add 2001:db8:%d::2/64 dev h%d-eth0 nodad' % (n, n))
    h.cmd('ip -6 route add default via 2001:db8:%d::1' % n)
print(h1.cmd('ping6 -c 3 -i 0.5 -W 5 2001:db8:2::2 || ping -6 -c 3 2001:db8:2::2'))
net.stop()
