r"""Commands that run at the same time in several hosts, whose output is read as it comes.

expect: h3: 3 answers
expect: finished: h1 h2 h3
"""
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

setLogLevel('warning')
net = Mininet(topo=SingleSwitchTopo(3))
net.start()
hosts = net.hosts
for h, target in zip(hosts, hosts[1:] + hosts[:1]):
    h.sendCmd('ping -c 3 -i 0.3 %s' % target.IP())
answers = dict.fromkeys(hosts, '')
while any(h.waiting for h in hosts):
    for h in hosts:
        if h.waiting:
            answers[h] += h.monitor(timeoutms=50)
for h in hosts:
    print('%s: %d answers' % (h, answers[h].count('icmp_seq')))
print('finished:', *[h.name for h in hosts if '0% packet loss' in answers[h]])
h1 = hosts[0]
h1.sendCmd('ping 10.0.0.2')
h1.monitor()
h1.sendInt()
print('interrupted: %s' % ('packets transmitted' in h1.waitOutput()))
net.stop()
