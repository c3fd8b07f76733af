r"""FRR's zebra and ospfd in three nodes, as Quagga is started in lab sheets: each with its own configuration, socket and pid file.

needs: /usr/lib/frr/ospfd
expect: 10.3.0.0/24 \[110/\d+\] via 10.12.0.2
expect: 0% packet loss
"""
import os
import shutil
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Node

FRR = '/usr/lib/frr'


class Router(Node):
    def config(self, **params):
        super(Router, self).config(**params)
        self.cmd('sysctl -w net.ipv4.ip_forward=1')

    def route(self, *networks):
        conf = '/tmp/%s-%s.conf' % (os.getpid(), self.name)
        with open(conf, 'w') as f:
            f.write('hostname %s\nrouter ospf\n' % self.name)
            for n in networks:
                f.write(' network %s area 0\n' % n)
            for i in self.intfList():
                f.write('interface %s\n ip ospf hello-interval 1\n ip ospf dead-interval 4\n' % i)
        sock = '/tmp/%s-%s.zserv' % (os.getpid(), self.name)
        vty = '--vty_socket /tmp/%s-%s.vty' % (os.getpid(), self.name)
        os.makedirs('/tmp/%s-%s.vty' % (os.getpid(), self.name))
        shutil.chown('/tmp/%s-%s.vty' % (os.getpid(), self.name), 'frr', 'frr')
        for daemon in ('zebra', 'ospfd'):
            self.cmd('%s/%s -d -f %s -z %s -i %s.%s.pid %s' % (FRR, daemon, conf, sock, conf, daemon, vty))

    def show(self, daemon, what):
        return self.cmd('vtysh --vty_socket /tmp/%s-%s.vty -d %s -c "show %s"' % (os.getpid(), self.name, daemon, what))

    def terminate(self):
        self.cmd('kill $(cat /tmp/%s-%s.conf.*.pid); rm -rf /tmp/%s-%s.*' % ((os.getpid(), self.name) * 2))
        super(Router, self).terminate()


setLogLevel('warning')
net = Mininet(controller=None)
r1, r2, r3 = [net.addHost('r%d' % i, cls=Router, ip=None) for i in (1, 2, 3)]
h1 = net.addHost('h1', ip='10.1.0.2/24', defaultRoute='via 10.1.0.1')
h3 = net.addHost('h3', ip='10.3.0.2/24', defaultRoute='via 10.3.0.1')
net.addLink(h1, r1, params2={'ip': '10.1.0.1/24'})
net.addLink(h3, r3, params2={'ip': '10.3.0.1/24'})
net.addLink(r1, r2, params1={'ip': '10.12.0.1/24'}, params2={'ip': '10.12.0.2/24'})
net.addLink(r2, r3, params1={'ip': '10.23.0.2/24'}, params2={'ip': '10.23.0.3/24'})
net.start()
r1.route('10.1.0.0/24', '10.12.0.0/24')
r2.route('10.12.0.0/24', '10.23.0.0/24')
r3.route('10.23.0.0/24', '10.3.0.0/24')
for _ in range(60):
    time.sleep(1)
    table = r1.show('zebra', 'ip route')
    if '10.3.0.0/24' in table:
        break
print(table)
print(h1.cmd('ping -c 1 -W 5', h3.IP()))
net.stop()
