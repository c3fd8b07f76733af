package routing

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"trivet.dev/trivet/routing/rib"
	"trivet.dev/trivet/topology"
)

// Redistributed returns a feed of the routes that routers redistribute into a program or protocol
// by their rules, with the metric and tag that the rules set. Routes of the target itself are left
// out, as are those whose tag says that they came from it (see rib.TagOf), so that none are fed
// back. wake is as for Subscribe; Of must not be called.
func (a *App) Redistributed(into string, wake func()) *Feed {
	f := a.subscribed(&Feed{app: a, into: into, wake: wake})
	f.publish()
	return f
}

// RedistributedNow returns the current state of such a feed.
func (a *App) RedistributedNow(into string) (out []Update) {
	net := a.net.Load()
	if net == nil {
		return nil
	}
	for _, dpid := range net.redistributors(into) {
		told := net.redistributed(net.index[dpid], into)
		for _, p := range slices.SortedFunc(maps.Keys(told), netip.Prefix.Compare) {
			out = append(out, Update{Key: Place{dpid, p}, Value: told[p]})
		}
	}
	return out
}

// redistributors lists the routers that have rules for a target.
func (n *network) redistributors(into string) (out []uint64) {
	for _, r := range n.routers {
		if slices.ContainsFunc(r.Redistribute, func(rule topology.Redistribute) bool { return rule.Into == into }) {
			out = append(out, r.DPID)
		}
	}
	return out
}

// redistributed returns the routes that a router redistributes into a target.
func (n *network) redistributed(router int, into string) map[netip.Prefix]*Route {
	t := n.table(router)
	out := map[netip.Prefix]*Route{}
	for p, r := range t.routes {
		if home := t.home[p]; r.Source == Balanced && home != nil {
			r = home // steering does not change what is announced
		}
		if r.Source == Spoken && r.Name == into || r.Source == Program && r.Name == into || r.Tag == rib.TagOf(into) {
			continue
		}
		for _, rule := range n.routers[router].Redistribute {
			if rule.Into != into || !r.IsFrom(rule.Source, rule.Name) || !rule.Matches(p, r.Tag) {
				continue
			}
			if !rule.Deny {
				told := *r
				told.Metric, told.Tag = cmp.Or(uint32(rule.Metric), r.Metric), r.TagAs(rule.SetTag)
				out[p] = &told
			}
			break
		}
	}
	return out
}

// IsFrom reports whether a route matches a rule's source and name of a program or protocol; "":
// any.
func (r *Route) IsFrom(source, name string) bool {
	if name != "" && name != r.Name {
		return false
	}
	switch r.Source {
	case Connected:
		return source == topology.SourceConnected
	case Static:
		return source == topology.SourceStatic
	case Program:
		return source == topology.SourceProgram
	case Computed:
		return source == topology.SourceShortestPath
	case Spoken:
		// Those that topologies know are sources by themselves.
		return source == topology.SourceProtocol || source == r.Name
	}
	return false
}

// TagAs returns the tag of a redistributed route: the rule's, the route's own, or that of its
// program or protocol.
func (r *Route) TagAs(set uint32) uint32 {
	set = cmp.Or(set, r.Tag)
	if set == 0 && r.Name != "" {
		set = rib.TagOf(r.Name)
	}
	return set
}
