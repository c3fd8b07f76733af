r"""Directories that each host has for itself, one of them kept after the end.

expect: h1 sees h1, h2 sees h2
expect: kept: h1
expect: the machine's own is as before: True
"""
import os
from functools import partial

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Host
from mininet.topo import SingleSwitchTopo

setLogLevel('warning')
before = sorted(os.listdir('/var/log'))
kept = os.path.join(os.getcwd(), 'kept')
PrivateHost = partial(Host, privateDirs=[('/var/log', kept + '/%(name)s/log'), '/var/spool'])
net = Mininet(topo=SingleSwitchTopo(2), host=PrivateHost)
net.start()
for h in net.hosts:
    h.cmd('hostname=%s; echo %s > /var/log/name; echo %s > /var/spool/name' % (h, h, h))
print(', '.join('%s sees %s' % (h, h.cmd('cat /var/spool/name').strip()) for h in net.hosts))
net.stop()
print('kept:', open(kept + '/h1/log/name').read().strip())
print("the machine's own is as before: %s" % (sorted(os.listdir('/var/log')) == before))
