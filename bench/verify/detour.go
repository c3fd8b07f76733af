package verify

import (
	"fmt"
	"maps"
	"slices"

	"trivet.dev/trivet/topology"
)

// judgeWays records streams that have arrived, but that routers sent by other paths than their
// protocol should find.
func (v *verifier) judgeWays(traces []*trace) {
	for _, t := range traces {
		if way := t.wayTaken(); way != nil {
			v.detours[t.name()] = v.detour(t.flow, way)
		}
	}
}

// sayDetours reports those that are left after all looks.
func (v *verifier) sayDetours() {
	for _, why := range slices.Compact(slices.Sorted(maps.Values(v.detours))) {
		if why != "" {
			v.result.Routes.add(why)
		}
	}
}

// costsOf returns the costs of paths for the protocols that a topology's routers speak.
func costsOf(t *topology.Topology) map[*topology.Protocol]topology.Costs {
	out := map[*topology.Protocol]topology.Costs{}
	for _, p := range topology.Spoken(t) {
		if p.Costs != nil {
			out[p] = p.Costs(t)
		}
	}
	return out
}

// detour says which router sends a stream by a path that costs its protocol more than the cheapest
// one, by the topology's settings; "" if none does, or if the settings alone do not tell, as with
// routers that speak several protocols.
func (v *verifier) detour(f *flow, way []hop) string {
	to := v.address[f.to]
	var routers []hop // directions that leave routers
	for _, h := range way {
		n := v.nodes[v.near(h)]
		if n.Kind != topology.Router {
			continue
		}
		if !n.Datapath.Linux() ||
			slices.ContainsFunc(n.Routes, func(r topology.Route) bool { return !r.Computed && r.To.Contains(to) }) {
			return ""
		}
		routers = append(routers, h)
	}
	// A router with a configuration or a command of its own may change what all others find.
	if !to.Is4() || slices.ContainsFunc(v.t.Nodes, func(n *topology.Node) bool {
		return n.Kind == topology.Router && (len(n.Config) > 0 || n.Start != "")
	}) {
		return ""
	}
	for i, h := range routers {
		at := v.near(h)
		speaks := v.nodes[at].Speaks()
		if len(speaks) != 1 || v.costs[speaks[0]] == nil {
			return ""
		}
		costs := v.costs[speaks[0]]
		least, known := costs.Least(at, to)
		cost, ok := costs.Over(at, v.t.Links[h.link].DeviceAt(h.out))
		if !known || !ok {
			return ""
		}
		over := v.far(h)
		if i+1 < len(routers) {
			over = v.near(routers[i+1])
			rest, known := costs.Least(over, to)
			if !known {
				return ""
			}
			cost += rest
		}
		if cost > least {
			return fmt.Sprintf("%s sends what is for %s by %s, which costs %d: %s has a way that costs %d", at,
				f.to, over,
				cost, speaks[0].Title, least)
		}
	}
	return ""
}
