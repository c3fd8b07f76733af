package e2e

import "testing"

const mininetRouter = `from mininet.net import Mininet
from mininet.node import Node
from mininet.nodelib import NAT
from mininet.topo import Topo

class Router(Node):
    def config(self, **params):
        super().config(**params)
        self.cmd('sysctl -w net.ipv4.ip_forward=1')

`

// TestRoutesAsWritten proves that in a lab of a Mininet script there are the routes that the script
// sets and no others, with a word about that; that --routes computed adds the rest; and that routes
// by a device forward.
func TestRoutesAsWritten(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := m.file("two.py", mininetRouter+`import sys
net = Mininet(controller=None)
r1, r2 = net.addHost('r1', cls=Router, ip='10.1.0.1/24'), net.addHost('r2', cls=Router, ip='10.2.0.1/24')
net.addLink(net.addHost('h1', ip='10.1.0.2/24', defaultRoute='via 10.1.0.1'), r1)
net.addLink(net.addHost('h2', ip='10.2.0.2/24', defaultRoute='h2-eth0'), r2)
net.addLink(r1, r2, params1={'ip': '10.9.0.1/30'}, params2={'ip': '10.9.0.2/30'})
net.start()
if 'routes' in sys.argv:
    r1.cmd('ip route add to 10.2.0.0/24 via 10.9.0.2')
    r2.cmd('route add -net 10.1.0.0 netmask 255.255.255.0 gw 10.9.0.1')
`)
	contains(t, m.up(file), "no route is written for r1, r2")
	contains(t, m.exec("r1", "ip -4 route show; echo end"), "10.9.0.0/30 dev r1-eth1")
	contains(t, m.exec("h1", "ping -c 1 -W 30 10.2.0.2 || true"), "Destination Net Unreachable")
	contains(t, m.exec("h2", "ip -4 route show default"), "default dev h2-eth0 ")
	m.ok("apply", file, "routes")
	contains(t, m.exec("r1", "ip -4 route show 10.2.0.0/24"), "10.2.0.0/24 via 10.9.0.2")
	// h2 asks for h1's address on its device, and nobody there has it: r2 answers for it only if it
	// is told to.
	m.exec("r2", "sysctl -qw net.ipv4.conf.all.proxy_arp=1")
	contains(t, m.exec("h1", "ping -c 1 -W 30 10.2.0.2"), " 0% packet loss")
	m.ok("down")
	contains(t, m.up(file, "--routes", "computed", "--name", "computed"), "up in")
	contains(t, m.exec("r1", "ip -4 route show 10.2.0.0/24"), "10.2.0.0/24 via 10.9.0.2")
	m.ok("down")
}

// TestDirsBesideFile proves that a private directory's relative source is one beside the file,
// wherever trivet is called.
func TestDirsBesideFile(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.sh("mkdir " + m.dir + "/conf; echo of-the-file > " + m.dir + "/conf/motd")
	file := m.file("dirs.yaml", "nodes: {h1: {host: {dirs: [/srv: ./conf]}}, s1: switch}\nlinks: [s1 -- h1]\n")
	m.up(file)
	contains(t, m.exec("h1", "cat /srv/motd"), "of-the-file")
	m.ok("down")
}

// TestSettingsOfScripts proves that what a script sets by commands for which a topology has no
// words is so in the lab.
func TestSettingsOfScripts(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("arp.py", mininetRouter+`from mininet.topo import SingleSwitchTopo
net = Mininet(SingleSwitchTopo(2), autoStaticArp=True)
net.start()
net['h1'].cmd('sysctl -w net.ipv4.tcp_congestion_control=reno; ifconfig h1-eth0 mtu 1400')
`))
	contains(t, m.exec("h1", "ip neigh; sysctl -n net.ipv4.tcp_congestion_control; ip link show h1-eth0"), "10.0.0.2 dev h1-eth0 lladdr", "PERMANENT", "reno", "mtu 1400")
	contains(t, m.exec("h1", "ping -c 1 -W 30 h2"), " 0% packet loss")
	contains(t, m.exec("h2", "ip neigh show 10.0.0.1; cat /sys/class/net/h2-eth0/address"), "PERMANENT")
	m.ok("down")
}

// TestNATInside proves that a NAT of a Mininet script inside its network translates: what comes out
// of it has its address, those outside need no route to reach those inside, and nothing goes in a
// circle.
func TestNATInside(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := m.file("nats.py", mininetRouter+`class Internet(Topo):
    def build(self):
        outside = self.addSwitch('s9')
        self.addLink(self.addHost('h9'), outside)
        for i in 1, 2:
            inside = self.addSwitch('s%d' % i)
            nat = self.addNode('nat%d' % i, cls=NAT, subnet='192.168.%d.0/24' % i, inetIntf='nat%d-eth0' % i, localIntf='nat%d-eth1' % i)
            self.addLink(nat, outside, intfName1='nat%d-eth0' % i)
            self.addLink(nat, inside, intfName1='nat%d-eth1' % i, params1={'ip': '192.168.%d.1/24' % i})
            self.addLink(self.addHost('h%d' % i, ip='192.168.%d.100/24' % i, defaultRoute='via 192.168.%d.1' % i), inside)
Mininet(topo=Internet()).start()
`)
	before := m.snapshot()
	m.up(file)
	for _, inside := range []string{"h1", "h2"} {
		contains(t, m.exec(inside, "ping -c 1 -W 30 h9"), " 0% packet loss")
	}
	m.exec("h9", "python3 -c 'import socket; s = socket.create_server((\"\", 7)); print(s.accept()[1][0])' > "+m.dir+"/peer &")
	m.exec("h1", "for i in $(seq 200); do bash -c ': < /dev/tcp/h9/7' 2>/dev/null && exit; sleep 0.1; done; exit 1")
	contains(t, m.sh("for i in $(seq 200); do grep . "+m.dir+"/peer && exit; sleep 0.1; done"), "10.0.0.") // not 192.168.1.100
	contains(t, m.exec("nat1", "nft list ruleset"), "masquerade")
	contains(t, m.exec("h1", "ping -c 1 -W 30 192.168.2.100 || true"), "Destination Net Unreachable")
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}
