r"""A controller that runs already, which the script has started itself.

needs: ovs-testcontroller
expect: Connecting|connected: True
expect: \*\*\* Results: 0% dropped \(6/6 received\)
"""
import subprocess
import time
from functools import partial

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import OVSSwitch, RemoteController
from mininet.topo import LinearTopo

setLogLevel('info')
controller = subprocess.Popen(['ovs-testcontroller', '--unixctl=none', 'ptcp:6673'])
time.sleep(1)
net = Mininet(topo=LinearTopo(k=3), controller=None, switch=partial(OVSSwitch, protocols='OpenFlow13'))
net.addController('c0', controller=RemoteController, ip='127.0.0.1', port=6673)
net.start()
print('connected:', net.waitConnected(timeout=20))
net.pingAll()
net.stop()
controller.terminate()
controller.wait()
