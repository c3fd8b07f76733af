r"""Two private networks behind NATs, and a server between them that sees the NATs' addresses only.

needs: tcpdump
expect: private to server: 0% packet loss
expect: server to private: 100% packet loss
expect: seen from: 8.0.0.11
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.nodelib import NAT
from mininet.topo import Topo


class InternetTopo(Topo):
    def build(self, n=2):
        inet = self.addSwitch('s0')
        server = self.addHost('h0', ip='8.0.0.1/24')
        self.addLink(inet, server)
        for i in range(1, n + 1):
            local, subnet = '192.168.%d.1' % i, '192.168.%d.0/24' % i
            nat = self.addNode('nat%d' % i, cls=NAT, ip='8.0.0.1%d/24' % i, subnet=subnet, inetIntf='nat%d-eth0' % i, localIntf='nat%d-eth1' % i)
            switch = self.addSwitch('s%d' % i)
            self.addLink(nat, inet, intfName1='nat%d-eth0' % i)
            self.addLink(nat, switch, intfName1='nat%d-eth1' % i, params1={'ip': local + '/24'})
            host = self.addHost('h%d' % i, ip='192.168.%d.100/24' % i, defaultRoute='via ' + local)
            self.addLink(host, switch)


def loss(text):
    return '100% packet loss' if 'unreachable' in text else text[text.index('received') + 10:].split(',')[0]


setLogLevel('warning')
net = Mininet(topo=InternetTopo())
net.start()
h0, h1 = net.get('h0', 'h1')
server = h0.popen('tcpdump -n -c 1 -i h0-eth0 icmp', text=True)
while 'listening on' not in server.stderr.readline():
    pass
print('private to server:', loss(h1.cmd('ping -c 2 -i 0.3 8.0.0.1')))
print('seen from:', server.communicate(timeout=20)[0].split(' > ')[0].split()[-1])
print('server to private:', loss(h0.cmd('ping -c 1 -W 1 192.168.1.100')))
net.stop()
