package e2e

import (
	"fmt"
	"testing"
)

// TestLinkChangesKind proves that a link between two embedded switches which has no device gets one
// with its delay, and loses it again, under traffic of which nothing is lost or doubled, and that
// the ports' numbers stay.
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

// TestRoutersLeaveController proves that routers which become Linux routers by apply, and so are
// none of the controller's any more, leave nothing behind at it: the switches beside them forward
// as before, also over a link that is made anew then.
func TestRoutersLeaveController(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	topology := func(routers, between, up string) string {
		return m.file("leave.yaml", fmt.Sprintf(`
nodes: {s1: switch, s2: switch, s3: switch, "r[1-2]": {router: {datapath: %s}}, "h[1-3]": host}
links:
  - [s1 -- h1, s2 -- h2, s3 -- h3, r1 -- r2, r2 -- s3]
  - s1 -- s2: %s
  - s2 -- r1: %s
`, routers, between, up))
	}
	m.up(topology("embedded", "{loss: 1%}", "{}"))
	for range 2 {
		for _, routers := range []string{"kernel", "embedded"} {
			m.ok("apply", topology(routers, "{bandwidth: 10mbit}", "{down: true}"))
			m.ok("ping", "h1", "h2", "--count", "1", "--timeout", "30s")
			m.ok("apply", topology(routers, "{loss: 1%}", "{}"))
			eventually(t, "h1 reaches h3", func() bool { return m.run("ping", "h1", "h3", "--count", "1", "--timeout", "1s").code == 0 })
		}
	}
	m.ok("down")
}
