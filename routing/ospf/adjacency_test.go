package ospf

import (
	"testing"
	"time"
)

// Two routers on a point-to-point link become Full, their databases are equal, and each has a route
// to what is behind the other.
func TestPointToPointFull(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	l := s.p2p(0, at(a).cost(5), at(b))
	s.stub(0, at(b).cost(3), "172.16.0.1/24")
	s.run(15 * time.Second)
	if l.state(a, b) != NeighborFull || l.state(b, a) != NeighborFull {
		t.Fatalf("states %v and %v; refused %v", l.state(a, b), l.state(b, a), s.refused)
	}
	s.wantSame()
	s.wantRoute(a, "172.16.0.0/24 intra-area cost 8 via 10.0.1.2")
	s.wantRoute(b, "10.0.1.0/24 intra-area cost 10 via 0.0.0.0")
}

// On a broadcast network two routers wait for RouterDeadInterval, elect the one with the higher
// Router ID, and become Full; the network is one vertex with its network-LSA.
func TestBroadcastFull(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	l := s.lan(0, at(a), at(b))
	s.stub(0, at(b).cost(3), "172.16.0.1/24")
	s.run(39 * time.Second)
	if got := l.ends[0].State(); got != InterfaceWaiting {
		t.Errorf("after 39 s the interface is %v", got)
	}
	s.run(20 * time.Second)
	if l.state(a, b) != NeighborFull || l.state(b, a) != NeighborFull {
		t.Fatalf("states %v and %v; refused %v", l.state(a, b), l.state(b, a), s.refused)
	}
	if l.end(a).State() != InterfaceBackup || l.end(b).State() != InterfaceDR {
		t.Errorf("a is %v, b is %v", l.end(a).State(), l.end(b).State())
	}
	s.wantSame()
	if _, ok := a.domain.Area(0).LSA(LSAKey{TypeNetwork, IDOf(l.end(b).Address().Addr()), b.id}); !ok {
		t.Error("there is no network-LSA")
	}
	s.wantRoute(a, "172.16.0.0/24 intra-area cost 13 via 10.0.1.2")
	s.wantRoute(a, "10.0.1.0/24 intra-area cost 10 via 0.0.0.0")
}
