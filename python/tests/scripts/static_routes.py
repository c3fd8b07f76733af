r"""A line of routers with static routes, made by hand node by node.

needs: traceroute
expect: 0% packet loss
expect: ttl=61
expect: 3 routers on the way
"""
import re

from mininet.log import setLogLevel
from mininet.net import Mininet

setLogLevel('warning')
net = Mininet()
h1 = net.addHost('h1', ip='10.1.0.2/24', defaultRoute='via 10.1.0.1')
h2 = net.addHost('h2', ip='10.2.0.2/24', defaultRoute='via 10.2.0.1')
r1, r2, r3 = [net.addHost('r%d' % i, ip=None) for i in (1, 2, 3)]
net.addLink(h1, r1, intfName2='r1-lan', params2={'ip': '10.1.0.1/24'})
net.addLink(r1, r2, params1={'ip': '10.12.0.1/30'}, params2={'ip': '10.12.0.2/30'})
net.addLink(r2, r3, params1={'ip': '10.23.0.1/30'}, params2={'ip': '10.23.0.2/30'})
net.addLink(r3, h2, intfName1='r3-lan', params1={'ip': '10.2.0.1/24'})
net.build()
net.start()
for r in (r1, r2, r3):
    r.cmd('sysctl -w net.ipv4.ip_forward=1')
r1.cmd('ip route add 10.2.0.0/24 via 10.12.0.2')
r2.cmd('ip route add 10.1.0.0/24 via 10.12.0.1 && ip route add 10.2.0.0/24 via 10.23.0.2')
r3.cmd('route add -net 10.1.0.0 netmask 255.255.255.0 gw 10.23.0.1')
print(h1.cmd('ping -c 2 -i 0.2 %s' % h2.IP()))
trace = h1.cmd('traceroute -n -w 1 -q 1 10.2.0.2')
print(trace, len(re.findall(r'^ *\d+ ', trace, re.M)) - 1, 'routers on the way')
net.stop()
