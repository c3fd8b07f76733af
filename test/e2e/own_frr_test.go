package e2e

import (
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// TestOwnFRR proves that routers run FRR as their owner has configured it: the example's have
// routes to each other by BGP, as each router's file says; that their interfaces have the addresses
// of those files alone, so that OSPF speaks once on each cable; and nothing is left of the daemons.
func TestOwnFRR(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up(example("own-frr/own-frr.yaml"))
	eventually(t, "h1 reaches h2", func() bool { return m.run("exec", "h1", "--", "ping", "-c", "1", "-W", "1", "10.1.2.10").code == 0 })
	contains(t, m.exec("r1", "ip route show proto bgp; vtysh -c 'show ip ospf neighbor'"), "10.1.2.0/24", "192.0.2.2")
	contains(t, m.ok("path", "h1", "h2"),
		"h1 → r1 → r2 → h2   2 hops", "10.1.2.0/24 via 10.0.0.2 dev r1-eth1 proto bgp")
	const own = "lo 127.0.0.1/8\nlo 192.0.2.1/32\nr1-eth0 10.1.1.1/24\nr1-eth1 10.0.0.1/30"
	if got := m.exec("r1", "ip -4 -o address show | awk '{print $2, $4}'"); got != own {
		t.Errorf("r1 has addresses that its configuration does not give:\n%s", got)
	}
	if got := m.exec("r1", "vtysh -c 'show ip ospf neighbor'"); strings.Count(got, "r1-eth1:") != 1 {
		t.Errorf("OSPF does not speak once on the cable:\n%s", got)
	}
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}

// TestUnaddressed proves, on routers of each kind and in both families, that an interface whose
// addresses are none gets none, in a lab that comes up, is resumed and changes; that what somebody
// gives it stays while other links change; and that apply takes and gives the lab's addresses.
func TestUnaddressed(t *testing.T) {
	for _, datapath := range []string{"kernel", "frr", "bird", "embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if datapath == "frr" || datapath == "bird" {
				m.withDaemons()
			}
			lab := func(ends, delay string) string {
				return m.file("lab.yaml", "name: none\nipv6: assigned\ndefaults: {router: {datapath: "+datapath+"}}\n"+
					"nodes: {\"h[1-2]\": host, \"r[1-2]\": router}\nlinks:\n"+
					"  - h1 -- r1: {delay: "+delay+"}\n  - h2 -- r1\n  - r1 -- r2"+ends+"\n")
			}
			linux := datapath != "embedded" && datapath != "ovs"
			none := ": {from: {address: none}, to: {address: none}}"
			has := func(what string, want ...string) {
				t.Helper()
				m.pingAll(2)
				contains(t, m.exec("h1", "ping -6 -c 1 -w 30 h2"), "1 received")
				if !linux {
					return
				}
				if got := m.exec("r1", "ip -o address show dev r1-eth2 scope global | awk '{print $4}'"); got != strings.Join(want, "\n") {
					t.Errorf("%s: r1-eth2 has %q, not %q", what, got, want)
				}
			}
			warned := m.up(lab(none, "none"))
			has("up")
			if !linux {
				contains(t, warned, "nothing can give r1-eth2 an address")
			}
			contains(t, m.ok("inspect"), "none")
			if linux {
				m.exec("r1", "ip address add 10.9.0.1/30 dev r1-eth2; ip address add fd09::1/64 dev r1-eth2")
			}
			m.ok("apply", lab(none, "1ms"))
			has("another link changed", "10.9.0.1/30", "fd09::1/64")
			if linux {
				m.exec("r1", "ip route add 10.10.0.0/16 via 10.9.0.2; ip -6 route add fd10::/64 via fd09::2; "+
					"ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev r1-eth2")
			}
			m.ok("link", "set", "r1-r2", "delay=1ms")
			has("the link is delayed", "10.9.0.1/30", "fd09::1/64")
			if linux {
				contains(t, m.exec("r1", "ip route; ip -6 route; ip neigh show nud permanent"),
					"10.10.0.0/16 via 10.9.0.2", "fd10::/64 via fd09::2", "02:00:00:00:00:09")
			}
			m.ok("link", "set", "r1-r2", "delay=none")
			m.killDaemon()
			m.ok("resume")
			has("resumed", "10.9.0.1/30", "fd09::1/64")
			contains(t, m.ok("apply", "--dry-run", lab("", "1ms")), "ends.0.addresses none → 172.16.0.1/30, fd00:ffff::1/64")
			m.ok("apply", lab("", "1ms"))
			has("assigned", "172.16.0.1/30", "fd00:ffff::1/64")
			m.ok("apply", lab(none, "1ms"))
			has("taken away")
			if r := m.verified(); !r.Holds() {
				t.Error(r.Says(verify.Wrong))
			}
			m.ok("down")
		})
	}
}
