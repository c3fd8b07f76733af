r"""The congestion window while a flow runs, sampled with ss, into a CSV.

needs: ss iperf
expect: ,reno,
expect: samples: ([3-9]|\d\d)
"""
import csv
import re
import time

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import LinearTopo

setLogLevel('warning')
net = Mininet(topo=LinearTopo(2), link=TCLink)
net.start()
h1, h2 = net.get('h1', 'h2')
net.linksBetween(*net.get('s1', 's2'))[0].intf1.config(bw=10, delay='10ms', max_queue_size=50)
h2.cmd('iperf -s >/dev/null &')
time.sleep(2)
h1.cmd('sysctl -w net.ipv4.tcp_congestion_control=reno')
h1.cmd('iperf -t 4 -c', h2.IP(), '> client.txt &')
with open('cwnd.csv', 'w') as f:
    rows = csv.writer(f)
    begin = time.time()
    while time.time() - begin < 3.5:
        for name, cwnd in re.findall(r'(reno).*cwnd:(\d+)', h1.cmd('ss -tin dst', h2.IP())):
            rows.writerow(['%.2f' % (time.time() - begin), name, cwnd])
        time.sleep(0.2)
lines = open('cwnd.csv').read().split()
print(lines[0])
print('samples: %d' % len(lines))
h2.cmd('kill %iperf')
net.stop()
