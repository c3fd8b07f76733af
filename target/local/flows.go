package local

import (
	"context"
	"errors"
	"slices"
	"strings"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/netfacts"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/topology"
)

// flowsByHand compares the tables of switches for which no controller decides with what the
// topology says of them. Where the lab's file has commands, these may have put anything there.
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
		if n.Kind == topology.Switch && !slices.ContainsFunc(n.Controllers, func(c string) bool { return c != topology.ControllerNone }) {
			switches = append(switches, n)
		}
	}
	found := make(chan netfacts.Change)
	go func() {
		defer close(found)
		err = parallel.Each(switches, func(n *topology.Node) error {
			was := n.ConfigOf("flows")
			is, err := read.Read(ctx, l.running(n), was)
			var untold datapath.Untold
			switch {
			case errors.As(err, &untold):
				found <- netfacts.Change{Key: netfacts.Key{Kind: netfacts.Flow, Device: n.Name}, Is: "some that lead to groups or meters", New: true}
				return nil
			case err != nil:
				return err
			}
			before, now := entriesOf(was), entriesOf(is)
			for _, e := range now {
				if !slices.Contains(before, e) {
					found <- netfacts.Change{Key: netfacts.Key{Kind: netfacts.Flow, Device: n.Name, Name: e}, Is: e, New: true}
				}
			}
			for _, e := range before {
				if !slices.Contains(now, e) {
					found <- netfacts.Change{Key: netfacts.Key{Kind: netfacts.Flow, Device: n.Name, Name: e}, Was: e, Gone: true}
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

// entriesOf are the lines of a table that are no comments.
func entriesOf(text string) (out []string) {
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}
