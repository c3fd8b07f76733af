r"""A script that forgets net.stop(), and one that ends by an error: the lab is gone all the same.

run: python3 SCRIPT fail
code: 1
expect: ZeroDivisionError
expect: Results: 0% dropped
"""
import sys

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import MinimalTopo

setLogLevel('info')
net = Mininet(topo=MinimalTopo())
net.start()
net.pingAll()
if sys.argv[1:] == ['fail']:
    print(1 / 0)
