package local

import (
	"context"
	"slices"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// SetLink changes one link of the running lab.
func (l *Lab) SetLink(ctx context.Context, index int, c topology.LinkChange) error {
	t := *l.Topology()
	t.Links = slices.Clone(t.Links)
	t.Links[index] = t.Links[index].Clone()
	c.Apply(t.Links[index])
	if c.Up != nil && c == (topology.LinkChange{Up: c.Up}) && l.plug(&t, index) {
		return nil
	}
	return l.turnInto(ctx, &t, l.plan, func(string, int, int) {})
}

// plug pulls or plugs a link between routing nodes, if its fabric can do that on its own. Other
// links may belong to the spanning tree of learning switches, which a change would affect.
func (l *Lab) plug(t *topology.Topology, index int) bool {
	link := t.Links[index]
	p, ok := l.fabricOf(l.node(link.Ends[0].Node)).(datapath.Plugger)
	if !ok || !link.BetweenRouters(l.nodes()) || !p.Plug(link) {
		return false
	}
	is := *l.is.Load()
	is.topology = t // nothing but the link has changed
	l.is.Store(&is)
	return true
}
