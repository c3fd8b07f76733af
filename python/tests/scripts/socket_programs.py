r"""A server and a client of a student's, which are files beside the script.

expect: server heard: HELLO FROM 10.0.0.2
expect: client got: hello from 10.0.0.2
"""
import textwrap
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import MinimalTopo

SERVER = '''
    import socket, sys
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", int(sys.argv[1])))
    s.listen(1)
    c, peer = s.accept()
    text = c.recv(100).decode() + " from " + peer[0]
    print("server heard:", text.upper(), flush=True)
    c.sendall(text.encode())
'''
CLIENT = '''
    import socket, sys, time
    for _ in range(50):
        try:
            s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
            break
        except OSError:
            time.sleep(0.1)
    s.sendall(b"hello")
    print("client got:", s.recv(100).decode())
'''
for name, text in (('server.py', SERVER), ('client.py', CLIENT)):
    with open(name, 'w') as f:
        f.write(textwrap.dedent(text))
setLogLevel('warning')
net = Mininet(topo=MinimalTopo())
net.start()
h1, h2 = net.get('h1', 'h2')
h1.cmd('python3 server.py 5005 > server.out &')
print(h2.cmd('python3 client.py %s 5005' % h1.IP()))
time.sleep(0.2)
print(h1.cmd('cat server.out'))
net.stop()
