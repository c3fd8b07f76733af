r"""Two hosts with another congestion control each.

needs: iperf
expect: h1 reno
expect: h2 (cubic|bbr)
expect: reno at h1 carries traffic
"""
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import MinimalTopo
from mininet.util import waitListening

setLogLevel('warning')
net = Mininet(topo=MinimalTopo())
net.start()
h1, h2 = net.get('h1', 'h2')
others = h1.cmd('sysctl -n net.ipv4.tcp_available_congestion_control').split()
others.remove('reno')
for host, name in ((h1, 'reno'), (h2, others[0])):
    host.cmd('sysctl -w net.ipv4.tcp_congestion_control=' + name)
    print(host, host.cmd('sysctl -n net.ipv4.tcp_congestion_control').strip())
server = h2.popen('iperf -s')
waitListening(h2, h2, 5001, timeout=20)
h1.cmd('iperf -t 60 -c', h2.IP(), '>/dev/null &')
client, until = '', time.monotonic() + 30
while not ('reno' in client and 'cwnd' in client) and time.monotonic() < until:
    client = h1.cmd('ss -ti dst', h2.IP())
h1.cmd('kill %iperf; wait')
print('reno at h1 carries traffic' if 'reno' in client and 'cwnd' in client else client)
server.kill()
net.stop()
