r"""A Switch subclass that forwards with a bridge of its own, made by ip commands.

expect: Results: 0% dropped \(6/6 received\)
expect: forwarding: 3
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Switch
from mininet.topo import SingleSwitchTopo


class IPBridge(Switch):
    def start(self, controllers):
        self.cmd('ip link add', self.name, 'type bridge')
        for intf in self.intfList():
            if intf.name != 'lo':
                self.cmd('ip link set', intf, 'master', self.name)
                self.cmd('ip link set', intf, 'up')
        self.cmd('ip link set', self.name, 'up')

    def stop(self, deleteIntfs=True):
        self.cmd('ip link del', self.name)
        super().stop(deleteIntfs)

    def connected(self):
        return 'UP' in self.cmd('ip link show', self.name)


setLogLevel('info')
net = Mininet(topo=SingleSwitchTopo(3), switch=IPBridge, controller=None, waitConnected=True)
net.start()
net.pingAll()
print('forwarding: %s' % net['s1'].cmd('bridge link | grep -c forwarding').strip())
net.stop()
