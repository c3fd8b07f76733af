package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// killDaemon kills the lab's daemon and waits until it is seen to be dead.
func (m *machine) killDaemon() {
	m.t.Helper()
	m.kill("*_[_]daemon*")
	eventually(m.t, "the lab is seen to have no daemon", func() bool {
		return strings.Contains(m.ok("ls"), "orphaned")
	})
}

// packetsTo returns what a switch has counted by its entry for a host's address.
func (m *machine) packetsTo(sw, host string) int {
	m.t.Helper()
	out := m.ok("flows", sw)
	found := regexp.MustCompile(`(?m)^` + sw + `\s+\d+\s+\d+\s+(\d+)\s.*\bdl_dst=` + host + `\b`).FindStringSubmatch(out)
	if found == nil {
		m.t.Fatalf("no entry of %s leads to %s:\n%s", sw, host, out)
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// TestResume proves that a lab whose daemon is killed under traffic loses no packet, neither while
// nobody answers for it nor when another daemon takes over; that entries count on, with what was
// forwarded meanwhile; that the lab can be changed and measured then as before; and that down
// leaves nothing.
func TestResume(t *testing.T) {
	t.Parallel()
	for _, c := range [][]string{
		{"--datapath", "embedded", "--controller", "trivet"}, {"--datapath", "embedded", "--controller", "none"},
		{"--datapath", "ovs", "--controller", "trivet"}, {"--datapath", "bridge", "--controller", "none"},
	} {
		t.Run(c[1]+" "+c[3], func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			m.up(append([]string{"linear,3"}, c...)...)
			m.pingAll(6)
			counts := c[3] == "trivet"
			had := 0
			if counts { // what is shown may be a second old
				m.do(m.command(trivet, "ping", "h1", "h3", "--count", "20")) // Open vSwitch may lose some on a busy machine
				eventually(t, "the pings are counted", func() bool { had = m.packetsTo("s2", "h3"); return had >= 3 })
			}
			// Not by trivet exec, whose end of the connection dies with the daemon.
			ping := m.stream("h1", "0.01", "10.0.0.3")
			m.killDaemon()
			contains(t, m.want(1, "ping", "--all").err, "trivet resume "+m.name, "trivet down "+m.name)
			contains(t, m.ok("resume"), "resumed in")
			ping.more(50)
			n, lost := ping.unbroken("the death and the resumption")
			if counts {
				eventually(t, fmt.Sprintf("s2 counts %d more packets to h3 than %d", n-lost, had), func() bool { return m.packetsTo("s2", "h3") >= had+n-lost })
				if now := m.packetsTo("s2", "h3"); now > had+n+20 {
					t.Errorf("s2 counts %d packets to h3 after %d and %d pings", now, had, n)
				}
			}
			m.pingAll(6)
			m.ok("link", "set", "s1-s2", "down")
			m.want(3, "ping", "h1", "h2", "--count", "1", "--timeout", "200ms")
			m.ok("link", "set", "s1-s2", "up")
			m.pingAll(6)
			contains(t, m.want(1, "resume").err, "its daemon is running")
			m.killDaemon() // and once more
			m.ok("resume")
			m.killDaemon()
			m.ok("down")
			m.unchanged(before)
		})
	}
}

// TestResumeEverything proves the same of all that a lab is made of: delay lines, which end with
// the daemon, are there again; programs in nodes live on.
func TestResumeEverything(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withExternal()
	before := m.snapshot()
	m.up(m.file("everything.yaml", strings.Replace(everything, "  h3: host\n", "  h3: host\n  h4: host\n", 1)+"  - s1 -- h4: {delay: 5ms}\n"))
	m.killDaemon()
	m.ok("resume")
	m.pingAll(12)
	contains(t, m.exec("h1", "ps ax"), "sleep 1000")
	if rtt := m.rtt("h1", "h4"); rtt < 2*5*slewed {
		t.Errorf("%.3f ms over a link of 5 ms", rtt)
	}
	m.ok("down")
	m.unchanged(before)
}

// TestResumeAtOnce proves that a lab can be resumed as soon as its daemon has been killed: what the
// kernel has yet to do to end that, which takes a while for a process of many threads, is waited
// for.
func TestResumeAtOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("linear,3")
	for range 10 {
		var state struct{ PID int } // a child of the daemon's that has yet to become another program looks like it
		must(t, json.Unmarshal([]byte(m.sh("cat /run/trivet/"+m.name+"/state.json")), &state))
		m.sh(fmt.Sprintf("kill -9 %d; %s resume", state.PID, trivet))
	}
	m.pingAll(6)
	contains(t, m.want(1, "resume").err, "its daemon is running")
	m.ok("down")
}

// TestResumeSlowly proves that links are not given up while a lab is taken over, however long that
// takes, here for a controller that is not there: probes come to nobody until then.
func TestResumeSlowly(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.want(4, "up", "--name", m.name, "--wait", "5s", m.file("slowly.yaml", `
nodes: {s1: switch, s2: switch, s3: {switch: {controller: "tcp:127.0.0.1:1"}}, h1: host, h2: host}
links: [h1 -- s1, s1 -- s2: {delay: 1ms}, s2 -- h2, s2 -- s3]
`))
	m.pingAll(2)
	m.killDaemon()
	m.want(4, "resume")
	if r := m.ok("logs"); strings.Contains(r, "link lost") {
		t.Error("links were given up:\n", r)
	}
	m.pingAll(2)
	m.ok("down")
}

// TestResumeNotUp proves that a lab which never came up is not resumed, and that this is said.
func TestResumeNotUp(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.killAt(m.file("lab.yaml", "nodes: {s1: switch, \"h[1-2]\": host}\nlinks: [\"s1 -- h[1-2]\"]\n"), 6)
	contains(t, m.want(1, "resume").err, "before the lab was up", "trivet down "+m.name)
	m.ok("down")
}
