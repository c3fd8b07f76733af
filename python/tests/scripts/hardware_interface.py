r"""A real interface of the machine (here one end of a veth pair) as a port of a switch.

expect: outside answers: 0% packet loss
expect: the interface is back: True
"""
import os
import re

from mininet.link import Intf
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo
from mininet.util import quietRun

setLogLevel('warning')
# nat.py, which may run beside this one, gives the machine a way to 10.0.0.0/8.
name = 'hw%d' % (os.getpid() % 10000)
quietRun('ip link add %s type veth peer name %s-far' % (name, name))
quietRun('ip addr add 198.51.100.77/24 dev %s-far' % name)
quietRun('ip link set %s-far up' % name)
net = Mininet(topo=SingleSwitchTopo(2), ipBase='198.51.100.0/24')
switch = net.switches[0]
Intf(name, node=switch)
net.start()
out = net['h1'].cmd('ping -c 2 -i 0.3 198.51.100.77')
print('outside answers:', re.search(r'\d+% packet loss', out).group())
net.stop()
print('the interface is back: %s' % (name in quietRun('ip -br link show %s' % name)))
quietRun('ip link del ' + name)
