package sites

import (
	"slices"
	"strings"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// placeMembers places the members of a cluster at sites that take switches: those that a file names
// such a site for go there, the others to all sites in turn, beginning with the head. A member that
// has a site already stays there.
func placeMembers(t *topology.Topology, list *site.List, old *topology.Topology) error {
	c := t.Cluster
	if c == nil {
		return nil
	}
	var names []string
	labels := map[string][]string{topology.Head: list.Head.Labels}
	if !list.Head.Only {
		names = append(names, topology.Head)
	}
	for _, m := range list.Sites() {
		if m.Hosts == 0 {
			names, labels[m.Name] = append(names, m.Name), m.Labels
		}
	}
	if len(names) == 0 {
		names = []string{topology.Head} // members are no nodes
	}
	was := map[string]string{}
	if old != nil {
		for _, m := range old.Members() {
			was[m.Name] = m.Sited()
		}
	}
	var p topology.Problems
	has := map[string]int{}
	for i := range c.Members {
		m := &c.Members[i]
		fit := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return m.On != "" && m.On != name && !slices.Contains(labels[name], m.On)
		})
		before, ok := was[m.Name]
		switch {
		case ok && (m.On == "" || slices.Contains(fit, before)):
			m.On = before
		case ok:
			p.Add(m.Pos, "take the lab down and up again",
				"cluster: member %s is at %s, and cannot move to %s while the lab is up", m.Name, before, m.On)
			continue
		case len(fit) == 0:
			p.Add(m.Pos, "the sites for members are "+strings.Join(names, ", "),
				"cluster: there is no site %s for member %s, and none for members has that label", m.On, m.Name)
			continue
		default:
			m.On = slices.MinFunc(fit, func(a, b string) int { return has[a] - has[b] })
		}
		if has[m.On]++; m.On == topology.Head {
			m.On = ""
		}
	}
	checkMembers(&p, t, list)
	return p.Err()
}

// checkMembers says what is incompatible with a cluster at several sites.
func checkMembers(p *topology.Problems, t *topology.Topology, list *site.List) {
	c := t.Cluster
	for _, n := range t.Nodes {
		if m := list.Machine(n.Sited()); m != nil && m.Configured() && m.Device().Controllers &&
			slices.ContainsFunc(n.Controllers, t.IsBuiltin) {
			p.Add(n.Pos, "place it elsewhere, or leave out the cluster",
				"%s: %s connects to one controller of Trivet's, and not to the members of a cluster", n.Name,
				m.Device().A())
		}
	}
	i := slices.IndexFunc(c.Members, func(m topology.Member) bool { return m.Sited() != topology.Head })
	if s := c.Store; i >= 0 && s != nil {
		p.Add(s.Pos, "leave it out, or put all members at the head (on: head)",
			"cluster: member %s is at %s, where a store that is not the lab's own is not reached", c.Members[i].Name,
			c.Members[i].On)
	}
	if s := c.Broker; i >= 0 && s != nil {
		p.Add(s.Pos, "leave it out, or put all members at the head (on: head)",
			"cluster: member %s is at %s, where a broker that is not the lab's own is not reached", c.Members[i].Name,
			c.Members[i].On)
	}
}

// forMembers says whether a site may connect to this service at the head: to a member if the site
// has switches, to the store and the broker if it has a member.
func forMembers(t *topology.Topology, at, called string) bool {
	if called == lab.ClusterStore || called == lab.ClusterBroker {
		return slices.ContainsFunc(t.Members(), func(m topology.Member) bool { return m.Sited() == at })
	}
	return slices.ContainsFunc(t.Members(),
		func(m topology.Member) bool { return lab.MemberProgram(m.Name) == called }) &&
		slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool {
			return n.Sited() == at && n.IsDatapath() && slices.Contains(n.Controllers, topology.ControllerTrivet)
		})
}

// PartAt returns the daemon of the part at another site. It may be called at any time.
func (l *Lab) PartAt(name string) *lab.Client {
	if p := l.parts[name]; p != nil {
		return p.client
	}
	return nil
}
