package e2e

import (
	"testing"
	"time"
)

// TestController proves that the built-in controller brings up labs in which every host
// reaches every other at the first try, in trees and in networks with loops, and that
// a lab goes on when a link of a loop fails.
func TestController(t *testing.T) {
	for _, c := range []struct {
		what  string
		hosts int
	}{{"linear,3", 3}, {"tree,2,3", 9}, {"ring,5", 5}, {"fat-tree,4", 8}} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			contains(t, m.up(c.what, "--datapath", "ovs", "--controller", "trivet"), "up in")
			m.pingAll(c.hosts * (c.hosts - 1))
			if c.what == "ring,5" {
				m.ok("link", "set", "s1-s2", "down")
				healed := func() bool { return m.run("ping", "--all", "--timeout", "1s").code == 0 }
				for deadline := time.Now().Add(20 * time.Second); !healed(); {
					if time.Now().After(deadline) {
						t.Fatal("the ring does not heal")
					}
				}
			}
			contains(t, m.ok("down"), "nothing left")
			m.unchanged(before)
		})
	}
}
