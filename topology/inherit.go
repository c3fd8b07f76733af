package topology

import (
	"cmp"
	"net/netip"
	"slices"
)

// Inherit fills in what a topology leaves open with the values assigned in an earlier, resolved
// one, so that an edited file keeps the ports, addresses, datapath ids and router ids of everything
// that it did not change. Addresses stay open if they now come from another pool, if routers now
// divide one network into subnets or no longer do, and in segments that were joined, divided, or
// have become too large for their subnet.
func Inherit(t, resolved *Topology) {
	before := byName(resolved)
	addresses := t.Subnet == resolved.Subnet && t.Subnet6 == resolved.Subnet6 && t.hasSubnets() == resolved.hasSubnets()
	given := map[string]*Node{}
	for _, n := range t.Nodes {
		old := before[n.Name]
		if old == nil || old.Kind != n.Kind {
			continue
		}
		n.DPID = cmp.Or(n.DPID, old.DPID)
		for _, p := range n.Speaks() {
			if p.Inherit != nil && old.Protocols[p.Name] != nil {
				n.Protocols = n.Protocols.Clone() // nodes of a range in the file may share it
				p.Inherit(n, old)
			}
		}
		given[n.Name] = n
	}
	inherited, daemons := map[*Endpoint]bool{}, daemonsAddress{}
	oldLinks := index(LinkKeys(resolved), resolved.Links)
	for i, key := range LinkKeys(t) {
		l, old := t.Links[i], oldLinks[key]
		if old == nil {
			continue
		}
		for j := range l.Ends {
			from := old.Ends[j]
			if from.Label() != l.Ends[j].Label() {
				from = old.Ends[1-j]
			}
			e := &l.Ends[j]
			open := len(e.Addresses) == 0
			inheritEnd(e, from, given[e.Node], addresses, daemons)
			inherited[e] = open && len(e.Addresses) > 0
		}
	}
	if t.hasSubnets() {
		forgetMisfits(t, inherited, daemons)
	}
	inheritManagement(t, resolved)
}

// forgetMisfits removes inherited addresses, so that each segment is a subnet of its own with room
// for all its interfaces.
func forgetMisfits(t *Topology, inherited map[*Endpoint]bool, daemons daemonsAddress) {
	r := &resolver{t: t, nodes: byName(t), ends: map[string][]*Endpoint{}}
	for _, l := range t.Links {
		for i := range l.Ends {
			r.ends[l.Ends[i].Node] = append(r.ends[l.Ends[i].Node], &l.Ends[i])
		}
	}
	segs := r.segments()
	taken := map[netip.Prefix]bool{}
	for _, inFile := range []bool{true, false} { // what the file gives takes precedence
		for _, s := range segs {
			all := slices.Concat(s.routers, s.ends)
			for fam := range s.prefix {
				prefix := s.prefix[fam]
				switch {
				case inFile:
					var file []*Endpoint
					for _, e := range all {
						if !inherited[e] {
							file = append(file, e)
						}
						// This end gets the node's own addresses.
						if n := r.nodes[e.Node]; slices.Index(r.ends[e.Node], e) == 0 {
							file = append(file, &Endpoint{Addresses: n.Addresses})
						}
						file = append(file, &Endpoint{Addresses: daemons.at(r.nodes[e.Node], e)})
					}
					prefix = givenPrefix(file, fam)
					s.prefix[fam], taken[prefix] = prefix, true
					continue
				case !prefix.IsValid():
					if prefix = givenPrefix(all, fam); taken[prefix] || !hasRoom(prefix, len(all)) {
						prefix = netip.Prefix{}
					}
					taken[prefix] = true
				}
				for _, e := range all {
					if inherited[e] {
						e.Addresses = slices.DeleteFunc(e.Addresses, func(a netip.Prefix) bool {
							return family(a.Addr()) == fam && !a.IsSingleIP() && a.Masked() != prefix
						})
					}
				}
			}
		}
	}
}

// hasRoom says whether a subnet has enough addresses for a number of interfaces.
func hasRoom(p netip.Prefix, interfaces int) bool {
	host := p.Addr().BitLen() - p.Bits()
	if host >= 31 {
		return true
	}
	most := 1 << host
	if host > 1 { // without the network and broadcast addresses
		most -= 2
	}
	return interfaces <= most
}

// inheritEnd fills in what neither the end nor its node (nil: a new node) gives.
func inheritEnd(e *Endpoint, old Endpoint, n *Node, addresses bool, daemons daemonsAddress) {
	if n == nil {
		return
	}
	if e.Port == nil && old.Port != nil {
		port := *old.Port
		e.Port = &port
		e.Interface = cmp.Or(e.Interface, old.Interface)
	}
	if e.MAC == (MAC{}) && n.MAC == (MAC{}) {
		e.MAC = old.MAC
	}
	passedOn := n.PassedOn()[cmp.Or(e.Interface, old.Interface)] != nil
	if addresses && len(e.Addresses) == 0 && len(n.Addresses) == 0 && !e.Unaddressed && !n.Unaddressed && !passedOn &&
		!daemons.any(n) {
		e.Addresses = append(e.Addresses, old.Given()...)
		if n.AcceptRA && e.AcceptRA == nil || e.AcceptsRA() {
			e.Addresses = slices.DeleteFunc(e.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() })
		}
	}
}
