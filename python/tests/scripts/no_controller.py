r"""A remote controller that nobody has started: the switches are secure, and nothing passes.

expect: Unable to contact the remote controller at 127.0.0.1:6699
expect: \*\*\* Results: 100% dropped \(0/2 received\)
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import RemoteController
from mininet.topo import MinimalTopo

setLogLevel('info')
net = Mininet(topo=MinimalTopo(), controller=lambda name: RemoteController(name, ip='127.0.0.1', port=6699))
net.start()
net.pingAll(timeout='1')
net.stop()
