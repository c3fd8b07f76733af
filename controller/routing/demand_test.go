package routing

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/routing/rib"
)

// found is a protocol that has routes of its own.
type found map[uint64][]Learned

func (f found) Routes(dpid uint64) []Learned                        { return f[dpid] }
func (f found) RouteTo(dpid uint64, p netip.Prefix) (Learned, bool) { return Find(f[dpid], p) }
func (f found) Settled() bool                                       { return true }
func (f found) Networks() (out []netip.Prefix) {
	for _, list := range f {
		for _, l := range list {
			out = append(out, l.Prefix)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}
func (f found) Receive(uint64, uint32, []byte) {}

func by(p Protocol, routers ...uint64) *protocol {
	s := &protocol{Protocol: p, by: map[uint64]bool{}}
	for _, r := range routers {
		s.by[r] = true
	}
	return s
}

// Proves that a route that is computed by itself is the one that stands in the whole table, for
// every router and every prefix of random networks (that an entry hides no route to a part of its
// prefix, too): with unequal costs, failed links, a segment of several routers, loopbacks, static
// routes of all kinds, routers whose paths a protocol finds, and others beside it; and that the
// same is so of the longest prefix.
func TestRoutesOnDemandAreThoseOfTables(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := variedWires(rng)
		ways := found{1: {{Prefix: netip.MustParsePrefix("10.0.3.0/24"), Metric: 9, Hops: []LearnedHop{{Port: 2, Via: firstPeer(w)}}},
			{Prefix: netip.MustParsePrefix("66.0.0.0/8"), Metric: 9, Drop: true},
			{Prefix: netip.MustParsePrefix("77.0.0.0/8"), Metric: 9, Hops: []LearnedHop{{Port: 2, Via: firstPeer(w)}}}}}
		beside := found{1: {{Prefix: netip.MustParsePrefix("66.0.0.0/8"), Metric: 2, Hops: []LearnedHop{{Port: 2, Via: firstPeer(w)}}}},
			4: {{Prefix: netip.MustParsePrefix("10.0.5.0/24"), Metric: 2, Drop: true}, {Prefix: netip.MustParsePrefix("77.0.0.0/8"), Metric: 2, Drop: true},
				{Prefix: netip.MustParsePrefix("77.1.0.0/16"), Metric: 2, Drop: true}}}
		spoken := []*protocol{by(Protocol{Name: "x", Distance: rib.OSPF, Paths: [2]bool{true, false}, Speaker: ways}, 1),
			by(Protocol{Name: "y", Distance: 120, Speaker: beside}, 1, 4)}
		whole := w.network(t, spoken...)
		w.Reactive = true
		demand := w.network(t, spoken...)
		for i := range w.Routers {
			table := whole.table(i)
			for p := range whole.owners {
				if got, want := text(demand.route(i, p)), text(table.routes[p]); got != want {
					t.Fatalf("seed %d: r%d to %v:\n%s\n%s", seed, i+1, p, got, want)
				}
			}
			for p := range table.routes {
				if got, want := text(demand.route(i, p)), text(table.routes[p]); got != want {
					t.Fatalf("seed %d: r%d to %v:\n%s\n%s", seed, i+1, p, got, want)
				}
			}
			for range 50 {
				a := netip.AddrFrom4([4]byte{[]byte{10, 66, 77, 172, 192}[rng.IntN(5)], byte(rng.IntN(20)), byte(rng.IntN(8)), byte(rng.IntN(256))})
				if got, want := text(demand.lookup(i, a)), text(table.lookup(a)); got != want {
					t.Fatalf("seed %d: r%d to %v:\n%s\n%s", seed, i+1, a, got, want)
				}
				e := demand.towards(i, a)
				if e == nil || e.Source == Connected {
					continue
				}
				for p, r := range table.routes {
					if e.Prefix.Contains(p.Addr()) && p.Bits() > e.Prefix.Bits() && r.Source != Connected {
						t.Fatalf("seed %d: of r%d, the entry for %v, which a packet to %v asks for, hides %v", seed, i+1, e.Prefix, a, p)
					}
				}
				if got, want := text(demand.installed(i, e.Prefix)), text(e); got != want {
					t.Fatalf("seed %d: r%d has an entry for %v:\n%s\n%s", seed, i+1, e.Prefix, got, want)
				}
			}
		}
		if got, want := len(demand.table(2).routes), len(whole.table(2).routes); got != want {
			t.Errorf("seed %d: asked for all routes, r3 has %d; its table has %d", seed, got, want)
		}
	}
}

// variedWires is a random network with a bit of everything.
func variedWires(rng *rand.Rand) *wires {
	w := randomWires(rng, 12, 8)
	const sw = 99
	for i := range 4 {
		p := w.port(i, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)}), 24), 1+rng.Uint32N(3))
		w.links = append(w.links, discovery.Link{From: uint64(i + 1), FromPort: p, To: sw, ToPort: uint32(i + 1)},
			discovery.Link{From: sw, FromPort: uint32(i + 1), To: uint64(i + 1), ToPort: p})
	}
	for range 3 {
		l := w.links[rng.IntN(20)]
		w.up[l.From-1][l.FromPort] = false
	}
	w.Routers[5].Loopback = []netip.Prefix{netip.MustParsePrefix("10.0.77.1/32")}
	w.port(7, netip.MustParsePrefix("10.8.0.1/16"), 1) // and a part of it, elsewhere
	w.port(8, netip.MustParsePrefix("10.8.5.1/24"), 1)
	via := w.Routers[3].Interfaces[1].Prefixes[0].Addr()
	w.Routers[4].Static = []StaticRoute{{To: netip.MustParsePrefix("10.0.0.0/8"), Via: via.Next()},
		{To: netip.MustParsePrefix("10.0.2.0/24"), Via: w.Routers[4].Interfaces[1].Prefixes[0].Masked().Addr().Next().Next()},
		{To: netip.MustParsePrefix("0.0.0.0/0"), Via: w.Routers[4].Interfaces[1].Prefixes[0].Masked().Addr().Next(), Fallback: true}}
	for _, i := range []int{0, 1, 2, 9} {
		w.Routers[i].Static = randomStatic(rng, &w.Routers[i])
	}
	w.Routers[2].Distances = map[Origin]rib.Distance{{Source: Static}: 120, {Source: Computed}: 30}
	return w
}

// randomStatic makes static routes of all kinds: to neighbours, behind other routes, behind each
// other, to nowhere.
func randomStatic(rng *rand.Rand, r *Router) (out []StaticRoute) {
	prefix := func() netip.Prefix {
		a := netip.AddrFrom4([4]byte{[]byte{10, 66, 172, 192}[rng.IntN(4)], byte(rng.IntN(3)), byte(rng.IntN(8)), 0})
		return netip.PrefixFrom(a, []int{0, 8, 16, 24, 24}[rng.IntN(5)]).Masked()
	}
	for range 8 {
		s := StaticRoute{To: prefix(), Distance: []rib.Distance{0, 0, 5, 200, rib.Never}[rng.IntN(5)], Metric: rng.Uint32N(3)}
		switch rng.IntN(4) {
		case 0:
			s.Discard = true
		case 1:
			s.Via = r.Interfaces[rng.IntN(len(r.Interfaces))].Prefixes[0].Masked().Addr().Next().Next()
		default:
			s.Via = netip.AddrFrom4([4]byte{[]byte{10, 66, 172}[rng.IntN(3)], byte(rng.IntN(3)), byte(rng.IntN(8)), byte(1 + rng.IntN(3))})
		}
		out = append(out, s)
	}
	return out
}

// Proves that a route which a packet asks for is installed beyond by the network as it was then,
// though that changes meanwhile. (Else this ends in a panic.)
func TestSetUpKeepsItsNetwork(t *testing.T) {
	w := newWires(3)
	w.join(0, 1, 1)
	w.join(1, 2, 1)
	w.Reactive = true
	net := w.network(t)
	a := appOf(net)
	a.ctx = t.Context()
	for _, n := range *a.nodes.Load() {
		n.net, n.reactive = net, true
	}
	n := a.node(1)
	p, ok := parseIP(openflow.EthTypeIPv4, ip4(netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.2.9"), openflow.IPProtoUDP, 64, make([]byte, 8)))
	if !ok {
		t.Fatal("no packet")
	}
	n.mu.Lock()
	n.prepare(net.route(0, lan(2)), waiting{p.decrement(), p, n.itf[1]})
	n.net = nil
	time.Sleep(20 * time.Millisecond) // it begins, and then waits for mu
	n.net = net
	n.mu.Unlock()
	a.done.Wait()
}

func firstPeer(w *wires) netip.Addr {
	return w.Routers[0].Interfaces[1].Prefixes[0].Masked().Addr().Next().Next()
}

func text(r *Route) string {
	if r == nil {
		return "none"
	}
	out := fmt.Sprint(r.Prefix, r.Source, r.Distance, r.Metric, r.Drop)
	for _, h := range r.Hops {
		out += fmt.Sprint(" ", h.Interface, h.Via, h.For, h.Router, h.dst)
	}
	return out
}
