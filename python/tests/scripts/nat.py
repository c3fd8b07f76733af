r"""A way out of the network: the hosts reach an address of the machine that is not in the lab.

expect: default via 10.0.0.3
expect: 1 received, 0% packet loss
expect: Results: 0% dropped
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo
from mininet.util import quietRun

setLogLevel('info')
quietRun('ip addr add 203.0.113.7/32 dev lo')
net = Mininet(topo=SingleSwitchTopo(2))
net.addNAT().configDefault()
net.start()
h1 = net.get('h1')
print(h1.cmd('ip route'))
print(h1.cmd('ping -c 1 -W 5 203.0.113.7'))
net.pingAll()
net.stop()
quietRun('ip addr del 203.0.113.7/32 dev lo')
