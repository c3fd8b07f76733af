r"""A Controller subclass that starts a program, and ends it.

needs: ovs-testcontroller
expect: listening at 6674: True
expect: Results: 0% dropped \(2/2 received\)
expect: afterwards: False
"""
import socket
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Controller
from mininet.topo import MinimalTopo


class TestController(Controller):
    def __init__(self, name, port=6674, **kwargs):
        Controller.__init__(self, name, port=port, command='ovs-testcontroller', cargs='--unixctl=none ptcp:%s', **kwargs)


def listening():
    with socket.socket() as s:
        return s.connect_ex(('127.0.0.1', 6674)) == 0


setLogLevel('info')
net = Mininet(topo=MinimalTopo(), controller=TestController, waitConnected=True)
net.start()
print('listening at 6674: %s' % listening())
net.pingAll()
net.stop()
time.sleep(0.5)
print('afterwards: %s' % listening())
