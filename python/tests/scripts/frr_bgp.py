r"""Two autonomous systems: bgpd in each border router, announcing its own prefix; private directories for their sockets.

needs: /usr/lib/frr/bgpd
expect: 65002
expect: 10.2.0.0/24 .*via 192.0.2.2 dev r1-eth1 proto bgp
expect: h1 to h2: 0%
"""
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo
from mininet.node import Node

FRR = '/usr/lib/frr'
CONF = '''hostname %(name)s
router bgp %(own)d
 no bgp ebgp-requires-policy
 bgp router-id %(id)s
 timers bgp 1 3
 neighbor %(peer)s remote-as %(other)d
 neighbor %(peer)s timers connect 1
 address-family ipv4 unicast
  network %(prefix)s
'''


class Border(Node):
    def __init__(self, name, **params):
        params['privateDirs'] = ['/var/run/frr']
        super(Border, self).__init__(name, **params)

    def config(self, **params):
        super(Border, self).config(**params)
        self.cmd('sysctl -w net.ipv4.ip_forward=1')


class TwoAS(Topo):
    def build(self):
        for n in (1, 2):
            r = self.addHost('r%d' % n, cls=Border, ip='10.%d.0.1/24' % n)
            h = self.addHost('h%d' % n, ip='10.%d.0.2/24' % n, defaultRoute='via 10.%d.0.1' % n)
            self.addLink(r, h)
        self.addLink('r1', 'r2', params1={'ip': '192.0.2.1/24'}, params2={'ip': '192.0.2.2/24'})


setLogLevel('warning')
net = Mininet(topo=TwoAS(), controller=None)
net.start()
for n in (1, 2):
    r = net['r%d' % n]
    conf = CONF % dict(name=r.name, own=65000 + n, other=65003 - n, id='10.%d.0.1' % n, peer='192.0.2.%d' % (3 - n), prefix='10.%d.0.0/24' % n)
    r.cmd('cat > /var/run/frr/bgpd.conf <<END\n%sEND\n' % conf)
    r.cmd('chown -R frr:frr /var/run/frr')
    r.cmd('echo hostname %s > /var/run/frr/zebra.conf' % r)
    for daemon in ('zebra', 'bgpd'):
        r.cmd('cd /var/run/frr; %s/%s -d -f $PWD/%s.conf -i $PWD/%s.pid -z $PWD/zserv.api --vty_socket $PWD' % (FRR, daemon, daemon, daemon))
r1 = net['r1']
for _ in range(60):
    time.sleep(1)
    if '10.2.0.0/24' in r1.cmd('ip route'):
        break
print(r1.cmd('vtysh --vty_socket /var/run/frr -d bgpd -c "show bgp summary"'))
print(r1.cmd('ip route'))
print('h1 to h2: %d%%' % net.ping(net.get('h1', 'h2')))
for n in (1, 2):
    net['r%d' % n].cmd('kill $(cat /var/run/frr/*.pid)')
net.stop()
