package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// verified runs verify and reads what it found; the exit code must say the same.
func (m *machine) verified(args ...string) (r verify.Result) {
	m.t.Helper()
	out := m.run(append([]string{"verify", "--quick", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out.out), &r); err != nil {
		m.t.Fatal(err, out)
	}
	if want := exitOf(r); out.code != want {
		m.t.Fatalf("want exit %d: %s", want, out)
	}
	return r
}

// exitOf is the exit code that says what verify found.
func exitOf(r verify.Result) int {
	switch {
	case !r.Holds():
		return 5
	case !r.Told():
		return 6
	}
	return 0
}

// direction returns what was found of a link in a direction.
func direction(t *testing.T, r verify.Result, from, to string) verify.Direction {
	t.Helper()
	for _, l := range r.Links {
		for _, d := range l.Directions {
			if d.From == from && d.To == to {
				return d
			}
		}
	}
	t.Fatalf("nothing is said of %s → %s", from, to)
	return verify.Direction{}
}

// TestVerifyFinds proves that verify finds what is not as the topology says, whatever the lab
// itself believes: each is broken by hand, behind the lab's back, and is the one thing that is
// found wrong, in the direction in which it is.
func TestVerifyFinds(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("v.yaml", `
datapath: bridge
controller: none
nodes: {s1: switch, h1: host, h2: host, h3: host}
links:
  - h1 -- s1
  - s1 -- h2: {bandwidth: 20mbit}
  - s1 -- h3: {bandwidth: 10mbit}
`))
	sound := func() {
		t.Helper()
		eventually(t, "nothing is wrong", func() bool {
			r := m.verified()
			t.Log(r.Says(verify.Wrong))
			return r.Holds()
		})
	}
	sound()
	for _, c := range []struct {
		name, node, do, undo, want string
		less                       bool
	}{
		{"a limit that is gone", "s1", "tc qdisc del dev s1-eth2 root", "link set s1-h2 bandwidth", "s1 → h2  rate", false},
		{"one that is too low", "h3", "tc qdisc replace dev h3-eth0 root tbf rate 5mbit burst 5000 limit 100000", "link set s1-h3 bandwidth", "h3 → s1  rate: ", true},
		{"an MTU", "h1", "ip link set h1-eth0 mtu 1400", "ip link set h1-eth0 mtu 1500", "h1 → s1  mtu: h1-eth0 takes packets of 1400 bytes, not of 1500", false},
		{"an address", "h2", "ip addr add 10.0.0.77/8 dev h2-eth0 && ip addr del 10.0.0.2/8 dev h2-eth0 && ip addr add 10.0.0.2/24 dev h2-eth0",
			"ip addr del 10.0.0.77/8 dev h2-eth0; ip addr del 10.0.0.2/24 dev h2-eth0; ip addr add 10.0.0.2/8 dev h2-eth0", "h2 does not have the address 10.0.0.2/8", false},
		{"a way out", "h3", "ip link add out0 type veth peer name out1", "ip link del out0", "h3 has a device that is not the lab's: out0, out1", false},
		{"a link that is down", "s1", "ip link set s1-eth3 down", "ip link set s1-eth3 up", "s1 → h3  up: ", false},
	} {
		m.exec(c.node, c.do)
		eventually(t, c.name+" is found", func() bool {
			r := m.verified()
			said := strings.Join(r.Says(verify.Wrong), "\n")
			if c.less { // a busy machine may be why, and then it is not said to be wrong; but never to be right
				said += "\n" + strings.Join(r.Says(verify.Untold), "\n")
			}
			t.Logf("%s: %s", c.name, said)
			return strings.Contains(said, c.want) && (c.less || !r.Holds())
		})
		if link, is := strings.CutPrefix(c.undo, "link set "); is { // by hand it would not be what it was
			link, _, _ = strings.Cut(link, " ")
			m.ok("link", "set", link, "bandwidth=30mbit")
			m.ok("link", "set", link, "bandwidth="+map[string]string{"s1-h2": "20mbit", "s1-h3": "10mbit"}[link])
			continue
		}
		m.exec(c.node, c.undo)
	}
	sound()
	m.ok("down")
}

// TestVerifyTellsNot proves that what nothing can show is never ok: a limit behind one as narrow,
// with what is the least; and that an unlimited rate is not held against anything. What the
// terminal shows fits 80 columns.
func TestVerifyTellsNot(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("n.yaml", "nodes: {s1: switch, h1: host, h2: host}\nlinks:\n  - h1 -- s1: {bandwidth: 5mbit}\n  - s1 -- h2: {bandwidth: 5mbit}\n"))
	r := m.verified()
	for _, d := range [][2]string{{"h1", "s1"}, {"s1", "h2"}, {"h2", "s1"}, {"s1", "h1"}} {
		found := direction(t, r, d[0], d[1])
		if c := found.Check(verify.Rate); c.Verdict == verify.OK || !strings.Contains(c.Why, "at least") && !strings.Contains(c.Why, "busy") {
			t.Errorf("%v: %+v", d, *c)
		}
	}
	out := m.run("verify", "--quick").out
	contains(t, out, "DIRECTION", "5 / ≥ ", "on every path to it, carries no more", "isolated from outside", "unknown")
	for line := range strings.Lines(out) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 100 && !strings.HasPrefix(line, "?") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	m.want(1, "verify", "there-is-no-such-lab")
	m.ok("down")
}
