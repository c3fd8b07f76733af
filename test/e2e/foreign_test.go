package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/lab"
)

// withControllers lets the machine's labs find controllers of others where who runs the tests has
// them; a test that needs one which is not installed is skipped.
func (m *machine) withControllers(names ...string) {
	m.t.Helper()
	places := foreign.PlacesOf(lab.Owner())
	for _, name := range names {
		if _, err := foreign.Lookup(name).Find(places); err != nil {
			m.t.Skip(err)
		}
	}
	m.env = append(m.env, "TRIVET_CONTROLLERS="+places.Cache)
}

// pids lists the machine's processes whose command lines contain a word.
func (m *machine) pids(word string) []string {
	m.t.Helper()
	return strings.Fields(m.sh(`for p in /proc/[0-9]*; do
		case "$(tr '\0' ' ' 2>/dev/null <$p/cmdline || true)" in *awk*|*case*) ;; *` + word + `*) echo ${p#/proc/};; esac; done`))
}

// TestForeignControllers proves that each controller of others that a lab can start carries a line,
// a tree and a campus, in which hosts reach each other; that it does not run as root where it need
// not; and that down leaves nothing of it.
func TestForeignControllers(t *testing.T) {
	t.Parallel()
	for _, c := range foreign.All() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withControllers(c.Name)
			m.carries(c.Name)
		})
	}
	t.Run("os-ken of the distribution", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t)
		m.env = append(m.env, "TRIVET_CONTROLLERS="+m.dir)
		if _, err := os.Stat("/usr/lib/python3/dist-packages/os_ken"); err != nil {
			t.Skip(err)
		}
		m.carries("os-ken")
	})
}

// TestForeignEmbedded proves that the controllers that speak OpenFlow 1.3 drive embedded switches,
// too, which reach them in the lab's namespace; and that of the other it is said that it does not.
func TestForeignEmbedded(t *testing.T) {
	t.Parallel()
	for _, c := range foreign.All() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withControllers(c.Name)
			before := m.snapshot()
			args := []string{"up", "--name", m.name, "linear,3", "--datapath", "embedded", "--controller", c.Name, "--wait", "3m"}
			if c.Embedded == "" {
				contains(t, m.want(1, args...).err, "an embedded switch speaks OpenFlow 1.3, and "+c.Name+" does not")
				return
			}
			m.ok(args...)
			m.pingAll(6)
			m.ok("down")
			m.unchanged(before)
		})
	}
}

func (m *machine) carries(controller string) {
	m.t.Helper()
	before := m.snapshot()
	for _, c := range []struct {
		what  string
		hosts int
	}{{"linear,3", 3}, {"tree,2,3", 9}, {example("campus.yaml"), 40}} {
		contains(m.t, m.up(c.what, "--datapath", "ovs", "--controller", controller), "up in", "controller "+controller)
		// A controller in Python may take longer, on a busy machine, than a host asks for an
		// address (3 s).
		pings := func(args ...string) {
			eventually(m.t, fmt.Sprint("all answer: ping ", args), func() bool {
				return m.run(append([]string{"ping", "--timeout", "30s"}, args...)...).code == 0
			})
		}
		if c.hosts < 40 {
			pings("--all")
		} else { // all of them, in several labs at once, would be too many neighbours for the kernel's one table
			for _, pair := range [][2]string{{"h1", "h40"}, {"h12", "h23"}, {"h40", "h5"}, {"h34", "h33"}} {
				pings(pair[0], pair[1], "--count", "2")
			}
		}
		contains(m.t, m.ok("logs"), "controllers/"+controller+".log")
		m.ok("down")
		m.unchanged(before)
	}
}

// TestForeignUser proves that what belongs to the system runs as nobody, in a namespace of the
// lab's that keeps everybody else from its port.
func TestForeignUser(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withControllers("ovs-testcontroller")
	m.up("linear,2", "--controller", "ovs-testcontroller")
	pid := m.pids("ovs-testcontrolle[r]")[0]
	contains(t, m.sh("cat /proc/"+pid+"/status"), "Uid:\t65534\t65534\t65534\t65534")
	if here, there := m.sh("readlink /proc/self/ns/net"), m.sh("readlink /proc/"+pid+"/ns/net"); here == there {
		t.Error("the controller listens for the whole machine")
	}
	m.ok("down")
}

// TestForeignControllerDies proves what becomes of a lab whose controller dies: with fail_mode
// secure nothing new is forwarded, with standalone the switches come to forward by learning. The
// lab's log says that it is dead, and with an apply of the same file it comes back.
func TestForeignControllerDies(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"secure", "standalone"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withControllers("ovs-testcontroller")
			before := m.snapshot()
			text := "defaults: {switch: {fail_mode: " + mode + "}}\ncontroller: ovs-testcontroller\nnodes: {\"s[1-2]\": switch, \"h[1-4]\": host}\nlinks: [\"s1 -- s2\", \"s1 -- h[1-2]\", \"s2 -- h[3-4]\"]\n"
			m.up(m.file("lab.yaml", text))
			m.ok("ping", "h1", "h3", "--timeout", "30s")
			m.sh("kill -9 " + m.pids("ovs-testcontrolle[r]")[0])
			if mode == "secure" {
				m.want(3, "ping", "h2", "h4")
				contains(t, m.ok("ls"), "controller ovs-testcontroller")
				contains(t, m.ok("apply", m.dir+"/lab.yaml"), "controller ovs-testcontroller has ended: started again")
				eventually(t, "a new controller forwards", func() bool { return m.run("ping", "h2", "h4").code == 0 })
			} else {
				eventually(t, "switches forward by learning", func() bool { return m.run("ping", "h2", "h4").code == 0 })
			}
			contains(t, m.ok("logs"), "the controller ovs-testcontroller has ended: signal: killed")
			m.ok("down")
			m.unchanged(before)
		})
	}
}

// TestForeignDaemonDies proves that a controller outlives the lab's daemon, as do its switches, and
// that down ends it all the same; and so it does whenever in coming up the daemon died.
func TestForeignDaemonDies(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withControllers("ovs-testcontroller")
	before := m.snapshot()
	file := m.file("lab.yaml", "controller: ovs-testcontroller\nnodes: {s1: switch, \"h[1-3]\": host}\nlinks: [\"s1 -- h[1-3]\"]\n")
	m.up(file)
	m.kill("*_[_]daemon*")
	if n := len(m.pids("ovs-testcontrolle[r]")); n != 1 {
		t.Errorf("%d controllers run", n)
	}
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
	for step := 1; !m.killAt(file, step); step++ {
		m.ok("down")
		m.unchanged(before)
	}
	m.ok("down")
	m.unchanged(before)
}

// TestSeveralControllers proves that a switch with two controllers at addresses goes on with the
// one when the other dies.
func TestSeveralControllers(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withControllers("ovs-testcontroller")
	// In OpenFlow 1.3 this one takes packets that come through a patch port for somebody else's.
	for i := 1; i <= 2; i++ {
		m.sh(fmt.Sprintf("ovs-testcontroller -OOpenFlow10 -vsyslog:off --unixctl=none ptcp:%d:127.0.0.1 >/dev/null 2>&1 &", 7000+i))
	}
	eventually(t, "both listen", func() bool { return m.sh("ss -Htln 'sport >= 7001 and sport <= 7002' | wc -l") == "2" })
	m.up(m.file("lab.yaml", "controller: [tcp:127.0.0.1:7001, tcp:127.0.0.1:7002]\nnodes: {\"s[1-2]\": switch, \"h[1-4]\": host}\nlinks: [\"s1 -- s2\", \"s1 -- h[1-2]\", \"s2 -- h[3-4]\"]\n"))
	connected := func(want string) func() bool {
		return func() bool {
			return m.sh("ss -Htn state established 'dport >= 7001 and dport <= 7002' | wc -l") == want
		}
	}
	eventually(t, "each switch has both", connected("4"))
	m.ok("ping", "h1", "h2", "--timeout", "30s")
	m.sh("kill -9 " + m.pids("ptcp:700[1]")[0])
	eventually(t, "each switch has one", connected("2"))
	m.pingAll(12)
	m.ok("down")
}

// TestForeignChanges proves that a lab changes under a controller that has to be told of its ports,
// that it goes over to another controller, of which the first one's process ends, that no link
// comes up that would make a loop, and that a controller does not hold on to a change that has
// failed.
func TestForeignChanges(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withControllers("faucet", "ovs-testcontroller")
	before := m.snapshot()
	const text = "controller: CONTROLLER\nnodes: {\"s[1-2]\": switch, \"h[1-HOSTS]\": host}\nlinks: [\"s1 -- s2\", \"s1 -- h[1-HOSTS]\", {\"s1 -- s2\": {down: true}}]\n"
	file := func(controller, hosts string) string {
		return m.file("lab.yaml", strings.NewReplacer("CONTROLLER", controller, "HOSTS", hosts).Replace(text))
	}
	m.up(file("faucet", "2"))
	m.pingAll(2)
	contains(t, m.want(1, "link", "set", "s1-s2", "--number", "2", "up").err, "loop", "faucet", "stp: true")
	told := func() string { return m.sh("cat /run/trivet/" + m.name + "/controllers/faucet/*.yaml") }
	knows := told()
	bad := strings.NewReplacer("nodes: {", "nodes: {h3: {host: {start: exit 7}}, ", "links: [", "links: [s1 -- h3, ", "CONTROLLER", "faucet", "HOSTS", "2").Replace(text)
	contains(t, m.want(1, "apply", m.file("lab.yaml", bad)).err, "exit status 7")
	if now := told(); now != knows {
		t.Errorf("Faucet is told of what is not there: %s", now)
	}
	m.ok("apply", file("faucet", "4"))
	all := func() bool { return m.run("ping", "--all").code == 0 }
	m.pingAll(12) // Faucet knows the new ports
	m.ok("apply", file("ovs-testcontroller", "4"))
	eventually(t, "the other controller forwards", all)
	if flows := m.sh("ovs-ofctl -OOpenFlow15 dump-flows unix:/run/trivet/" + m.name + "/ovs/s1.mgmt"); strings.Contains(flows, "goto_table") {
		t.Errorf("entries of Faucet are left: %s", flows)
	}
	if n := len(m.pids("fauce[t].faucet")); n != 0 {
		t.Errorf("%d processes of Faucet are left", n)
	}
	m.ok("down")
	m.unchanged(before)
}

// TestForeignLinks proves that a link which comes up again forwards when link set returns, also
// under a controller that has entries for each port that is up.
func TestForeignLinks(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withControllers("faucet")
			m.up("linear,3", "--datapath", datapath, "--controller", "faucet")
			m.pingAll(6) // no neighbour is asked for after that, which would try again
			for _, link := range []string{"s1-s2", "s2-s3", "s1-h1", "s1-s2"} {
				m.ok("link", "set", link, "down")
				m.want(3, "ping", "h1", "h3", "--count", "1", "--timeout", "200ms")
				m.ok("link", "set", link, "up")
				m.pingAll(6)
			}
			m.ok("down")
		})
	}
}

// TestForeignRefused proves that what a controller cannot carry, or is not there, is said before
// anything is made.
func TestForeignRefused(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.env = append(m.env, "TRIVET_CONTROLLERS=/nowhere")
	before := m.snapshot()
	for _, c := range []struct{ what, controller, says string }{
		{"linear,2", "osken", "did you mean os-ken?"},
		{"linear,2", "testcontroller", "did you mean ovs-testcontroller?"},
		{"linear,2", "nox", "did you mean pox?"},
		{"linear,2", "onos", "ovs-testcontroller"},
		{"linear,2", "floodlight", "floodlight is not installed:  git clone https://github.com/floodlight/floodlight /nowhere/floodlight"},
		{"linear,2", "pox,pox", "twice"},
		{"linear,2", "trivet,pox", "name it alone"},
		{"linear,17", "ovs-testcontroller", "room for 16 switches"},
		{"ring,4", "os-ken", "s1, s2, s3, s4 make a loop"},
		{"linear,2", "pox", "pox is not installed:  git clone -b halosaur"},
	} {
		contains(t, m.want(1, "up", "--name", m.name, c.what, "--controller", c.controller).err, c.says)
		m.unchanged(before)
	}
}

// TestForeignControllerBroken proves that a controller that cannot start takes the lab back, and
// says with its own words why.
func TestForeignControllerBroken(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.sh("mkdir -p controllers/faucet/bin")
	must(t, os.Chmod(m.file("controllers/faucet/bin/faucet", "#!/bin/sh\necho no module named faucet >&2\nexit 3\n"), 0o755))
	m.env = append(m.env, "TRIVET_CONTROLLERS="+m.dir+"/controllers")
	before := m.snapshot()
	start := time.Now()
	contains(t, m.want(1, "up", "--name", m.name, "linear,2", "--controller", "faucet", "--wait", "3m").err,
		"the controller faucet exited immediately", "no module named faucet", "nothing is left")
	if time.Since(start) > 150*time.Second {
		t.Error("up waits for a controller that has ended")
	}
	m.unchanged(before)
}
