r"""A thread for each host: they run commands at the same time.

expect: 6 hosts in parallel: faster than one after the other
expect: all lines there: True
"""
import threading
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

setLogLevel('warning')
net = Mininet(topo=SingleSwitchTopo(6))
net.start()
results = {}


def work(host):
    results[host.name] = host.cmd('sleep 1; seq 1000; ping -c 1 10.0.0.1')


begin = time.time()
threads = [threading.Thread(target=work, args=(h,)) for h in net.hosts]
for t in threads:
    t.start()
for t in threads:
    t.join()
print('%d hosts in parallel: %s' % (len(results), 'faster than one after the other' if time.time() - begin < 5.9 else 'slow'))
print('all lines there: %s' % all('1000\r\n' in r and '1 received' in r for r in results.values()))
net.stop()
