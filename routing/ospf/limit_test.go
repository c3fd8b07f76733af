package ospf

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// limited lets a router be dropped that brings more LSAs.
func limited(most int) func(*InterfaceConfig) {
	return func(c *InterfaceConfig) { c.MaxLSAs = most }
}

// prefixes lists so many networks to announce.
func prefixes(from, count int) (list []External) {
	for i := range count {
		list = append(list, External{Prefix: netip.PrefixFrom(ID(0xc0000000+(from+i)<<8).Addr(), 24), Metric: 1})
	}
	return list
}

// dropped says why a router was dropped as a neighbour; empty: it was not.
func (s *sim) dropped(id ID) (reason string) {
	for _, c := range s.changes {
		if c.Neighbor == id && c.To == NeighborDown && c.Reason != "" {
			reason = c.Reason
		}
	}
	return reason
}

// A neighbour that brings more LSAs than it may is dropped, whether it describes them or floods
// them; what it has brought is not kept, the routes of others stay, and after a while it may come
// again.
func TestLimitOfNeighbor(t *testing.T) {
	for _, late := range []bool{false, true} { // it describes them, or floods them when it is Full
		s := newSim(t, 1)
		a, b, evil := s.router("1.1.1.1"), s.router("2.2.2.2"), s.router("6.6.6.6")
		s.p2p(0, at(a), at(b))
		l := s.p2p(0, at(a).with(limited(1000)), at(evil))
		externals(s, b, External{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Metric: 1})
		if !late {
			externals(s, evil, prefixes(0, 3000)...)
		}
		s.run(40 * time.Second)
		if late {
			if l.state(a, evil) != NeighborFull {
				t.Fatal("it is not Full at first")
			}
			externals(s, evil, prefixes(0, 3000)...)
		}
		s.run(30 * time.Second)
		if why := s.dropped(evil.id); !strings.Contains(why, "1000 LSAs") {
			t.Errorf("late %v: it was dropped because of %q", late, why)
		}
		if l.state(a, evil) != NeighborDown || !s.wasRefused("is not taken as a neighbour for another") {
			t.Errorf("late %v: it is %v; refused were %v", late, l.state(a, evil), s.refused)
		}
		s.wantRoute(a, "198.51.100.0/24 type 1 external cost 11 via 10.0.1.2")
		if n := len(a.domain.Externals()); n != 1 {
			t.Errorf("late %v: %d external LSAs are kept", late, n)
		}
		// It mends its ways.
		externals(s, evil, prefixes(0, 500)...)
		s.run(shunTime + 60*time.Second)
		if l.state(a, evil) != NeighborFull || len(a.domain.Externals()) != 501 {
			t.Errorf("late %v: afterwards it is %v, with %d external LSAs", late, l.state(a, evil), len(a.domain.Externals()))
		}
	}
}

// A neighbour whose LSAs are all refreshed while it is exchanging its database anew is not over its
// limit.
func TestLimitCountsLSAsOnce(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	l := s.p2p(0, at(a).with(limited(1000)), at(b))
	externals(s, b, prefixes(0, 900)...)
	for range 3 {
		s.run(40 * time.Second)
		s.cut(l)
		list := prefixes(0, 900)
		for i := range list {
			list[i].Metric = uint32(s.now.Unix())%1000 + 1
		}
		externals(s, b, list...)
		l.end(b).Down(s.now)
		l.end(b).Up(s.now)
		s.run(10 * time.Second)
		l.down = false
	}
	s.run(40 * time.Second)
	if why := s.dropped(b.id); why != "" || l.state(a, b) != NeighborFull || len(a.domain.Externals()) != 900 {
		t.Errorf("dropped: %q; %v, %d external LSAs", why, l.state(a, b), len(a.domain.Externals()))
	}
}

// When an area is full, the neighbour that has brought the most is dropped, not the one who comes
// last; and routers that come one after the other under new names do not fill it.
func TestLimitOfArea(t *testing.T) {
	s := newSim(t, 1)
	a := s.router("1.1.1.1")
	if _, err := a.domain.AddArea(AreaConfig{ID: 0, MaxLSAs: 1000}); err != nil {
		t.Fatal(err)
	}
	b, evil := s.router("2.2.2.2"), s.router("6.6.6.6")
	s.p2p(0, at(a), at(b))
	s.p2p(0, at(a), at(evil))
	externals(s, evil, prefixes(0, 990)...)
	s.run(40 * time.Second)
	externals(s, b, prefixes(2000, 100)...)
	s.run(60 * time.Second)
	if s.dropped(evil.id) == "" || s.dropped(b.id) != "" || s.dropped(a.id) != "" {
		t.Errorf("dropped: %q, and the others %q, %q", s.dropped(evil.id), s.dropped(a.id), s.dropped(b.id))
	}
	if n := len(a.domain.Externals()); n != 100 {
		t.Errorf("%d external LSAs are kept, not the other one's 100", n)
	}
	for i := range 5 {
		next := s.router(fmt.Sprintf("6.6.7.%d", i))
		s.p2p(0, at(a), at(next))
		externals(s, next, prefixes(3000*(i+1), 2000)...)
		s.run(60 * time.Second)
		if n := len(a.domain.Externals()); n > 1000 {
			t.Errorf("%d external LSAs are kept", n)
		}
	}
	if n := len(a.domain.Externals()); n != 100 || s.dropped(b.id) != "" {
		t.Errorf("in the end %d external LSAs are kept; b was dropped: %q", n, s.dropped(b.id))
	}
	if d := s.domains[0]; d.external.foreign != 100 {
		t.Errorf("%d are counted", d.external.foreign)
	}
}
