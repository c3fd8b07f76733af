package ospf

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// In a day of simulated time LSAs are refreshed, none gets old, no adjacency is lost, and databases
// are equal at each hour (section 14).
func TestOneDay(t *testing.T) {
	s := newSim(t, 5)
	routers := s.areasNetwork(2)
	externals(s, routers[0], External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1})
	s.run(3 * time.Minute)
	s.changes = nil
	lsa, _ := routers[1].domain.Area(0).LSA(LSAKey{TypeRouter, routers[0].id, routers[0].id})
	tables := map[*Router][]Route{}
	for _, r := range routers {
		tables[r] = r.Routes().Routes
	}
	oldest := uint16(0)
	for range 24 {
		s.run(time.Hour)
		s.wantSame()
		for _, l := range append(routers[1].domain.Area(0).LSAs(), routers[1].domain.Externals()...) {
			oldest = max(oldest, l.Age)
		}
	}
	if len(s.changes) > 0 {
		t.Errorf("neighbours changed: %v", s.changes)
	}
	if oldest > 1810 || oldest < 1000 {
		t.Errorf("the oldest LSA was %d s old", oldest)
	}
	for _, r := range routers {
		if !slices.EqualFunc(tables[r], r.Routes().Routes, func(a, b Route) bool { return a.equal(&b) }) {
			t.Errorf("router %v has other routes than a day ago", r.id)
		}
	}
	now, _ := routers[1].domain.Area(0).LSA(LSAKey{TypeRouter, routers[0].id, routers[0].id})
	if n := now.Seq - lsa.Seq; n < 47 || n > 55 {
		t.Errorf("there were %d instances in a day", n)
	}
	if len(s.errors) > 0 {
		t.Error(s.errors)
	}
}

// The LSAs of a router that is gone leave all databases when they are an hour old, at about the
// same time (section 14).
func TestMaxAge(t *testing.T) {
	s := newSim(t, 1)
	a, b, c := s.router("1.1.1.1"), s.router("2.2.2.2"), s.router("3.3.3.3")
	s.p2p(0, at(a), at(b))
	s.cut(s.p2p(0, at(b), at(c)))
	s.links[1].down = false
	s.run(60 * time.Second)
	s.cut(s.links[1])
	key := LSAKey{TypeRouter, c.id, c.id}
	s.run(MaxAge*time.Second - 2*time.Minute)
	if _, ok := a.domain.Area(0).LSA(key); !ok {
		t.Error("it is gone before its time")
	}
	s.run(2 * time.Minute)
	for _, r := range []*Router{a, b} {
		if _, ok := r.domain.Area(0).LSA(key); ok {
			t.Errorf("router %v still has it", r.id)
		}
	}
	s.domains = s.domains[:2] // c is on its own
	s.wantSame()
}

// forge puts an LSA with a sequence number of choice into the router's own database and floods it,
// as if it had been originated so often.
func forge(r *Router, now time.Time, key LSAKey, seq int32) {
	r.domain.advance(now)
	db := r.domain.Area(0).db
	e := db.entries[key]
	db.flood(db.install(NewLSA(key, e.Options, seq, 0, e.Body), false, nil), nil)
}

// After the last sequence number the LSA is flushed from all databases, then begins again with the
// first one; routes come back by themselves (section 12.1.6).
func TestSequenceWrap(t *testing.T) {
	s := newSim(t, 1)
	a, b, c := s.router("1.1.1.1"), s.router("2.2.2.2"), s.router("3.3.3.3")
	s.p2p(0, at(a), at(b))
	s.p2p(0, at(b), at(c))
	s.stub(0, at(a), "172.16.1.1/24")
	s.run(60 * time.Second)
	key := LSAKey{TypeRouter, a.id, a.id}
	forge(a, s.now, key, MaxSequence-1)
	s.run(10 * time.Second)
	a.Interfaces()[1].SetCost(s.now, 11) // MaxSequence
	s.run(10 * time.Second)
	if lsa, _ := c.domain.Area(0).LSA(key); lsa.Seq != MaxSequence {
		t.Fatalf("the sequence number is %x", lsa.Seq)
	}
	a.Interfaces()[1].SetCost(s.now, 12)
	s.run(30 * time.Second)
	for _, r := range []*Router{a, b, c} {
		if lsa, _ := r.domain.Area(0).LSA(key); lsa.Seq != InitialSequence {
			t.Errorf("router %v: the sequence number is %x", r.id, lsa.Seq)
		}
	}
	s.wantRoute(c, "172.16.1.0/24 intra-area cost 32 via 10.0.2.1")
	s.wantSame()
}

// An LSA whose memory has changed is found by its checksum at CheckAge, told, and dropped; when it
// is refreshed it is back. One of the router's own is originated anew (section 14).
func TestDamagedMemory(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	s.p2p(0, at(a), at(b))
	s.run(60 * time.Second)
	for _, r := range []*Router{a, b} {
		e := a.domain.Area(0).db.entries[LSAKey{TypeRouter, r.id, r.id}]
		e.Body = slices.Clone(e.Body)
		e.Body[len(e.Body)-1] ^= 1
	}
	s.run(CheckAge * time.Second)
	if len(s.errors) != 2 {
		t.Errorf("errors %v", s.errors)
	}
	s.run(2 * time.Hour)
	s.wantSame()
	if len(s.errors) != 2 {
		t.Errorf("at last errors %v", s.errors)
	}
}

// MinLSInterval: however often a link's cost changes, instances of the LSA come 5 s apart; the last
// one says what is so. MinLSArrival: instances that come faster than 1 s apart are not taken
// (sections 12.4 and 13 step 5a).
func TestThrottles(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	s.p2p(0, at(a), at(b))
	i := s.stub(0, at(a), "172.16.1.1/24")
	s.run(60 * time.Second)
	key := LSAKey{TypeRouter, a.id, a.id}
	before, _ := a.domain.Area(0).LSA(key)
	for n := range 100 {
		i.SetCost(s.now, uint16(100+n))
		s.run(200 * time.Millisecond)
	}
	s.run(10 * time.Second)
	after, _ := a.domain.Area(0).LSA(key)
	if n := after.Seq - before.Seq; n < 4 || n > 6 {
		t.Errorf("%d instances in 20 s", n)
	}
	s.wantRoute(b, "172.16.1.0/24 intra-area cost 209 via 10.0.1.1")

	n := b.Interfaces()[0].wire.neighbors[0]
	for i, want := range []bool{true, false} { // the second comes at once after the first
		lsa := NewLSA(key, after.Options, after.Seq+1+int32(i), 0, after.Body)
		if err := n.receiveLSA(lsa); (err == nil) != want {
			t.Errorf("instance %d: %v", i, err)
		}
	}
}

// LSA's throttle: the first change waits Initial, later ones Hold, twice that, and so on up to Max;
// after a quiet time it begins anew.
func TestLSAThrottle(t *testing.T) {
	s := newSim(t, 1)
	s.config.LSA = Throttle{Initial: 100 * time.Millisecond, Hold: time.Second, Max: 4 * time.Second}
	a := s.router("1.1.1.1")
	i := s.stub(0, at(a), "172.16.1.1/24")
	seq := func() int32 {
		lsa, _ := a.domain.Area(0).LSA(LSAKey{TypeRouter, a.id, a.id})
		return lsa.Seq
	}
	for range 2 {
		s.run(time.Minute)
		before := seq()
		for n := range 100 {
			i.SetCost(s.now, uint16(100+n))
			s.run(100 * time.Millisecond)
		}
		// At 0.1 s, then 1, 2, 4 s after each other, the last one with what is so at the end.
		s.run(5 * time.Second)
		if n := seq() - before; n != 5 {
			t.Errorf("%d instances", n)
		}
		s.wantRoute(a, "172.16.1.0/24 intra-area cost 199 via 0.0.0.0")
		i.SetCost(s.now, 99)
	}
}

// SPF's throttle: a burst of changes is calculated a few times, with growing intervals.
func TestSPFThrottle(t *testing.T) {
	s := newSim(t, 1)
	s.config.SPF = Throttle{Initial: 100 * time.Millisecond, Hold: time.Second, Max: 4 * time.Second}
	s.config.LSA = Throttle{Hold: time.Millisecond, Max: time.Millisecond}
	a := s.router("1.1.1.1")
	i := s.stub(0, at(a), "172.16.1.1/24")
	s.run(time.Minute)
	s.domains[0].areas = 0
	for n := range 100 {
		i.SetCost(s.now, uint16(100+n))
		s.run(100 * time.Millisecond)
	}
	// 0.1 s, then 1, 2, 4, 4 s after each other: 4 calculations in 10 s.
	if n := s.domains[0].areas; n != 4 {
		t.Errorf("%d calculations", n)
	}
	s.run(20 * time.Second)
	s.wantRoute(a, "172.16.1.0/24 intra-area cost 199 via 0.0.0.0")
}

// The more recent of two instances (section 13.1), in the order of its rules.
func TestCompareInstances(t *testing.T) {
	h := func(seq int32, checksum, age uint16) LSAHeader {
		return LSAHeader{Seq: seq, Checksum: checksum, Age: age}
	}
	for _, c := range []struct {
		a, b LSAHeader
		want int
	}{
		{h(2, 0, 0), h(1, 9, MaxAge), 1},
		{h(InitialSequence, 0, 0), h(MaxSequence, 0, 0), -1},
		{h(1, 8, 0), h(1, 7, MaxAge), 1},
		{h(1, 7, MaxAge), h(1, 7, 5), 1},
		{h(1, 7, 100), h(1, 7, 100+MaxAgeDiff), 0},
		{h(1, 7, 100), h(1, 7, 101+MaxAgeDiff), 1},
		{h(1, 7, 100), h(1, 7, 100), 0},
	} {
		sign := func(n int) int { return min(1, max(-1, n)) }
		if got := sign(c.a.Compare(c.b)); got != c.want {
			t.Errorf("%+v and %+v: %d", c.a, c.b, got)
		}
		if got := sign(c.b.Compare(c.a)); got != -c.want {
			t.Errorf("%+v and %+v: %d", c.b, c.a, got)
		}
	}
}
