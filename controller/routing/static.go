package routing

import (
	"cmp"
	"net/netip"
	"slices"
)

// static adds the given routes: first those that depend on no other route, then those whose next
// hop is reached through another route.
func (n *network) static(t *table, router int, only netip.Prefix) {
	behind := n.independent(t, router, n.routers[router].Static, only)
	if slices.ContainsFunc(behind, func(s StaticRoute) bool { return chosen(only, s.To) }) {
		n.recursive(t, router, only, behind)
	}
}

// independent adds those of a router's given routes that lead to neighbours or discard, and returns
// the others.
func (n *network) independent(t *table, router int, given []StaticRoute, only netip.Prefix) (behind []StaticRoute) {
	for _, s := range given {
		switch out := n.interfaceTo(router, s.Via); {
		case s.Discard:
			if chosen(only, s.To) {
				r := s.route()
				r.Drop = true
				t.offer(r)
			}
		case n.owns(router, s.Via):
			t.unreached(s, only, "the next hop is the router itself")
		case out == nil:
			behind = append(behind, s)
		case chosen(only, s.To):
			t.offer(s.route(n.hopVia(router, out, s.Via)))
		}
	}
	return behind
}

func (s *StaticRoute) route(hops ...Hop) *Route {
	r := &Route{Prefix: s.To, Source: Static, Distance: s.Distance, Metric: cmp.Or(s.Metric, 1), Tag: s.Tag, Hops: hops}
	switch {
	case s.Fallback:
		r.Source = Fallback
	case s.Program != "":
		r.Source, r.Name = Program, s.Program
	}
	return r
}

// owns reports whether an address is one of the router's own.
func (n *network) owns(router int, a netip.Addr) bool {
	o, ok := n.known[a]
	return ok && o.router == router
}

// unreached records a route that cannot be used, and why.
func (t *table) unreached(s StaticRoute, only netip.Prefix, why string) {
	if t.all == nil || !chosen(only, s.To) {
		return
	}
	r := s.route(Hop{Via: s.Via, router: -1})
	t.rank(r)
	*t.all = append(*t.all, Candidate{Route: r, Why: why})
}

// Candidate is a route from one of a router's sources, in use or not.
type Candidate struct {
	*Route
	Used bool
	Why  string // it is not used
}

// candidates lists the routes from all sources to exactly a prefix, or if that is not valid to all
// prefixes, by prefix, the preferred one first.
func (n *network) candidates(router int, only netip.Prefix) (out []Candidate) {
	t := n.newTable(router)
	t.all = &out
	if n.onDemand && only.IsValid() {
		n.fillTo(t, router, only)
	} else {
		n.fill(t, router)
		out = slices.DeleteFunc(out, func(c Candidate) bool { return !chosen(only, c.Prefix) })
	}
	for i := range out {
		used := t.routes[out[i].Prefix]
		if c := &out[i]; c.Route == used {
			c.Used = true
		} else if c.Why == "" {
			best := c.Rank() // another source's; the distances say why
			if used != nil {
				best = used.Rank()
			}
			c.Why = c.Rank().Lost(best)
		}
	}
	slices.SortStableFunc(out, func(a, b Candidate) int {
		if c := a.Prefix.Compare(b.Prefix); c != 0 {
			return c
		}
		if a.Used != b.Used {
			return map[bool]int{true: -1, false: 1}[a.Used]
		}
		return a.Rank().Compare(b.Rank())
	})
	return out
}

// Candidates lists a router's routes from all sources to a prefix, or if that is not valid to all
// prefixes, by prefix, the preferred one first; nil: there is no such router.
func (a *App) Candidates(dpid uint64, p netip.Prefix) []Candidate {
	net, i, ok := a.picture(dpid)
	if !ok {
		return nil
	}
	return net.candidates(i, p)
}
