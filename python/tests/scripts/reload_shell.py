r"""A host's shell remembers: variables, functions, directories, background jobs and their pids.

expect: in /tmp with 42
expect: greet: hello h1
expect: job runs: True
expect: job runs: False
expect: last pid is that of sleep: True
"""
import os

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import MinimalTopo

setLogLevel('warning')
net = Mininet(topo=MinimalTopo())
net.start()
h1 = net['h1']
h1.cmd('cd /tmp; export ANSWER=42')
print('in %s with %s' % tuple(h1.cmd('pwd; echo $ANSWER').split()))
h1.cmd('greet() {\n  echo "hello $1"\n}\n')
print('greet:', h1.cmd('greet', h1))
h1.cmd('sleep 300 &')
pid = h1.lastPid
print('job runs: %s' % os.path.exists('/proc/%d' % pid))
comm = 'bash'
while comm == 'bash':  # the shell's child, until it has become sleep
    comm = h1.cmd('ps -o comm= -p %d' % pid).strip()
h1.cmd('kill', pid, '; wait')
print('job runs: %s' % os.path.exists('/proc/%d' % pid))
print('last pid is that of sleep: %s' % (comm == 'sleep'))
net.stop()
