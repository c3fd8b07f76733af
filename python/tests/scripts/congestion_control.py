r"""Two hosts with another congestion control each.

needs: iperf
expect: h1 reno
expect: h2 (cubic|bbr)
expect: reno at h1 carries traffic
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import MinimalTopo

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
client = h1.cmd('sleep 2; iperf -t 4 -c', h2.IP(), '& sleep 3; ss -ti dst', h2.IP())
h1.cmd('wait')
print('reno at h1 carries traffic' if 'reno' in client and 'cwnd' in client else client)
server.kill()
net.stop()
