package e2e

import (
	"slices"
	"testing"
)

// TestClusterReactive proves that where switches in a ring learn reactively and members share them,
// no packet of a flow that has its entries is lost, nor waits for a member, when switches move and
// a member is killed or drained; that all hosts reach each other then, and while a link is down;
// and that down leaves nothing.
func TestClusterReactive(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			f := &sharedLab{machine: newMachine(t)}
			f.withServers()
			before := f.snapshot()
			f.up(f.file("big.yaml", "cluster: [a, b, c]\nlearning: reactive\n"+sharedNetwork[:len(sharedNetwork)-2]+", s4 -- s1]\n"), "--datapath", datapath, "--wait", "1m")
			f.begin(datapath)
			for _, fault := range clusterFaults {
				if slices.Contains([]string{"all switches move", "a member is killed", "a member is drained"}, fault.name) {
					f.endureOf("h3", fault)
					f.pingAll(12)
				}
			}
			f.ok("link", "set", "s1-s2", "down")
			f.pingAll(12)
			f.ok("link", "set", "s1-s2", "up")
			f.pingAll(12)
			f.ok("down")
			f.unchanged(before)
		})
	}
}
