package local

import (
	"context"
	"slices"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// SetLink changes one link of the running lab.
func (l *Lab) SetLink(ctx context.Context, index int, c topology.LinkChange) error {
	t := *l.Topology()
	t.Links = slices.Clone(t.Links)
	t.Links[index] = t.Links[index].Clone()
	c.Apply(t.Links[index])
	if c.Up != nil && c == (topology.LinkChange{Up: c.Up}) && l.setVirtual(&t, index) {
		return nil
	}
	return l.Apply(ctx, &t, func(string, int, int) {})
}

// setVirtual pulls or plugs a virtual link between routing nodes: the two ports change their state, and nothing else
// of the lab changes, however large it is. It returns false where the link is another one.
func (l *Lab) setVirtual(t *topology.Topology, index int) bool {
	link := t.Links[index]
	if l.embedded == nil || l.WireOf(link) != Virtual || !link.BetweenRouters(l.nodes()) { // others may be in the tree of switches that learn
		return false
	}
	var ids [2]portID
	for i, e := range link.Ends {
		if ids[i] = (portID{e.Node, l.node(e.Node).OpenFlowPort(e)}); l.embedded.ports[ids[i]] == nil {
			return false
		}
	}
	var state openflow.PortState
	if link.Down {
		state = openflow.PortStateLinkDown
	}
	for _, id := range ids {
		l.embedded.ports[id].down = link.Down
		l.embedded.agents[id.node].Switch().SetPortState(id.number, state)
	}
	l.embedded.fast.Barrier(nil)
	l.is.Store(&indexed{t, l.nodes()}) // the nodes are the same
	return true
}
