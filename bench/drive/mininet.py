"""Brings a network up with the real Mininet, for comparisons. It is the first process of namespaces of its own.

In:  one line of JSON: {"switch": "bridge"|"ovs", "datapath": "user"|"kernel", "controller": null|{"args": [...], "env": {...}, "files": {NAME: TEXT},
     "uid": N, "gid": N}, "ipv6": true|false, "hosts": {NAME: [[PORT, ADDRESS]...]},
     "switches": [NAME...], "links": [{"ends": [[NODE, PORT], [NODE, PORT]], "impair": [{}, {}]}...]}
     Then the end of input asks it to stop.
Out: {"up": SECONDS, "pids": {NAME: PID}, "said": TEXT} when it is up, {"down": SECONDS} when it is down.
"""
import io, json, logging, os, resource, subprocess, sys, time
from functools import partial

out = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)  # what programs print is no answer


DIRECTORY = '/run/controller'  # of the controller; /run is nobody else's here


def answer(**what):
    out.write(json.dumps(what) + '\n')
    out.flush()


from mininet.link import Link, TCLink
from mininet.log import lg
from mininet.net import Mininet
from mininet.node import Controller, OVSSwitch
from mininet.nodelib import LinuxBridge

said = io.StringIO()
lg.addHandler(logging.StreamHandler(said))
asked = json.loads(sys.stdin.readline())
switch = LinuxBridge
if asked['switch'] == 'ovs':
    # Mininet types its commands into a terminal, which takes lines of 4,096 characters: without its option batch, a switch would have
    # 58 ports at most, and nobody would be told.
    ends = [node for link in asked['links'] for node, _ in link['ends']]
    batch = max(ends.count(name) for name in asked['switches']) > 50
    switch = partial(OVSSwitch, batch=batch, datapath=asked['datapath'], failMode='secure' if asked['controller'] else 'standalone')


class Program(Controller):
    """A controller that runs as Trivet's labs run it; switches find it at 127.0.0.1:6653."""

    def checkListening(self):  # it would want telnet, and nobody else can be at the port
        pass

    def start(self):
        how = asked['controller']
        os.makedirs(DIRECTORY)
        for name, text in how['files'].items():
            with open(os.path.join(DIRECTORY, name), 'w') as f:
                f.write(text)
        with open(DIRECTORY + '.log', 'w') as log:
            self.program = subprocess.Popen(how['args'], cwd=DIRECTORY, env=how['env'], user=how['uid'], group=how['gid'], extra_groups=[],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def stop(self, *args, **kwargs):
        self.program.kill()
        self.program.wait()
        super(Controller, self).stop(*args, **kwargs)


Mininet.inited = True  # it would change the machine's own limits, and leave them so
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
if not asked['ipv6'] and os.path.isdir('/proc/sys/net/ipv6'):  # the kernel may have none
    for which in 'all', 'default':
        with open('/proc/sys/net/ipv6/conf/%s/disable_ipv6' % which, 'w') as f:
            f.write('1')
begin = time.time()
net = Mininet(topo=None, switch=switch, controller=None, build=False)
for name in sorted(asked['hosts']):
    net.addHost(name, ip=None)
for name in asked['switches']:
    net.addSwitch(name)
if asked['controller']:
    net.addController('c0', Program, command='true', port=6653)
for link in asked['links']:
    (a, port_a), (b, port_b) = link['ends']
    kind = {}
    if any(link['impair']):
        kind = dict(cls=TCLink, params1=link['impair'][0], params2=link['impair'][1])
    net.addLink(a, b, port1=port_a, port2=port_b, **kind)
if not asked['ipv6']:  # paper 3's way
    since = time.time()
    for host in net.hosts:
        host.cmd('echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6')
    begin += time.time() - since  # none of Mininet's own doing
net.start()
for name, addresses in asked['hosts'].items():
    host = net[name]
    for port, address in addresses:
        if ':' in address:  # Mininet's own way is IPv4's only
            host.cmd('ip -6 address add %s dev %s nodad' % (address, host.intfs[port]))
        else:
            host.intfs[port].setIP(address)
    if asked['switch'] == 'ovs' and asked['datapath'] == 'user':  # else TCP stalls: nobody fills its checksums in
        for intf in host.intfList():
            host.cmd('ethtool -K %s tx off' % intf)
answer(up=time.time() - begin, pids={h.name: h.pid for h in net.hosts}, said=said.getvalue())
sys.stdin.read()
begin = time.time()
net.stop()
answer(down=time.time() - begin)
