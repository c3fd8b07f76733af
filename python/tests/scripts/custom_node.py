r"""A Node subclass that starts a program when it is configured, and ends it.

expect: greeter says welcome to g1
expect: terminated g1
expect: its program ended: True
"""
import os
import time

from mininet.log import info, setLogLevel
from mininet.net import Mininet
from mininet.node import Host

SERVER = ("import socketserver\n"
          "class H(socketserver.BaseRequestHandler):\n"
          "    def handle(self): self.request.sendall(b'welcome to %s')\n"
          "socketserver.TCPServer.allow_reuse_address = True\n"
          "socketserver.TCPServer(('', 7000), H).serve_forever()\n")


class Greeter(Host):
    def __init__(self, name, greeting=None, **params):
        super().__init__(name, **params)
        self.greeting = greeting or name

    def config(self, **params):
        r = super().config(**params)
        self.cmd('ifconfig', self.defaultIntf(), 'mtu 1400')
        self.program = self.popen(['python3', '-c', SERVER % self.greeting])
        return r

    def terminate(self):
        self.program.terminate()
        self.program.wait()
        info('terminated %s\n' % self.name)
        super().terminate()


setLogLevel('info')
net = Mininet()
g1, h1, s1 = net.addHost('g1', cls=Greeter), net.addHost('h1'), net.addSwitch('s1')
net.addController('c0')
for h in (g1, h1):
    net.addLink(h, s1)
net.start()
for _ in range(50):
    said = h1.cmd('exec 3<>/dev/tcp/%s/7000 && cat <&3; exec 3>&-' % g1.IP())
    if 'welcome' in said:
        break
    time.sleep(0.1)
print('greeter says', said.strip())
pid = g1.program.pid
net.stop()
print('its program ended: %s' % (not os.path.exists('/proc/%d' % pid)))
