package plan

import (
	"maps"

	"trivet.dev/trivet/topology"
)

// Forwarding says which links learning switches may use for forwarding. A change first stops
// forwarding on all affected links, in all datapaths, and only then starts it on others, so that
// there is never a loop.
type Forwarding struct {
	Blocked map[*topology.Link]bool // must not forward: see topology.Blocked
	// Must not forward during the change: the blocked links, and those that did not forward before.
	Held  map[*topology.Link]bool
	Stale bool // the set of forwarding links has changed: addresses that switches have learned may be wrong
	First bool // nothing forwarded before
}

// Tree records through which links switches forward. The zero value is empty.
type Tree struct{ forwards map[string]bool }

// Grow replaces the recorded links by those of another topology, and returns how to change to them.
// Links between routing nodes, which do not learn, are not part of the tree.
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
