package ospf

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"trivet.dev/trivet/controller/routing"
	engine "trivet.dev/trivet/routing/ospf"
	"trivet.dev/trivet/routing/rib"
	"trivet.dev/trivet/topology"
)

// giveWay is how long a router keeps announcing a network after another router has stopped, if both
// have lost it to OSPF: perhaps only to each other. If both stopped, each would use its own route
// again, announce it, and so on for ever.
const giveWay = 5 * time.Second

// redistributes lists the routers that redistribute.
func (c *Config) redistributes() (out []uint64) {
	for i := range c.Routers {
		if r := &c.Routers[i]; len(r.Redistribute) > 0 {
			out = append(out, r.DPID)
		}
	}
	return out
}

// usedRoutes are the routes in use, by router, to prefixes to which the router has any of its own.
type usedRoutes map[uint64]map[netip.Prefix]*routing.Route

// take applies updates.
func (u usedRoutes) take(updates []routing.Update) {
	for _, x := range updates {
		of := u[x.Key.Router]
		if x.Gone {
			if delete(of, x.Key.Prefix); len(of) == 0 {
				delete(u, x.Key.Router)
			}
			continue
		}
		if of == nil {
			of = map[netip.Prefix]*routing.Route{}
			u[x.Key.Router] = of
		}
		of[x.Key.Prefix] = x.Value
	}
}

// redistribute makes routers announce their routes from other sources, and returns when it must be
// called again; 0: not.
func (n *network) redistribute(now time.Time) (again time.Duration) {
	for p, at := range n.gaveWay {
		if now.Sub(at) >= giveWay {
			delete(n.gaveWay, p)
		}
	}
	for _, r := range n.sorted {
		if len(r.Redistribute)+len(r.externals) == 0 {
			continue
		}
		list := r.outside(n.used[r.DPID])
		for _, e := range r.externals {
			if n.lost(r, e, list) {
				if at, ok := n.gaveWay[e.Prefix]; ok {
					list, again = append(list, e), max(again, giveWay-now.Sub(at))
				} else {
					n.gaveWay[e.Prefix] = now
				}
			}
		}
		slices.SortFunc(list, func(a, b engine.External) int { return a.Prefix.Compare(b.Prefix) })
		if slices.Equal(list, r.externals) {
			continue
		}
		n.blame("external routes of " + r.Name)
		if err := r.engine.SetExternals(now, list); err != nil {
			n.warn("routes of "+r.Name+" are not redistributed", err)
		}
		r.externals = list
	}
	return again
}

// lost reports whether a router stops announcing a network because OSPF now has a route to it.
func (n *network) lost(r *router, e engine.External, list []engine.External) bool {
	u := n.used[r.DPID][e.Prefix]
	return u != nil && u.Source == routing.Spoken && u.Name == topology.SourceOSPF &&
		!slices.ContainsFunc(list, func(o engine.External) bool { return o.Prefix == e.Prefix })
}

// outside lists what a router redistributes of its routes in use. Routes from OSPF, directly or, as
// the tag says, by way of others, are left out, so that none are fed back.
func (r *router) outside(used map[netip.Prefix]*routing.Route) (out []engine.External) {
	decided := map[netip.Prefix]bool{}
	networks := slices.SortedFunc(maps.Keys(used), netip.Prefix.Compare)
	for _, rule := range r.Redistribute {
		decide := func(p netip.Prefix, tag, announced uint32, forward netip.Addr) {
			if decided[p] || !p.Addr().Is4() || !rule.Matches(p, tag) {
				return
			}
			if decided[p] = true; !rule.Deny {
				out = append(out, engine.External{Prefix: p, Type2: rule.Type == 2, Metric: uint32(rule.Metric),
					Forward: forward, Tag: announced})
			}
		}
		if rule.Source == topology.SourceDefault {
			decide(netip.PrefixFrom(netip.IPv4Unspecified(), 0), 0, rule.SetTag, netip.Addr{})
			continue
		}
		for _, p := range networks {
			u := used[p]
			if u.IsFrom(rule.Source, rule.Name) && u.Tag != rib.TagOf(topology.SourceOSPF) &&
				(u.Source != routing.Connected || r.isOff(p)) {
				decide(p, u.Tag, u.TagAs(rule.SetTag), r.forward(u))
			}
		}
	}
	return out
}

// isOff reports whether a network is that of an interface on which OSPF is off.
func (r *router) isOff(p netip.Prefix) bool {
	return slices.ContainsFunc(r.Off, func(o Network) bool { return o.Prefix.Masked() == p })
}

// forward returns the forwarding address of a route, if it has one (RFC 2328, section 12.4.4 and
// A.4.5): if the only next hop is on a network that several routers share by OSPF, they need not go
// through this one.
func (r *router) forward(u *routing.Route) (none netip.Addr) {
	if len(u.Hops) != 1 {
		return none
	}
	for _, p := range r.ports {
		s := p.Settings
		if s.Type == engine.Broadcast && p.up() && s.Address.IsValid() && s.Address.Contains(u.Hops[0].Via) {
			return u.Hops[0].Via
		}
	}
	return none
}
