r"""Pings by popen from all hosts, their lines by pmonitor until a time is over; then they are interrupted.

expect: <h1>: PING 10.0.0.1
expect: <h4>: 64 bytes from 10.0.0.1
expect: ended by SIGINT: 4
"""
import signal
from signal import SIGINT
from time import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo
from mininet.util import pmonitor

setLogLevel('warning')
net = Mininet(topo=SingleSwitchTopo(4), autoSetMacs=True)
net.start()
popens = {h: h.popen('ping -i 0.5 %s' % net['h1'].IP(), universal_newlines=True) for h in net.hosts}
processes = list(popens.values())
end = time() + 3
for host, line in pmonitor(popens, timeoutms=500):
    if host:
        print('<%s>: %s' % (host.name, line), end='')
    if time() >= end:
        for p in popens.values():
            p.send_signal(SIGINT)
        end += 60
print('ended by SIGINT: %d' % sum(p.wait() in (0, -signal.SIGINT) for p in processes))
net.stop()
