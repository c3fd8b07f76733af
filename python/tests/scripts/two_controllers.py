r"""Two controllers, each of which has switches of its own.

needs: ovs-vswitchd ovs-testcontroller
expect: Results: 0% dropped \(12/12 received\)
expect: s1 tcp:127.0.0.1:6671
expect: s3 tcp:127.0.0.1:6672
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Controller, OVSSwitch
from mininet.topolib import TreeTopo

setLogLevel('info')
c0 = Controller('c0', port=6671)
c1 = Controller('c1', port=6672)
cmap = {'s1': c0, 's2': c0, 's3': c1}


class MultiSwitch(OVSSwitch):
    """Connects to its own controller."""

    def start(self, controllers):
        return OVSSwitch.start(self, [cmap[self.name]])


net = Mininet(topo=TreeTopo(depth=2, fanout=2), switch=MultiSwitch, build=False, waitConnected=True)
for c in (c0, c1):
    net.addController(c)
net.build()
net.start()
net.pingAll()
for s in net.switches:
    print(s.name, s.cmd('ovs-vsctl get-controller', s).strip())
net.stop()
