r"""A thread for each host: they run commands at the same time.

expect: 6 hosts saw all 6 run
expect: all lines there: True
"""
import threading

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

setLogLevel('warning')
net = Mininet(topo=SingleSwitchTopo(6))
net.start()
results = {}


def work(host):
    results[host.name] = host.cmd('touch run.%s; for i in $(seq 600); do [ $(ls run.* | wc -l) = 6 ] && echo together && break; sleep 0.1; done; '
                                  'seq 1000; ping -c 1 10.0.0.1' % host)


threads = [threading.Thread(target=work, args=(h,)) for h in net.hosts]
for t in threads:
    t.start()
for t in threads:
    t.join()
print('%d hosts saw all 6 run' % len([r for r in results.values() if r.startswith('together')]))
print('all lines there: %s' % all('1000\r\n' in r and '1 received' in r for r in results.values()))
net.stop()
