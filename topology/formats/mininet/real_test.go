package mininet

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

const campusFile = "../../../examples/campus.py"

func campus(t *testing.T, opts formats.Options) *topology.Topology {
	t.Helper()
	data, err := os.ReadFile(campusFile)
	if err != nil {
		t.Fatal(err)
	}
	got, problems := Read(campusFile, data, opts)
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	return got
}

// TestCampus proves that the campus reads as ten switches with four hosts each, s1 in the middle,
// ports counted in that order; as a program and by its topos entry alike.
func TestCampus(t *testing.T) {
	got := campus(t, formats.Options{})
	var want []string
	for i := 1; i <= 10; i++ {
		for j := 1; j <= 4; j++ {
			want = append(want, fmt.Sprintf("s%d-h%d", i, 4*(i-1)+j))
		}
	}
	for i := 2; i <= 10; i++ {
		want = append(want, fmt.Sprintf("s1-s%d", i))
	}
	for i, l := range got.Links {
		if l.Name() != want[i] {
			t.Fatalf("link %d is %s, not %s", i, l.Name(), want[i])
		}
	}
	resolved, problems := topology.Resolve(got, topology.Defaults{Datapath: topology.Embedded, Controller: topology.ControllerTrivet})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	last := resolved.Links[len(resolved.Links)-1]
	if len(got.Links) != 49 || *last.Ends[0].Port != 13 || *last.Ends[1].Port != 5 {
		t.Errorf("%d links, the last at ports %d and %d", len(got.Links), *last.Ends[0].Port, *last.Ends[1].Port)
	}
	if got, again := asJSON(got), asJSON(campus(t, formats.Options{Topo: "campus"})); got != again {
		t.Errorf("by topos: %s", again)
	}
}

// TestRealMininet proves that what Write produces for the campus, and for two networks with a
// router between them, is a program that the real Mininet 2.3 runs: every host reaches every other.
// It runs in namespaces of its own, with Linux bridges, which need no kernel module that a minimal
// machine may lack.
func TestRealMininet(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("Mininet needs root")
	}
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-c", "from mininet.net import VERSION; print(VERSION)").Output(); err != nil || !strings.HasPrefix(string(out), "2.3") {
		t.Skipf("Mininet 2.3 is not installed for %s (apt install mininet)", python)
	}
	if _, err := exec.LookPath("brctl"); err != nil {
		t.Skip("brctl is missing (apt install bridge-utils)")
	}
	campus := campus(t, formats.Options{})
	campus.Datapath = topology.Bridge
	for name, c := range map[string]struct {
		t    *topology.Topology
		run  string // Python, after the program's definitions
		want string
	}{
		// One host of each switch pings one of each other, four times: all 1560 pairs would need
		// more neighbour entries than a kernel allows by default.
		"campus": {campus, "net = build(); start(net); print('lost', sum(net.ping(net.hosts[i::4]) for i in range(4))); net.stop()", "lost 0.0"},
		"routed": {routed(t), "sys.argv.append('--ping'); __name__ = '__main__'", "0% dropped (20/20 received)"},
	} {
		t.Run(name, func(t *testing.T) {
			data, lost, err := Write(c.t)
			if err != nil || len(lost) > 0 {
				t.Fatal(lost, err)
			}
			program := string(data)
			if main := strings.Index(program, "if __name__"); main >= 0 {
				program = program[:main] + c.run + "\n" + program[main:]
			}
			cmd := exec.Command("unshare", "-n", "-m", "-p", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
				"mount -t sysfs sysfs /sys; ip link set lo up; exec "+python+" -c 'import sys; exec(sys.stdin.read(), {\"__name__\": \"program\"})'")
			cmd.Stdin = strings.NewReader(program)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Fatalf("%v\n%s\n%s", err, data, out)
			}
		})
	}
}

// routed is a hand-written program: a router between two switches, a static route and a host behind
// a second router, so that pinging needs all of them.
func routed(t *testing.T) *topology.Topology {
	got, problems := read(t, `class R(Node):
    def config(self, **params):
        super().config(**params)
        self.cmd('sysctl net.ipv4.ip_forward=1')
net = Mininet(switch=LinuxBridge, controller=None)
r1 = net.addHost('r1', cls=R, ip='10.1.0.1/24'); r2 = net.addHost('r2', cls=R, ip='10.9.0.2/30')
for i in 1, 2: net.addSwitch('s%d' % i)
h1 = net.addHost('h1', ip='10.1.0.2/24', defaultRoute='via 10.1.0.1')
h2 = net.addHost('h2', ip='10.2.0.2/24', defaultRoute='via 10.2.0.1')
h3 = net.addHost('h3', ip='10.3.0.2/24', defaultRoute='via 10.3.0.1')
net.addLink('s1', r1); net.addLink('s2', r1, params2={'ip': '10.2.0.1/24'}); net.addLink('s1', h1); net.addLink('s2', h2)
net.addLink(r1, r2, params1={'ip': '10.9.0.1/30'}); net.addLink(r2, h3, params1={'ip': '10.3.0.1/24'})
net.build()
r1.cmd('ip route add 10.3.0.0/24 via 10.9.0.2'); r2.cmd('ip route add default via 10.9.0.1')
`, formats.Options{})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	return got
}
