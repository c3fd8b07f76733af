package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/netfacts"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// Changed compares the lab's namespaces with what was recorded of them. It waits until that is
// complete.
func (l *Lab) Changed(ctx context.Context) (out []lab.Changed, err error) {
	l.notes.mu.Lock()
	written := l.notes.written
	l.notes.mu.Unlock()
	if written == nil {
		return nil, errors.New("what there is in its namespaces has not been written down")
	}
	select {
	case <-written:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.notes.mu.Lock()
	defer l.notes.mu.Unlock()
	if l.notes.err != nil {
		return nil, fmt.Errorf("what there was in its namespaces could not be written down: %w", l.notes.err)
	}
	names, err := netfacts.OffloadNames()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	err = l.eachNoted(func(some []noted) error {
		was, places := map[string]netfacts.Facts{}, []string{}
		for _, n := range some {
			if node := l.node(n.Node); n.Node == inFabric || node != nil && node.Made().Open() {
				places = append(places, n.Node)
			}
			was[n.Node] = n.Facts
		}
		return l.factsOf(places, func(node string, is netfacts.Facts) error {
			changes := netfacts.Changes(was[node], is)
			changes = slices.DeleteFunc(changes, func(c netfacts.Change) bool { return l.pulledAway(node, c) })
			for i := range changes {
				if c := &changes[i]; c.Kind == netfacts.Offload {
					c.Is = netfacts.Switched(c.Was, c.Is, names)
				}
			}
			if len(changes) > 0 {
				mu.Lock()
				out = append(out, lab.Changed{Node: node, Changes: changes})
				mu.Unlock()
			}
			return ctx.Err()
		})
	})
	if err != nil {
		return nil, err
	}
	flows, err := l.flowsByHand(ctx)
	if len(flows) > 0 {
		out = append(out, lab.Changed{Node: inFabric, Changes: flows})
	}
	slices.SortStableFunc(out, func(a, b lab.Changed) int { return strings.Compare(a.Node, b.Node) })
	return out, err
}

// pulledAway says whether something is missing only because the link that it depends on is down: it
// comes back.
func (l *Lab) pulledAway(node string, c netfacts.Change) bool {
	pulled := l.is.Load().pulled[node]
	if !c.Gone || len(pulled) == 0 {
		return false
	}
	switch c.Kind {
	case netfacts.Address, netfacts.Neighbour:
		return pulled[c.Device]
	case netfacts.Route:
		return slices.ContainsFunc(netfacts.Paths(c.Key, c.Was), func(p netfacts.Path) bool {
			return slices.ContainsFunc(p.Devices, func(d string) bool { return pulled[d] })
		})
	}
	return false
}

// flowsByHand compares the flow tables of switches without controllers with the topology. Where the
// lab's file has commands, the entries may be theirs.
func (l *Lab) flowsByHand(ctx context.Context) (out []netfacts.Change, err error) {
	t := l.Topology()
	commands := slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return n.Start != "" }) ||
		slices.ContainsFunc(t.Schedule, func(e topology.Event) bool { return e.Action.Run != "" })
	read, ok := datapath.ConfigOf("flows")
	if commands || !ok {
		return nil, nil
	}
	var switches []*topology.Node
	for _, n := range t.Nodes {
		if n.Kind == topology.Switch &&
			!slices.ContainsFunc(n.Controllers, func(c string) bool { return c != topology.ControllerNone }) {
			switches = append(switches, n)
		}
	}
	found := make(chan netfacts.Change)
	go func() {
		defer close(found)
		err = parallel.Each(switches, func(n *topology.Node) error {
			was := n.ConfigOf("flows")
			ctx, cancel := patience.SwitchSays.Context(ctx)
			defer cancel()
			is, err := read.Read(ctx, l.running(n), was)
			var untold datapath.Untold
			switch {
			case errors.As(err, &untold):
				found <- netfacts.Change{Key: netfacts.Key{Kind: netfacts.Flow, Device: n.Name},
					Is: "some that lead to groups or meters", New: true}
				return nil
			case err != nil:
				return fmt.Errorf("the flow entries of %s: %w", n.Name, err)
			}
			before, now := entriesOf(was), entriesOf(is)
			for _, e := range now {
				if !slices.Contains(before, e) {
					found <- netfacts.Change{Key: netfacts.Key{Kind: netfacts.Flow, Device: n.Name, Name: e}, Is: e,
						New: true}
				}
			}
			for _, e := range before {
				if !slices.Contains(now, e) {
					found <- netfacts.Change{Key: netfacts.Key{Kind: netfacts.Flow, Device: n.Name, Name: e}, Was: e,
						Gone: true}
				}
			}
			return nil
		})
	}()
	for c := range found {
		out = append(out, c)
	}
	return out, err
}

// entriesOf returns the lines of a table without comments.
func entriesOf(text string) (out []string) {
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}
