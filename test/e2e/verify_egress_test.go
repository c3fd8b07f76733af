package e2e

import (
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

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
				if !strings.HasPrefix(said, "h1 → s1  "+c.finds+": ") && !strings.HasPrefix(said, "h1 has a table of nftables nobody asked for") {
					t.Errorf("%s: %s", c.do, said)
				}
			}
			t.Logf("%s: %q", c.do, r.Says(verify.Wrong))
			d := direction(t, r, "h1", "s1")
			return d.Check(c.finds).Verdict == verify.Wrong
		})
		d := direction(t, r, "h1", "s1")
		if n := *d.Check(c.finds).Got; n < 0.05 || n > 0.17 { // of 400 packets at least: five standard deviations
			t.Errorf("%s: %.3f of the packets, not one in ten", c.do, n)
		}
		m.exec("h1", "nft flush ruleset")
	}
	m.ok("down")
}
