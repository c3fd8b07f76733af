package mininet

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// sketch writes a topology in short: one line per node and link, with only what is set.
func sketch(t *topology.Topology) string {
	var b strings.Builder
	put := func(name string, value any) {
		if s := fmt.Sprint(value); s != "" && s != "[]" && s != "0" && s != "false" && s != "0000000000000000" && s != "00:00:00:00:00:00" {
			fmt.Fprintf(&b, " %s=%s", name, s)
		}
	}
	b.WriteString("topology")
	if t.Subnet.IsValid() {
		put("subnet", t.Subnet)
	}
	put("datapath", t.Datapath)
	put("controllers", t.Controllers)
	for _, n := range t.Nodes {
		fmt.Fprintf(&b, "\n%s %s", n.Name, n.Kind)
		put("ip", n.Addresses)
		put("none", n.Unaddressed)
		put("mac", n.MAC)
		put("lo", n.Loopback)
		put("via", n.Gateways)
		put("routes", n.Routes)
		if n.Kind != topology.Router {
			put("datapath", n.Datapath)
		}
		put("nat", n.NAT)
		put("masquerade", n.Masquerade)
		put("cpu", n.CPU.Share.Percent())
		put("cores", n.Cores)
		put("start", n.Start)
		put("dirs", n.Dirs)
		put("dpid", n.DPID)
		put("controllers", n.Controllers)
		put("fail", n.FailMode)
		put("openflow", n.OpenFlow)
		put("stp", n.STP)
		put("at", n.Address)
	}
	for _, l := range t.Links {
		b.WriteString("\n")
		for i, e := range l.Ends {
			if i == 1 {
				b.WriteString(" --")
			}
			b.WriteString(strings.TrimSuffix(" "+e.Node+":"+e.Interface, ":"))
			if e.Port != nil {
				fmt.Fprintf(&b, "@%d", *e.Port)
			}
			put("ip", e.Addresses)
			put("mac", e.MAC)
		}
		put("down", l.Down)
		for i := range l.Ends {
			if e := l.Egress(i); i == 0 || e != l.Egress(0) {
				if e != (topology.Impairment{}) {
					fmt.Fprintf(&b, " {%s %s %s %s %s}", e.Bandwidth, e.Delay, e.Jitter, e.Loss, e.Queue)
				} else if i == 1 {
					b.WriteString(" {}")
				}
			}
		}
	}
	return strings.ReplaceAll(b.String(), "\n ", "\n")
}

const imports = `from mininet.net import *
from mininet.topo import *
from mininet.topolib import *
from mininet.node import *
from mininet.nodelib import *
from mininet.link import *
from mininet.cli import CLI
from mininet.log import setLogLevel, info
from functools import partial
import os, subprocess, sys, time, threading
`

func read(t *testing.T, text string, opts formats.Options) (*topology.Topology, topology.Problems) {
	t.Helper()
	return Read("net.py", []byte(imports+text), opts)
}

// TestReads proves, case by case, that a program's calls give the topology that Mininet would
// build: numbering, addresses, ports, classes, parameters, changes at run time, and the shell
// commands that are recognised; and that none of it is reported as not honoured.
func TestReads(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"plain numbering is left open": {"net = Mininet(SingleSwitchTopo(2)); net.start(); net.stop()",
			"topology\nh1 host\nh2 host\ns1 switch\nh1 -- s1\nh2 -- s1"},
		"a given address makes all explicit, and counts": {`net = Mininet(controller=None)
net.addHost('a', ip='10.0.0.9'); net.addHost('b'); net.addSwitch('s1'); net.addLink('a', 's1'); net.addLink('b', 's1'); net.start()`,
			"topology controllers=[none]\na host ip=[10.0.0.9/8]\nb host ip=[10.0.0.2/8]\ns1 switch\na -- s1\nb -- s1"},
		"a host without an address has none": {`net = Mininet(controller=None)
net.addHost('a', ip=None); net.addHost('b'); net.addHost('c', ip='10.0.0.9'); c = net['c']
net.addLink('a', 'b'); net.addLink('b', 'c'); net.start(); c.cmd('ip addr flush dev c-eth0')`,
			"topology\na host none=true\nb host ip=[10.0.0.2/8]\nc host none=true\na -- b\nb -- c"},
		"ipBase with a host part starts there": {`net = Mininet(topo=LinearTopo(2), ipBase='192.168.1.5/24', autoSetMacs=True)
net.start()`,
			"topology subnet=192.168.1.5/24\nh1 host ip=[192.168.1.5/24] mac=00:00:00:00:00:05\nh2 host ip=[192.168.1.6/24] mac=00:00:00:00:00:06\n" +
				"s1 switch\ns2 switch\nh1 -- s1\nh2 -- s2\ns2 -- s1"},
		"ports given, taken and moved": {`class T(Topo):
    def __init__(self):
        Topo.__init__(self)
        self.addSwitch('s1'); self.addSwitch('s2', dpid='00:00:00:00:00:00:00:ff'); self.addHost('h1')
        self.addLink('s1', 's2', port1=7); self.addLink('h1', 's1', intfName1='h1-up')
Mininet(T()).start()`,
			"topology\nh1 host\ns1 switch\ns2 switch dpid=00000000000000ff\ns1@7 -- s2\nh1:h1-up -- s1@2"},
		"shaping, in both directions and one": {`net = Mininet(link=TCLink); a = net.addHost('h1'); b = net.addHost('h2')
net.addLink(a, b, bw=10, delay='5ms', jitter='1ms', loss=0.1, max_queue_size=100, use_htb=True)
net.addLink(a, b, params1={'bw': 1.5}, delay=250)
l = net.addLink(a, b); l.intf2.config(delay='1.5s')
net.start()`,
			"topology\nh1 host\nh2 host\nh1 -- h2 {10mbit 5ms 1ms 0.1% 100}\nh1 -- h2 {1.5mbit 250us 0ns 0% 0} {0bit 250us 0ns 0% 0}\n" +
				"h1 -- h2 {0bit 1.5s 0ns 0% 0}"},
		"numbers that are computed, and a MAC without colons": {`net = Mininet(link=TCLink, controller=None)
net.addLink(net.addHost('h1', mac='00000000001c'), net.addHost('h2'), bw=10.0, max_queue_size=88.2)
net.start()`,
			"topology\nh1 host mac=00:00:00:00:00:1c\nh2 host\nh1 -- h2 {10mbit 0ns 0ns 0% 88}"},
		"switches": {`net = Mininet(switch=OVSKernelSwitch, controller=None)
net.addSwitch('s1', failMode='standalone', protocols='OpenFlow10,OpenFlow13', stp=True); net.addSwitch('s2', cls=LinuxBridge); net.addSwitch('s3', cls=OVSBridge)
net.addController('c0', controller=RemoteController, ip='192.0.2.1', port=6633); net.addController(RemoteController('c1', '192.0.2.2:6634'))
net.start(); s1 = net['s1']; s1.cmd('ovs-vsctl set bridge s1 protocols=OpenFlow13')`,
			"topology datapath=ovs controllers=[c0 c1]\ns1 switch fail=standalone openflow=[1.3] stp=true\ns2 switch datapath=bridge\n" +
				"s3 switch datapath=ovs controllers=[none] fail=standalone\nc0 controller at=tcp:192.0.2.1:6633\nc1 controller at=tcp:192.0.2.2:6634"},
		"controllers one by one, as MiniEdit's programs": {`net = Mininet(topo=None, build=False, ipBase='10.0.0.0/8')
c0 = net.addController(name='c0', controller=RemoteController, ip='127.0.0.1', protocol='tcp', port=6633)
net.addSwitch('s1', cls=OVSKernelSwitch); net.addSwitch('s2', cls=OVSKernelSwitch, failMode='standalone')
net.addHost('h1', cls=Host, ip='10.0.0.1', defaultRoute=None); net.addLink('h1', 's1'); Intf('eth1', node=net.get('s2'))
net.build()
for controller in net.controllers: controller.start()
net.get('s1').start([c0]); net.get('s2').start([])
h1 = net.get('h1'); h1.cmd('ifconfig h1-eth0 10.0.0.7 netmask 255.255.255.0')`,
			"topology subnet=10.0.0.0/8 controllers=[c0]\nc0 controller at=tcp:127.0.0.1:6633\ns1 switch datapath=ovs\n" +
				"s2 switch datapath=ovs controllers=[none] fail=standalone\nh1 host ip=[10.0.0.7/24]\nh1 -- s1\ns2 -- :eth1"},
		"a router, its interfaces and routes": {`class LinuxRouter(Node):
    def config(self, **params):
        super(LinuxRouter, self).config(**params)
        self.cmd('sysctl net.ipv4.ip_forward=1')
    def terminate(self):
        self.cmd('sysctl net.ipv4.ip_forward=0')
        super(LinuxRouter, self).terminate()
net = Mininet(controller=None)
r = net.addHost('r0', cls=LinuxRouter, ip='10.1.0.1/24'); r2 = net.addHost('r2', ip='10.2.0.2/24')
h = net.addHost('h1', ip='10.1.0.2/24', defaultRoute='via 10.1.0.1')
net.addLink(h, r); net.addLink(r, r2, intfName1='r0-x', params1={'ip': '10.2.0.1/24'})
net.start()
r.cmd('ip route add 10.3.0.0/24 via 10.2.0.2 dev r0-x && ip addr add 10.9.0.1/32 dev lo'); r.cmd('route add -net 10.4.0.0 netmask 255.255.0.0 gw 10.2.0.2')
r2.cmd('echo 1 > /proc/sys/net/ipv4/ip_forward; route add default gw 10.2.0.1 r2-eth0'); r2.cmd('ip -6 addr add fd00::2/64 dev r2-eth0')
net.stop()`,
			"topology\nr0 router ip=[10.1.0.1/24] lo=[10.9.0.1/32] routes=[10.3.0.0/24 via 10.2.0.2 10.4.0.0/16 via 10.2.0.2]\n" +
				"r2 router ip=[10.2.0.2/24 fd00::2/64] via=[10.2.0.1]\nh1 host ip=[10.1.0.2/24] via=[10.1.0.1]\nh1 -- r0\nr0:r0-x ip=[10.2.0.1/24] -- r2"},
		"NAT": {"net = Mininet(SingleSwitchTopo(1)); net.addNAT().configDefault(); net.start()",
			"topology\nh1 host ip=[10.0.0.1/8] via=[10.0.0.2]\ns1 switch\nnat0 router ip=[10.0.0.2/8] nat=true\nh1 -- s1\nnat0 -- s1"},
		"limits and directories": {`net = Mininet(host=partial(CPULimitedHost, cpu=.25), controller=None)
net.addHost('h1', cores='0,1', privateDirs=['/var/log', ('/var/run', '/tmp/%(name)s')]); net.addHost('h2').setCPUFrac(f=.5, sched='cfs'); net.addLink('h1', 'h2'); net.build()
net['h2'].setCPUFrac(.5)`,
			"topology\nh1 host cpu=25 cores=[0 1] dirs=[/var/log /var/run:/tmp/h1]\nh2 host cpu=50\nh1 -- h2"},
		"links down and deleted; sleeping for ever": {`net = Mininet(LinearTopo(3)); net.start(); net.configLinkStatus('s1', 's2', 'down'); net.delLinkBetween(net['s2'], net['s3'])
while True: time.sleep(60)`,
			"topology\nh1 host\nh2 host\nh3 host\ns1 switch\ns2 switch\ns3 switch\nh1 -- s1\nh2 -- s2\ns2 -- s1 down=true\nh3 -- s3"},
		"a controller of a switch's own, none, and Mininet's": {`net = Mininet(controller=NullController)
c1 = RemoteController('c1', ip='10.9.0.9', port=6633)
class S(OVSSwitch):
    def start(self, controllers): super().start([c1])
for i, cls in (1, OVSSwitch), (2, S): net.addSwitch('s%d' % i, cls=cls)
net.addController('c0'); net.addLink('s1', 's2'); net.start()`,
			"topology controllers=[none]\nc1 controller at=tcp:10.9.0.9:6633\ns1 switch datapath=ovs\ns2 switch datapath=ovs controllers=[c1]\ns1 -- s2"},
		"routes by device, and NAT inside": {`net = Mininet(controller=None, topo=None)
n = net.addHost('n1', cls=NAT, ip='10.0.0.9/8', subnet='192.168.1.0/24', inNamespace=True); h = net.addHost('h1', ip='192.168.1.2/24', defaultRoute='dev h1-eth0')
o = net.addHost('h2', defaultRoute='h2-eth0'); net.addLink(n, o); net.addLink(n, h, params1={'ip': '192.168.1.1/24'}); net.start()
h.cmd('ip route add to 10.7.0.0/16 dev h1-eth0 scope link; route add -net 10.8.0.0 netmask 255.255.0.0 dev h1-eth0; route add -host 10.9.0.1 h1-eth0')
o.setHostRoute('192.168.1.2', 'h2-eth0'); n.cmd('sudo iptables -t nat -A POSTROUTING -o n1-eth0 -j MASQUERADE')`,
			"topology\nn1 router ip=[10.0.0.9/8] masquerade=[192.168.1.0/24 dev n1-eth0]\nh1 host ip=[192.168.1.2/24] routes=[0.0.0.0/0 dev h1-eth0 10.7.0.0/16 dev h1-eth0 10.8.0.0/16 dev h1-eth0 10.9.0.1/32 dev h1-eth0]\n" +
				"h2 host ip=[10.0.0.3/8] routes=[0.0.0.0/0 dev h2-eth0 192.168.1.2/32 dev h2-eth0]\nn1 -- h2\nn1 ip=[192.168.1.1/24] -- h1"},
		"what a topology has no words for is run": {`net = Mininet(controller=None)
a = net.addHost('h1', ip='10.0.0.7/24'); b = net.addHost('h2', ip='10.0.0.8/24', mac='0:0:0:0:0:2', startCommand='true'); net.addLink(a, b); net.start()
a.setARP(b.IP(), b.MAC()); b.cmd('arp -s 10.0.0.7 ' + a.MAC()); a.cmd('ip neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev h1-eth0')
a.cmd('sysctl -w net.ipv4.tcp_congestion_control=reno'); a.cmd("sysctl -w net.ipv4.tcp_rmem='4096 87380 99'"); b.cmd('ifconfig h2-eth0 mtu 9000 up')`,
			"topology\nh1 host ip=[10.0.0.7/24] mac=02:00:00:00:00:04 start=ip neigh replace 10.0.0.8 lladdr 0:0:0:0:0:2 dev h1-eth0 nud permanent\n" +
				"ip neigh replace 10.0.0.9 lladdr 02:00:00:00:00:09 dev h1-eth0 nud permanent\nsysctl -qw net.ipv4.tcp_congestion_control=reno\nsysctl -qw 'net.ipv4.tcp_rmem=4096 87380 99'\n" +
				"h2 host ip=[10.0.0.8/24] mac=00:00:00:00:00:02 start=ip neigh replace 10.0.0.7 lladdr 02:00:00:00:00:04 dev h2-eth0 nud permanent\nip link set dev h2-eth0 mtu 9000\ntrue\nh1 -- h2"},
		"static ARP for all": {"Mininet(SingleSwitchTopo(2), autoStaticArp=True, autoSetMacs=True).start()",
			"topology\nh1 host mac=00:00:00:00:00:01 start=ip neigh replace 10.0.0.2 lladdr 00:00:00:00:00:02 dev h1-eth0 nud permanent\n" +
				"h2 host mac=00:00:00:00:00:02 start=ip neigh replace 10.0.0.1 lladdr 00:00:00:00:00:01 dev h2-eth0 nud permanent\ns1 switch\nh1 -- s1\nh2 -- s1"},
		"a tree": {"Mininet(TreeTopo(2, 2)).start()",
			"topology\nh1 host\nh2 host\nh3 host\nh4 host\ns1 switch\ns2 switch\ns3 switch\ns2 -- h1\ns2 -- h2\ns1 -- s2\ns3 -- h3\ns3 -- h4\ns1 -- s3"},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := read(t, c.text, formats.Options{})
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if s := sketch(got); s != c.want {
				t.Errorf("got\n%s\nwant\n%s", s, c.want)
			}
		})
	}
}

// TestWarnings proves that every call without effect is reported once, at its line, that a program
// that fails after its network is up is still read, and that what it tried to write is not there.
func TestWarnings(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "written")
	got, problems := read(t, fmt.Sprintf(`net = Mininet(SingleSwitchTopo(2))
net.start()
h1, h2 = net.get('h1', 'h2')
for _ in range(3): h1.cmd('ping -c1', h2.IP())
h1.popen(['iperf', '-s']); os.system('modprobe x')
subprocess.check_output('ls', shell=True); net.pingAll()
open(%q, 'w').write('x')
CLI(net, script='x.cli')
int(h1.cmd('wc -l'))
net.stop()`, marker), formats.Options{})
	want := `net.py:14  warning: h1.cmd('ping -c1 10.0.0.2'): not honoured; use trivet ping
net.py:15  warning: h1.popen('iperf -s'): not honoured; use trivet iperf, or trivet bench
net.py:15  warning: os.system('modprobe x'): not honoured
net.py:16  warning: subprocess.check_output('ls'): not honoured
net.py:16  warning: net.pingAll(): not honoured; use trivet ping --all
net.py:17  warning: open('` + marker
	if got == nil || !strings.HasPrefix(problems.Error(), want) {
		t.Fatalf("%v\n%v", got, problems)
	}
	for _, part := range []string{"net.py:18  warning: CLI('x.cli')", "net.py:19  warning: ValueError: invalid literal for int()"} {
		if !strings.Contains(problems.Error(), part) {
			t.Errorf("%q is missing in\n%v", part, problems)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the program wrote a file")
	}
}

// TestChoosesTopology proves that one of several topologies in a file is chosen by name, with
// arguments, as with mn.
func TestChoosesTopology(t *testing.T) {
	text := `class A(Topo):
    def build(self, k=1, bw=None):
        for i in range(k): self.addLink(self.addHost('h%d' % i), self.addHost('g%d' % i), bw=bw, cls=TCLink)
class B(A): pass
topos = {'a': A, 'b': (lambda *args, **opts: B(*args, **opts))}
if __name__ == '__main__': raise Exception('not under mn')
`
	got, problems := read(t, text, formats.Options{Topo: "b,2,bw=5"})
	if problems.Err() != nil || len(got.Links) != 2 || got.Links[0].Bandwidth != 5e6 {
		t.Fatal(got, problems)
	}
	for topo, want := range map[string]string{"c": "there is no topology 'c' in the file; there are a, b", "a,x": "net.py:13  TypeError"} {
		if _, problems = read(t, text, formats.Options{Topo: topo}); problems.Err() == nil || !strings.Contains(problems.Error(), want) {
			t.Errorf("%s: %v", topo, problems)
		}
	}
	_, problems = read(t, strings.Split(text, "if __name__")[0], formats.Options{})
	if !strings.Contains(problems.Error(), "several topologies: a, b; say which with --topo NAME") {
		t.Error(problems)
	}
	if got, problems = read(t, "class Only(Topo):\n    def build(self): self.addHost('h1')\n", formats.Options{}); problems.Err() != nil || got.Node("h1") == nil {
		t.Error(problems)
	}
}

// TestLinksWithoutClass proves that link parameters in a topology are honoured although mn --link
// chooses the links' class; and that a program that uses another class than TCLink, for which
// Mininet ignores them, gets a warning, once for each line.
func TestLinksWithoutClass(t *testing.T) {
	const text = `class A(Topo):
    def build(self):
        for h in 'h1', 'h2': self.addLink(self.addHost(h), 's1' if h == 'h2' else self.addSwitch('s1'), bw=10, delay='5ms')
`
	for name, o := range map[string]formats.Options{"topos = {'a': A}\n": {Topo: "a"}, "topos = {'b': A}\n": {}, "": {}} {
		got, problems := read(t, text+name, o)
		if problems.Err() != nil || len(got.Links) != 2 || got.Links[1].Bandwidth != 10e6 || got.Links[1].Delay != topology.Duration(5*time.Millisecond) || len(problems) > 0 {
			t.Errorf("%q: %+v %v", name, got, problems)
		}
	}
	got, problems := read(t, text+"net = Mininet(A())\nnet.start()", formats.Options{})
	if got == nil || got.Links[0].Bandwidth != 0 || strings.Count(problems.Error(), "\n") > 2 ||
		!strings.Contains(problems.Error(), "warning: bw=10 does nothing in Mininet without link=TCLink") || !strings.Contains(problems.Error(), "delay='5ms' does nothing") {
		t.Errorf("without TCLink: %+v %v", got, problems)
	}
}

// TestArguments proves that arguments reach the program.
func TestArguments(t *testing.T) {
	got, problems := read(t, "Mininet(SingleSwitchTopo(int(sys.argv[1]))).start()", formats.Options{Args: []string{"3"}})
	if problems.Err() != nil || len(got.Nodes) != 4 {
		t.Fatal(problems)
	}
}

// TestErrors proves that each way to fail ends soon, in an error that says where and what, and that
// a program that attacks its confinement or its result gains nothing.
func TestErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an exception": {"x = 1\ny = {}['gone']", "net.py:12  KeyError: 'gone'"},
		"a missing module": {"from nosuchmodule import MyTopo\nMininet(MyTopo()).start()",
			"net.py:12  what the network needs here comes from nosuchmodule.MyTopo, and there is no module nosuchmodule; install nosuchmodule"},
		"another Mininet":     {"from mn_wifi.net import Mininet_wifi", "net.py:11  ModuleNotFoundError: No module named 'mn_wifi'; networks of Mininet-WiFi"},
		"its numbers":         {"import no_numpy as np\nMininet(LinearTopo(3), link=partial(TCLink, bw=np.mean([3]))).start()", "comes from no_numpy.mean"},
		"its texts":           {"import no_numpy as np\nn = Mininet(); n.addHost('h1', ip='10.0.0.%s' % np.sum([1])); n.start()", "net.py:12  what the network needs here comes from no_numpy.sum"},
		"its decisions":       {"import no_numpy as np\nif np.mean([3]) > 2: Mininet(LinearTopo(3)).start()", "comes from no_numpy.mean"},
		"no Python at all":    {"this is not a program", "net.py:11  SyntaxError: invalid syntax; it is neither Python 3, nor Python 2 that lib2to3"},
		"no network":          {"x = 1", "the program makes no network"},
		"exit":                {"sys.exit('usage: net.py N')", "ended with 'usage: net.py N' before it made a network; does it want arguments?"},
		"no argument":         {"n = int(sys.argv[1])", "net.py:11  IndexError: list index out of range; does it want arguments?"},
		"a loop":              {"while True: pass", "the program did not end within"},
		"a bad address":       {"n = Mininet(); n.addHost('h1', ip='10.0.0.777'); n.start()", "net.py:11"},
		"no datapath id":      {"Mininet().addSwitch('core')", "net.py:11  Exception: Unable to derive default datapath ID"},
		"too many hosts":      {"n = Mininet(ipBase='10.0.0.0/30')\nfor i in range(9): n.addHost('h%d' % i)", "Not enough IP addresses in the subnet"},
		"fork":                {"os.fork()", "net.py:11  PermissionError"},
		"fork bomb":           {"while True: os.fork()", "net.py:11  PermissionError"},
		"exec":                {"os.execv('/bin/sh', ['sh'])", "net.py:11  PermissionError"},
		"socket":              {"import socket; socket.socket()", "net.py:11  PermissionError"},
		"write past the stub": {"os.open('" + filepath.Join(os.TempDir(), rand.Text()) + "', os.O_CREAT | os.O_WRONLY)", "net.py:11  PermissionError"},
		"passwords":           {"open('/etc/shadow')", "net.py:11  PermissionError"},
		"memory":              {"x = bytearray(10 << 30)", "net.py:11  MemoryError"},
		"recursion":           {"def f(): f()\nf()", "net.py:11  RecursionError"},
		"closed answer":       {"os.closerange(3, 200)\nMininet(SingleSwitchTopo()).start()", "ended without a network"},
		"forged answer": {"import run\nos.write(run.RESULT, b'{\"nodes\":[{\"name\":\"h1\",\"kind\":\"rootkit\",\"mac\":\"zz\"}],\"links\":[{}]}'); os._exit(0)",
			"\"rootkit\" is not a kind of node"},
		"forged nodes": {"import run\nfor part in b'{\"nodes\":[', b'{},' * (10 << 20), b'{}]}': os.write(run.RESULT, part)\nos._exit(0)",
			"the program's network is too large: more than a lab can be: 10485760 nodes and links"},
		"forged warnings": {"import run\nfor part in b'{\"warnings\":[', b'[],' * (10 << 20), b'[]]}': os.write(run.RESULT, part)\nos._exit(0)",
			"the program's network is too large"},
		"escape sequences": {"raise Exception('\\x1b[31mred\\x07')", "Exception: ?[31mred?"},
		"threads that stay": {"ev = threading.Event()\nfor _ in range(4): threading.Thread(target=ev.wait).start()\nraise Exception('done')",
			"Exception: done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problems := read(t, c.text, formats.Options{})
			for tries := 0; strings.Contains(problems.Error(), "can't start new thread") && tries < 5; tries++ {
				time.Sleep(time.Second) // TestWaits, and confine's tests, run threads as the same user
				got, problems = read(t, c.text, formats.Options{})
			}
			if problems.Err() == nil || !strings.Contains(problems.Error(), c.want) {
				t.Fatalf("%v\n%v\nwant %s", got, problems, c.want)
			}
		})
	}
}

// TestSlowly proves that only the time in which a program runs counts: one that is kept from
// running for longer (here it waits) is read to its end.
func TestSlowly(t *testing.T) {
	t.Parallel()
	got, problems := read(t, "for _ in range(10):\n    threading.Event().wait(0.4)\n    sum(range(300000))\nMininet(SingleSwitchTopo(3)).start()", formats.Options{})
	if problems.Err() != nil || len(got.Nodes) != 4 {
		t.Fatal(problems)
	}
}

// TestEncoding proves that text that is not UTF-8 is reported as an error of the file, not of
// Python.
func TestEncoding(t *testing.T) {
	if _, problems := Read("net.py", []byte("x = '\xff'"), formats.Options{}); problems.Err() == nil {
		t.Fatal("no error")
	}
}

// TestPython2 proves that Python 2 is read: its statements, its builtins and modules, tabs, its
// division of integers, modules next to the file; that the user is told; and that lines in messages
// are the file's own.
func TestPython2(t *testing.T) {
	if err := exec.Command("python3", "-c", "import lib2to3").Run(); err != nil {
		if err := exec.Command("python3", "-c", "import fissix").Run(); err != nil {
			t.Skip("python3 has neither lib2to3 nor fissix (apt install python3-lib2to3)")
		}
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the program does not run as root
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts.py"), []byte("def names(n):\n    print 'names'\n    return ['h%d' % i for i in xrange(1, n / 2 + 1)]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const hosts = "\nh1 host\nh2 host\ns1 switch\nh1 -- s1\nh2 -- s1"
	for name, text := range map[string]string{
		"print":      "print 'hello'\nMininet(SingleSwitchTopo(5 / 2)).start()",
		"exception":  "try:\n    raise ValueError, 'x'\nexcept ValueError, e:\n    print >>sys.stderr, e\nMininet(SingleSwitchTopo(2)).start()",
		"builtins":   "n = Mininet()\nfor i in xrange(1, 3): n.addHost('h%d' % i)\ns = n.addSwitch('s1')\nfor h in reduce(lambda a, b: a + b, [[h] for h in n.hosts]): n.addLink(h, s)\nn.start()",
		"division":   "Mininet(SingleSwitchTopo(len(range(5 / 2)))).start()",
		"modules":    "import commands, Queue\nout = commands.getoutput('ls')\nQueue.Queue()\nfor line in out.split('\\n'): pass\nMininet(SingleSwitchTopo(2)).start()",
		"tabs":       "def build():\n    if True:\n\tn = Mininet(SingleSwitchTopo(2))\n\tn.start()\nbuild()",
		"beside":     "from hosts import names\nn = Mininet(); s = n.addSwitch('s1')\nfor h in names(4): n.addLink(n.addHost(h), s)\nn.start()",
		"dictionary": "d = {'h1': 1, 'h2': 2}\nif d.has_key('h1'):\n    n = Mininet()\n    k = d.keys(); k.sort()\n    s = n.addSwitch('s1')\n    for h in k: n.addLink(n.addHost(h), s)\n    n.start()",
		"afterwards": "n = Mininet(SingleSwitchTopo(2)); n.start()\nfor i in xrange(2): pass",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problems := Read(filepath.Join(dir, "net.py"), []byte(imports+text), formats.Options{})
			if problems.Err() != nil || !strings.Contains(problems.Error(), "this is Python 2: it is read as ") {
				t.Fatal(problems)
			}
			if s := sketch(got); !strings.HasSuffix(s, hosts) && name != "builtins" && name != "dictionary" && name != "beside" || len(got.Nodes) != 3 || len(got.Links) != 2 {
				t.Errorf("got\n%s", s)
			}
		})
	}
	_, problems := read(t, "print 'x'\n\nd = {}\nprint d['gone']", formats.Options{})
	if !strings.Contains(problems.Error(), "net.py:14  KeyError: 'gone'") {
		t.Error(problems)
	}
	// A division that Python 3 can do stays a fraction.
	got, problems := read(t, "print('x')\nMininet(LinearTopo(2), link=partial(TCLink, bw=5 / 2)).start()", formats.Options{})
	if problems.Err() != nil || got.Links[0].Bandwidth != 2.5e6 {
		t.Error(got, problems)
	}
}

// TestMissingModules proves that a module that is not installed does not keep a network from being
// read that needs nothing from it, that the user is told, and that a program that can do without it
// still runs.
func TestMissingModules(t *testing.T) {
	for name, text := range map[string]string{
		"colours":   "from no_termcolor import colored\nprint(colored('x', 'red') + '!')\ninfo(colored('a') + '\\n')",
		"plots":     "import no_matplotlib.pyplot as plt, no_numpy as np\nfig, = [plt.figure()]\nplt.plot(fig)[0].x = 3\nwith plt.style.context('x'): pass",
		"classes":   "import no_paho.mqtt.client as mqtt\nclass C(mqtt.Client):\n    def __init__(self):\n        super().__init__('x'); self.loop_start()\nC().connect('h')",
		"decorator": "import no_click as click\n@click.command()\ndef main(): global ran; ran = True\nmain(); assert ran",
		"wildcard":  "from no_scapy.all import *",
		"a message": "try:\n    import no_psycopg2\nexcept ImportError:\n    print('install psycopg2'); sys.exit(1)\nno_psycopg2.connect('x')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problems := read(t, text+"\nMininet(SingleSwitchTopo(2)).start()", formats.Options{})
			if problems.Err() != nil || len(got.Nodes) != 3 || !strings.Contains(problems.Error(), "is not installed: replaced by a stand-in that does nothing") {
				t.Fatal(problems)
			}
		})
	}
	got, problems := read(t, "try:\n    import foo_of_nobody\n    k = 5\nexcept ImportError:\n    k = 2\nMininet(SingleSwitchTopo(k)).start()", formats.Options{})
	if len(problems) > 0 || len(got.Nodes) != 3 {
		t.Error(problems)
	}
	got, problems = read(t, "import no_numpy as np\nn = Mininet(SingleSwitchTopo(2)); n.start()\nif np.mean([n.pingAll()]) > 3: pass", formats.Options{})
	if problems.Err() != nil || len(got.Nodes) != 3 {
		t.Error(problems)
	}
}

// TestWaits proves that a program that waits in small steps is ended before its time is over, with
// its network and a warning, and that the user is told what is being waited for; and that threads,
// however many, do not hold up a program that has reached its end.
func TestWaits(t *testing.T) {
	t.Parallel()
	told := make(chan string, 1)
	text := "n = Mininet(SingleSwitchTopo(2)); n.start()\nwhile True:\n    threading.Event().wait(0.01); sum(range(3000))"
	got, problems := read(t, text, formats.Options{Waiting: func(what string) { told <- what }})
	if problems.Err() != nil || len(got.Nodes) != 3 || !strings.Contains(problems.Error(), "warning: the program was stopped here after") {
		t.Error(problems)
	}
	if what := <-told; !strings.Contains(what, "net.py: the script is still running") {
		t.Error(what)
	}
	text = "n = Mininet(SingleSwitchTopo(2)); n.start()\nfor _ in range(150): threading.Thread(target=threading.Event().wait).start()"
	begin := time.Now()
	if got, problems = read(t, text, formats.Options{}); problems.Err() != nil || len(got.Nodes) != 3 || strings.Contains(problems.Error(), "did not end") {
		t.Error(problems)
	}
	t.Logf("150 threads that do not end: %s", time.Since(begin))
}
