package ospf

import (
	"cmp"
	"net/netip"
	"slices"

	"trivet.dev/trivet/routing/spf"
)

// calculation builds the routing table of one router (section 16).
type calculation struct {
	r       *Router
	intra   []Route  // of networks within the areas, sorted
	keys    []netKey // the same, as numbers
	others  map[netKey]*Route
	routers map[ID][]*RouterRoute
	transit map[*Area]bool  // areas with TransitCapability
	ranges  map[netKey]bool // the router's own active area ranges
	trees   *scratch
	only    *netKey // the only network of interest; nil: all
}

// scratch is memory reused between calculations.
type scratch struct {
	tree  spf.Tree
	costs []uint32 // by network of an area
}

// hopsKey identifies a set of first hops within one tree: vertices with the same set share the
// result.
type hopsKey struct {
	first *int32
	len   int
}

// Routes returns the router's routing table, from the areas' graphs as of the last calculation and
// the current summaries and externals. Without changes, a border router returns its existing table;
// others calculate it each time, which takes as long as a shortest path tree: keep it until Poll
// returns a Change of one of the router's areas.
func (r *Router) Routes() *Table {
	if r.table != nil && r.table.version == r.domain.version {
		return r.table
	}
	t, _ := r.calculate()
	if r.table != nil {
		r.table = t
	}
	return t
}

// RouteTo returns the route to exactly one network, as Routes would have it. It takes the time of a
// shortest path tree, but does not build the whole table.
func (r *Router) RouteTo(p netip.Prefix) (Route, bool) {
	if !p.Addr().Is4() {
		return Route{}, false
	}
	net := keyOfPrefix(p)
	if r.table != nil || r.domain.forwards(net) {
		return r.Routes().Find(p)
	}
	t, _ := r.calculateOnly(&net)
	return t.Find(p)
}

// Networks lists all networks in the databases, sorted. Routers have routes to no others; some may
// be unreachable for every router.
func (d *Domain) Networks() []netip.Prefix {
	var keys []netKey
	named := func(entries []*entry) {
		for _, e := range entries {
			keys = append(keys, keyOfPrefix(e.Prefix()))
		}
	}
	for _, a := range d.areas {
		keys = append(keys, a.graph.nets...)
		named(a.db.typed[TypeSummary])
		for _, r := range a.cfg.Ranges {
			keys = append(keys, keyOfPrefix(r.Prefix))
		}
	}
	named(d.external.typed[TypeExternal])
	slices.Sort(keys)
	keys = slices.Compact(keys)
	out := make([]netip.Prefix, len(keys))
	for i, k := range keys {
		out[i] = k.prefix()
	}
	return out
}

// forwards reports whether the route to a network may depend on that to another one: by a
// forwarding address.
func (d *Domain) forwards(net netKey) bool {
	for _, e := range d.external.typed[TypeExternal] {
		if body, _ := DecodeExternal(e.Body); body.Forward != 0 && keyOfPrefix(e.Prefix()) == net {
			return true
		}
	}
	return false
}

// calculate is section 16: intra-area routes, inter-area routes, transit areas, external routes.
func (r *Router) calculate() (*Table, *calculation) { return r.calculateOnly(nil) }

// calculateOnly is calculate for one network; nil: all.
func (r *Router) calculateOnly(only *netKey) (*Table, *calculation) {
	c := &calculation{r: r, others: map[netKey]*Route{}, routers: map[ID][]*RouterRoute{}, transit: map[*Area]bool{},
		trees: &r.domain.scratch, only: only}
	areas := slices.Clone(r.areas)
	// Virtual links of the backbone take their next hops from the other areas.
	slices.SortFunc(areas, func(a, b *attachment) int { return -cmp.Compare(a.area.id, b.area.id) })
	attached := 0
	for _, at := range areas {
		if r.attached(at.area) {
			c.intraArea(at.area)
			attached++
		}
	}
	if attached > 1 {
		c.findRanges()
	}
	for _, at := range areas {
		if r.attached(at.area) && (attached == 1 || at.area.id == Backbone) {
			c.interArea(at.area)
		}
	}
	if attached > 1 && r.attachedTo(Backbone) {
		for _, at := range areas {
			if c.transit[at.area] {
				c.throughTransit(at.area)
			}
		}
	}
	c.externals()
	if attached > 1 {
		c.discards()
	}
	return c.table(), c
}

func (r *Router) attachedTo(id ID) bool {
	a := r.domain.areas[id]
	return a != nil && r.attached(a)
}

// intraArea is section 16.1: the shortest path tree of an area, and the networks in it.
func (c *calculation) intraArea(a *Area) {
	g := a.graph
	root, ok := g.routers[c.r.id]
	if !ok {
		return // the router's own router-LSA is not in the last calculation yet
	}
	tree := &c.trees.tree
	g.Tree(root, tree)
	hops := c.resolver(g, tree)
	for _, v := range tree.Order {
		lsa := g.lsas[v]
		if lsa.Type == TypeNetwork {
			continue
		}
		if lsa.flags()&FlagVirtual != 0 {
			c.transit[a] = true
		}
		if v != root && (lsa.flags()&(FlagBorder|FlagExternal) != 0 || c.r.hasVirtual(a, lsa.AdvRouter)) {
			c.addRouter(RouterRoute{lsa.AdvRouter, lsa.flags(), IntraArea, a.id, tree.Dist(v), hops(v)})
		}
	}
	c.mergeIntra(c.leaves(g, tree, hops))
}

// leaves returns the routes to an area's networks: those that are vertices of the tree, and the
// stub networks of its routers (the second stage of section 16.1).
func (c *calculation) leaves(g *graph, tree *spf.Tree, hops func(v int32) []NextHop) []Route {
	if c.only != nil {
		return c.leavesOf(g, tree, hops)
	}
	costs := slices.Grow(c.trees.costs[:0], len(g.nets))[:len(g.nets)]
	c.trees.costs = costs
	for i := range costs {
		costs[i] = spf.Unreachable
	}
	for _, l := range g.leaves {
		if dist := tree.Dist(l.vertex); dist != spf.Unreachable {
			costs[l.net] = min(costs[l.net], dist+l.cost)
		}
	}
	routes := make([]Route, 0, len(g.nets))
	for i, cost := range costs {
		if cost != spf.Unreachable {
			routes = append(routes, Route{Prefix: g.nets[i].prefix(), Type: IntraArea, Area: g.area.id, Cost: cost})
			costs[i] = uint32(len(routes)) // from here on, the index + 1
		}
	}
	for _, l := range g.leaves {
		if dist := tree.Dist(l.vertex); dist != spf.Unreachable {
			if r := &routes[costs[l.net]-1]; r.Cost == dist+l.cost {
				r.NextHops = joinHops(r.NextHops, c.leafHops(g, tree, l, hops))
			}
		}
	}
	return routes
}

// leavesOf is leaves for the only network of interest.
func (c *calculation) leavesOf(g *graph, tree *spf.Tree, hops func(v int32) []NextHop) []Route {
	net, ok := slices.BinarySearch(g.nets, *c.only)
	if !ok {
		return nil
	}
	r := Route{Prefix: c.only.prefix(), Type: IntraArea, Area: g.area.id, Cost: spf.Unreachable}
	for _, l := range g.leaves {
		if int(l.net) != net || tree.Dist(l.vertex) == spf.Unreachable {
			continue
		}
		cost := tree.Dist(l.vertex) + l.cost
		if cost < r.Cost {
			r.Cost, r.NextHops = cost, nil
		}
		if cost == r.Cost {
			r.NextHops = joinHops(r.NextHops, c.leafHops(g, tree, l, hops))
		}
	}
	if r.Cost == spf.Unreachable {
		return nil
	}
	return []Route{r}
}

// leafHops returns the next hops to a network: those to its vertex, or the interface if it is at
// the root.
func (c *calculation) leafHops(g *graph, tree *spf.Tree, l leaf, hops func(v int32) []NextHop) []NextHop {
	if l.vertex != tree.Root {
		return hops(l.vertex)
	}
	if i := c.r.interfaceOf(g.area, g.nets[l.net]); i != nil {
		return []NextHop{{Interface: i, Addr: ID(0).Addr()}}
	}
	return nil
}

// mergeIntra merges the routes of another area into the existing ones. Of two routes to a network,
// the shorter one is kept.
func (c *calculation) mergeIntra(more []Route) {
	if c.intra == nil {
		c.intra = more
	} else {
		c.intra = append(c.intra, more...)
		slices.SortStableFunc(c.intra, func(a, b Route) int {
			return cmp.Or(cmp.Compare(keyOfPrefix(a.Prefix), keyOfPrefix(b.Prefix)), cmp.Compare(a.Cost, b.Cost))
		})
		kept := c.intra[:0]
		for _, r := range c.intra {
			if n := len(kept); n == 0 || kept[n-1].Prefix != r.Prefix {
				kept = append(kept, r)
			} else if kept[n-1].Cost == r.Cost {
				kept[n-1].NextHops = joinHops(kept[n-1].NextHops, r.NextHops)
			}
		}
		c.intra = kept
	}
	c.keys = c.keys[:0]
	for i := range c.intra {
		c.keys = append(c.keys, keyOfPrefix(c.intra[i].Prefix))
	}
}

// find returns the route to a network, or nil.
func (c *calculation) find(net netKey) *Route {
	if i, ok := slices.BinarySearch(c.keys, net); ok {
		return &c.intra[i]
	}
	return c.others[net]
}

// each iterates over all routes.
func (c *calculation) each(yield func(netKey, *Route) bool) {
	for i, net := range c.keys {
		if !yield(net, &c.intra[i]) {
			return
		}
	}
	for net, r := range c.others {
		if !yield(net, r) {
			return
		}
	}
}

// interfaceOf returns the interface with a network or host route; nil: there is none.
func (r *Router) interfaceOf(a *Area, net netKey) *Interface {
	for _, i := range r.interfaces {
		if i.area == a && i.isUp() &&
			(i.addr == net.addr() && net.bits() == 32 || i.network() == net && i.typ != Loopback) {
			return i
		}
	}
	return nil
}

// addNet adds an inter-area path if it is better than the existing one, or merges the next hops if
// they are equally good (section 16.2 steps 6 and 7).
func (c *calculation) addNet(net netKey, r Route) {
	if c.only != nil && *c.only != net {
		return
	}
	old := c.find(net)
	if old != nil && old.Type == r.Type && old.Cost == r.Cost {
		old.NextHops = joinHops(old.NextHops, r.NextHops)
		return
	}
	if old == nil || r.Type == old.Type && r.Cost < old.Cost {
		r.Prefix = net.prefix()
		c.others[net] = &r
	}
}

// addRouter does the same for a router. Paths through different areas are all kept: section 16.4.1
// chooses among them for external routes.
func (c *calculation) addRouter(r RouterRoute) {
	list := c.routers[r.ID]
	for _, old := range list {
		if old.Area != r.Area {
			continue
		}
		switch {
		case r.Type < old.Type || r.Type == old.Type && r.Cost < old.Cost:
			*old = r
		case r.Type == old.Type && r.Cost == old.Cost:
			old.NextHops = joinHops(old.NextHops, r.NextHops)
			old.Flags |= r.Flags
		}
		return
	}
	c.routers[r.ID] = append(list, &r)
}

// borderRoute returns the intra-area path to a router in an area, or nil.
func (c *calculation) borderRoute(id ID, area ID) *RouterRoute {
	for _, r := range c.routers[id] {
		if r.Area == area && r.Type == IntraArea {
			return r
		}
	}
	return nil
}

// joinHops returns the sorted union of two sets of next hops; neither is changed.
func joinHops(a, b []NextHop) []NextHop {
	switch {
	case len(b) == 0 || slices.Equal(a, b):
		return a
	case len(a) == 0:
		return b
	}
	all := slices.Concat(a, b)
	slices.SortFunc(all, NextHop.compare)
	return slices.Compact(all)
}

// table returns the result, sorted.
func (c *calculation) table() *Table {
	t := &Table{Router: c.r.id, Routes: c.intra, version: c.r.domain.version}
	if len(c.others) > 0 {
		t.Routes = make([]Route, 0, len(c.intra)+len(c.others))
		rest := c.intra
		for _, net := range sortedNets(c.others) {
			n, _ := slices.BinarySearch(c.keys[len(c.intra)-len(rest):], net)
			t.Routes = append(append(t.Routes, rest[:n]...), *c.others[net])
			rest = rest[n:]
		}
		t.Routes = append(t.Routes, rest...)
	}
	for _, list := range c.routers {
		for _, r := range list {
			if r.Flags&(FlagBorder|FlagExternal) != 0 {
				t.Routers = append(t.Routers, *r)
			}
		}
	}
	slices.SortFunc(t.Routers, func(a, b RouterRoute) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Area, b.Area), cmp.Compare(a.Type, b.Type))
	})
	return t
}
