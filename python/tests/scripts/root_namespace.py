r"""The machine reaches a server in a host, by the helper of Mininet's example sshd.

needs: telnet
expect: 2 received
expect: h2 listens: True
"""
from mininet.examples.sshd import TreeNet, connectToRootNS
from mininet.util import quietRun, waitListening

net = TreeNet(depth=1, fanout=2, ipBase="192.0.2.0/24")
connectToRootNS(net, net["s1"], "192.0.2.100/32", ["192.0.2.0/24"])
h2 = net["h2"]
print(quietRun("ping -c 2 -i 0.2 192.0.2.1"))
h2.cmd("python3 -m http.server 8022 >/dev/null 2>&1 &")
print("h2 listens:", waitListening(server=h2, port=8022, timeout=10))
net.stop()
