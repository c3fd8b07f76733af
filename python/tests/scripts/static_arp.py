r"""Addresses that nobody need ask for: staticArp, and an entry by hand.

needs: tcpdump
expect: 10.0.0.3 .* 00:00:00:00:00:03 .*CM
expect: requests on the wire: 0
expect: 10.0.0.99 .* 02:00:00:00:00:99
"""
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

setLogLevel('warning')
net = Mininet(topo=SingleSwitchTopo(3), autoSetMacs=True, autoStaticArp=True)
net.start()
h1, h3 = net.get('h1', 'h3')
print(h1.cmd('arp -n'))
sniffer = h3.popen('tcpdump --immediate-mode -n -l -i h3-eth0 arp and ether broadcast', text=True)
while 'listening' not in sniffer.stderr.readline():
    time.sleep(0.1)
h1.cmd('ping -c 2 -i 0.2', h3.IP())
time.sleep(0.5)
sniffer.terminate()
print('requests on the wire: %d' % len([line for line in sniffer.communicate()[0].splitlines() if 'who-has 10.0.0.3' in line]))
h1.cmd('arp -s 10.0.0.99 02:00:00:00:00:99')
print(h1.cmd('arp -n | grep 99'))
net.stop()
