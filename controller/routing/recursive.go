package routing

import (
	"net/netip"
	"slices"
)

// recursion resolves the next hops of given routes whose next hop is not a neighbour: they become
// those of the route that leads to it, which must be longer than the default route and not the
// route being resolved. That route may itself need to be resolved. If routes depend on each other,
// one of them, always the same, is left unresolved.
type recursion struct {
	*network
	router int
	given  map[netip.Prefix][]*indirect // such routes
	table  *table                       // has all routes to the prefixes in begun, or is getting them
	begun  map[netip.Prefix]bool

	// Where routes are computed one at a time, the table has no others; then these are the router's
	// given routes by prefix, else nil.
	single map[netip.Prefix][]StaticRoute
}

// indirect is a route with such a next hop, and its resolved next hops.
type indirect struct {
	StaticRoute
	hops []Hop
}

// recursive adds a router's routes of this kind.
func (n *network) recursive(t *table, router int, only netip.Prefix, behind []StaticRoute) {
	if !only.IsValid() {
		(&recursion{network: n, router: router, table: t}).find(behind)
		return
	}
	n.mu.Lock()
	given := n.indirect[router]
	n.mu.Unlock()
	if given == nil { // all at once, as each may need all others
		r := &recursion{network: n, router: router, table: n.newTable(router), single: map[netip.Prefix][]StaticRoute{}}
		for _, s := range n.routers[router].Static {
			r.single[s.To] = append(r.single[s.To], s)
		}
		r.find(behind)
		given = r.given
		n.mu.Lock()
		n.indirect[router] = given
		n.mu.Unlock()
	}
	for _, s := range given[only] {
		t.offerIndirect(s)
	}
}

// find resolves all routes of this kind.
func (r *recursion) find(behind []StaticRoute) {
	r.given, r.begun = map[netip.Prefix][]*indirect{}, map[netip.Prefix]bool{}
	for _, s := range behind {
		r.given[s.To] = append(r.given[s.To], &indirect{StaticRoute: s})
	}
	for _, s := range behind {
		r.complete(s.To)
	}
}

// offerIndirect offers a route if its next hops are known.
func (t *table) offerIndirect(s *indirect) {
	if len(s.hops) > 0 {
		t.offer(s.route(slices.Clone(s.hops)...))
	} else {
		t.unreached(s.StaticRoute, s.To, "no route leads to the next hop")
	}
}

// complete adds all routes to a prefix to the table.
func (r *recursion) complete(p netip.Prefix) {
	if r.begun[p] {
		return
	}
	r.begun[p] = true
	if r.single != nil {
		r.found(r.table, r.router, p)
		r.independent(r.table, r.router, r.single[p], p)
	}
	for _, s := range r.given[p] {
		s.hops = r.hopsTo(s.StaticRoute)
		r.table.offerIndirect(s)
	}
}

// hopsTo returns the next hops towards a route's next hop.
func (r *recursion) hopsTo(s StaticRoute) (hops []Hop) {
	spoken := r.spokenNetworks(r.router)
	for bits := s.Via.BitLen(); bits > 0; bits-- {
		p, _ := s.Via.Prefix(bits)
		if p == s.To {
			return nil
		}
		if r.single != nil && !r.mayHave(spoken, p) {
			continue
		}
		r.complete(p)
		way := r.table.routes[p]
		if way == nil {
			continue
		}
		for _, h := range way.Hops {
			if h.Via.IsValid() {
				h.For = s.Via
				hops = append(hops, h)
			}
		}
		return hops
	}
	return nil
}
