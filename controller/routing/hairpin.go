package routing

import (
	"slices"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// A switch sends no packet out of the port that it came in by, unless it is told to by the name IN_PORT (OpenFlow
// 1.3.5, section 5.12, Output). A router does: several routers and hosts may share a segment, and a port may have
// several subnets. There an entry has others beside it, one priority higher, for packets that come in by a port that they
// have to leave by.

// hairpins returns the entries beside one that leads to these hops.
func (n *node) hairpins(m *openflow.FlowMod, hops []Hop) (out []*openflow.FlowMod) {
	for i, h := range hops {
		again := slices.ContainsFunc(hops[:i], func(other Hop) bool { return other.Port == h.Port })
		if again || !n.mayReturn(h) {
			continue
		}
		actions := append([]openflow.Action{openflow.DecNwTTL()}, hopActions(h)...)
		actions[len(actions)-1] = openflow.Output(openflow.PortInPort)
		out = append(out, entry(m.Table, m.Priority+1, m.Match.With(openflow.InPort(h.Port)), openflow.ApplyActions(actions...)))
	}
	return out
}

// mayReturn says whether a packet that came in by a hop's port may have to leave by it. Neighbours in one subnet
// need no router.
func (n *node) mayReturn(h Hop) bool {
	if f := n.itf[h.Port]; !h.Via.IsValid() {
		count := [2]int{}
		for _, p := range f.Prefixes {
			count[family(p.Addr())]++
		}
		return max(count[0], count[1]) > 1
	}
	return n.net != nil && !n.net.direct[place{n.DPID, h.Port}]
}

// hairpin says whether an entry is one of those.
func hairpin(k controller.RuleKey) bool { return isRoute(k) && (k.Priority-priorityRoute)%2 == 1 }

// besideNeighbor says whether a hairpin is beside a neighbour's entry that stays.
func (n *node) besideNeighbor(m *openflow.FlowMod, gone []controller.RuleKey) bool {
	p, _ := routePrefix(m)
	nb := n.neighbors[p.Addr()]
	if nb == nil || !p.IsSingleIP() || slices.Contains(gone, routeKey(p)) || !n.rules.Has(nb.entry()) {
		return false
	}
	key := controller.KeyOf(m)
	return slices.ContainsFunc(n.hairpins(nb.entry(), []Hop{nb.hop()}), func(h *openflow.FlowMod) bool { return controller.KeyOf(h) == key })
}
