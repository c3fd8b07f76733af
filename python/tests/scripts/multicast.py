r"""Multicast to those who have joined a group.

expect: h2 got: to all
expect: h3 got: to all
"""
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

LISTEN = '''import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5007))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.1.2.3") + socket.inet_aton(sys.argv[1]))
s.settimeout(20)
print("listening", flush=True)
print(sys.argv[2], "got:", s.recv(100).decode())'''
SEND = '''import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(3): s.sendto(b"to all", ("239.1.2.3", 5007))'''
setLogLevel('warning')
net = Mininet(topo=SingleSwitchTopo(3))
net.start()
h1, h2, h3 = net.hosts
for h in net.hosts:
    h.cmd('ip route add 224.0.0.0/4 dev %s' % h.defaultIntf())
listeners = [h.popen(['python3', '-c', LISTEN, h.IP(), h.name], text=True) for h in (h2, h3)]
for p in listeners:
    p.stdout.readline()
h1.cmd("python3 -c '%s'" % SEND)
for p in listeners:
    print(p.communicate()[0], end='')
net.stop()
