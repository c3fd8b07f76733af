package e2e

import "testing"

// TestLinkChangesKind proves that a link between two embedded switches which has no device gets one with its delay, and
// loses it again, under traffic of which nothing is lost or doubled, and that the ports' numbers stay.
func TestLinkChangesKind(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up("linear,3")
	m.pingAll(6)
	ports := m.ok("inspect", "--json")
	ping := m.stream("h1", "0.002", "10.0.0.3")
	ping.overtaking = true // those that are on a link of 5 ms when it becomes one of none
	for range 2 {
		ping.more(100) // some go each way
		m.ok("link", "set", "s1-s2", "delay=5ms")
		if rtt := m.rtt("h1", "h2"); rtt < 2*5*slewed {
			t.Errorf("%.3f ms over a link of 5 ms", rtt)
		}
		ping.more(100)
		m.ok("link", "set", "s1-s2", "delay=0ms")
	}
	ping.more(100)
	ping.unbroken("the changes")
	if now := m.ok("inspect", "--json"); now != ports {
		t.Errorf("the lab is not what it was:\n%s\n%s", ports, now)
	}
	m.ok("down")
	m.unchanged(before)
}
