package local

import (
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
)

// A steps list is what turns one topology into another on this machine: what
// must be taken away, what must be made, what can be set in place.
type steps struct {
	new *topology.Topology

	dropLinks, addLinks []keyed
	setLinks            []keyed         // impairment, up or down
	plugged             map[string]bool // keys of those that go up or down
	dropNodes, addNodes []*topology.Node
	setNodes            []change[*topology.Node] // addresses, routes, limits
}

type change[T any] struct{ old, new T }

// keyed is a link with the key that tells it from parallel ones.
type keyed struct {
	key string
	*topology.Link
}

// inPlace are the settings of a link that can change without making it anew.
var inPlace = []string{"bandwidth", "delay", "jitter", "loss", "queue", "down", "device", "ends.0.take", "ends.1.take"}

// nodeInPlace are the same of a node; switches are set as a whole anyway.
var nodeInPlace = []string{"addresses", "loopback", "gateways", "routes", "masquerade", "cpu", "cores", "start", "stop",
	"controllers", "fail_mode", "openflow", "dpid", "stp", "address", "device"}

// ofOSPF says whether a setting is one of OSPF, which the daemons of routers are told.
func ofOSPF(field string) bool {
	return field == "ospf" || strings.HasPrefix(field, "ospf.") || len(field) > 11 && strings.HasPrefix(field, "ends.") && field[6:12] == ".ospf."
}

func (l *Lab) plan(old, new *topology.Topology) steps {
	s := steps{new: new, plugged: map[string]bool{}}
	rebuild := map[string]bool{} // nodes that must be made anew, with their links
	for _, c := range topology.Diff(old, new) {
		switch {
		case c.OldNode != nil && c.NewNode != nil:
			if slices.ContainsFunc(c.Fields, func(f topology.Field) bool { return !slices.Contains(nodeInPlace, f.Name) && !ofOSPF(f.Name) }) {
				rebuild[c.NewNode.Name] = true
				s.dropNodes = append(s.dropNodes, c.OldNode)
				s.addNodes = append(s.addNodes, c.NewNode)
			} else {
				s.setNodes = append(s.setNodes, change[*topology.Node]{c.OldNode, c.NewNode})
			}
		case c.OldNode != nil:
			s.dropNodes = append(s.dropNodes, c.OldNode)
		case c.NewNode != nil:
			s.addNodes = append(s.addNodes, c.NewNode)
		}
	}
	oldLinks, newLinks := byKey(old), byKey(new)
	oldNodes, newNodes := nodesByName(old), nodesByName(new)
	remade := func(a, b *topology.Link) bool {
		return rebuild[b.Ends[0].Node] || rebuild[b.Ends[1].Node] ||
			l.wireOf(a, oldNodes) != l.wireOf(b, newNodes) || !settable(a, b)
	}
	for i, key := range topology.LinkKeys(old) {
		link := old.Links[i]
		if m := newLinks[key]; m == nil || remade(link, m) {
			s.dropLinks = append(s.dropLinks, keyed{key, link})
		}
	}
	for i, key := range topology.LinkKeys(new) {
		link := new.Links[i]
		before := oldLinks[key]
		switch {
		case before == nil || remade(before, link):
			s.addLinks = append(s.addLinks, keyed{key, link})
		case len(linkFields(before, link)) > 0:
			s.setLinks = append(s.setLinks, keyed{key, link})
			s.plugged[key] = before.Down != link.Down
		}
	}
	return s
}

// Replaced lists the nodes that would go, or be made anew, if the lab became another topology, as they are, and those that would come,
// or be made anew, as they would be.
func (l *Lab) Replaced(t *topology.Topology) (gone, made []*topology.Node) {
	s := l.plan(l.Topology(), t)
	return s.dropNodes, s.addNodes
}

func byKey(t *topology.Topology) map[string]*topology.Link {
	m := make(map[string]*topology.Link, len(t.Links))
	for i, key := range topology.LinkKeys(t) {
		m[key] = t.Links[i]
	}
	return m
}

// settable says whether two links differ in their impairment only.
func settable(old, new *topology.Link) bool {
	return !slices.ContainsFunc(linkFields(old, new), func(f topology.Field) bool {
		return !slices.Contains(inPlace, f.Name) && !isEgress(f.Name) && !ofOSPF(f.Name)
	})
}

func linkFields(old, new *topology.Link) []topology.Field {
	if old == new {
		return nil
	}
	for _, c := range topology.Diff(&topology.Topology{Links: []*topology.Link{old}}, &topology.Topology{Links: []*topology.Link{new}}) {
		return c.Fields
	}
	return nil
}

func isEgress(field string) bool {
	return len(field) > 14 && field[:5] == "ends." && field[6:14] == ".egress."
}
