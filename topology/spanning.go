package topology

// Blocked returns the links that must not forward, so that switches without a controller, which
// flood, do not form a loop: for each connected set of such switches, all links outside a
// breadth-first spanning tree from its first switch. Switches that run the spanning tree protocol,
// as all but embedded ones can, are left out. In a Part, the tree is that of the whole topology.
// The topology must be resolved.
func Blocked(t *Topology) map[*Link]bool {
	if t.Site != "" {
		held := map[*Link]bool{}
		for _, l := range t.Links {
			if l.Held {
				held[l] = true
			}
		}
		return held
	}
	learns := map[string]bool{}
	for _, n := range t.Nodes {
		learns[n.Name] = n.Kind == Switch && (!n.STP || n.Datapath == Embedded) && len(n.Controllers) > 0 &&
			n.Controllers[0] == ControllerNone
	}
	links := map[string][]*Link{}
	blocked := map[*Link]bool{}
	for _, l := range t.Links {
		a, b := l.Ends[0].Node, l.Ends[1].Node
		if learns[a] && learns[b] && !l.Down {
			links[a] = append(links[a], l)
			links[b] = append(links[b], l)
			blocked[l] = true
		}
	}
	seen := map[string]bool{}
	for _, n := range t.Nodes {
		if !learns[n.Name] || seen[n.Name] {
			continue
		}
		seen[n.Name] = true
		for queue := []string{n.Name}; len(queue) > 0; queue = queue[1:] {
			for _, l := range links[queue[0]] {
				other := l.Ends[0].Node
				if other == queue[0] {
					other = l.Ends[1].Node
				}
				if !seen[other] {
					seen[other] = true
					delete(blocked, l)
					queue = append(queue, other)
				}
			}
		}
	}
	return blocked
}
