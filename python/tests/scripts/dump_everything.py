r"""What people print of a network before they do anything.

expect: h1 h1-eth0:s1-eth1
expect: s2 lo:  s2-eth1:h2-eth0 s2-eth2:s1-eth2
expect: s1-eth1:1 s1-eth2:2
expect: \['h1-eth0'\] 10.0.0.1 [0-9a-f:]{17} 0000000000000001
expect: (<TCLink|h1-eth0<->s1-eth1)
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import LinearTopo
from mininet.util import dumpNetConnections, dumpNodeConnections, dumpPorts

setLogLevel('info')
net = Mininet(topo=LinearTopo(2))
net.start()
dumpNodeConnections(net.hosts)
dumpNetConnections(net)
dumpPorts(net.switches)
h1 = net['h1']
print(h1.intfNames(), h1.IP(), h1.MAC(), net['s1'].dpid)
for link in net.links:
    print(link, link.intf1.node, link.intf2.node, link.status())
for name in net:
    print(name, end=' ')
print(len(net), 'h1' in net, net.keys(), [str(v) for v in net.values()])
net.stop()
