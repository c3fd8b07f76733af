package api

import (
	"testing"
	"testing/synctest"

	"trivet.dev/trivet/topology"
)

// Proves that the API shows what is sent between the controller and each switch, and that the load
// that a member of a cluster would report is the sum of what its switches have: nodes, addresses
// and traffic.
func TestSouthbound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "linear,3", topology.Router, "")
		shown, err := b.Topology(ctx)
		b.must(err)
		var least uint64
		for _, s := range shown.Switches {
			if s.Southbound == nil || s.Southbound.Received == 0 || s.Southbound.Sent == 0 {
				t.Fatalf("%+v", s.Southbound)
			}
			least += s.Southbound.Recent
		}
		addresses := 0
		for _, l := range b.topology.Links {
			for _, e := range l.Ends {
				if b.agents[e.Node] != nil {
					addresses += len(e.Addresses)
				}
			}
		}
		for _, n := range b.topology.Nodes {
			addresses += len(n.Loopback)
		}
		load := b.c.Load()
		if load.Nodes != len(shown.Switches) || load.Addresses < addresses || addresses == 0 {
			t.Errorf("%+v of %d nodes with %d addresses", load, len(shown.Switches), addresses)
		}
		// The window moves on: what there was has been within it, unless this test took half a
		// minute.
		if load.Southbound < least {
			t.Logf("%d bytes, before that %d", load.Southbound, least)
		}
		if least == 0 {
			t.Error("nothing in the last 30 s")
		}
	})
}
