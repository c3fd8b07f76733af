r"""A tree, and a prompt in which a class tries all the commands.

needs: iperf
input: nodes; net; links; intfs; dump; pingpair; h1 ping -c 1 h4; link s1 s2 down; pingall 5; link s1 s2 up; py h1.MAC(); px import os; sh echo shell; iperf h1 h2; time h1 true; noecho h1 echo quiet; quit
expect: available nodes are: \nc0 h1 h2 h3 h4 s1 s2 s3
expect: s2-eth1<->h1-eth0|h1-eth0<->s2-eth1
expect: <Host h4: h4-eth0:10.0.0.4 pid=\d+>
expect: 10.0.0.4 ping statistics
expect: Results: 66% dropped
expect: 00:00:00:00:00:01
expect: \*\*\* Iperf: testing TCP bandwidth between h1 and h2
expect: Elapsed time
"""
from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topolib import TreeTopo

if __name__ == '__main__':
    setLogLevel('info')
    net = Mininet(topo=TreeTopo(depth=2, fanout=2), autoSetMacs=True)
    net.start()
    CLI(net)
    net.stop()
