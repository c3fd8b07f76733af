r"""tcpdump in a host writes a file, in a switch it prints; both see the pings.

needs: tcpdump
expect: in the file: 6 packets
expect: in the switch: seen
"""
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import LinearTopo

setLogLevel('warning')
net = Mininet(topo=LinearTopo(2), autoStaticArp=True)
net.start()
h1, h2, s1 = net.get('h1', 'h2', 's1')
h1.cmd('ping -c 1', h2.IP())
h2.cmd('touch tcpdump.log; tcpdump --immediate-mode -U -n -i h2-eth0 -w h2.pcap icmp 2>tcpdump.log &')
switch = s1.popen('tcpdump -n -l -c 2 -i s1-eth1 icmp', text=True)
while 'listening' not in open('tcpdump.log').read() or 'listening' not in switch.stderr.readline():
    time.sleep(0.1)
h1.cmd('ping -c 3 -i 0.2', h2.IP())
count, until = 'tcpdump -n -r h2.pcap 2>/dev/null | wc -l', time.monotonic() + 60
while int(h1.cmd(count)) < 6 and time.monotonic() < until:
    time.sleep(0.1)
h2.cmd('kill %tcpdump; wait')
print('in the file: %s packets' % h1.cmd(count).strip())
print('in the switch: %s' % ('seen' if 'ICMP echo request' in switch.communicate(timeout=20)[0] else 'not seen'))
net.stop()
