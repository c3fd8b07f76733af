package ospf

import (
	"net/netip"
	"testing"
	"time"
)

func joinVirtually(s *sim, a, b *Router, transit ID) (ab, ba *Interface) {
	s.t.Helper()
	ab, err := a.AddVirtualLink(s.now, VirtualLinkConfig{Transit: transit, Peer: b.id})
	if err == nil {
		ba, err = b.AddVirtualLink(s.now, VirtualLinkConfig{Transit: transit, Peer: a.id})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return ab, ba
}

// far is a network whose area 2 has no border router in the backbone: r0 -backbone- r1 -area 1- r2
// -area 1- r3 -area 2- r4, with a virtual link from r1 to r3.
func far(s *sim, router func(n int) *Router) (r []*Router) {
	for n := range 5 {
		r = append(r, router(n))
	}
	join := s.p2p
	if r[0].domain == r[1].domain {
		join = s.segment
	}
	join(0, at(r[0]).cost(1), at(r[1]).cost(2))
	join(1, at(r[1]).cost(3), at(r[2]).cost(4))
	join(1, at(r[2]).cost(5), at(r[3]).cost(6))
	join(2, at(r[3]).cost(7), at(r[4]).cost(8))
	s.stub(0, at(r[0]).cost(100), "172.16.0.1/24")
	s.stub(2, at(r[4]).cost(100), "172.16.4.1/24")
	joinVirtually(s, r[1], r[3], 1)
	return r
}

func wantFar(s *sim, r []*Router) {
	s.t.Helper()
	s.wantRoute(r[0], "172.16.4.0/24 inter-area cost 116 via 10.0.1.2")
	s.wantRoute(r[1], "172.16.4.0/24 inter-area cost 115 via 10.0.2.2")
	s.wantRoute(r[2], "172.16.4.0/24 inter-area cost 112 via 10.0.3.2")
	s.wantRoute(r[2], "172.16.0.0/24 inter-area cost 106 via 10.0.2.1")
	s.wantRoute(r[3], "172.16.0.0/24 intra-area cost 112 via 10.0.3.1")
	s.wantRoute(r[4], "172.16.0.0/24 inter-area cost 120 via 10.0.4.1")
}

// By a virtual link an area that is not at the backbone has routes to all, and they to it, through
// the routers of the transit area, which say so by the bit V (section 15). When the path through
// the transit area fails the link goes down, and comes back.
func TestVirtualLink(t *testing.T) {
	s := newSim(t, 1)
	r := far(s, func(n int) *Router { return s.router(ID(n + 1).String()) })
	s.run(120 * time.Second)
	wantFar(s, r)
	s.wantSame()
	lsa, _ := r[2].domain.Area(1).LSA(LSAKey{TypeRouter, r[1].id, r[1].id})
	if lsa.flags() != FlagBorder|FlagVirtual {
		t.Errorf("the flags of the endpoint are %#x", lsa.flags())
	}
	// What goes through the transit area is not announced into it.
	if _, ok := r[2].domain.Area(1).LSA(LSAKey{TypeSummary, IDOf(netip.MustParseAddr("172.16.0.0")), r[3].id}); ok {
		t.Error("the far endpoint announces the backbone's network into the transit area")
	}
	s.links[1].end(r[1]).SetCost(s.now, 13)
	s.run(20 * time.Second)
	s.wantRoute(r[0], "172.16.4.0/24 inter-area cost 126 via 10.0.1.2")
	s.links[1].end(r[1]).SetCost(s.now, 3)
	s.fail(s.links[1])
	s.run(90 * time.Second)
	s.wantNoRoute(r[4], "172.16.0.0/24")
	if state := r[3].virtual[0].iface.State(); state != InterfaceDown {
		t.Errorf("without a path the virtual link is %v", state)
	}
	for _, i := range s.links[1].ends {
		i.Up(s.now)
	}
	s.run(120 * time.Second)
	wantFar(s, r)
}

// Where the transit area has a shorter way than that of the virtual link, it is taken (section
// 16.3): r1 and r3 of the square r1-r2-r3-r4 in area 1 have the link, but r4, which is a border
// router too, has a backbone network next to it. For that, ranges of the backbone do not count in a
// transit area (section 12.4.3).
func TestTransitAreaShortens(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(4)
	for _, r := range r {
		if _, err := r.domain.AddArea(AreaConfig{Ranges: []Range{{Prefix: netip.MustParsePrefix("172.16.0.0/16")}}}); err != nil {
			t.Fatal(err)
		}
	}
	s.p2p(1, at(r[0]).cost(1), at(r[1]).cost(1))
	s.p2p(1, at(r[1]).cost(1), at(r[2]).cost(1))
	s.p2p(1, at(r[1]).cost(1), at(r[3]).cost(1))
	s.p2p(0, at(r[0]).cost(50), at(r[3]).cost(50))
	s.stub(0, at(r[3]).cost(1), "172.16.3.1/24")
	joinVirtually(s, r[0], r[2], 1) // r2 is in the backbone by this link only
	s.stub(2, at(r[2]).cost(1), "172.20.2.1/24")
	s.run(120 * time.Second)
	// By the virtual link to r0 and the backbone it would be 2 + 50 + 1.
	s.wantRoute(r[2], "172.16.3.0/24 intra-area cost 3 via 10.0.2.1")
	s.wantRoute(r[1], "172.16.3.0/24 inter-area cost 2 via 10.0.3.2")
	s.wantSame()
}

// AS-external-LSAs do not cross a virtual link (sections 13.3 and 15): they come through the
// transit area. A router behind it has the external route all the same.
func TestExternalsAndVirtualLinks(t *testing.T) {
	s := newSim(t, 1)
	r := far(s, func(n int) *Router { return s.router(ID(n + 1).String()) })
	crossed := 0
	s.tap = func(g Datagram, p *Packet) {
		if u, ok := p.Body.(*LinkStateUpdate); ok && g.Interface.Type() == Virtual {
			for _, l := range u.LSAs {
				if l.Type == TypeExternal {
					crossed++
				}
			}
		}
	}
	s.run(120 * time.Second)
	externals(s, r[0], External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1})
	s.run(20 * time.Second)
	s.wantRoute(r[4], "192.0.2.0/24 type 1 external cost 21 via 10.0.4.1")
	if crossed > 0 {
		t.Errorf("%d AS-external-LSAs crossed the virtual link", crossed)
	}
}

// A virtual link that only one end has does not become Full, and the router does not say by the bit
// V that the area is a transit area (section 12.4.1).
func TestHalfAVirtualLink(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(3)
	s.p2p(0, at(r[0]), at(r[1]))
	s.p2p(1, at(r[1]), at(r[2]))
	if _, err := r[1].AddVirtualLink(s.now, VirtualLinkConfig{Transit: 1, Peer: r[2].id}); err != nil {
		t.Fatal(err)
	}
	s.run(60 * time.Second)
	lsa, _ := r[2].domain.Area(1).LSA(LSAKey{TypeRouter, r[1].id, r[1].id})
	if lsa.flags() != FlagBorder || !s.wasRefused("there is no virtual link to 0.0.1.2 through area 0.0.0.1") {
		t.Errorf("flags %#x, refused %v", lsa.flags(), s.refused)
	}
}
