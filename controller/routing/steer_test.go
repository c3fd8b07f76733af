package routing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/routing/rib"
	"trivet.dev/trivet/topology"
)

// randomPath is a path without loops from a router to another; nothing where the walk ends before.
func randomPath(rng *rand.Rand, n *network, from, to int) steer.Ways {
	out, seen := steer.Ways{}, map[int]bool{from: true}
	for at := from; at != to; {
		var ways []steer.Edge
		for segment, f := range n.inner[at] {
			for _, o := range n.members[int(segment)-len(n.routers)] {
				if !seen[o.router] {
					ways = append(ways, steer.Edge{From: n.routers[at].DPID, To: n.routers[o.router].DPID, FromPort: f.Port, ToPort: o.itf.Port})
				}
			}
		}
		if len(ways) == 0 {
			return nil
		}
		e := ways[rng.IntN(len(ways))]
		out[e.From], at = e, n.index[e.To]
		seen[at] = true
	}
	return out
}

func lan(router int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(router), 0}), 24)
}

// Proves that routers take the ways that they are steered by, whether routes are computed in
// advance or on demand; that others go on as before; that no packet can go round while they change
// in the order of layers, neither all nor a part; and that once a link of the way is down, those
// before it take their own routes.
func TestSteer(t *testing.T) {
	steered, broken := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := randomWires(rng, 12, 10)
		before, after := w.network(t), w.network(t)
		p := lan(0)
		ways := randomPath(rng, before, 11, 0)
		if ways == nil {
			continue
		}
		steered++
		after.steer(map[Traffic]steer.Ways{{To: p}: ways})
		for _, step := range [][2]*network{{before, after}, {after, before}} {
			if transition(t, rng, step[0], step[1], Traffic{To: p}, true) {
				t.Fatalf("seed %d: a loop", seed)
			}
		}
		part := Traffic{To: p, Part: Part{Proto: openflow.IPProtoTCP, Index: 3}}
		other := w.network(t)
		other.steer(map[Traffic]steer.Ways{part: ways, {To: p}: randomPath(rng, before, 11, 0)})
		for _, step := range [][2]*network{{before, other}, {other, before}} { // the rest has another way
			if transition(t, rng, step[0], step[1], part, true) {
				t.Fatalf("seed %d: a loop of a part", seed)
			}
		}
		for i := range w.Routers {
			if r, e := other.wayOf(i, part), ways[w.Routers[i].DPID]; e.To != 0 && (len(r.Hops) != 1 || r.Hops[0].Port != e.FromPort) {
				t.Fatalf("seed %d: r%d should send the part by port %d, and has %+v", seed, i+1, e.FromPort, r)
			} else if e.To == 0 && i > 0 && fmt.Sprint(r.Hops) != fmt.Sprint(other.route(i, p).Hops) {
				t.Fatalf("seed %d: r%d is not to lead the part, and has %+v", seed, i+1, r)
			}
		}
		w.Reactive = true
		demand := w.network(t)
		demand.steer(map[Traffic]steer.Ways{{To: p}: ways})
		for i := range w.Routers {
			e, ok := ways[w.Routers[i].DPID]
			for _, n := range []*network{after, demand} {
				r, home := n.routeAndHome(i, p)
				old := before.route(i, p)
				switch {
				case !ok && (r.Source == Balanced || r.Metric != old.Metric):
					t.Fatalf("seed %d: r%d was not steered, and has %+v", seed, i+1, r)
				case ok && (r.Source != Balanced || len(r.Hops) != 1 || r.Hops[0].Port != e.FromPort || home.Source == Balanced || home.Metric != old.Metric):
					t.Fatalf("seed %d: r%d should send by port %d, and has %+v; at home %+v", seed, i+1, e.FromPort, r, home)
				}
			}
		}
		// The last link of the way fails: nobody may be steered towards it.
		w.Reactive = false
		for i := range w.links {
			if l := w.links[i]; ways[l.From].FromPort == l.FromPort && ways[l.From].To == 1 {
				w.cut(i / 2)
				break
			}
		}
		cut := w.network(t)
		cut.steer(map[Traffic]steer.Ways{{To: p}: ways})
		if len(cut.balanced) > 0 {
			t.Fatalf("seed %d: the way's last link is down, and these still take it: %v", seed, cut.balanced)
		}
		broken++
	}
	if steered < 20 || broken < 20 {
		t.Errorf("only %d ways, %d of them broken", steered, broken)
	}
}

// Proves that a router with a static route, or one that never takes balanced ones, keeps its own,
// and that whoever steers is told so.
func TestSteerLeavesStaticRoutes(t *testing.T) {
	w := triangle()
	p := lan(2)
	w.Routers[0].Static = []StaticRoute{{To: p, Via: netip.MustParseAddr("172.16.0.2")}} // by r2
	w.Routers[1].Distances = map[Origin]rib.Distance{{Source: Balanced}: rib.Never}
	n := w.network(t)
	n.steer(map[Traffic]steer.Ways{{To: p}: {
		1: {From: 1, To: 3, FromPort: 3, ToPort: 3}, // the direct link
		2: {From: 2, To: 3, FromPort: 3, ToPort: 2},
	}})
	if r := n.route(0, p); r.Source != Static {
		t.Errorf("r1 has %+v", r)
	}
	if r := n.route(1, p); r.Source != Computed {
		t.Errorf("r2 has %+v", r)
	}
	d, ok := appOf(n, 1, 2, 3).Destination(Traffic{To: p})
	if !ok || !d.Fixed[1] || !d.Fixed[2] || d.Fixed[3] || len(d.Owners) != 1 || d.Owners[0] != 3 {
		t.Errorf("whoever steers is told %+v", d)
	}
}

// appOf returns an app that has a network, of which some routers are connected.
func appOf(n *network, connected ...uint64) *App {
	a, nodes := &App{}, map[uint64]*node{}
	for i, r := range n.routers {
		nodes[r.DPID] = newNode(a, i, r)
		if slices.Contains(connected, r.DPID) {
			nodes[r.DPID].sw = &controller.Switch{}
		}
	}
	a.net.Store(n)
	a.nodes.Store(&nodes)
	return a
}

// walk says whether traffic gets from a router to its subnet.
func walk(n *network, from int, what Traffic) bool {
	for range len(n.routers) {
		if n.has(from, what.To) {
			return true
		}
		r := n.wayOf(from, what)
		if r == nil || len(r.Hops) != 1 || r.Hops[0].router < 0 {
			return false
		}
		from = r.Hops[0].router
	}
	return false
}

// Proves that nothing is led to a router that sends it elsewhere: where a static route comes to it
// that leads back, or it is told to take no balanced ways, those before it take their own routes,
// of a subnet and of a part of it, with tables and without.
func TestSteerOnlyOverWillingRouters(t *testing.T) {
	for _, reactive := range []bool{false, true} {
		for _, c := range []struct {
			name   string
			change func(r2 *Router)
			led    bool
		}{
			{"nothing", func(*Router) {}, true},
			{"static", func(r2 *Router) { r2.Static = []StaticRoute{{To: lan(2), Via: netip.MustParseAddr("172.16.0.1")}} }, false},
			{"never", func(r2 *Router) { r2.Distances = map[Origin]rib.Distance{{Source: Balanced}: rib.Never} }, false},
			{"as near", func(r2 *Router) { r2.Distances = map[Origin]rib.Distance{{Source: Balanced}: rib.ShortestPath} }, false},
		} {
			w := triangle()
			w.Reactive = reactive
			c.change(&w.Routers[1])
			for _, part := range []Part{{}, {Proto: openflow.IPProtoTCP, Index: 3}} {
				what := Traffic{lan(2), part}
				n := w.network(t)
				n.steer(map[Traffic]steer.Ways{what: {
					1: {From: 1, To: 2, FromPort: 2, ToPort: 2},
					2: {From: 2, To: 3, FromPort: 3, ToPort: 2},
				}})
				if !walk(n, 0, what) {
					t.Errorf("%s, on demand %v: %v from r1 does not arrive", c.name, reactive, what)
				}
				if r := n.wayOf(0, what); (r.Source == Balanced) != c.led {
					t.Errorf("%s, on demand %v: r1 leads %v by %+v", c.name, reactive, what, r)
				}
			}
		}
	}
}

// Proves that nothing is to be led over a router that is not connected: it cannot be told, and
// forwards as it was told last.
func TestUnconnectedRoutersAreFixed(t *testing.T) {
	w := triangle()
	d, ok := appOf(w.network(t), 1, 3).Destination(Traffic{To: lan(2)})
	if !ok || d.Fixed[1] || !d.Fixed[2] {
		t.Errorf("r2 is not connected, and whoever steers is told %+v", d)
	}
}

// Proves that nothing is led to a router that has lost its connection before it was told where to
// send that; and that what it leads already goes on.
func TestSteerWhileUnconnected(t *testing.T) {
	w := triangle()
	to, other := Traffic{To: lan(2)}, Traffic{To: netip.MustParsePrefix("172.16.0.4/30")}
	ways := map[Traffic]steer.Ways{other: {1: {From: 1, To: 3, FromPort: 3, ToPort: 3}}, to: {
		1: {From: 1, To: 2, FromPort: 2, ToPort: 2},
		2: {From: 2, To: 3, FromPort: 3, ToPort: 2},
	}}
	for _, c := range []struct {
		led       map[Traffic]steer.Ways
		connected bool
		leads     bool
	}{{nil, true, true}, {nil, false, false}, {ways, false, true}} {
		n := w.network(t)
		n.steer(sayable(ways, c.led, map[uint64]bool{1: true, 2: c.connected, 3: true}))
		if r := n.route(0, to.To); (r.Source == Balanced) != c.leads {
			t.Errorf("r2 is connected: %v, and leads it already: %v; r1 has %+v", c.connected, c.led != nil, r)
		}
		if r := n.route(0, other.To); r.Source != Balanced {
			t.Errorf("what does not pass r2 is not led: %+v", r)
		}
	}
	if len(ways[to]) != 2 {
		t.Errorf("what is asked for was changed: %v", ways)
	}
}

// Proves that what is led over a router that has lost its connection is not taken back from the
// others, nor given another way, before it is back, or is no router any more: it would go on to
// send that elsewhere.
func TestTakeBackWhileUnconnected(t *testing.T) {
	to := Traffic{To: lan(2)}
	over2 := steer.Ways{1: {From: 1, To: 2, FromPort: 2, ToPort: 2}, 2: {From: 2, To: 3, FromPort: 3, ToPort: 2}}
	direct := steer.Ways{1: {From: 1, To: 3, FromPort: 3, ToPort: 3}}
	for name, asked := range map[string]map[Traffic]steer.Ways{"nothing": nil, "another way": {to: direct}} {
		for of2, connected := range map[string]map[uint64]bool{
			"connected": {1: true, 2: true, 3: true}, "not connected": {1: true, 2: false, 3: true}, "not a router": {1: true, 3: true}} {
			got := sayable(asked, map[Traffic]steer.Ways{to: over2}, connected)
			want := asked[to]
			if of2 == "not connected" {
				want = over2
			}
			if !maps.Equal(got[to], want) {
				t.Errorf("%s is asked for, and r2 is %s: %v, want %v", name, of2, got[to], want)
			}
		}
	}
}

// Proves that packets of IPv6 are not led over a router that has no address of IPv6, as it drops
// them; those of IPv4 are.
func TestSteerOverRoutersThatSpeakIPv6(t *testing.T) {
	w := triangle()
	six := netip.MustParsePrefix("fd00:3::/64")
	w.Routers[0].Interfaces[0].Prefixes = append(w.Routers[0].Interfaces[0].Prefixes, netip.MustParsePrefix("fd00:1::1/64"))
	w.Routers[2].Interfaces[0].Prefixes = append(w.Routers[2].Interfaces[0].Prefixes, netip.MustParsePrefix("fd00:3::1/64"))
	for _, p := range []netip.Prefix{six, lan(2)} {
		n := w.network(t)
		n.steer(map[Traffic]steer.Ways{{To: p}: {
			1: {From: 1, To: 2, FromPort: 2, ToPort: 2},
			2: {From: 2, To: 3, FromPort: 3, ToPort: 2},
		}})
		if r := n.route(0, p); (r.Source == Balanced) != (p != six) {
			t.Errorf("r1 sends to %v by %+v", p, r)
		}
		if d, _ := appOf(n, 1, 2, 3).Destination(Traffic{To: p}); d.Fixed[1] || d.Fixed[2] != (p == six) {
			t.Errorf("to %v, r2 is fixed: %v", p, d.Fixed)
		}
	}
}

// Proves that where a protocol finds all ways, so that routes need no graph, what joins routers is
// known nevertheless, and ways by which they are steered are taken, with tables and without.
func TestSteerWithoutPaths(t *testing.T) {
	w := triangle()
	speak := by(Protocol{Name: "ospf", Distance: rib.OSPF, Paths: [2]bool{true, false}, Speaker: found{
		1: {{Prefix: lan(2), Metric: 2, Hops: []LearnedHop{{Port: 3, Via: netip.MustParseAddr("172.16.0.10")}}}},
		2: {{Prefix: lan(2), Metric: 2, Hops: []LearnedHop{{Port: 3, Via: netip.MustParseAddr("172.16.0.6")}}}},
	}}, 1, 2, 3)
	for _, w.Reactive = range []bool{false, true} {
		n := w.network(t, speak)
		if got := len(appOf(n, 1, 2, 3).Edges()); got != 6 {
			t.Errorf("on demand %v: %d ways between routers, want 6", w.Reactive, got)
		}
		n = w.network(t, speak)
		n.steer(map[Traffic]steer.Ways{{To: lan(2)}: {
			1: {From: 1, To: 2, FromPort: 2, ToPort: 2},
			2: {From: 2, To: 3, FromPort: 3, ToPort: 2},
		}})
		if r := n.route(0, lan(2)); r == nil || r.Source != Balanced || !walk(n, 0, Traffic{To: lan(2)}) {
			t.Errorf("on demand %v: r1 has %+v", w.Reactive, r)
		}
	}
}

// Proves that of equal paths all are used with ECMP, one and always the first with off, and one
// that differs between prefixes with load.
func TestSpread(t *testing.T) {
	hops := func(by topology.BalanceBy) (ports [8]int) {
		w := newWires(10)
		for mid := 1; mid <= 8; mid++ { // r1 has eight equal ways to r10
			w.join(0, mid, 1)
			w.join(mid, 9, 1)
		}
		w.Balance = by
		for i := range 16 { // and r10 has further subnets
			w.port(9, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 1}), 24), 1)
		}
		n := w.network(t)
		for i := range 16 {
			r := n.route(0, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 0}), 24))
			for _, h := range r.Hops {
				ports[h.Port-2]++
			}
		}
		return ports
	}
	if got := hops(""); got != [8]int{16, 16, 16, 16, 16, 16, 16, 16} {
		t.Errorf("ecmp: %v", got)
	}
	if got := hops(topology.BalanceOff); got != [8]int{16} {
		t.Errorf("off: %v", got)
	}
	used := 0
	for _, n := range hops(topology.BalanceLoad) {
		if n > 0 {
			used++
		}
	}
	if used < 4 {
		t.Errorf("load: 16 prefixes over %d of 8 ways", used)
	}
}
