r"""Linux bridges in a loop, with the spanning tree protocol.

expect: Results: 0% dropped \(6/6 received\)
expect: bridges: 3
"""
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.nodelib import LinuxBridge

setLogLevel('info')
net = Mininet(switch=LinuxBridge, controller=None)
switches = [net.addSwitch('s%d' % i, stp=True, prio=1000 * i) for i in (1, 2, 3)]
for i, s in enumerate(switches):
    net.addLink(s, net.addHost('h%d' % (i + 1)))
    net.addLink(s, switches[i - 1])
net.start()
for _ in range(60):
    if net.ping(net.hosts[:2], timeout='1') == 0:
        break
    time.sleep(1)
net.pingAll()
print('bridges: %d' % sum('stp_state 1' in s.cmd('ip -d link show', s) or s.cmd('cat /sys/class/net/%s/bridge/stp_state' % s).strip() == '1' for s in switches))
net.stop()
