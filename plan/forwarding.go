package plan

import (
	"maps"

	"trivet.dev/trivet/topology"
)

// Forwarding says through which links learning switches may forward. What a change takes away is
// taken away everywhere, in all datapaths, before anything is given: so there is never a loop.
type Forwarding struct {
	Blocked map[*topology.Link]bool // must not forward: see topology.Blocked
	// Must not forward during the change: the blocked ones, and those that did not forward before.
	Held  map[*topology.Link]bool
	Stale bool // the forwarding links have changed: what switches have learned may lead into a dead end
	First bool // nothing has forwarded yet
}

// Tree remembers through which links switches forward. The zero value knows of none.
type Tree struct{ forwards map[string]bool }

// Grow records the links of another topology. Links between routing nodes, which do not learn, are
// not part of the tree.
func (tree *Tree) Grow(t *topology.Topology) Forwarding {
	before := tree.forwards
	tree.forwards = map[string]bool{}
	f := Forwarding{Blocked: topology.Blocked(t), First: before == nil}
	f.Held = maps.Clone(f.Blocked)
	nodes := t.NodesByName()
	for i, key := range topology.LinkKeys(t) {
		link := t.Links[i]
		if link.BetweenRouters(nodes) {
			continue
		}
		if !f.Blocked[link] && !link.Down {
			tree.forwards[key] = true
		}
		if before != nil && !before[key] {
			f.Held[link] = true
		}
	}
	f.Stale = before != nil && !maps.Equal(before, tree.forwards)
	return f
}
