package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pings is what trivet ping --json says.
type pings struct {
	Sent     int     `json:"sent"`
	Received int     `json:"received"`
	Loss     float64 `json:"loss"`
	RTT      *struct {
		Min    float64 `json:"min"`
		Median float64 `json:"median"`
		Max    float64 `json:"max"`
	} `json:"rtt_ms"`
	Pairs []struct {
		From, To       string
		Sent, Received int
	} `json:"pairs"`
}

// pingAll lets all hosts of the lab ping each other: pairs requests, each answered, however late on
// a busy machine.
func (m *machine) pingAll(pairs int, flags ...string) pings {
	m.t.Helper()
	p := jsonOf[pings](m, append([]string{"ping", "--all", "--timeout", "30s"}, flags...)...)
	if p.Sent != pairs || p.Received != pairs || p.Loss != 0 || len(p.Pairs) != pairs {
		m.t.Fatalf("want %d pings, all answered: %d sent, %d received, loss %g, %d pairs", pairs, p.Sent, p.Received, p.Loss, len(p.Pairs))
	}
	return p
}

// TestGenerators proves that the topologies of generators come up by either datapath,
// that all of their hosts reach each other (in the ring and the fat-tree: although there
// are loops), and that down leaves the machine as it was.
func TestGenerators(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		hosts int
		flags string
	}{
		{"linear,3", 3, "--datapath bridge"},
		{"linear,3", 3, "--datapath ovs"},
		{"tree,2,3", 9, "--datapath bridge"},
		{"tree,2,3", 9, "--datapath ovs"},
		{"ring,4", 4, "--datapath bridge"},
		{"ring,4", 4, "--datapath ovs"},
		{"fat-tree,4", 8, "--datapath bridge"},
		{"fat-tree,4", 8, "--datapath ovs"},
		{"single,30", 30, "--datapath bridge"},
		{"single,30", 30, "--datapath ovs --ipv6 assigned"},
		{"line,4", 2, "--datapath bridge --ipv6 auto"},
		{"line,40", 2, "--datapath ovs"}, // Open vSwitch follows a packet over 32 such bridges, not over more
		{"line,70", 2, "--datapath ovs --controller none"},
		{"star,3,2", 6, ""},
		{"mesh,4", 4, "--datapath bridge"},
		{"minimal", 2, ""},
	} {
		t.Run(c.what+" "+c.flags, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			contains(t, m.up(append(strings.Fields(c.flags), c.what)...), "up in")
			m.pingAll(c.hosts * (c.hosts - 1))
			if strings.Contains(c.flags, "ipv6") {
				m.pingAll(c.hosts*(c.hosts-1), "-6")
			}
			contains(t, m.ok("down"), "nothing left")
			m.unchanged(before)
		})
	}
}

// TestLoopsDoNotStorm proves that a broadcast ends in a network of loops: a ping of an
// address that nobody has makes hosts ask once a second, and nothing multiplies that.
func TestLoopsDoNotStorm(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"bridge", "ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.up("mesh,4", "--datapath", datapath)
			m.pingAll(12)
			received := func() (n int) {
				_, err := fmt.Sscan(m.exec("h4", "cat /sys/class/net/h4-eth0/statistics/rx_packets"), &n)
				must(t, err)
				return n
			}
			first := received()
			if r := m.run("ping", "h1", "10.9.9.9", "--count", "3", "--interval", "300ms", "--timeout", "300ms"); r.code != 3 {
				t.Error("an address that nobody has should not answer: ", r)
			}
			eventually(t, "a host receives the broadcasts", func() bool { return received() > first })
			if n := received() - first; n > 100 {
				t.Errorf("a host received %d packets of a few broadcasts", n)
			}
		})
	}
}

// TestRouters proves that kernel routers route: each on the way answers a traceroute in its
// turn, TTL falls by one at each, and IPv6 takes the same way.
func TestRouters(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up("line,5", "--nodes", "router", "--ipv6", "assigned")
	m.pingAll(2)
	m.pingAll(2, "-6")
	out := m.exec("h1", "ping -c1 -W30 h2")
	contains(t, out, "ttl=59") // 64 less five routers
	out = m.exec("h1", "ping -6 -c1 -W30 h2")
	contains(t, out, "ttl=59")
	for hop := 1; hop <= 5; hop++ {
		r := m.run("exec", "-n", "h1", "--", "ping", "-4", "-c1", "-W30", "-t", fmt.Sprint(hop), "h2")
		contains(t, strings.ToLower(r.out), fmt.Sprintf("from r%d", hop), "time to live exceeded")
	}
	m.ok("down")
	m.unchanged(before)
}

// TestExamples proves that every example comes up and its hosts reach each other.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file  string
		hosts int
		flags string
		big   bool
	}{
		{"campus.yaml", 40, "", false},
		{"campus.yaml", 40, "--datapath bridge", false},
		{"campus.mn", 40, "--datapath bridge --controller none", false},
		{"campus.py", 40, "--datapath bridge", false},
		{"campus.yaml", 40, "--datapath embedded", false},
		{"routing-nodes.yaml", 3, "", false},
		{"routing-nodes.yaml", 3, "--datapath embedded", false},
		{"ospf-with-frr.yaml", 4, "", false},
		{"ospf-with-frr.yaml", 4, "--datapath frr", false},
		{"c3-edge.yml", 5, "--controller none", false},
		{"c3-edge.yml", 5, "--controller none --datapath bridge", false},
		{"backbone.graphml", 136, "--datapath bridge", true},
	} {
		t.Run(c.file+" "+c.flags, func(t *testing.T) {
			if c.big && testing.Short() {
				t.Skip("big, and -short")
			}
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			m.up(append(strings.Fields(c.flags), example(c.file))...)
			if c.big { // 18,360 pairs: the corners do
				m.ok("ping", "h1", "h2", "-c", "2", "--timeout", "30s")
				m.ok("ping", "h3", fmt.Sprint("h", c.hosts), "-c", "2", "--timeout", "30s")
			} else {
				m.pingAll(c.hosts * (c.hosts - 1))
			}
			m.ok("down")
			m.unchanged(before)
		})
	}
}

// TestTwoSites proves the example with routers, an impaired link and a schedule: pings cross
// it, and take at least as long as the link's delay, there and back.
func TestTwoSites(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up(example("two-sites.yaml"))
	var p pings // the link loses one packet in a thousand
	must(t, json.Unmarshal([]byte(m.run("ping", "h1", "h8", "-c", "5", "-i", "50ms", "--timeout", "30s", "--json").out), &p))
	if p.RTT == nil || p.RTT.Min < 12 { // twice 10 ms, with a jitter of 1 ms each
		t.Errorf("a ping over a link of 10 ms: %+v", p.RTT)
	}
	m.ok("down")
	m.unchanged(before)
}

// TestEveryExample proves that no example of a topology is without a test here, and that each is
// valid. The notebooks are run by make notebook.
func TestEveryExample(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(example("*.*"))
	must(t, err)
	tests, err := filepath.Glob("*_test.go")
	must(t, err)
	var source strings.Builder
	for _, f := range tests {
		text, err := os.ReadFile(f)
		must(t, err)
		source.Write(text)
	}
	m := newMachine(t)
	for _, f := range files {
		if filepath.Ext(f) == ".ipynb" {
			continue
		}
		if !strings.Contains(source.String(), `"`+filepath.Base(f)) {
			t.Errorf("no test names %s", f)
		}
		m.ok("validate", f)
	}
}

// TestControllerThatDoesNotAnswer proves that a lab whose controller is not there comes up all the
// same, and says with exit code 4 and a warning what that means.
func TestControllerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	var r result
	for wait := 2; wait < 200; wait *= 4 { // on a busy machine the switches may not have tried yet
		r = m.want(4, "up", "--name", m.name, "--wait", fmt.Sprint(wait, "s"), example("c3-edge.yml"))
		if strings.Contains(r.out+r.err, "refused") {
			break
		}
		m.ok("down")
	}
	contains(t, r.out+r.err, "bs1", "tcp:127.0.0.1:6653", "refused", "--controller none")
	if labs := jsonOf[[]struct{ Name, State string }](m, "ls"); len(labs) != 1 || labs[0].State != "up" {
		t.Errorf("the lab should be up: %+v", labs)
	}
	m.ok("down")
	m.unchanged(before)
}

// TestOwnNames proves that users on one machine can bring the same file up: by default the second
// one's lab has the user's name behind it, apply finds it, also when all begin at once; and that
// nobody is told to take another's lab down.
func TestOwnNames(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := m.file(m.name+".yaml", "nodes: {h1: host, h2: host}\nlinks: [h1 -- h2]\n")
	as := func(uid string, args ...string) result {
		cmd := m.command(trivet, args...)
		cmd.Env = append(cmd.Env, "SUDO_UID="+uid)
		return m.do(cmd)
	}
	m.ok("up", file)
	r := as("1", "up", file) // daemon, as in every Debian
	contains(t, r.String(), "exit 0", "the lab is called "+m.name+"-daemon: another user has one called "+m.name)
	contains(t, as("1", "up", file).String(), "exit 1", "lab "+m.name+"-daemon is already up; change it")
	r = as("1", "up", "--name", m.name, file)
	contains(t, r.String(), "exit 1", "it is root's; choose another name")
	if strings.Contains(r.String(), "trivet down") {
		t.Error(r)
	}
	contains(t, as("1", "inspect").String(), m.name+"-daemon  up") // of several the user's own
	contains(t, m.want(1, "up", "--name", m.name, file).err, "or take it down:  trivet down "+m.name)
	m.file(m.name+".yaml", "nodes: {h1: host, h2: host, h3: host}\nlinks: [h1 -- h2, h1 -- h3]\n")
	contains(t, as("1", "apply", file).String(), "exit 0", "2 changes made")
	if out := m.ok("inspect", m.name); strings.Contains(out, "h3") {
		t.Errorf("another user's lab was changed:\n%s", out)
	}
	m.ok("down", m.name)
	m.ok("down", m.name+"-daemon")

	var all []*exec.Cmd // at once
	for _, uid := range []string{"1", "2", "3", "4", "5"} {
		cmd := m.command(trivet, "up", file)
		cmd.Env = append(cmd.Env, "SUDO_UID="+uid)
		must(t, m.start(cmd))
		all = append(all, cmd)
	}
	for _, cmd := range all {
		wait(t, cmd)
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Error("exit ", code)
		}
	}
	if n := strings.Count(m.ok("ls"), "\n"+m.name); n != len(all) {
		t.Errorf("there are %d labs:\n%s", n, m.ok("ls"))
	}
	m.ok("down", "--all")
}
