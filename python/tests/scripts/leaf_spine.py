r"""A leaf-spine fabric without a controller: every flow entry is written by hand, with a group that balances.

needs: ovs-ofctl
expect: Results: 0% dropped \(12/12 received\)
expect: type=select,bucket=actions=output
expect: uplinks of l1 that carried packets: [12]
"""
import os
import re

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo


class LeafSpine(Topo):
    def build(self, leaves=2, spines=2, hosts=2):
        spine = [self.addSwitch('s%d' % (n + 1), protocols='OpenFlow13') for n in range(spines)]
        for n in range(1, leaves + 1):
            leaf = self.addSwitch('l%d' % n, dpid='%x' % (100 + n), protocols='OpenFlow13')
            for h in range(hosts):
                self.addLink(leaf, self.addHost('h%d%d' % (n, h + 1), ip='10.%d.0.%d/8' % (n, h + 1), mac='00:00:00:00:%02x:%02x' % (n, h + 1)))
            for s in spine:
                self.addLink(leaf, s)


setLogLevel('info')
net = Mininet(topo=LeafSpine(), controller=None, autoStaticArp=True)
net.start()
for n in (1, 2):
    os.system('ovs-ofctl -O OpenFlow13 add-group l%d group_id=1,type=select,bucket=output:3,bucket=output:4' % n)
    for h in (1, 2):
        os.system('ovs-ofctl -O OpenFlow13 add-flow l%d dl_dst=00:00:00:00:%02x:%02x,actions=output:%d' % (n, n, h, h))
    os.system('ovs-ofctl -O OpenFlow13 add-flow l%d ip,nw_dst=10.%d.0.0/16,actions=group:1' % (n, 3 - n))
    for s in net.get('s1', 's2'):
        s.dpctl('add-flow', 'ip,nw_dst=10.%d.0.0/16,actions=output:%d' % (n, n), '-O OpenFlow13')
net.pingAll()
print(net['l1'].dpctl('dump-groups', '-O OpenFlow13'))
ports = net['l1'].dpctl('dump-ports', '-O OpenFlow13')
used = [p for p in ('3', '4') if re.search(r'port +"?(l1-eth)?%s"?: rx.*\n *tx pkts=([2-9]|\d\d+)' % p, ports)]
print('uplinks of l1 that carried packets: %d' % len(used))
net.stop()
