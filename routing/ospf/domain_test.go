package ospf

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"
)

// segment joins routers of one domain without packets, as link does with packets.
func (s *sim) segment(area ID, a, b end) *simLink {
	s.t.Helper()
	return s.connect(area, PointToPoint, a, b)
}

func (s *sim) connect(area ID, typ InterfaceType, ends ...end) *simLink {
	s.t.Helper()
	l := s.link(area, typ, ends...)
	for _, i := range l.ends {
		i.Down(s.now)
	}
	if _, err := l.ends[0].router.domain.Connect(l.ends...); err != nil {
		s.t.Fatal(err)
	}
	for _, i := range l.ends {
		i.Up(s.now)
	}
	return l
}

// twin is the same network twice: routers share domains in one, and are a domain each in the other.
type twin struct{ shared, separate *sim }

// compare fails unless each router has the same routes in both, and both have the same LSAs but for
// sequence numbers.
func (w twin) compare(t *testing.T) {
	t.Helper()
	find := func(s *sim, id ID) *Router {
		for _, d := range s.domains {
			if r := d.Router(id); r != nil {
				return r
			}
		}
		return nil
	}
	n := 0
	for _, d := range w.separate.domains {
		for id, r := range d.routers {
			n++
			got, want := fmt.Sprint(find(w.shared, id).Routes().Routes), fmt.Sprint(r.Routes().Routes)
			if got != want || len(r.Routes().Routes) == 0 {
				t.Fatalf("router %v has shared\n%v\nand separate\n%v", id, got, want)
			}
		}
	}
	if n < 18 {
		t.Fatalf("only %d routers were compared", n)
	}
}

// A random network gives each router the same routes when its routers are shared by a few domains
// (with segments inside of a domain, packets between domains) as when each is a domain of its own;
// also after links have failed. The domains' databases are equal.
func TestSharedDomainEqualsSeparate(t *testing.T) {
	for seed := range *seeds {
		for _, domains := range []int{1, 3} {
			t.Run(fmt.Sprint(seed, domains), func(t *testing.T) {
				w := twin{newSim(t, seed), newSim(t, seed)}
				w.shared.spread, w.shared.segments = domains, true
				for _, s := range []*sim{w.separate, w.shared} {
					s.randomNetwork(0, s.routers(30))
					s.run(120 * time.Second)
				}
				w.compare(t)
				w.shared.wantSame()
				for _, s := range []*sim{w.separate, w.shared} {
					s.fail(s.links[40])
					s.fail(s.links[31])
					s.run(100 * time.Second)
				}
				w.compare(t)
			})
		}
	}
}

// A broadcast network inside of a domain has a Designated Router by the rules of section 9.4, with
// a network-LSA; when it goes the Backup takes its place, and a router of higher priority that
// comes back changes nothing.
func TestBroadcastSegment(t *testing.T) {
	s := newSim(t, 1)
	s.spread, s.segments = 1, true
	r := s.routers(5)
	l := s.lan(0, at(r[0]).with(priority(9)), at(r[1]).with(priority(8)), at(r[2]), at(r[3]), at(r[4]).with(priority(0)))
	s.run(time.Second)
	if dr, bdr := s.office(l); dr != r[0] || bdr != r[1] {
		t.Errorf("DR %v, Backup %v", dr, bdr)
	}
	s.wantIntraArea(0, r)
	l.end(r[0]).Down(s.now)
	s.run(10 * time.Second)
	s.wantIntraArea(0, r[1:])
	l.end(r[0]).Up(s.now)
	s.run(10 * time.Second)
	if dr, bdr := s.office(l); dr != r[1] || bdr != r[3] {
		t.Errorf("then DR %v, Backup %v", dr, bdr)
	}
	s.wantIntraArea(0, r)
	if s.count != 0 {
		t.Errorf("%d packets were sent", s.count)
	}
	l.end(r[3]).Remove(s.now)
	s.run(10 * time.Second)
	l.ends = slices.DeleteFunc(l.ends, func(i *Interface) bool { return i.router == r[3] })
	s.wantIntraArea(0, []*Router{r[0], r[1], r[2], r[4]})
}

// The same for several areas with border routers and external routes; once all in one domain, which
// then sends no packet.
func TestSharedAreas(t *testing.T) {
	for _, domains := range []int{1, 2, 4} {
		w := twin{newSim(t, 3), newSim(t, 3)}
		w.shared.spread, w.shared.segments = domains, true
		for _, s := range []*sim{w.separate, w.shared} {
			routers := s.areasNetwork(4)
			externals(s, routers[3], External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1})
			externals(s, routers[12], External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 3})
			s.run(150 * time.Second)
		}
		w.compare(t)
		w.shared.wantSame()
		if domains == 1 && w.shared.count != 0 {
			t.Errorf("%d packets were sent", w.shared.count)
		}
	}
}

// A virtual link between two routers of one domain works without packets.
func TestVirtualLinkInside(t *testing.T) {
	s := newSim(t, 1)
	d := s.domain()
	r := far(s, func(n int) *Router { return s.routerIn(d, ID(n+1).String()) })
	s.run(10 * time.Second)
	wantFar(s, r)
	if s.count != 0 {
		t.Errorf("%d packets were sent", s.count)
	}
}

// What one shared router learns goes out of the interface of another: x - (a - b - c) - y, where a,
// b, c are one domain. x and y have each other's networks by way of all three; when y's link fails,
// x loses them.
func TestFloodingThroughADomain(t *testing.T) {
	s := newSim(t, 1)
	d := s.domain()
	a, b, c := s.routerIn(d, "0.0.0.1"), s.routerIn(d, "0.0.0.2"), s.routerIn(d, "0.0.0.3")
	x, y := s.router("0.0.0.8"), s.router("0.0.0.9")
	s.segment(0, at(a), at(b))
	s.segment(0, at(b), at(c))
	s.p2p(0, at(x), at(a))
	l := s.p2p(0, at(c), at(y))
	s.stub(0, at(y).cost(1), "172.16.9.1/24")
	externals(s, x, External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1})
	s.run(40 * time.Second)
	s.wantRoute(x, "172.16.9.0/24 intra-area cost 41 via 10.0.3.2")
	s.wantRoute(b, "172.16.9.0/24 intra-area cost 21 via 10.0.2.2")
	s.wantRoute(y, "192.0.2.0/24 type 1 external cost 41 via 10.0.4.1")
	s.wantSame()
	s.fail(l)
	s.run(20 * time.Second)
	s.wantNoRoute(x, "172.16.9.0/24")
	s.wantNoRoute(b, "172.16.9.0/24")
}

// Two routers of one domain and a foreign one on one broadcast network, where all exchange packets:
// all become adjacent, and routes are right.
func TestSharedRoutersOnAMixedNetwork(t *testing.T) {
	s := newSim(t, 1)
	d := s.domain()
	a, b := s.routerIn(d, "0.0.0.1"), s.routerIn(d, "0.0.0.2")
	x := s.router("0.0.0.3")
	s.segment(0, at(a), at(b))
	l := s.lan(0, at(a), at(b), at(x))
	s.stub(0, at(x), "172.16.9.1/24")
	s.run(100 * time.Second)
	for _, r := range []*Router{a, b} {
		if l.state(r, x) != NeighborFull || l.state(x, r) != NeighborFull {
			t.Errorf("%v and the foreign router are %v and %v", r.id, l.state(r, x), l.state(x, r))
		}
	}
	s.wantSame()
	s.wantIntraArea(0, []*Router{a, b, x})
}

// A shared router that is removed with flush is gone from all databases at once; one that dies
// stays in them, unreachable, until its LSAs are an hour old.
func TestRemoveRouter(t *testing.T) {
	for _, flush := range []bool{true, false} {
		s := newSim(t, 1)
		d := s.domain()
		a, b := s.routerIn(d, "0.0.0.1"), s.routerIn(d, "0.0.0.2")
		x := s.router("0.0.0.3")
		s.segment(0, at(a), at(b))
		s.p2p(0, at(a), at(x))
		s.stub(0, at(b), "172.16.2.1/24")
		s.run(30 * time.Second)
		s.wantRoute(x, "172.16.2.0/24 intra-area cost 30 via 10.0.2.1")
		b.Remove(s.now, flush)
		s.run(10 * time.Second)
		s.wantNoRoute(x, "172.16.2.0/24")
		key := LSAKey{TypeRouter, b.id, b.id}
		if _, ok := x.domain.Area(0).LSA(key); ok == flush {
			t.Errorf("flush %v: the router-LSA is there: %v", flush, ok)
		}
		s.run(MaxAge * time.Second)
		if _, ok := x.domain.Area(0).LSA(key); ok {
			t.Errorf("flush %v: after an hour the router-LSA is there", flush)
		}
		s.wantSame()
		if !slices.Equal(s.errors, nil) {
			t.Error(s.errors)
		}
	}
}

// A router that is alone in its domain says goodbye as well: its neighbour has lost its LSAs before
// RouterDeadInterval.
func TestGoodbye(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	s.p2p(0, at(a), at(b))
	externals(s, b, External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1})
	s.run(30 * time.Second)
	b.Remove(s.now, true)
	s.run(2 * time.Second)
	for _, l := range append(a.domain.Area(0).LSAs(), a.domain.Externals()...) {
		if l.AdvRouter == b.id {
			t.Errorf("%v is still there", l.LSAKey)
		}
	}
}

// Tables tell what is different between them.
func TestDiff(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	s.p2p(0, at(a), at(b))
	gone := s.stub(0, at(b), "172.16.1.1/24")
	dearer := s.stub(0, at(b), "172.16.2.1/24")
	s.stub(0, at(b), "172.16.3.1/24")
	s.run(30 * time.Second)
	before := a.Routes()
	if n := len((*Table)(nil).Diff(before)); n != 4 {
		t.Errorf("%d routes are new", n)
	}
	gone.Down(s.now)
	dearer.SetCost(s.now, 77)
	s.stub(0, at(b), "172.16.4.1/24")
	s.run(30 * time.Second)
	var got []string
	for _, c := range before.Diff(a.Routes()) {
		switch {
		case c.Old == nil:
			got = append(got, "+"+c.New.Prefix.String())
		case c.New == nil:
			got = append(got, "-"+c.Old.Prefix.String())
		default:
			got = append(got, fmt.Sprint(c.Old.Prefix, " ", c.Old.Cost, "→", c.New.Cost))
		}
	}
	if want := []string{"-172.16.1.0/24", "172.16.2.0/24 20→87", "+172.16.4.0/24"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// grid makes a domain of n routers in a grid of point-to-point segments, each with a network of its
// own.
func grid(tb testing.TB, n int) *Domain {
	now := simEpoch
	d := NewDomain(Config{}, now)
	side := 1
	for side*side < n {
		side++
	}
	routers := make([]*Router, n)
	add := func(r *Router, cfg InterfaceConfig) *Interface {
		i, err := r.AddInterface(cfg)
		if err != nil {
			tb.Fatal(err)
		}
		return i
	}
	subnet := uint32(10) << 24
	join := func(a, b *Router) {
		p := func(n uint32) netip.Prefix { return netip.PrefixFrom(ID(subnet+n).Addr(), 30) }
		i, j := add(a, InterfaceConfig{Address: p(1)}), add(b, InterfaceConfig{Address: p(2)})
		subnet += 4
		if _, err := d.Connect(i, j); err != nil {
			tb.Fatal(err)
		}
	}
	for v := range n {
		r, err := d.AddRouter(ID(v + 1))
		if err != nil {
			tb.Fatal(err)
		}
		routers[v] = r
		net := netip.PrefixFrom(ID(uint32(100)<<24+uint32(v)<<8+1).Addr(), 24)
		add(r, InterfaceConfig{Type: Broadcast, Address: net, Passive: true})
		if v%side > 0 {
			join(r, routers[v-1])
		}
		if v >= side {
			join(r, routers[v-side])
		}
	}
	for _, r := range routers {
		for _, i := range r.interfaces {
			i.Up(now)
		}
	}
	d.Poll(now)
	d.Poll(now.Add(10 * time.Second))
	return d
}

// Ten thousand routers share one database: each has a route to every network, and a change is told
// once.
func TestTenThousandRouters(t *testing.T) {
	d := grid(t, 10000)
	table := d.Router(1).Routes()
	if want := 10000 + 2*100*99; len(table.Routes) != want {
		t.Fatalf("%d routes, not %d", len(table.Routes), want)
	}
	last, ok := table.Find(netip.MustParsePrefix("100.39.15.0/24"))
	if !ok || last.Cost != 198*10+10 || len(last.NextHops) != 2 {
		t.Errorf("the far corner: %v", last)
	}
	now := simEpoch.Add(time.Minute)
	d.Router(5000).Interfaces()[0].Down(now)
	out := d.Poll(now)
	out = d.Poll(out.Deadline)
	if len(out.Changes) != 1 || out.Changes[0].Area != 0 {
		t.Errorf("changes %v", out.Changes)
	}
	if changes := table.Diff(d.Router(1).Routes()); len(changes) != 1 || changes[0].New != nil {
		t.Errorf("%d differences", len(changes))
	}
}

// BenchmarkRoutes calculates one router's whole table after the other, in a shared domain.
func BenchmarkRoutes(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := grid(b, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				d.Router(ID(i%n + 1)).Routes()
			}
		})
	}
}

// BenchmarkDomain builds a domain of 10,000 routers and reports what each costs in memory.
func BenchmarkDomain(b *testing.B) {
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		d := grid(b, 10000)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/10000, "B/router")
		runtime.KeepAlive(d)
	}
}

// BenchmarkChange is one link of a domain of 10,000 routers going down and up: LSAs, graph, no
// routes.
func BenchmarkChange(b *testing.B) {
	d := grid(b, 10000)
	now := simEpoch.Add(time.Hour / 2)
	i := d.Router(5000).Interfaces()[1]
	for b.Loop() {
		now = now.Add(20 * time.Second)
		i.Down(now)
		d.Poll(now)
		d.Poll(now.Add(time.Second))
		now = now.Add(20 * time.Second)
		i.Up(now)
		d.Poll(now)
		d.Poll(now.Add(time.Second))
	}
}
