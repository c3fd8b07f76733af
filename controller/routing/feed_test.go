package routing

import (
	"net/netip"
	"testing"

	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/routing/rib"
)

// Proves that a protocol which redistributes a router's routes is told the same one, be its traffic
// kept off a busy link or not: with few routes and with many, of which each is not asked for by
// itself.
func TestFeedWhileBalanced(t *testing.T) {
	for _, many := range []int{0, fewRoutes} {
		w := triangle()
		w.Routers[0].Distances = map[Origin]rib.Distance{{Source: Computed}: 200}
		w.Routers[0].Static = []StaticRoute{{To: lan(2), Via: netip.MustParseAddr("172.16.0.10"), Distance: 150}}
		for i := range many {
			w.Routers[0].Static = append(w.Routers[0].Static, StaticRoute{To: netip.PrefixFrom(netip.AddrFrom4([4]byte{11, 0, byte(i), 0}), 24),
				Via: netip.MustParseAddr("172.16.0.10")})
		}
		n := w.network(t)
		n.steer(map[Traffic]steer.Ways{{To: lan(2)}: {
			1: {From: 1, To: 2, FromPort: 2, ToPort: 2},
			2: {From: 2, To: 3, FromPort: 3, ToPort: 2},
		}})
		if r := n.route(0, lan(2)); r.Source != Balanced {
			t.Fatalf("r1 is not steered: %+v", r)
		}
		if r := n.usedBeside(0, "ospf")[lan(2)]; r == nil || r.Source != Static {
			t.Errorf("with %d static routes more ospf is told %+v, not the static one", many, r)
		}
	}
}
