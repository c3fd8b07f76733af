package e2e

import (
	"os"
	"testing"
)

// TestColdPairs proves that hosts of larger labs of embedded switches all reach each other at the
// first try, when each pair is new to every switch on its way: what is learned on the way does not
// keep packets from being forwarded.
func TestColdPairs(t *testing.T) {
	labs := map[string]int{"fat-tree,4": 8, "tree,3,3": 27}
	if os.Getenv("TRIVET_SOAK") != "" {
		labs["linear,100"], labs["tree,4,3"] = 100, 81
	}
	for what, hosts := range labs {
		t.Run(what, func(t *testing.T) {
			m := sharedMachine(t)
			m.up(what, "--datapath", "embedded")
			m.pingAll(hosts * (hosts - 1))
			m.ok("down")
		})
	}
}
