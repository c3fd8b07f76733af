package routing

import (
	"net/netip"
	"slices"
)

// recursion finds the next hops of a router's given routes whose own next hop is no neighbour:
// those of the route that leads to it, which must be longer than the default route and not be the
// one whose next hops are looked for. That may be such a route itself. Of routes that need each
// other, one does without the others, always the same.
type recursion struct {
	*network
	router int
	given  map[netip.Prefix][]*indirect // such routes
	table  *table                       // has all routes to the prefixes in begun, or is at it
	begun  map[netip.Prefix]bool

	// Where routes are computed one by one the table has no others, and this is what the router is
	// given, by prefix; else nil.
	single map[netip.Prefix][]StaticRoute
}

// indirect is a route, and its next hops once they are known.
type indirect struct {
	StaticRoute
	hops []Hop
}

// recursive adds those of a router.
func (n *network) recursive(t *table, router int, only netip.Prefix, behind []StaticRoute) {
	if !only.IsValid() {
		(&recursion{network: n, router: router, table: t}).find(behind)
		return
	}
	n.mu.Lock()
	given := n.indirect[router]
	n.mu.Unlock()
	if given == nil { // all of them once, as each may need all others
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

// find finds the next hops of all.
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

// complete makes the table have all routes to a prefix.
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

// hopsTo returns the next hops of the route to a route's next hop, as the way to it.
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
