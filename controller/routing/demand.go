package routing

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/routing/spf"
	"trivet.dev/trivet/topology"
)

// A network whose routers install routes on demand has no tables: ten thousand routers would have
// 10^8 routes. A route is computed when it is needed. This takes the distances of all routers to
// one prefix, which a single shortest-path tree, rooted at the prefix over reversed edges,
// provides; the routers on a packet's path all need the same one.

// maxFar limits the distances that are cached, over all prefixes.
const maxFar = 4 << 20

// lengths is a set of prefix lengths.
type lengths [129]bool

// turn makes the reversed graph, in which distances from a prefix are those to it.
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

// findLengths finds which prefix lengths occur.
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

// tableTo returns a table with at least a router's route to exactly that prefix.
func (n *network) tableTo(router int, p netip.Prefix) *table {
	if !n.onDemand {
		return n.table(router)
	}
	t := n.newTable(router)
	n.fillTo(t, router, p)
	return t
}

// fillTo offers a router's routes to exactly a prefix to a table.
func (n *network) fillTo(t *table, router int, p netip.Prefix) {
	n.found(t, router, p)
	n.static(t, router, p)
	n.offerBalanced(t, router, p)
}

// found offers the routes to a prefix that are not static to a table.
func (n *network) found(t *table, router int, p netip.Prefix) {
	n.connected(t, router, p)
	n.learned(t, router, p)
	if !n.findsPaths(router)[family(p.Addr())] {
		n.computedTo(t, router, p)
	}
}

// towards returns the route to an address, as installed on demand, or nil.
func (n *network) towards(router int, a netip.Addr) *Route {
	if r := n.lookup(router, a); r != nil {
		return n.narrowed(router, a, r)
	}
	return nil
}

// narrowed returns a router's route to an address, as installed on demand. It is reduced to that
// single address if its entry would hide more specific routes that are not installed.
func (n *network) narrowed(router int, a netip.Addr, r *Route) *Route {
	if !n.hides(router, r) {
		return r
	}
	single := *r
	single.Prefix = netip.PrefixFrom(a, a.BitLen())
	return &single
}

// installed returns the route of an entry that was installed on demand, by the entry's prefix.
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

// hides reports whether there may be more specific routes within a route's prefix, as with a
// default route or an area range.
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

// lookup returns a router's longest-prefix match for an address, or nil.
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

// mayHave reports whether a router may have a route to a prefix: some prefix has this length, or
// one of its protocols knows the prefix. spoken has been computed once for all prefixes of an
// address.
func (n *network) mayHave(spoken [][]netip.Prefix, p netip.Prefix) bool {
	if n.lengths[family(p.Addr())][p.Bits()] {
		return true
	}
	return slices.ContainsFunc(spoken, func(list []netip.Prefix) bool {
		_, ok := slices.BinarySearchFunc(list, p, netip.Prefix.Compare)
		return ok
	})
}

// spokenNetworks lists the sorted networks that each of a router's protocols may have routes to.
func (n *network) spokenNetworks(router int) [][]netip.Prefix {
	return lists.Map(n.protocols[router], func(s *protocol) []netip.Prefix { return s.Networks() })
}

// Find returns the route to exactly a prefix, in a sorted list.
func Find(sorted []Learned, p netip.Prefix) (l Learned, ok bool) {
	at, ok := slices.BinarySearchFunc(sorted, p, func(l Learned, p netip.Prefix) int { return l.Prefix.Compare(p) })
	if ok {
		l = sorted[at]
	}
	return l, ok
}

// computedTo adds the shortest paths to one prefix: by each neighbour that is closer by exactly the
// cost of reaching it.
func (n *network) computedTo(t *table, router int, p netip.Prefix) {
	if n.has(router, p) {
		return // its own subnet
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

// farFrom returns each router's distance to a prefix, including the owner's interface; nil: nobody
// has the prefix.
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

// spread returns the next hops to use among those of equal cost, independent of the order in which
// they were found: all, or one. With balancing by load, it is one per prefix, and different ones
// for different prefixes.
func (n *network) spread(hops []Hop, p netip.Prefix) []Hop {
	slices.SortFunc(hops,
		func(a, b Hop) int { return cmp.Or(cmp.Compare(a.Port, b.Port), slices.Compare(a.dst[:], b.dst[:])) })
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
