package topology

import "slices"

// Inherit gives a topology what was assigned in an earlier, resolved one and is
// left open now, so that an edited file keeps the ports, addresses, datapath
// ids and router ids of all that it did not change. Addresses stay open where they
// come from another pool now, or routers make subnets of what was one network, or no longer do.
func Inherit(t, resolved *Topology) {
	before := byName(resolved)
	addresses := t.Subnet == resolved.Subnet && t.Subnet6 == resolved.Subnet6 && t.hasSubnets() == resolved.hasSubnets()
	given := map[string]*Node{}
	for _, n := range t.Nodes {
		old := before[n.Name]
		if old == nil || old.Kind != n.Kind {
			continue
		}
		if n.DPID == 0 {
			n.DPID = old.DPID
		}
		if n.OSPF != nil && old.OSPF != nil && !n.OSPF.RouterID.IsValid() && slices.Equal(n.Loopback, old.Loopback) {
			n.OSPF = n.OSPF.Clone() // the file's range may share it
			n.OSPF.RouterID = old.OSPF.RouterID
		}
		given[n.Name] = n
	}
	oldLinks := index(LinkKeys(resolved), resolved.Links)
	for i, key := range LinkKeys(t) {
		l, old := t.Links[i], oldLinks[key]
		if old == nil {
			continue
		}
		for j := range l.Ends {
			from := old.Ends[j]
			if from.label() != l.Ends[j].label() {
				from = old.Ends[1-j]
			}
			inheritEnd(&l.Ends[j], from, given[l.Ends[j].Node], addresses)
		}
	}
}

// inheritEnd fills what neither the end nor its node (nil: a new one) gives now.
func inheritEnd(e *Endpoint, old Endpoint, n *Node, addresses bool) {
	if n == nil {
		return
	}
	if e.Port == nil && old.Port != nil {
		port := *old.Port
		e.Port = &port
		if e.Interface == "" {
			e.Interface = old.Interface
		}
	}
	if e.MAC == (MAC{}) && n.MAC == (MAC{}) {
		e.MAC = old.MAC
	}
	if addresses && len(e.Addresses) == 0 && len(n.Addresses) == 0 {
		e.Addresses = append(e.Addresses, old.Addresses...)
	}
}
