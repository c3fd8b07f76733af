package routing

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	"trivet.dev/trivet/routing/spf"
	"trivet.dev/trivet/topology"
)

// A network whose routers install routes when packets ask for them has no tables: ten thousand
// routers would have 10^8 routes. A route is computed when it is needed. For one prefix that takes
// the distances of all routers to it, which one tree from the prefix backwards gives; the routers
// on a packet's way all ask for the same one.

// maxFar bounds the distances that are kept, over all prefixes.
const maxFar = 4 << 20

// lengths is a set of lengths of prefixes.
type lengths [129]bool

// turn makes the graph in which the distances to a prefix are those from it.
func (n *network) turn(edges []spf.Edge, transparent []bool) (err error) {
	back, routers := make([]spf.Edge, len(edges)), make([]bool, len(transparent))
	for i, e := range edges {
		back[i] = spf.Edge{From: e.To, To: e.From, Cost: e.Cost}
	}
	for i, t := range transparent {
		routers[i] = !t // the edges that cost nothing come from them now
	}
	n.back, err = spf.New(len(transparent), back, routers)
	return err
}

// findLengths finds which lengths prefixes have.
func (n *network) findLengths() {
	n.lengths = n.addresses.lengths
	for _, r := range n.routers {
		for _, s := range r.Static {
			n.lengths[family(s.To.Addr())][s.To.Bits()] = true
		}
	}
}

// route returns a router's route to exactly that prefix, or nil.
func (n *network) route(router int, p netip.Prefix) *Route {
	return n.tableTo(router, p).routes[p]
}

// tableTo returns a table that has at least a router's route to exactly that prefix.
func (n *network) tableTo(router int, p netip.Prefix) *table {
	if !n.onDemand {
		return n.table(router)
	}
	t := n.newTable(router)
	n.fillTo(t, router, p)
	return t
}

// fillTo offers a table a router's routes to exactly a prefix.
func (n *network) fillTo(t *table, router int, p netip.Prefix) {
	n.found(t, router, p)
	n.static(t, router, p)
	n.offerBalanced(t, router, p)
}

// found offers a table the routes to a prefix that are not static.
func (n *network) found(t *table, router int, p netip.Prefix) {
	n.connected(t, router, p)
	n.learned(t, router, p)
	if !n.findsPaths(router)[family(p.Addr())] {
		n.computedTo(t, router, p)
	}
}

// towards returns the route to an address as it is installed when a packet asks for it, or nil.
func (n *network) towards(router int, a netip.Addr) *Route {
	if r := n.lookup(router, a); r != nil {
		return n.narrowed(router, a, r)
	}
	return nil
}

// narrowed returns a router's route to an address as it is installed: one whose entry would hide
// others, which are not installed, for the one address.
func (n *network) narrowed(router int, a netip.Addr, r *Route) *Route {
	if !n.hides(router, r) {
		return r
	}
	single := *r
	single.Prefix = netip.PrefixFrom(a, a.BitLen())
	return &single
}

// installed returns the route of an entry that a packet has asked for, by the entry's prefix.
func (n *network) installed(router int, p netip.Prefix) *Route {
	if p.IsSingleIP() {
		if r := n.towards(router, p.Addr()); r != nil && r.Prefix == p {
			return r
		}
		return nil
	}
	if r := n.route(router, p); r != nil && !n.hides(router, r) {
		return r
	}
	return nil
}

// hides says whether there may be routes to parts of a route's prefix: of a default route, of an
// area range.
func (n *network) hides(router int, r *Route) bool {
	if r.Source == Connected || r.Prefix.IsSingleIP() {
		return false
	}
	for _, s := range n.routers[router].Static {
		if s.To.Bits() > r.Prefix.Bits() && r.Prefix.Contains(s.To.Addr()) {
			return true
		}
	}
	all := n.spokenNetworks(router)
	if !n.findsPaths(router)[family(r.Prefix.Addr())] {
		all = append(all, n.subnets)
	}
	return slices.ContainsFunc(all, func(list []netip.Prefix) bool {
		i, ok := slices.BinarySearchFunc(list, r.Prefix, netip.Prefix.Compare)
		if ok {
			i++
		}
		return i < len(list) && r.Prefix.Contains(list[i].Addr())
	})
}

// lookup returns a router's route with the longest prefix that contains an address, or nil.
func (n *network) lookup(router int, a netip.Addr) *Route {
	if !n.onDemand {
		return n.table(router).lookup(a)
	}
	spoken := n.spokenNetworks(router)
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, _ := a.Prefix(bits)
		if !n.mayHave(spoken, p) {
			continue
		}
		if r := n.route(router, p); r != nil {
			return r
		}
	}
	return nil
}

// mayHave says whether a router may have a route to a prefix: there are some of its length, or a
// protocol of its knows it, which are asked once for all prefixes of an address.
func (n *network) mayHave(spoken [][]netip.Prefix, p netip.Prefix) bool {
	if n.lengths[family(p.Addr())][p.Bits()] {
		return true
	}
	return slices.ContainsFunc(spoken, func(list []netip.Prefix) bool {
		_, ok := slices.BinarySearchFunc(list, p, netip.Prefix.Compare)
		return ok
	})
}

// spokenNetworks lists the networks that each of a router's protocols may have routes to, sorted.
func (n *network) spokenNetworks(router int) (out [][]netip.Prefix) {
	for _, s := range n.protocols[router] {
		out = append(out, s.Networks())
	}
	return out
}

// Find returns the route of exactly a prefix, of routes that are sorted.
func Find(sorted []Learned, p netip.Prefix) (l Learned, is bool) {
	at, is := slices.BinarySearchFunc(sorted, p, func(l Learned, p netip.Prefix) int { return l.Prefix.Compare(p) })
	if is {
		l = sorted[at]
	}
	return l, is
}

// computedTo adds the shortest paths to one prefix: over the neighbours whose distance is less by
// what it costs to get there.
func (n *network) computedTo(t *table, router int, p netip.Prefix) {
	if n.has(router, p) {
		return // its own
	}
	far := n.farFrom(p)
	if far == nil || far[router] == spf.Unreachable {
		return
	}
	var hops []Hop
	for segment, out := range n.inner[router] {
		for _, to := range n.members[int(segment)-len(n.routers)] {
			if d := far[to.router]; to.router != router && d != spf.Unreachable && d+out.Cost == far[router] {
				hops = append(hops, Hop{Port: out.Port, Interface: out.Name, Via: shared(out, to.itf, p.Addr().Is4()),
					Router: n.routers[to.router].Name, src: out.MAC, dst: to.itf.MAC, router: to.router})
			}
		}
	}
	if len(hops) > 0 {
		t.offer(&Route{Prefix: p, Source: Computed, Metric: far[router], Hops: n.spread(hops, p)})
	}
}

// farFrom returns the distance of each router to a prefix, that of its owner's interface included;
// nil: nobody has it.
func (n *network) farFrom(p netip.Prefix) []uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if far := n.far[p]; far != nil {
		return far
	}
	var starts []spf.Start
	for _, o := range n.owners[p] {
		if !n.isUp(o) {
			continue
		}
		s := spf.Start{Vertex: int32(o.router)}
		if o.itf != nil {
			s.Dist = o.itf.Cost
		}
		starts = append(starts, s)
	}
	if len(starts) == 0 {
		return nil
	}
	n.back.Nearest(starts, &n.tree)
	if len(n.far)*len(n.routers) > maxFar {
		clear(n.far)
	}
	far := make([]uint32, len(n.routers))
	for i := range far {
		far[i] = n.tree.Dist(int32(i))
	}
	n.far[p] = far
	return far
}

// spread returns those of some next hops of equal cost that a router is to use, in an order that
// does not depend on how they were found: all, or one. What is balanced by load takes one for each
// prefix, and not the same for all.
func (n *network) spread(hops []Hop, p netip.Prefix) []Hop {
	slices.SortFunc(hops, func(a, b Hop) int { return cmp.Or(cmp.Compare(a.Port, b.Port), slices.Compare(a.dst[:], b.dst[:])) })
	at := 0
	switch {
	case len(hops) < 2, n.balance != topology.BalanceOff && n.balance != topology.BalanceLoad:
		return hops
	case n.balance == topology.BalanceLoad:
		h := fnv.New32a()
		h.Write(p.Addr().AsSlice())
		at = int(h.Sum32() % uint32(len(hops)))
	}
	return hops[at : at+1]
}
