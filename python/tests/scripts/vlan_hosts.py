r"""Hosts in VLANs, by a Host class that makes the interface.

modules: 8021q
expect: h1 -> X h3 X
expect: h1-eth0.100
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Host
from mininet.topo import SingleSwitchTopo
from functools import partial


class VLANHost(Host):
    def config(self, vlan=100, **params):
        r = super(VLANHost, self).config(**params)
        intf = self.defaultIntf()
        self.cmd('ip addr flush dev %s' % intf)
        self.cmd('ip link add link %s name %s.%d type vlan id %d' % (intf, intf, vlan, vlan))
        self.cmd('ip link set %s.%d up; ip addr add %s dev %s.%d' % (intf, vlan, params['ip'], intf, vlan))
        newName = '%s.%d' % (intf, vlan)
        intf.name = newName
        self.nameToIntf[newName] = intf
        return r


setLogLevel('info')
net = Mininet(topo=None, controller=None)
s1 = net.addSwitch('s1', failMode='standalone')
for n, vlan in enumerate((100, 200, 100, 200), 1):
    net.addLink(net.addHost('h%d' % n, cls=partial(VLANHost, vlan=vlan)), s1)
net.start()
net.pingAll(timeout='5')
print(net['h1'].cmd('ip -br addr'))
net.stop()
