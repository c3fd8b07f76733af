package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// TestVerifyStreams proves that what a link does to packets beside what it is asked to is found, in
// the direction in which it does, and nothing else is: here it is done by netem behind the lab's
// back. On a machine without time what is late is not said to be wrong, but never to be right.
func TestVerifyStreams(t *testing.T) {
	t.Parallel()
	if os.Getenv("TRIVET_FULL_KERNEL") != "1" {
		t.Skip("this may be a kernel without netem; make vm runs the test in one that has it")
	}
	m := newMachine(t)
	m.up(m.file("v.yaml", `
datapath: bridge
controller: none
nodes: {s1: switch, s2: switch, h1: host, h2: host, h3: host}
links:
  - [h1 -- s1, h2 -- s1, s2 -- h3]
  - s1 -- s2
`))
	look := func() verify.Result {
		var r verify.Result
		out := m.run("verify", "--json")
		must(t, json.Unmarshal([]byte(out.out), &r))
		return r
	}
	if r := look(); !r.Holds() {
		t.Fatalf("nothing was done yet: %q", r.Says(verify.Wrong))
	}
	pid := filepath.Join(t.TempDir(), "pid")
	pause := "(while :; do tc qdisc replace dev s1-eth3 root netem loss 100%; sleep 3; tc qdisc replace dev s1-eth3 root netem; sleep 12; done) >/dev/null 2>&1 & echo $! >" + pid
	for _, c := range []struct {
		node, device, do string
		way              string // where it is
		finds            string // what of it is found
		late             bool
	}{
		{"h1", "h1-eth0", "netem loss 2%", "h1 → s1", verify.Loss, false},
		{"h1", "h1-eth0", "netem loss 10%", "h1 → s1", verify.Loss, false},
		{"s1", "s1-eth3", "netem duplicate 10%", "s1 → s2", verify.Duplicate, false},
		{"h3", "h3-eth0", "netem corrupt 5%", "h3 → s2", verify.Corrupt, false},
		{"s2", "s2-eth1", "netem corrupt 5%", "s2 → h3", verify.Corrupt, false},
		{"s1", "s1-eth3", "", "s1 → s2", verify.Loss, false},
		{"s1", "s1-eth3", "netem delay 100ms reorder 10%", "s1 → s2", verify.Reorder, true},
		{"s2", "s2-eth2", "netem delay 50ms reorder 95%", "s2 → s1", verify.Delay, true},
		{"h2", "h2-eth0", "netem delay 5ms reorder 50%", "h2 → s1", verify.Delay, true},
	} {
		undo := "tc qdisc del dev " + c.device + " root"
		if c.do == "" {
			m.exec(c.node, pause)
			undo = "kill $(cat " + pid + "); " + undo
		} else {
			m.exec(c.node, "tc qdisc replace dev "+c.device+" root "+c.do)
		}
		eventually(t, c.do+" at "+c.device+" is found", func() bool {
			r := look()
			for _, said := range r.Says(verify.Wrong) {
				if !strings.HasPrefix(said, c.way+"  ") {
					t.Errorf("%s at %s: %s", c.do, c.device, said)
				}
			}
			all := r.Says(verify.Wrong)
			if c.late {
				all = append(all, r.Says(verify.Untold)...)
			}
			t.Logf("%s at %s, %.0f s: %q", c.do, c.device, r.Seconds, all)
			for _, said := range all {
				if strings.HasPrefix(said, c.way+"  "+c.finds+": ") {
					return true
				}
			}
			return false
		})
		m.exec(c.node, undo)
	}
	m.ok("down")
}

// TestVerifyEgress proves that what becomes of a host's packets before they are on its link is
// found as that link's, and truly: what the host's own firewall refuses (the sender is told), what
// its device drops (it is not), and what is changed there.
func TestVerifyEgress(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("e.yaml", "datapath: bridge\ncontroller: none\nnodes: {s1: switch, h1: host, h2: host, h3: host}\nlinks: [h1 -- s1, h2 -- s1, h3 -- s1]\n"))
	const device = "nft add table netdev x && nft 'add chain netdev x c { type filter hook egress device h1-eth0 priority 0; }' && nft 'add rule netdev x c meta l4proto udp numgen random mod 100 < 10 "
	for _, c := range []struct{ do, finds string }{
		{"nft add table inet x && nft 'add chain inet x c { type filter hook output priority 0; }' && nft 'add rule inet x c meta l4proto udp numgen random mod 100 < 10 drop'", verify.Loss},
		{device + "drop'", verify.Loss},
		{device + "@th,144,8 set 0xa5'", verify.Corrupt}, // a byte of when it was sent
	} {
		m.exec("h1", c.do)
		var r verify.Result
		eventually(t, c.do+" is found", func() bool {
			r = m.verified()
			for _, said := range r.Says(verify.Wrong) {
				if !strings.HasPrefix(said, "h1 → s1  "+c.finds+": ") {
					t.Errorf("%s: %s", c.do, said)
				}
			}
			t.Logf("%s: %q", c.do, r.Says(verify.Wrong))
			return !r.Holds()
		})
		d := direction(t, r, "h1", "s1")
		if n := *d.Check(c.finds).Got; n < 0.05 || n > 0.17 { // of 400 packets at least: five standard deviations
			t.Errorf("%s: %.3f of the packets, not one in ten", c.do, n)
		}
		m.exec("h1", "nft flush ruleset")
	}
	m.ok("down")
}
