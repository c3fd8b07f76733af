// Package plan determines the steps from one resolved topology to another: which nodes and links
// are removed, added or changed in place, and in which order links may forward meanwhile. It knows
// nothing of machines.
package plan

import (
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
)

// Steps lead from one topology to another: first things are removed, then new ones are made, then
// the others are changed.
type Steps struct {
	New *topology.Topology

	DropLinks, AddLinks []Link
	SetLinks            []Link          // impairment, up or down; in their new state
	Plugged             map[string]bool // by key: those that go up or down
	Resized             map[string]bool // by key: those whose MTU changes
	Impaired            map[string]bool // by key: those whose impairment changes, including the MTU
	// By key: for each end, whether it starts or stops accepting packets with MPLS labels.
	Labelled            map[string][2]bool
	DropNodes, AddNodes []*topology.Node
	SetNodes            []NodeChange // addresses, routes, limits
}

// Link is a link with the key that distinguishes parallel links: see topology.LinkKeys.
type Link struct {
	Key string
	*topology.Link
}

// NodeChange is a node before and after.
type NodeChange struct{ Old, New *topology.Node }

// inPlace are the settings of a link that can be changed without making it anew.
var inPlace = append(topology.LinkOptionNames(), "down", "device", "named", "held", "ends.0.take", "ends.1.take",
	"mpls", "ends.0.mpls", "ends.1.mpls", "vlan", "trunk", "ends.0.vlan", "ends.1.vlan", "ends.0.trunk", "ends.1.trunk",
	"ends.0.ra", "ends.1.ra")

// nodeInPlace are the same for nodes; switches are configured as a whole anyway.
var nodeInPlace = []string{"addresses", "loopback", "gateways", "routes", "rules", "neighbors", "mpls", "labels",
	"config", "distances", "masquerade", "management", "cpu", "cores", "memory", "health", "after", "restart", "ports",
	"start", "stop", "controllers", "fail_mode", "openflow", "dpid", "stp", "address", "device", "model",
	"on"}

// ofInterface reports whether a setting of a node is about an interface that no link has.
func ofInterface(field string) bool { return strings.HasPrefix(field, "interfaces.") }

// givesOther reports whether the content of a file given to a node changes. A file that is added or
// removed is a different case, as the node's image determines what is there without it.
func givesOther(f topology.Field) bool {
	return strings.HasPrefix(f.Name, "files.") && f.Old != "" && f.New != ""
}

// ofMachine reports whether a setting that other nodes can change in place is fixed at the start of
// a virtual machine. (Other settings of virtual machines only are not in nodeInPlace.)
func ofMachine(n *topology.Node, field string) bool {
	return n.Guest != nil && slices.Contains([]string{"memory", "ports", "start"}, field)
}

func isEgress(field string) bool {
	return len(field) > 14 && field[:5] == "ends." && field[6:14] == ".egress."
}

// Make returns the steps from one topology to another. A link that is in both is made anew if
// sameWire returns false; a node if ended returns true, and its links with it.
func Make(from, to *topology.Topology, sameWire func(was, is *topology.Link) bool,
	ended func(*topology.Node) bool) Steps {
	s := Steps{New: to, Plugged: map[string]bool{}, Resized: map[string]bool{}, Impaired: map[string]bool{},
		Labelled: map[string][2]bool{}}
	rebuilt := map[string]bool{} // nodes to be made anew, with their links
	for _, c := range topology.Diff(from, to) {
		switch {
		case c.OldNode != nil && c.NewNode != nil:
			if ended(c.OldNode) || slices.ContainsFunc(c.Fields, func(f topology.Field) bool {
				return !slices.Contains(nodeInPlace, f.Name) && !topology.OfProtocol(f.Name) && !ofInterface(f.Name) &&
					!givesOther(f) || ofMachine(c.NewNode, f.Name)
			}) {
				rebuilt[c.NewNode.Name] = true
				s.DropNodes = append(s.DropNodes, c.OldNode)
				s.AddNodes = append(s.AddNodes, c.NewNode)
			} else {
				s.SetNodes = append(s.SetNodes, NodeChange{c.OldNode, c.NewNode})
			}
		case c.OldNode != nil:
			s.DropNodes = append(s.DropNodes, c.OldNode)
		case c.NewNode != nil:
			s.AddNodes = append(s.AddNodes, c.NewNode)
		}
	}
	was := from.NodesByName()
	for _, n := range to.Nodes {
		if old := was[n.Name]; old != nil && !rebuilt[n.Name] && ended(old) {
			rebuilt[n.Name] = true
			s.DropNodes = append(s.DropNodes, old)
			s.AddNodes = append(s.AddNodes, n)
		}
	}
	before, after := topology.LinksByKey(from), topology.LinksByKey(to)
	remade := func(was, is *topology.Link) bool {
		return rebuilt[is.Ends[0].Node] || rebuilt[is.Ends[1].Node] || !sameWire(was, is) || !settable(was, is)
	}
	for i, key := range topology.LinkKeys(from) {
		if is := after[key]; is == nil || remade(from.Links[i], is) {
			s.DropLinks = append(s.DropLinks, Link{key, from.Links[i]})
		}
	}
	for i, key := range topology.LinkKeys(to) {
		was, is := before[key], to.Links[i]
		switch {
		case was == nil || remade(was, is):
			s.AddLinks = append(s.AddLinks, Link{key, is})
		case len(linkFields(was, is)) > 0:
			s.SetLinks = append(s.SetLinks, Link{key, is})
			s.Plugged[key] = was.Down != is.Down
			s.Resized[key] = mtus(was) != mtus(is)
			s.Labelled[key] = [2]bool{was.Ends[0].MPLS != is.Ends[0].MPLS, was.Ends[1].MPLS != is.Ends[1].MPLS}
			s.Impaired[key] = was.Egress(0) != is.Egress(0) || was.Egress(1) != is.Egress(1)
		}
	}
	return s
}

// Undone returns the steps back to the old topology, once everything that s has made is gone.
func (s Steps) Undone(old *topology.Topology) Steps {
	back := Steps{New: old, DropLinks: s.DropLinks, AddLinks: s.DropLinks, DropNodes: s.DropNodes,
		AddNodes: s.DropNodes,
		Plugged:  s.Plugged, Resized: s.Resized, Impaired: s.Impaired, Labelled: s.Labelled}
	for _, c := range s.SetNodes {
		back.SetNodes = append(back.SetNodes, NodeChange{c.New, c.Old})
	}
	before := topology.LinksByKey(old)
	for _, k := range s.SetLinks {
		back.SetLinks = append(back.SetLinks, Link{k.Key, before[k.Key]})
	}
	return back
}

// mtus returns the MTUs configured for the ends of a link.
func mtus(l *topology.Link) [2]int { return [2]int{l.Egress(0).MTU, l.Egress(1).MTU} }

// settable reports whether two links differ only in settings that can be changed in place. A
// carrier to another machine cannot change its MTU.
func settable(was, is *topology.Link) bool {
	if mtus(was) != mtus(is) && (is.Ends[0].Carrier != nil || is.Ends[1].Carrier != nil) {
		return false
	}
	return !slices.ContainsFunc(linkFields(was, is), func(f topology.Field) bool {
		return !slices.Contains(inPlace, f.Name) && !isEgress(f.Name) && !topology.OfProtocol(f.Name)
	})
}

func linkFields(was, is *topology.Link) []topology.Field {
	if was == is {
		return nil
	}
	for _, c := range topology.Diff(&topology.Topology{Links: []*topology.Link{was}},
		&topology.Topology{Links: []*topology.Link{is}}) {
		return c.Fields
	}
	return nil
}
