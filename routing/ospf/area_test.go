package ospf

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// areasOf lists the areas that a router is attached to.
func areasOf(r *Router) []ID {
	var list []ID
	for _, i := range r.interfaces {
		if i.isUp() && !slices.Contains(list, i.area.id) {
			list = append(list, i.area.id)
		}
	}
	return list
}

// oracleInter returns what each network must cost a router, when all border routers are in the
// backbone: paths inside of an area first, then area, backbone, area (section 3.2).
func (s *sim) oracleInter(r *Router, routers []*Router) map[netip.Prefix]uint32 {
	best := map[netip.Prefix]uint32{}
	better := func(into map[netip.Prefix]uint32, p netip.Prefix, cost uint32) {
		if old, ok := into[p]; !ok || cost < old {
			into[p] = cost
		}
	}
	intra := func(r *Router) map[netip.Prefix]uint32 {
		nets := map[netip.Prefix]uint32{}
		for _, a := range areasOf(r) {
			for p, cost := range s.oracleNets(a, r) {
				better(nets, p, cost)
			}
		}
		return nets
	}
	// fromBackbone is what a router in the backbone has by other border routers.
	fromBackbone := func(x *Router) map[netip.Prefix]uint32 {
		nets := map[netip.Prefix]uint32{}
		dist := oracleDist(s.oracleEdges(0), oracleNode{router: x})
		for _, y := range routers {
			if d, ok := dist[oracleNode{router: y}]; ok && y != x && len(areasOf(y)) > 1 {
				for _, a := range areasOf(y) {
					for p, cost := range s.oracleNets(a, y) {
						if a != 0 {
							better(nets, p, d+cost)
						}
					}
				}
			}
		}
		return nets
	}
	all := func(x *Router) map[netip.Prefix]uint32 {
		nets := fromBackbone(x)
		for p, cost := range intra(x) {
			nets[p] = cost
		}
		return nets
	}
	if slices.Contains(areasOf(r), 0) {
		return all(r)
	}
	area := areasOf(r)[0]
	dist := oracleDist(s.oracleEdges(area), oracleNode{router: r})
	for _, x := range routers {
		if d, ok := dist[oracleNode{router: x}]; ok && len(areasOf(x)) > 1 {
			for p, cost := range all(x) {
				better(best, p, d+cost)
			}
		}
	}
	for p, cost := range intra(r) {
		best[p] = cost
	}
	return best
}

// wantForwarding follows every route of every router hop by hop: each next hop must be the owner of
// its address on that link, and have a route to the network that is cheaper by the link's cost. (A
// border router on the way may prefer a dearer path inside of an area; then it must be of a better
// type.)
func (s *sim) wantForwarding(routers []*Router) {
	s.t.Helper()
	tables := map[*Router]*Table{}
	for _, r := range routers {
		tables[r] = r.Routes()
		networks := r.domain.Networks()
		for _, route := range tables[r].Routes {
			if !slices.Contains(networks, route.Prefix) {
				s.t.Errorf("%v is not among the networks of the databases", route.Prefix)
			}
			if one, ok := r.RouteTo(route.Prefix); !ok || !one.equal(&route) {
				s.t.Fatalf("router %v has %v, and asked for this one %v", r.id, route, one)
			}
		}
	}
	for _, r := range routers {
		for _, route := range tables[r].Routes {
			for _, h := range route.NextHops {
				if h.Addr == ID(0).Addr() {
					continue
				}
				var next *Router
				for _, i := range s.on[h.Interface].ends {
					if i.Address().Addr() == h.Addr {
						next = i.router
					}
				}
				if next == nil {
					s.t.Errorf("router %v: %v: nobody has the next hop", r.id, route)
					continue
				}
				onward, ok := tables[next].Find(route.Prefix)
				if !ok || onward.Type > route.Type || onward.Type == route.Type && onward.Cost+uint32(h.Interface.cost) != route.Cost {
					s.t.Errorf("router %v: %v by cost %d, but there it is %v", r.id, route, h.Interface.cost, onward)
				}
			}
		}
	}
}

// areasNetwork is a backbone of border routers, and areas that hang on two or three of them each.
func (s *sim) areasNetwork(areas int) []*Router {
	cost := func(r *Router) end { return at(r).cost(1 + s.rnd.IntN(9)) }
	borders := s.routers(areas + 2)
	s.randomNetwork(0, borders)
	all := slices.Clone(borders)
	for a := 1; a <= areas; a++ {
		inside := []*Router{}
		for i := range 3 {
			r := s.router(fmt.Sprintf("0.1.%d.%d", a, i+1))
			s.stub(ID(a), cost(r), fmt.Sprintf("172.%d.%d.1/24", 20+a, i))
			for _, o := range inside {
				s.p2p(ID(a), cost(r), cost(o))
			}
			inside = append(inside, r)
		}
		for i, b := range s.rnd.Perm(len(borders))[:2+s.rnd.IntN(2)] {
			s.p2p(ID(a), cost(borders[b]), cost(inside[i%3]))
		}
		all = append(all, inside...)
	}
	return all
}

// In random networks of a backbone and several areas, each router has every network at the oracle's
// cost, every path leads there, and after links have failed this is so again.
func TestAreas(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSim(t, seed)
			routers := s.areasNetwork(4)
			s.run(120 * time.Second)
			s.wantSame()
			s.wantInter(routers)
			for _, l := range s.links {
				if len(l.ends) == 2 && l.ends[0].area.id == 0 && s.connectedWithout(l, routers) {
					s.fail(l)
					break
				}
			}
			s.run(60 * time.Second)
			s.wantInter(routers)
		})
	}
}

func (s *sim) wantInter(routers []*Router) {
	s.t.Helper()
	for _, r := range routers {
		want := s.oracleInter(r, routers)
		for _, route := range r.Routes().Routes {
			if cost, ok := want[route.Prefix]; !ok || cost != route.Cost {
				s.t.Errorf("router %v: %v, want cost %d (%v)", r.id, route, cost, ok)
			}
			delete(want, route.Prefix)
		}
		for p, cost := range want {
			s.t.Errorf("router %v has no route to %v, want cost %d", r.id, p, cost)
		}
	}
	s.wantForwarding(routers)
}

// connectedWithout tells whether the backbone stays in one piece without a link.
func (s *sim) connectedWithout(l *simLink, routers []*Router) bool {
	l.down = true
	defer func() { l.down = false }()
	var backbone []*Router
	for _, r := range routers {
		if slices.Contains(areasOf(r), 0) {
			backbone = append(backbone, r)
		}
	}
	return s.connected(0, backbone)
}

// chain is a router b in the backbone, a border router x between it and area 1, and a router i in
// there: b -5- x -7- i, with i's network 172.16.1.0/24 (cost 2), and b's 172.16.0.0/24 (cost 3).
// prepare sets domains up before interfaces are made.
func chain(s *sim, area1 AreaConfig) (b, x, i *Router) {
	b, x, i = s.router("0.0.0.1"), s.router("0.0.0.2"), s.router("0.0.0.3")
	area1.ID = 1
	for _, r := range []*Router{x, i} {
		if _, err := r.domain.AddArea(area1); err != nil {
			s.t.Fatal(err)
		}
	}
	s.p2p(0, at(b).cost(5), at(x).cost(5))
	s.p2p(1, at(x).cost(7), at(i).cost(7))
	s.stub(0, at(b).cost(3), "172.16.0.1/24")
	s.stub(1, at(i).cost(2), "172.16.1.1/24")
	return b, x, i
}

func externals(s *sim, r *Router, list ...External) {
	s.t.Helper()
	if err := r.SetExternals(s.now, list); err != nil {
		s.t.Fatal(err)
	}
}

// Into a stub area come summaries and a default route with its cost, but no AS-external-LSAs and no
// ASBR summaries (section 3.6).
func TestStubArea(t *testing.T) {
	s := newSim(t, 1)
	b, x, i := chain(s, AreaConfig{Stub: true, DefaultCost: 4})
	externals(s, b, External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 10})
	s.run(40 * time.Second)
	s.wantRoute(x, "192.0.2.0/24 type 1 external cost 15 via 10.0.1.1")
	s.wantNoRoute(i, "192.0.2.0/24")
	s.wantRoute(i, "0.0.0.0/0 inter-area cost 11 via 10.0.2.1")
	s.wantRoute(i, "172.16.0.0/24 inter-area cost 15 via 10.0.2.1")
	if n := len(i.domain.Externals()); n != 0 {
		t.Errorf("%d AS-external-LSAs are in the stub area", n)
	}
	for _, l := range i.domain.Area(1).LSAs() {
		if l.Type == TypeASBRSummary || l.Options&OptionE != 0 {
			t.Errorf("%v with options %#x is in the stub area", l.LSAKey, l.Options)
		}
	}
}

// Into a totally stubby area nothing but the default route comes.
func TestTotallyStubbyArea(t *testing.T) {
	s := newSim(t, 1)
	b, _, i := chain(s, AreaConfig{Stub: true, DefaultCost: 4, NoSummary: true})
	s.run(40 * time.Second)
	s.wantRoute(i, "0.0.0.0/0 inter-area cost 11 via 10.0.2.1")
	s.wantNoRoute(i, "172.16.0.0/24")
	s.wantRoute(b, "172.16.1.0/24 inter-area cost 14 via 10.0.1.2")
}

// External routes of both types, announced in one area, reach another through an ASBR summary; type
// 1 adds the path's cost, type 2 does not, type 1 wins over type 2. When the announcement ends they
// are gone.
func TestExternalRoutes(t *testing.T) {
	s := newSim(t, 1)
	b, x, i := chain(s, AreaConfig{})
	externals(s, i,
		External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 20, Tag: 7},
		External{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Metric: 30, Type2: true},
		External{Prefix: netip.MustParsePrefix("172.16.0.0/24"), Metric: 1}) // there is a path inside
	externals(s, x, External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1, Type2: true})
	s.run(40 * time.Second)
	s.wantRoute(b, "192.0.2.0/24 type 1 external cost 32 via 10.0.1.2")
	s.wantRoute(b, "198.51.100.0/24 type 2 external cost 12/30 via 10.0.1.2")
	s.wantRoute(b, "172.16.0.0/24 intra-area cost 3 via 0.0.0.0")
	if r, _ := b.Routes().Find(netip.MustParsePrefix("192.0.2.0/24")); r.Tag != 7 {
		t.Errorf("the tag is %d", r.Tag)
	}
	if _, ok := b.domain.Area(0).LSA(LSAKey{TypeASBRSummary, i.id, x.id}); !ok {
		t.Error("there is no ASBR summary")
	}
	externals(s, i)
	s.run(20 * time.Second)
	s.wantRoute(b, "192.0.2.0/24 type 2 external cost 5/1 via 10.0.1.2")
	s.wantNoRoute(b, "198.51.100.0/24")
	if _, ok := b.domain.Area(0).LSA(LSAKey{TypeASBRSummary, i.id, x.id}); ok {
		t.Error("the ASBR summary is still there")
	}
	s.wantSame()
}

// Packets for an external network with a forwarding address go there, not to the router that
// announces it; where the address is reached by an external route only, the LSA does not count
// (section 16.4 step 3).
func TestForwardingAddress(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(3)
	s.lan(0, at(r[0]), at(r[1]), at(r[2]))
	s.p2p(0, at(r[0]).cost(1), at(r[1]).cost(1))
	externals(s, r[1],
		External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 20, Forward: netip.MustParseAddr("10.0.1.99")},
		External{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Metric: 20, Forward: netip.MustParseAddr("192.0.2.1")})
	s.run(80 * time.Second)
	s.wantRoute(r[0], "192.0.2.0/24 type 1 external cost 30 via 10.0.1.99")
	s.wantNoRoute(r[0], "198.51.100.0/24")
}

// Of two routers that announce the same network with the same forwarding address and cost, the one
// with the lower Router ID withdraws its LSA (section 12.4.4.1), and announces it again when the
// other ends.
func TestDoubleExternal(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(3)
	s.lan(0, at(r[0]), at(r[1]), at(r[2]))
	x := External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 20, Forward: netip.MustParseAddr("10.0.1.99")}
	externals(s, r[1], x)
	externals(s, r[2], x)
	announcers := func() (list []ID) {
		for _, l := range r[0].domain.Externals() {
			list = append(list, l.AdvRouter)
		}
		return list
	}
	s.run(100 * time.Second)
	if got := announcers(); !slices.Equal(got, []ID{r[2].id}) {
		t.Errorf("announced by %v", got)
	}
	externals(s, r[2])
	s.run(20 * time.Second)
	if got := announcers(); !slices.Equal(got, []ID{r[1].id}) {
		t.Errorf("after the other ended: announced by %v", got)
	}
}

// An area range is announced in the place of the networks in it, at the cost of the farthest, and
// left out when it is hidden; the border router drops what it does not know of it (sections 3.5 and
// 12.4.3).
func TestAreaRanges(t *testing.T) {
	s := newSim(t, 1)
	b, x, i := chain(s, AreaConfig{Ranges: []Range{
		{Prefix: netip.MustParsePrefix("172.16.0.0/20")},
		{Prefix: netip.MustParsePrefix("172.17.0.0/16"), Hide: true},
		{Prefix: netip.MustParsePrefix("172.18.0.0/16")}}})
	s.stub(1, at(i).cost(20), "172.16.2.1/24")
	s.stub(1, at(i).cost(20), "172.17.2.1/24")
	s.run(40 * time.Second)
	s.wantRoute(b, "172.16.0.0/20 inter-area cost 32 via 10.0.1.2")
	s.wantNoRoute(b, "172.16.1.0/24")
	s.wantNoRoute(b, "172.17.0.0/16")
	s.wantNoRoute(b, "172.17.2.0/24")
	s.wantNoRoute(b, "172.18.0.0/16") // nothing is in it
	s.wantRoute(x, "172.16.0.0/20 intra-area cost 27 discard")
	s.wantRoute(x, "172.16.1.0/24 intra-area cost 9 via 10.0.2.2")
	s.wantRoute(i, "172.16.0.0/24 inter-area cost 15 via 10.0.2.1")
}

// Networks that differ in the mask only have LSAs of their own (appendix E), a host route as well.
func TestLinkStateIDsOfOneAddress(t *testing.T) {
	s := newSim(t, 1)
	b, _, i := chain(s, AreaConfig{})
	var list []External
	for _, p := range []string{"10.64.0.0/10", "10.64.0.0/16", "10.64.0.0/24", "10.65.0.0/16", "10.65.0.0/32"} {
		list = append(list, External{Prefix: netip.MustParsePrefix(p), Metric: 1})
	}
	externals(s, i, list...)
	s.run(40 * time.Second)
	for _, x := range list {
		if _, ok := b.Routes().Find(x.Prefix); !ok {
			t.Errorf("there is no route to %v", x.Prefix)
		}
	}
	ids := map[ID]bool{}
	for _, l := range b.domain.Externals() {
		ids[l.ID] = true
	}
	if len(ids) != len(list) || !ids[IDOf(netip.MustParseAddr("10.64.0.0"))] || !ids[IDOf(netip.MustParseAddr("10.64.255.255"))] {
		t.Errorf("Link State IDs %v", ids)
	}
	// One of them goes: the others are unharmed.
	externals(s, i, list[1:]...)
	s.run(20 * time.Second)
	for _, x := range list[1:] {
		if _, ok := b.Routes().Find(x.Prefix); !ok {
			t.Errorf("then there is no route to %v", x.Prefix)
		}
	}
	s.wantNoRoute(b, "10.64.0.0/10")
}

// Where two networks would have one Link State ID, the host route has it and the other network is
// left out; so what is announced comes to rest, in the domain (externals) and in other areas
// (summaries).
func TestLinkStateIDsOfOneAddressThatCollide(t *testing.T) {
	nets := map[netKey]bool{}
	for _, p := range []string{"10.66.0.0/16", "10.66.0.0/31", "10.66.0.1/32", "10.67.0.0/31", "10.67.0.0/32", "10.67.0.1/32"} {
		nets[keyOfPrefix(netip.MustParsePrefix(p))] = true
	}
	var got []string
	ids := assignIDs(nets)
	for _, net := range sortedNets(ids) {
		got = append(got, fmt.Sprint(net.prefix(), " ", ids[net]))
	}
	if want := []string{"10.66.0.0/16 10.66.0.0", "10.66.0.1/32 10.66.0.1", "10.67.0.0/32 10.67.0.0", "10.67.0.1/32 10.67.0.1"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}

	s := newSim(t, 1)
	b, _, i := chain(s, AreaConfig{})
	var list []External
	for net := range nets {
		list = append(list, External{Prefix: net.prefix(), Metric: 1})
	}
	externals(s, i, list...)
	s.run(60 * time.Second)
	sequences := func() (out []string) {
		for _, l := range b.domain.Externals() {
			out = append(out, fmt.Sprint(l.ID, l.Seq))
		}
		slices.Sort(out)
		return out
	}
	before := sequences()
	s.run(60 * time.Second)
	if after := sequences(); len(after) != 4 || !slices.Equal(before, after) || b.domain.Pending() {
		t.Errorf("%v, a minute later %v", before, after)
	}
}

// RFC1583Compatibility (section 16.4.1): an AS boundary router is reached inside of area 1 at a
// cost of 20 and through the backbone at 2. Without compatibility paths inside of an area that is
// not the backbone are preferred; with it the cost decides.
func TestRFC1583Compatibility(t *testing.T) {
	for _, compatible := range []bool{false, true} {
		s := newSim(t, 1)
		s.config.RFC1583Compatibility = compatible
		a, x := s.router("0.0.0.1"), s.router("0.0.0.2")
		s.p2p(1, at(a).cost(20), at(x).cost(20))
		s.p2p(0, at(a).cost(2), at(x).cost(2))
		externals(s, x, External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1})
		s.run(40 * time.Second)
		want := "192.0.2.0/24 type 1 external cost 21 via 10.0.1.2"
		if compatible {
			want = "192.0.2.0/24 type 1 external cost 3 via 10.0.2.2"
		}
		s.wantRoute(a, want)
	}
}

// A link counts when both ends describe it (section 16.1 step 2b), and a summary when it is from a
// border router (section 16.2 step 4). Here c's router-LSA is forged without its links, and a
// summary is forged in the name of b, which is no border router; c outdoes the one, b flushes the
// other (section 13.4).
func TestForgedLSAs(t *testing.T) {
	s := newSim(t, 1)
	a, b, c := s.router("1.1.1.1"), s.router("2.2.2.2"), s.router("3.3.3.3")
	l := s.p2p(0, at(a), at(b))
	s.p2p(0, at(b), at(c))
	s.stub(0, at(c), "172.16.3.1/24")
	externals(s, b, External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1})
	s.run(60 * time.Second)
	forge := func(lsa LSA) {
		p := Packet{RouterID: b.id, Body: &LinkStateUpdate{LSAs: []LSA{lsa}}}
		if err := a.domain.Receive(s.now, l.end(a), l.end(b).Address().Addr(), AllSPFRouters, p.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	key := LSAKey{TypeRouter, c.id, c.id}
	now, _ := a.domain.Area(0).LSA(key)
	stub := RouterLSA{Links: []RouterLink{{LinkStub, IDOf(netip.MustParseAddr("172.16.3.0")), 0xffffff00, 1}}}
	s.drop = func(Datagram) bool { return true }
	forge(NewLSA(key, OptionE, now.Seq+1, 1, stub.Encode()))
	forge(NewLSA(LSAKey{TypeSummary, IDOf(netip.MustParseAddr("172.16.9.0")), b.id}, OptionE, 1, 1, SummaryLSA{0xffffff00, 1}.Encode()))
	s.run(time.Second)
	s.wantNoRoute(a, "172.16.3.0/24")
	s.wantNoRoute(a, "172.16.9.0/24")
	s.drop = nil
	// b has not forged anything: it learns of both when they are flooded to it.
	for _, k := range []LSAKey{key, {TypeSummary, IDOf(netip.MustParseAddr("172.16.9.0")), b.id}} {
		a.domain.Area(0).db.flood(a.domain.Area(0).db.entries[k], nil)
	}
	s.run(30 * time.Second)
	s.wantRoute(a, "172.16.3.0/24 intra-area cost 30 via 10.0.1.2")
	s.wantSame()
	if _, ok := a.domain.Area(0).LSA(LSAKey{TypeSummary, IDOf(netip.MustParseAddr("172.16.9.0")), b.id}); ok {
		t.Error("the forged summary is still there")
	}
}
