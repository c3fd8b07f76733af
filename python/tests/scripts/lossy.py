r"""Loss on a link, seen by pings and by UDP.

needs: iperf3
expect: between 10 and 60 of 100 lost
expect: UDP loses
"""
import json
import re
import time

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet

setLogLevel('warning')
net = Mininet(link=TCLink, autoStaticArp=True)
h1, h2, s1 = net.addHost('h1'), net.addHost('h2'), net.addSwitch('s1')
net.addController('c0')
net.addLink(h1, s1, loss=15)
net.addLink(h2, s1)
net.start()
out = h1.cmd('ping -q -c 100 -i 0.01 -W 1', h2.IP())
lost = 100 - int(re.search(r'(\d+) received', out).group(1))
print('between 10 and 60 of 100 lost' if 10 <= lost <= 60 else out)
server = h2.popen('iperf3 -s')
report, total = '', {}
for _ in range(10):  # also what sets the test up, and what reports it, is lost, and sent again later and later
    time.sleep(1)
    report = h1.cmd('timeout 12 iperf3 -u -b 1M -l 500 -t 3 -J -c', h2.IP())
    said = json.loads(report or '{}')
    total = said.get('end', {}).get('sum', {})
    if total.get('packets') and 'error' not in said:  # else the server's count did not come: the client's has no loss
        break
server.terminate()
print('UDP loses' if 5 < total.get('lost_percent', 0) < 30 else report)
net.stop()
