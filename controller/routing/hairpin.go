package routing

import (
	"slices"

	"trivet.dev/trivet/openflow"
)

// A switch never sends a packet out of the port on which it arrived, unless an action names IN_PORT
// (OpenFlow 1.3.5, section 5.12, Output). A router must: several routers and hosts may share a
// segment, and a port may have several subnets. For this a prefix has further entries, one priority
// higher, for packets that arrive on a port by which they have to leave.

// hairpins returns the entries for such packets beside a prefix's own entry, which leads to these
// hops.
func (n *node) hairpins(m *openflow.FlowMod, hops []Hop) (out []*openflow.FlowMod) {
	for i, h := range hops {
		again := slices.ContainsFunc(hops[:i], func(other Hop) bool { return other.Port == h.Port })
		if again || !n.mayReturn(h) {
			continue
		}
		actions := append([]openflow.Action{openflow.DecNwTTL()}, hopActions(h)...)
		actions[len(actions)-1] = openflow.Output(openflow.PortInPort)
		out = append(out, entry(m.Table, m.Priority+1, m.Match.With(openflow.InPort(h.Port)),
			openflow.ApplyActions(actions...)))
	}
	return out
}

// mayReturn reports whether a packet that arrived on a hop's port may have to leave by it.
// Neighbours in the same subnet need no router.
func (n *node) mayReturn(h Hop) bool {
	if f := n.itf[h.Port]; !h.Via.IsValid() {
		count := [2]int{}
		for _, p := range f.Prefixes {
			count[family(p.Addr())]++
		}
		return max(count[0], count[1]) > 1
	}
	return n.net != nil && !n.net.isDirect(place{n.DPID, h.Port})
}
