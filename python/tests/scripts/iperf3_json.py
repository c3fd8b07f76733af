r"""iperf3 as a server and a client by popen, its JSON read.

needs: iperf3
expect: TCP (1[0-9]|2[01])\.\d Mbit/s
expect: UDP [45]\.\d Mbit/s, lost \d
"""
import json
import time

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

setLogLevel('warning')
net = Mininet(topo=SingleSwitchTopo(2), link=TCLink)
net.start()
client, server = net.get('h1', 'h2')
client.intf().config(bw=20, max_queue_size=200)
listening = server.popen('iperf3 -s -1')
time.sleep(2)
tcp = json.loads(client.cmd('iperf3 -c %s -t 4 -J' % server.IP()))
print('TCP %.1f Mbit/s' % (tcp['end']['sum_received']['bits_per_second'] / 1e6))
listening.wait()
listening = server.popen(['iperf3', '-s', '-1'])
time.sleep(2)
out, err, code = client.pexec('iperf3', '-u', '-b', '5M', '-c', server.IP(), '-t', '3', '-J')
udp = json.loads(out)['end']['sum']
print('UDP %.1f Mbit/s, lost %d' % (udp['bits_per_second'] / 1e6, udp['lost_packets']))
listening.wait()
net.stop()
