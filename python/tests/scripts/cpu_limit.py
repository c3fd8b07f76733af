r"""Hosts that get a part of a processor: one with a tenth, one with a fifth of the machine.

expect: h1 0\.(0[2-9]|1[0-4])
expect: h2 0\.(0[4-9]|1\d|2[0-7])
"""
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import CPULimitedHost
from mininet.topo import MinimalTopo
from mininet.util import custom, numCores

setLogLevel('warning')
net = Mininet(topo=MinimalTopo(), host=custom(CPULimitedHost, sched='cfs', period_us=50000, cpu=.1))
net.start()
h1, h2 = net.get('h1', 'h2')
h2.setCPUFrac(0.2)
# What a process used, by how long it took: on a busy machine more than three seconds.
burn = 'import time\nbegin, was = time.time(), time.process_time()\nwhile time.time() < begin + 3: pass\nprint((time.process_time() - was) / (time.time() - begin))'
running = {h: [h.popen(['python3', '-c', burn]) for _ in range(numCores())] for h in (h1, h2)}
for h in (h1, h2):
    used = sum(float(p.communicate()[0]) for p in running[h])
    print('%s %.2f' % (h, used / numCores()))
net.stop()
