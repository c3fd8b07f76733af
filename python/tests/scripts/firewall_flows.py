r"""A firewall as an exercise has it: entries with a higher priority than the controller's drop what must not pass.

needs: ovs-ofctl wget
expect: h1 -> X h3 \nh2 -> X h3 \nh3 -> h1 h2
expect: web: refused
expect: web: ok
"""
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

setLogLevel('info')
net = Mininet(topo=SingleSwitchTopo(3), autoSetMacs=True)
net.start()
net.waitConnected()
h1, h2, h3, s1 = net.get('h1', 'h2', 'h3', 's1')
h3.cmd('echo hello > index.html; python3 -m http.server 80 >/dev/null 2>&1 &')
s1.dpctl('add-flow', 'priority=70000,icmp,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:02,actions=drop', '-O OpenFlow13')
s1.dpctl('add-flow', 'priority=60000,icmp,nw_src=10.0.0.1,nw_dst=10.0.0.2,actions=drop')
s1.dpctl('add-flow', 'priority=60000,icmp,nw_src=10.0.0.2,nw_dst=10.0.0.1,actions=drop')
net.pingAll(timeout='5')
s1.dpctl('add-flow', 'priority=60001,tcp,tp_dst=80,actions=drop')
time.sleep(1)
get = 'wget -q -O - -T %d -t 1 %s >/dev/null && echo web: ok || echo web: refused'
print(h1.cmd(get % (2, h3.IP())))
s1.dpctl('--strict del-flows' if False else 'del-flows', 'tcp,tp_dst=80')
print(h1.cmd(get % (20, h3.IP())))
h3.cmd('kill %python3; wait; rm index.html')
net.stop()
