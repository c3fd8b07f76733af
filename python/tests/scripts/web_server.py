r"""A web server in one host, a page fetched by the others, and the server's log.

needs: curl
expect: from h2: 200 it works
expect: from h3: 200 it works
expect: requests: 2
"""
import os

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo
from mininet.util import waitListening

setLogLevel('warning')
net = Mininet(topo=SingleSwitchTopo(3))
net.start()
server = net['h1']
os.makedirs('www', exist_ok=True)
open('www/index.html', 'w').write('it works')
server.cmd('cd www')
server.cmd('python3 -m http.server 8080 > ../server.log 2>&1 &')
waitListening(net['h2'], server, 8080, timeout=20)
for h in net.hosts[1:]:
    print('from %s:' % h, h.cmd("curl -s -o page.%s -w '%%{http_code}' http://%s:8080/; echo -n ' '; cat page.%s" % (h, server.IP(), h)))
server.cmd('kill %python3; wait')
print('requests: %d' % open('server.log').read().count('GET / '))
net.stop()
