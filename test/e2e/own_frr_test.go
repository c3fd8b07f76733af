package e2e

import "testing"

// TestOwnFRR proves that routers run FRR as their owner has configured it: the example's have
// routes to each other by BGP, as each router's file says, and nothing is left of the daemons.
func TestOwnFRR(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up(example("own-frr/own-frr.yaml"))
	eventually(t, "h1 reaches h2", func() bool { return m.run("exec", "h1", "--", "ping", "-c", "1", "-W", "1", "10.1.2.10").code == 0 })
	contains(t, m.exec("r1", "ip route show proto bgp; vtysh -c 'show ip ospf neighbor'"), "10.1.2.0/24", "192.0.2.2")
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}
