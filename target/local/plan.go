package local

import (
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// plan plans the steps from one topology to another on this machine.
func (l *Lab) plan(from, to *topology.Topology) plan.Steps {
	return l.planWith(from, to, func(*topology.Node) bool { return false })
}

// planAnew is plan that also remakes nodes that have ended by themselves.
func (l *Lab) planAnew(from, to *topology.Topology) plan.Steps {
	return l.planWith(from, to, func(n *topology.Node) bool { return l.endedOf(n) != "" })
}

func (l *Lab) planWith(from, to *topology.Topology, ended func(*topology.Node) bool) plan.Steps {
	before, after := l.indexing(from), l.indexing(to)
	same := func(was, is *topology.Link) bool { return l.wireOf(was, before) == l.wireOf(is, after) }
	return plan.Make(from, to, same, ended)
}

// Replaced lists the nodes that would be removed or made anew if the lab became another topology,
// as they are now, and those that would be added or made anew, as they would be.
func (l *Lab) Replaced(t *topology.Topology) (gone, made []*topology.Node) {
	s := l.planAnew(l.Topology(), t)
	return s.DropNodes, s.AddNodes
}
