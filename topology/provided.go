package topology

// AtProvider is the place, in a placed topology, of nodes that the provider of the lab's machines
// makes itself: they are on no machine. No machine can have this name.
const AtProvider = "@provider"

// CheckProvided reports settings of a resolved topology that a provider's routers cannot have.
func CheckProvided(t *Topology) (p Problems) {
	nodes := t.NodesByName()
	for _, n := range t.Nodes {
		if !n.Datapath.Provided() {
			continue
		}
		is := n.Datapath.Kind().Is
		for _, s := range n.Speaks() {
			p.Add(n.Pos, "leave it out, or use another datapath", "router %s: %s has no %s", n.Name, is, s.Title)
		}
		for _, lacks := range []struct {
			what  string
			asked bool
		}{
			{"loopback address", len(n.Loopback) > 0},
			{"programs, namespaces or translation of addresses that a topology asks for", n.RunsPrograms()},
			{"configuration of its own", len(n.Config) > 0},
			{"model of a slow device", n.Model != nil},
			{"limits of processors", n.CPU != (CPU{}) || len(n.Cores) > 0},
			{"IPv6 that a topology asks for", t.IPv6.Addressed()},
		} {
			if lacks.asked {
				p.Add(n.Pos, "leave it out, or use another datapath", "router %s: %s has no %s", n.Name, is, lacks.what)
			}
		}
		for _, rt := range n.Routes {
			if !rt.Via.Is4() || rt != (Route{To: rt.To, Via: rt.Via, Computed: rt.Computed}) {
				p.Add(n.Pos, "write 10.2.0.0/16 via 10.0.0.254",
					"router %s: %s takes routes through neighbours alone, not %s", n.Name, is, rt)
			}
		}
	}
	for _, l := range t.Links {
		for i, e := range l.Ends {
			n, far := nodes[e.Node], nodes[l.Ends[1-i].Node]
			if n == nil || !n.Datapath.Provided() {
				continue
			}
			if impair := l.Egress(i); impair != (Impairment{MTU: impair.MTU}) {
				p.Add(l.Pos, "write it for the other end alone:  from: {delay: 5ms}",
					"link %s: %s cannot limit, delay or lose what it sends", l.Name(), n.Name)
			}
			if l.Down && i == 0 && far != nil && far.Datapath.Provided() {
				p.Add(l.Pos, "leave it out", "link %s: neither %s nor %s can be made to set it down", l.Name(), n.Name,
					far.Name)
			}
			if l.Ends[1-i].External() && l.Ends[1-i].Network == "" {
				p.Add(l.Pos, "connect it to another node, or to a network",
					"link %s: %s can have no interface of this machine", l.Name(), n.Name)
			}
		}
	}
	return p
}
