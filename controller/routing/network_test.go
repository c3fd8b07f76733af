package routing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
)

// wires is a network of routers for tests: each link is a subnet 172.16.x.0/30, each router has a
// LAN 10.0.r.0/24 at port 1.
type wires struct {
	Config
	links []discovery.Link
	up    []map[uint32]bool
}

func newWires(routers int) *wires {
	w := &wires{}
	for i := range routers {
		w.Routers = append(w.Routers, Router{DPID: uint64(i + 1), Name: fmt.Sprintf("r%d", i+1)})
		w.up = append(w.up, map[uint32]bool{})
		w.port(i, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 24), 1)
	}
	return w
}

func (w *wires) port(router int, p netip.Prefix, cost uint32) uint32 {
	r := &w.Routers[router]
	number := uint32(len(r.Interfaces) + 1)
	r.Interfaces = append(r.Interfaces, Interface{Port: number, Name: fmt.Sprintf("%s-eth%d", r.Name, number),
		MAC: openflow.MAC{2, 0, 0, byte(router >> 8), byte(router), byte(number)}, Prefixes: []netip.Prefix{p}, Cost: cost})
	w.up[router][number] = true
	return number
}

func (w *wires) join(a, b int, cost uint32) {
	n := len(w.links) / 2
	net := [4]byte{172, 16, byte(n >> 6), byte(n << 2)}
	first, second := net, net
	first[3]++
	second[3] += 2
	pa := w.port(a, netip.PrefixFrom(netip.AddrFrom4(first), 30), cost)
	pb := w.port(b, netip.PrefixFrom(netip.AddrFrom4(second), 30), cost)
	w.links = append(w.links, discovery.Link{From: uint64(a + 1), FromPort: pa, To: uint64(b + 1), ToPort: pb},
		discovery.Link{From: uint64(b + 1), FromPort: pb, To: uint64(a + 1), ToPort: pa})
}

// triangle is three routers of which each is joined with both others.
func triangle() *wires {
	w := newWires(3)
	w.join(0, 1, 1)
	w.join(1, 2, 1)
	w.join(0, 2, 1)
	return w
}

// cut takes a link down: its ports cannot send, and discovery knows it no more.
func (w *wires) cut(i int) {
	l := w.links[2*i]
	w.up[l.From-1][l.FromPort], w.up[l.To-1][l.ToPort] = false, false
	w.links = slices.Delete(slices.Clone(w.links), 2*i, 2*i+2)
}

// without is the same with a link cut.
func (w *wires) without(i int) *wires {
	broken := *w
	broken.up = nil
	for _, up := range w.up {
		broken.up = append(broken.up, maps.Clone(up))
	}
	broken.cut(i)
	return &broken
}

func (w *wires) network(t *testing.T, protocols ...*protocol) *network {
	t.Helper()
	if err := w.check(); err != nil {
		t.Fatal(err)
	}
	n, err := newNetwork(&w.Config, w.up, w.links, protocols)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func randomWires(rng *rand.Rand, routers, extra int) *wires {
	w := newWires(routers)
	for i := 1; i < routers; i++ {
		w.join(rng.IntN(i), i, 1+rng.Uint32N(5))
	}
	for range extra {
		if a, b := rng.IntN(routers), rng.IntN(routers); a != b {
			w.join(a, b, 1+rng.Uint32N(5))
		}
	}
	return w
}

// Proves that in random networks every router has a route to every subnet, that each next hop is
// nearer to it, and that equal costs are all there: distances agree with those by Floyd and
// Warshall.
func TestShortestPaths(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := randomWires(rng, 12, 10)
		n := w.network(t)
		const far = 1 << 30
		dist := make([][]int, len(w.Routers))
		for i := range dist {
			dist[i] = slices.Repeat([]int{far}, len(dist))
			dist[i][i] = 0
		}
		for _, l := range w.links {
			c := w.Routers[l.From-1].Interfaces[l.FromPort-1].Cost
			dist[l.From-1][l.To-1] = min(dist[l.From-1][l.To-1], int(c))
		}
		for k := range dist {
			for i := range dist {
				for j := range dist {
					dist[i][j] = min(dist[i][j], dist[i][k]+dist[k][j])
				}
			}
		}
		for i := range w.Routers {
			for j := range w.Routers {
				r := n.table(i).lookup(netip.AddrFrom4([4]byte{10, 0, byte(j), 77}))
				if r == nil {
					t.Fatalf("seed %d: r%d has no route to r%d", seed, i+1, j+1)
				}
				if i == j {
					if r.Source != Connected {
						t.Fatalf("r%d: own subnet is %v", i+1, r.Source)
					}
					continue
				}
				if int(r.Metric) != dist[i][j]+1 {
					t.Fatalf("seed %d: r%d to r%d costs %d, want %d", seed, i+1, j+1, r.Metric, dist[i][j]+1)
				}
				want := 0
				for _, l := range w.links {
					c := w.Routers[l.From-1].Interfaces[l.FromPort-1].Cost
					if int(l.From-1) == i && int(c)+dist[l.To-1][j] == dist[i][j] {
						want++
					}
				}
				if len(r.Hops) != want {
					t.Fatalf("seed %d: r%d to r%d has %d next hops, want %d", seed, i+1, j+1, len(r.Hops), want)
				}
			}
		}
	}
}

// Proves that while a link fails or comes back, and the routers change their routes in the order
// that layers gives, whatever the order within a round, no packet can go round in a circle.
func TestNoLoopsWhileRoutesChange(t *testing.T) {
	circles := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		w := randomWires(rng, 14, 12)
		whole := w.network(t)
		without := w.without(rng.IntN(len(w.links) / 2)).network(t)
		for _, step := range [][2]*network{{whole, without}, {without, whole}} {
			for lan := range w.Routers {
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(lan), 0}), 24)
				if transition(t, rng, step[0], step[1], Traffic{To: p}, true) {
					t.Fatalf("seed %d: a loop towards %s", seed, p)
				}
				if transition(t, rng, step[0], step[1], Traffic{To: p}, false) {
					circles++
				}
			}
		}
	}
	if circles == 0 {
		t.Error("without the order there is no loop either: the test shows nothing")
	}
}

// transition changes the ways of some traffic from one network's to another's, entry by entry, and
// says whether there was a loop at any time.
func transition(t *testing.T, rng *rand.Rand, from, to *network, what Traffic, ordered bool) (loop bool) {
	t.Helper()
	now := map[int]*Route{}
	var list []change
	for i := range from.routers {
		now[i] = from.wayOf(i, what)
		next := to.wayOf(i, what)
		if next != nil && (now[i] == nil || fmt.Sprint(now[i].Hops) != fmt.Sprint(next.Hops)) {
			list = append(list, change{node: &node{index: i}, traffic: what, route: next, fresh: now[i] == nil})
		}
	}
	order, _ := layers(to, what, list, nil)
	if !ordered {
		clear(order)
	}
	for round := 0; len(list) > 0 && round <= slices.Max(order); round++ {
		for _, i := range rng.Perm(len(list)) {
			if order[i] == round {
				now[list[i].index] = list[i].route
				loop = loop || circle(now)
			}
		}
	}
	return loop
}

// circle says whether next hops lead round in a circle, over any of the equal ones.
func circle(routes map[int]*Route) bool {
	state := map[int]int{}
	var walk func(i int) bool
	walk = func(i int) bool {
		if state[i] != 0 {
			return state[i] == 1
		}
		state[i] = 1
		if r := routes[i]; r != nil && r.Source != Connected {
			for _, h := range r.Hops {
				if h.router >= 0 && walk(h.router) {
					return true
				}
			}
		}
		state[i] = 2
		return false
	}
	for i := range routes {
		if walk(i) {
			return true
		}
	}
	return false
}

// Proves the order among sources: a connected subnet before a given route, that before a path, that
// before a fallback; and that routers on one segment, behind a layer-2 switch, are neighbours.
func TestSourcesAndSegments(t *testing.T) {
	w := newWires(3)
	lan := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)}), 24)
	}
	const sw = 99
	for i := range 3 {
		p := w.port(i, lan(i), 1)
		w.links = append(w.links, discovery.Link{From: uint64(i + 1), FromPort: p, To: sw, ToPort: uint32(i + 1)},
			discovery.Link{From: sw, FromPort: uint32(i + 1), To: uint64(i + 1), ToPort: p})
	}
	via := netip.MustParseAddr("192.168.0.3")
	w.Routers[0].Static = []StaticRoute{
		{To: netip.MustParsePrefix("10.0.1.0/24"), Via: via},
		{To: netip.MustParsePrefix("10.0.2.0/24"), Via: netip.MustParseAddr("192.168.0.2"), Fallback: true},
		{To: netip.MustParsePrefix("10.0.0.0/24"), Via: via},
		{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("192.168.0.77")},
		{To: netip.MustParsePrefix("8.0.0.0/8"), Via: netip.MustParseAddr("9.9.9.9")}, // no such neighbour
	}
	table := w.network(t).table(0)
	for to, want := range map[string]string{
		"10.0.0.5": "connected r1-eth1", "10.0.1.5": "static r1-eth2 via 192.168.0.3 r3", "10.0.2.5": "shortest path r1-eth2 via 192.168.0.3 r3",
		"192.168.0.9": "connected r1-eth2", "8.8.8.8": "static r1-eth2 via 192.168.0.77 ",
	} {
		r := table.lookup(netip.MustParseAddr(to))
		got := fmt.Sprintf("%v %s", r.Source, r.Hops[0].Interface)
		if r.Source != Connected {
			got += fmt.Sprintf(" via %v %s", r.Hops[0].Via, r.Hops[0].Router)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", to, got, want)
		}
	}
}
