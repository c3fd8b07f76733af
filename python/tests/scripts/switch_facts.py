r"""What a lab sheet asks of a switch: its description, ports, tables; at the prompt, in the switch and in the script.

needs: ovs-ofctl ovs-vswitchd
input: sh ovs-vsctl show; s1 ovs-ofctl show s1; dpctl dump-ports 1; sh ovs-ofctl dump-flows s1; exit
expect: ovs_version
expect: OFPT_FEATURES_REPLY .*dpid:0000000000000001
expect: Bridge s1
expect: OFPST_PORT reply
expect: priority=0
"""
import os

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

setLogLevel('info')
net = Mininet(topo=SingleSwitchTopo(2), waitConnected=True)
net.start()
net.pingAll()
s1 = net['s1']
print(s1.vsctl('list Open_vSwitch'))
print(s1.dpctl('show'))
os.system('ovs-vsctl list-br')
CLI(net)
net.stop()
