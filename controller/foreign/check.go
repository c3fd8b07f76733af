package foreign

import (
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/disjoint"
	"trivet.dev/trivet/topology"
)

// Check reports why controllers of a resolved topology cannot support it: too many switches,
// another version of OpenFlow, routing nodes, loops.
func Check(t *topology.Topology) (p topology.Problems) {
	for _, c := range Of(t) {
		switches := c.SwitchesOf(t)
		if c.Switches > 0 && len(switches) > c.Switches {
			p.Add(t.Pos, "take "+others(c), "%s has room for %d switches, and there are %d", c.Name, c.Switches,
				len(switches))
		}
		for _, s := range switches {
			if s.Kind == topology.Router {
				p.Add(s.Pos, "use datapath kernel, or controller trivet", "router %s: %s does not route", s.Name,
					c.Name)
			}
			version := c.version(s)
			switch {
			case version == "":
				p.Add(s.Pos, "use datapath ovs", "switch %s: an embedded switch speaks OpenFlow 1.3, and %s does not",
					s.Name, c.Name)
			case version != c.version(switches[0]):
				p.Add(s.Pos, "give all its switches the same datapath",
					"switch %s: %s speaks OpenFlow %s with %s switches, and %s with those that are %s",
					s.Name, c.Name, version, s.Datapath, c.version(switches[0]), switches[0].Datapath)
			case len(s.OpenFlow) > 0 && !slices.Contains(s.OpenFlow, version):
				p.Add(s.Pos, "allow it: openflow: "+version, "switch %s may speak OpenFlow %s only, and %s speaks %s",
					s.Name, strings.Join(s.OpenFlow, ", "), c.Name, version)
			}
		}
	}
	if loop, c := findLoop(t); loop != nil {
		p.Add(t.Pos, "let the switches speak the spanning tree protocol (stp: true), which takes 30 s to come up, or take --controller trivet",
			"%s make a loop, in which %s would let packets circle for ever", listed(loop), c)
	}
	return p
}

// version returns the one that a controller speaks with a switch; empty: none.
func (c *Controller) version(s *topology.Node) string {
	if s.Datapath == topology.Embedded {
		return c.Embedded
	}
	return c.OpenFlow
}

// others lists the controllers without a limit.
func others(c *Controller) string {
	names := []string{topology.ControllerTrivet}
	for _, o := range registry {
		if o != c && o.Switches == 0 {
			names = append(names, o.Name)
		}
	}
	return strings.Join(names, ", ")
}

func listed(names []string) string {
	if n := len(names); n > 8 {
		return fmt.Sprintf("%s and %d more switches", strings.Join(names[:7], ", "), n-7)
	}
	return strings.Join(names, ", ")
}

// findLoop returns the switches of a loop in which one has a controller of this package, and that
// controller. All of these flood, so a loop is a broadcast storm unless each of its switches speaks
// the spanning tree protocol. Links that switches without a controller keep free of loops count as
// cut.
func findLoop(t *topology.Topology) ([]string, string) {
	flooder := map[string]string{} // the controller of switches that have one of this package
	for _, c := range Of(t) {
		for _, s := range c.SwitchesOf(t) {
			flooder[s.Name] = c.Name
		}
	}
	if len(flooder) == 0 {
		return nil, ""
	}
	graph := newForest(t)
	// First come links that none of these controllers sees, or that have the protocol at both ends,
	// whose loops do not matter here; then the others, any of which may close a loop that does.
	for _, ours := range []bool{false, true} {
		for _, l := range graph.links {
			a, b := l.Ends[0].Node, l.Ends[1].Node
			concern := (flooder[a] != "" || flooder[b] != "") && !(graph.stp[a] && graph.stp[b])
			if concern != ours {
				continue
			}
			if loop := graph.join(a, b); loop != nil && concern {
				if flooder[a] == "" {
					a = b
				}
				return loop, flooder[a]
			}
		}
	}
	return nil, ""
}

// forest is a spanning forest of a topology's switches that grows link by link.
type forest struct {
	links []*topology.Link // between two switches, forwarding
	stp   map[string]bool  // switches that speak the spanning tree protocol
	tree  map[string][]string
	trees disjoint.Sets[string]
}

func newForest(t *topology.Topology) *forest {
	f := &forest{stp: map[string]bool{}, tree: map[string][]string{}, trees: disjoint.Sets[string]{}}
	for _, n := range t.NodesOf(topology.Switch) {
		f.stp[n.Name] = n.STP
	}
	isSwitch := func(e topology.Endpoint) bool { _, ok := f.stp[e.Node]; return ok }
	blocked := topology.Blocked(t)
	for _, l := range t.Links {
		if isSwitch(l.Ends[0]) && isSwitch(l.Ends[1]) && !l.Down && !blocked[l] {
			f.links = append(f.links, l)
		}
	}
	return f
}

// join joins two switches, or returns the loop that a link between them would close.
func (f *forest) join(a, b string) []string {
	if f.trees.Join(a, b) {
		f.tree[a], f.tree[b] = append(f.tree[a], b), append(f.tree[b], a)
		return nil
	}
	before := map[string]string{a: a}
	for queue := []string{a}; before[b] == ""; queue = queue[1:] {
		for _, next := range f.tree[queue[0]] {
			if before[next] == "" {
				before[next] = queue[0]
				queue = append(queue, next)
			}
		}
	}
	loop := []string{b}
	for b != a {
		b = before[b]
		loop = append(loop, b)
	}
	slices.Reverse(loop)
	return loop
}
