package routing

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trivet.dev/trivet/routing/rib"
)

// naive is what r1 uses, by the definition: of each prefix, the best of what all sources have, the
// next hops of a given route being found again for each question.
type naive struct {
	r      *Router
	base   map[netip.Prefix]*Route     // connected, and shortest paths
	spoken [2]map[netip.Prefix]Learned // by ospf, and by rip
	up     map[uint32]bool
}

// shown is how a route is used.
func shown(r *Route) string {
	if r == nil {
		return "none"
	}
	var hops []string
	for _, h := range r.Hops {
		hops = append(hops, fmt.Sprintf("%d/%v/%v", h.Port, h.Via, h.For))
	}
	slices.Sort(hops)
	return fmt.Sprintf("%v %s [%d/%d] tag %d drop %v %s", r.Source, r.Name, r.Distance, r.Metric, r.Tag, r.Drop, strings.Join(hops, " "))
}

func (m *naive) port(a netip.Addr) (port uint32) {
	for _, f := range m.r.Interfaces {
		if m.up[f.Port] && f.reaches(a) {
			return f.Port
		}
	}
	return 0
}

func (m *naive) own(a netip.Addr) bool {
	return slices.ContainsFunc(m.r.Interfaces, func(f Interface) bool {
		return slices.ContainsFunc(f.Prefixes, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

var protocols = [2]string{"ospf", "rip"}

// distance is what the router says of a source; 0 is nothing.
func (m *naive) distance(s Source, name string) rib.Distance {
	if d, ok := m.r.Distances[Origin{s, name}]; ok {
		return d
	}
	return m.r.Distances[Origin{Source: s}]
}

func (m *naive) use(p netip.Prefix) (best *Route) {
	offer := func(r *Route) {
		if own := m.distance(r.Source, r.Name); r.Source == Program && own != 0 {
			r.Distance = own
		} else if r.Distance == 0 && r.Source != Connected {
			r.Distance = cmp.Or(own, map[string]rib.Distance{"rip": 120, "ospf": rib.OSPF}[r.Name], distances[r.Source])
		}
		switch {
		case best != nil && best.Source == r.Source && best.Name == r.Name && best.Rank() == r.Rank() && !best.Drop && !r.Drop:
			best.Hops = append(best.Hops, r.Hops...)
		case r.Distance < rib.Never && (best == nil || r.Rank().Compare(best.Rank()) < 0):
			best = r
		}
	}
	if b := m.base[p]; b != nil {
		r := *b
		offer(&r)
	}
	for i, name := range protocols {
		l, ok := m.spoken[i][p]
		if !ok {
			continue
		}
		r := &Route{Source: Spoken, Name: name, Metric: l.Metric, Tag: l.Tag, Drop: l.Drop}
		for _, h := range l.Hops {
			if m.up[h.Port] {
				r.Hops = append(r.Hops, Hop{Port: h.Port, Via: h.Via})
			}
		}
		if r.Drop || len(r.Hops) > 0 {
			offer(r)
		}
	}
	for _, direct := range []bool{true, false} { // routes that need no others come first
		for _, s := range m.r.Static {
			port := m.port(s.Via)
			if s.To != p || direct != (s.Discard || port > 0) || m.own(s.Via) {
				continue
			}
			r := &Route{Source: Static, Name: s.Program, Distance: s.Distance, Metric: cmp.Or(s.Metric, 1), Tag: s.Tag, Drop: s.Discard}
			switch {
			case s.Program != "":
				r.Source = Program
			case s.Fallback:
				r.Source = Fallback
			}
			switch {
			case s.Discard:
				offer(r)
			case direct:
				r.Hops = []Hop{{Port: port, Via: s.Via}}
				offer(r)
			default:
				if r.Hops = m.behind(s); len(r.Hops) > 0 {
					offer(r)
				}
			}
		}
	}
	return best
}

func (m *naive) behind(s StaticRoute) (hops []Hop) {
	for bits := s.Via.BitLen(); bits > 0; bits-- {
		p, _ := s.Via.Prefix(bits)
		if p == s.To {
			return nil
		}
		if r := m.use(p); r != nil {
			for _, h := range r.Hops {
				if h.Via.IsValid() {
					hops = append(hops, Hop{Port: h.Port, Via: h.Via, For: s.Via})
				}
			}
			return hops
		}
	}
	return nil
}

// Proves, by random routes of all sources that come and go, and ports that go up and down, that a
// router uses the routes that the definition says, of IPv4 and IPv6: the least distance, then the
// least metric, the others as soon as that is gone, discarding ones, and those whose next hops are
// behind others, whatever the order in which they were given; that it is the same where routes are
// computed on demand; and that a feed tells of exactly what changes.
func TestRIB(t *testing.T) {
	prefix := func(v6 bool, level, which int) netip.Prefix {
		if v6 {
			return netip.MustParsePrefix([]string{fmt.Sprintf("fd2%d::/16", level), fmt.Sprintf("fd2%d:1::/32", level), fmt.Sprintf("fd2%d:1:1::/48", level)}[which])
		}
		return netip.MustParsePrefix([]string{fmt.Sprintf("2%d.0.0.0/8", level), fmt.Sprintf("2%d.1.0.0/16", level), fmt.Sprintf("2%d.1.1.0/24", level)}[which])
	}
	inside := func(p netip.Prefix) netip.Addr { return p.Addr().Next().Next() }
	var all []netip.Prefix
	for _, v6 := range []bool{false, true} {
		for level := range 3 {
			for which := range 3 {
				all = append(all, prefix(v6, level, which))
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		w := newWires(3) // r1 – r2, r1 – r3
		w.join(0, 1, 1)
		w.join(0, 2, 2)
		var near [2][]netip.Addr // neighbours of r1, and its own address
		for i := range w.Routers {
			for j := range w.Routers[i].Interfaces {
				f := &w.Routers[i].Interfaces[j]
				a := f.Prefixes[0].Addr().As4()
				f.Prefixes = append(f.Prefixes, netip.MustParsePrefix(fmt.Sprintf("fd00:%x:%x::%x/64", int(a[0])<<8|int(a[1]), int(a[2])<<8|int(a[3])&0xfc, a[3])))
				for k, p := range f.Prefixes {
					if j > 0 || i == 0 && j == 0 {
						near[k] = append(near[k], p.Addr())
					}
				}
			}
		}
		r := &w.Routers[0]
		learned := [2]map[netip.Prefix]Learned{{}, {}}
		told := map[netip.Prefix]*Route{}
		feed := &Feed{self: "ospf", told: rib.NewFeed[Place](sameRoute), routers: []uint64{1}}
		given := func() (s StaticRoute) {
			v6, level := rapid.Bool().Draw(rt, "v6"), rapid.IntRange(0, 2).Draw(rt, "level")
			s = StaticRoute{To: prefix(v6, level, rapid.IntRange(0, 2).Draw(rt, "length")), Metric: uint32(rapid.IntRange(0, 2).Draw(rt, "metric")),
				Distance: rapid.SampledFrom([]rib.Distance{0, 0, 1, 20, 110, 115, 200, 255}).Draw(rt, "distance"), Tag: uint32(rapid.IntRange(0, 1).Draw(rt, "tag"))}
			switch rapid.IntRange(0, 4).Draw(rt, "kind") {
			case 0:
				s.Discard = true
			case 1, 2:
				s.Via = rapid.SampledFrom(near[family(s.To.Addr())]).Draw(rt, "neighbour")
			default: // behind a network of a lower level, or behind none
				s.Via = inside(prefix(v6, max(level-1-rapid.IntRange(0, 1).Draw(rt, "deeper"), 0), rapid.IntRange(0, 2).Draw(rt, "behind")))
				if level == 0 {
					s.Via = netip.MustParseAddr(map[bool]string{false: "99.0.0.1", true: "fd99::1"}[v6])
				}
			}
			switch rapid.IntRange(0, 3).Draw(rt, "whose") {
			case 0:
				if s.Program = "a"; s.Distance == 0 {
					s.Distance = rib.Program
				}
			case 1:
				s.Fallback = s.Distance == 0
			}
			return s
		}
		for range rapid.IntRange(0, 12).Draw(rt, "routes at first") {
			r.Static = append(r.Static, given())
		}
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				if len(r.Static) > 0 {
					i := rapid.IntRange(0, len(r.Static)-1).Draw(rt, "gone")
					r.Static = slices.Delete(slices.Clone(r.Static), i, i+1)
				}
			case 1:
				learned := learned[rapid.IntRange(0, 1).Draw(rt, "protocol")]
				v6 := rapid.Bool().Draw(rt, "v6")
				p := prefix(v6, rapid.IntRange(0, 2).Draw(rt, "level"), rapid.IntRange(0, 2).Draw(rt, "length"))
				if _, ok := learned[p]; ok {
					delete(learned, p)
				} else if learned[p] = (Learned{Prefix: p, Metric: 5, Tag: 3, Drop: true}); rapid.IntRange(0, 3).Draw(rt, "range") > 0 {
					via := netip.MustParseAddr(map[bool]string{false: "172.16.0.2", true: "fe80::2"}[v6])
					learned[p] = Learned{Prefix: p, Metric: 5, Tag: 3, Hops: []LearnedHop{{Port: 2, Via: via}}}
				}
			case 2:
				port := uint32(rapid.IntRange(1, 3).Draw(rt, "port"))
				w.up[0] = maps.Clone(w.up[0])
				w.up[0][port] = !w.up[0][port]
			case 3:
				r.Distances = map[Origin]rib.Distance{{Source: Static}: rapid.SampledFrom([]rib.Distance{1, 115, 120, 255}).Draw(rt, "distance of static")}
				origins := []Origin{{Program, ""}, {Program, "a"}, {Program, "b"}, {Spoken, "ospf"}, {Spoken, "rip"}}
				r.Distances[rapid.SampledFrom(origins).Draw(rt, "origin")] = rapid.SampledFrom([]rib.Distance{1, 105, 115, 125, 255}).Draw(rt, "its distance")
			default:
				r.Static = append(slices.Clone(r.Static), given())
			}
			config := w.Config
			config.Routers = slices.Clone(w.Routers)
			config.Routers[0].Static = nil
			bare, err := newNetwork(&config, w.up, w.links, []*protocol{by(Protocol{Name: "ospf", Paths: [2]bool{true, false}, Speaker: found{}}, 1)})
			if err != nil {
				rt.Fatal(err)
			}
			m := &naive{r: r, base: bare.table(0).routes, spoken: learned, up: w.up[0]}
			want := map[netip.Prefix]string{}
			for _, p := range all {
				want[p] = shown(m.use(p))
			}
			speak := []*protocol{by(Protocol{Name: "ospf", Distance: rib.OSPF, Paths: [2]bool{true, false}}, 1), by(Protocol{Name: "rip", Distance: 120}, 1)}
			for i, s := range speak {
				var sorted []Learned
				for _, p := range slices.SortedFunc(maps.Keys(learned[i]), netip.Prefix.Compare) {
					sorted = append(sorted, learned[i][p])
				}
				s.Speaker = found{1: sorted}
			}
			for _, onDemand := range []bool{false, true} {
				w.Reactive = onDemand
				n, err := newNetwork(&w.Config, w.up, w.links, speak)
				if err != nil {
					rt.Fatal(err)
				}
				for _, p := range all {
					if got := shown(n.route(0, p)); got != want[p] {
						rt.Fatalf("on demand %v: %v is\n%s, want\n%s\ngiven %+v\nlearned %v, up %v", onDemand, p, got, want[p], r.Static, learned, w.up[0])
					}
					used := ""
					for _, c := range n.candidates(0, p) {
						if c.Used == (c.Why != "") || c.Used && used != "" {
							rt.Fatalf("%v: candidate %+v", p, c)
						}
						if c.Used {
							used = shown(c.Route)
						}
					}
					if want := strings.TrimPrefix(want[p], "none"); used != want {
						rt.Fatalf("on demand %v: the candidate of %v that is used is %q, want %q", onDemand, p, used, want)
					}
				}
				follow(rt, feed, n, told, m, onDemand)
			}
		}
	})
}

// follow has a feed tell of a network, and compares what was told with what is used. What has not
// changed since the other picture of the same network is not told again.
func follow(rt *rapid.T, feed *Feed, n *network, told map[netip.Prefix]*Route, m *naive, again bool) {
	feed.tell(n)
	for _, u := range feed.Take() {
		before, had := told[u.Key.Prefix]
		if again || u.Gone && !had || !u.Gone && had && shown(before) == shown(u.Value) {
			rt.Fatalf("told of %v again: %v, before %v", u.Key, shown(u.Value), shown(before))
		}
		if told[u.Key.Prefix] = u.Value; u.Gone {
			delete(told, u.Key.Prefix)
		}
	}
	own := map[netip.Prefix]bool{}
	for _, s := range m.r.Static {
		own[s.To] = own[s.To] || !s.Fallback
	}
	for _, f := range m.r.Interfaces {
		for _, p := range f.Prefixes {
			own[p.Masked()] = true
		}
	}
	for p := range m.spoken[1] {
		own[p] = true
	}
	count := 0
	for p, is := range own {
		if r := m.use(p); is && r != nil {
			if count++; shown(told[p]) != shown(r) {
				rt.Fatalf("told of %v: %v, want %v", p, shown(told[p]), shown(r))
			}
		}
	}
	if count != len(told) {
		rt.Fatalf("%d routes told, want %d", len(told), count)
	}
}

// Proves that a router may be given as many routes behind another one as a program may give, also
// where each packet has its route computed: their next hops are found once, not for each.
func TestManyIndirect(t *testing.T) {
	r := Router{DPID: 1, Name: "r1", Interfaces: []Interface{{Port: 1, Name: "r1-eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}}}
	r.Static = []StaticRoute{{To: netip.MustParsePrefix("11.0.0.0/8"), Via: netip.MustParseAddr("10.0.0.2")}}
	const many = 20000
	at := func(first, last byte, i int) netip.Addr {
		return netip.AddrFrom4([4]byte{first, byte(i >> 8), byte(i), last})
	}
	for i := range many {
		r.Static = append(r.Static, StaticRoute{To: netip.PrefixFrom(at(20, 0, i), 24), Via: at(11, 1, i)})
	}
	c := Config{Routers: []Router{r}, Reactive: true}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	n, err := newNetwork(&c, []map[uint32]bool{{1: true}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, many / 2, many - 1} {
		x := n.lookup(0, at(20, 9, i))
		if x == nil || len(x.Hops) != 1 || x.Hops[0].Via != netip.MustParseAddr("10.0.0.2") || x.Hops[0].For != at(11, 1, i) {
			t.Errorf("route %d is %+v", i, x)
		}
	}
}
