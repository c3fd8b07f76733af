package ospf

import (
	"slices"
	"testing"
	"time"
)

// office returns who is DR and Backup by what every interface on the link says; it fails when they
// do not agree.
func (s *sim) office(l *simLink) (dr, bdr *Router) {
	s.t.Helper()
	var first *Interface
	for _, i := range l.ends {
		if !i.isUp() || i.router.removed {
			continue
		}
		if first == nil {
			first = i
		}
		if i.dr != first.dr || i.bdr != first.bdr {
			s.t.Errorf("%v has the DR %v and Backup %v, %v has %v and %v", first, first.dr, first.bdr, i, i.dr, i.bdr)
		}
		if i.addr == first.dr {
			dr = i.router
		}
		if i.addr == first.bdr {
			bdr = i.router
		}
	}
	return dr, bdr
}

func priority(p uint8) func(*InterfaceConfig) {
	return func(c *InterfaceConfig) { c.Priority, c.NeverDR = p, p == 0 }
}

// The highest priority becomes DR, the next one Backup, whatever the Router IDs; a router of
// priority 0 becomes neither. The others are adjacent to those two, and 2-Way with each other
// (section 10.4).
func TestElectionByPriority(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(5)
	l := s.lan(0, at(r[0]).with(priority(9)), at(r[1]).with(priority(5)), at(r[2]), at(r[3]), at(r[4]).with(priority(0)))
	s.run(90 * time.Second)
	if dr, bdr := s.office(l); dr != r[0] || bdr != r[1] {
		t.Fatalf("DR %v, Backup %v", dr, bdr)
	}
	for i := range r {
		for j := range r {
			want := NeighborTwoWay
			if i == j {
				want = NeighborDown
			} else if min(i, j) < 2 {
				want = NeighborFull
			}
			if got := l.state(r[i], r[j]); got != want {
				t.Errorf("router %d has %d in state %v, not %v", i, j, got, want)
			}
		}
	}
	s.wantIntraArea(0, r)
}

// A router with a higher priority that comes later changes nothing (section 9.4: the DR stays).
// When the DR dies the Backup takes over, without a new exchange with those it is adjacent to, and
// the best of the others becomes Backup.
func TestBackupTakesOver(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(4)
	l := s.lan(0, at(r[0]).with(priority(3)), at(r[1]).with(priority(2)), at(r[2]), at(r[3]).with(priority(200)))
	l.end(r[3]).Down(s.now)
	s.run(60 * time.Second)
	l.end(r[3]).Up(s.now)
	s.run(60 * time.Second)
	if dr, bdr := s.office(l); dr != r[0] || bdr != r[1] {
		t.Fatalf("before: DR %v, Backup %v", dr, bdr)
	}
	s.changes = nil
	l.end(r[0]).Down(s.now)
	s.run(60 * time.Second)
	if dr, bdr := s.office(l); dr != r[1] || bdr != r[3] {
		t.Fatalf("after: DR %v, Backup %v", dr, bdr)
	}
	if slices.ContainsFunc(s.changes, func(c NeighborChange) bool {
		return c.From == NeighborFull && c.Neighbor == r[1].id && c.Interface.router != r[0]
	}) {
		t.Error("an adjacency with the new DR was lost")
	}
	s.wantIntraArea(0, r[1:])
}

// Where all have priority 0 nobody is elected, and the network is a stub network of each.
func TestNobodyElected(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(2)
	l := s.lan(0, at(r[0]).with(priority(0)), at(r[1]).with(priority(0)))
	s.run(90 * time.Second)
	if dr, bdr := s.office(l); dr != nil || bdr != nil || l.state(r[0], r[1]) != NeighborTwoWay {
		t.Errorf("DR %v, Backup %v, state %v", dr, bdr, l.state(r[0], r[1]))
	}
	s.wantRoute(r[0], "10.0.1.0/24 intra-area cost 10 via 0.0.0.0")
}

// Two parts of a broadcast network that had elected on their own agree on one DR when they are
// joined: of two that declare themselves, the one with the higher priority stays (section 9.4 step
// 3).
func TestPartsOfANetworkAreJoined(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(4)
	l := s.lan(0, at(r[0]).with(priority(7)), at(r[1]), at(r[2]), at(r[3]).with(priority(8)))
	side := func(i *Interface) bool { return i.router == r[0] || i.router == r[1] }
	l.apart = func(a, b *Interface) bool { return side(a) != side(b) }
	s.run(90 * time.Second)
	if l.end(r[0]).State() != InterfaceDR || l.end(r[3]).State() != InterfaceDR {
		t.Fatalf("apart, they are %v and %v", l.end(r[0]).State(), l.end(r[3]).State())
	}
	l.apart = nil
	s.run(90 * time.Second)
	if dr, _ := s.office(l); dr != r[3] {
		t.Errorf("joined, the DR is %v", dr)
	}
	s.wantSame()
	s.wantIntraArea(0, r)
}
