package miniedit

import (
	"net/netip"
	"slices"

	"trivet.dev/trivet/topology"
)

// fill returns a copy in which hosts that leave their address open have the one that they would get
// in a lab, and its gateway: MiniEdit, which simply counts, would assign others.
func fill(t *topology.Topology) *topology.Topology {
	filled := t.Clone()
	resolved, _ := topology.Resolve(topology.Unadvertised(t),
		topology.Defaults{Datapath: topology.Embedded, Controlled: topology.Embedded,
			Controller: topology.ControllerTrivet})
	if resolved == nil {
		return filled // a topology that cannot come up can still be drawn
	}
	nodes, first := map[string]*topology.Node{}, map[string]*topology.Endpoint{}
	for _, n := range resolved.Nodes {
		nodes[n.Name] = n
	}
	for _, l := range resolved.Links {
		for i := range l.Ends {
			e := &l.Ends[i]
			if f := first[e.Node]; !e.External() && (f == nil || *e.Port < *f.Port) {
				first[e.Node] = e
			}
		}
	}
	given := givenAddresses(t)
	for _, n := range filled.Nodes {
		if n.Kind != topology.Host {
			continue
		}
		e := first[n.Name]
		if e == nil {
			continue
		}
		if len(given[n.Name])+len(n.Gateways) == 0 {
			n.Gateways = nodes[n.Name].Gateways
		}
		n.Addresses, n.Unaddressed = e.Addresses, e.Unaddressed
	}
	return filled
}

func givenAddresses(t *topology.Topology) map[string][]netip.Prefix {
	given := map[string][]netip.Prefix{}
	for _, n := range t.Nodes {
		given[n.Name] = append(given[n.Name], n.Addresses...)
	}
	for _, l := range t.Links {
		for _, e := range l.Ends {
			given[e.Node] = append(given[e.Node], e.Addresses...)
		}
	}
	return given
}

// address4 is the first IPv4 address of a list.
func address4(addresses []netip.Prefix) (netip.Prefix, bool) {
	i := slices.IndexFunc(addresses, func(p netip.Prefix) bool { return p.Addr().Is4() })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return addresses[i], true
}
