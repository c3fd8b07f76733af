package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestLinkChangesKind proves that a link between two embedded switches which has no device gets one with its delay, and
// loses it again, under traffic of which nothing is lost or doubled, and that the ports' numbers stay.
func TestLinkChangesKind(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up("linear,3")
	m.pingAll(6)
	ports := m.ok("inspect", "--json")
	const n = 1500
	ping := m.command("nsenter", "--net=/run/trivet/"+m.name+"/ns/net/h1", "ping", "-q", "-i", "0.002", "-c", fmt.Sprint(n), "-W", "60", "10.0.0.3")
	out := m.startOutput(ping)
	for range 2 {
		time.Sleep(300 * time.Millisecond) // some go each way
		m.ok("link", "set", "s1-s2", "delay=5ms")
		if rtt := m.rtt("h1", "h2"); rtt < 2*5 {
			t.Errorf("%.3f ms over a link of 5 ms", rtt)
		}
		m.ok("link", "set", "s1-s2", "delay=0ms")
	}
	if wait(t, ping); !strings.Contains(out.String(), fmt.Sprintf("%d received, 0%% packet loss", n)) || strings.Contains(out.String(), "duplicates") {
		t.Errorf("through the changes: %s", out)
	}
	if now := m.ok("inspect", "--json"); now != ports {
		t.Errorf("the lab is not what it was:\n%s\n%s", ports, now)
	}
	m.ok("down")
	m.unchanged(before)
}
