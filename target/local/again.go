package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// Restarted are nodes that request by OnAgain to be remade when they have ended.
type Restarted interface {
	// Remake remakes a node that has ended, except for its network, in which nothing changes yet.
	// After an error the node still counts as ended. Until done is called, Remove and Make of the
	// node change only its network, and Begin starts its program without waiting for anything else.
	Remake(context.Context, *topology.Node) (done func(), err error)

	// Bare makes only the network of a node, which then counts as ended.
	Bare(*topology.Node) error
}

// Again remakes a node that has ended, and nothing else; other nodes stay as they are. The topology
// is the same before and after. It does not check that the node's program then runs and is healthy.
// After an error the node still counts as ended: Again may be called once more, and the lab may be
// changed or resumed.
func (l *Lab) Again(ctx context.Context, node string) error {
	n := l.is.Load().nodes[node]
	if n == nil || l.endedOf(n) == "" {
		return nil
	}
	r, ok := l.nodesOf(n).(Restarted)
	if !ok {
		return fmt.Errorf("%s %s: %w", n.Kind, n.Name, errors.ErrUnsupported)
	}
	if err := l.CheckSwitches(); err != nil {
		return err
	}
	if err := hurry(l.Dir); err != nil {
		return err
	}
	defer func() { _ = relax(l.Dir) }()
	if err := l.noteUnfinished(node); err != nil {
		return err
	}
	done, err := r.Remake(ctx, n)
	if err != nil {
		return err
	}
	defer done()
	s := l.planWith(l.Topology(), l.Topology(), func(n *topology.Node) bool { return n.Name == node })
	l.again, l.beside = node, l.farEnds(s)
	defer func() { l.again, l.beside = "", nil }()
	return l.Renew(l.concerned(s), func() error {
		quiet, byHand := func(string, int, int) {}, l.lookByHand(s)
		err := l.take(ctx, s, quiet)
		if err == nil {
			l.giveByHand(byHand)
			return l.forgetUnfinished(node)
		}
		if ctx.Err() != nil {
			return err
		}
		l.bare = map[string]bool{node: true}
		defer func() { l.bare = nil }()
		err = errors.Join(err, l.undo(ctx, s.New, s, quiet))
		l.giveByHand(byHand)
		return err
	})
}

// farEnds returns the nodes with programs at the other ends of links that steps make anew: some of
// them have devices of their own besides those of their links.
func (l *Lab) farEnds(s plan.Steps) map[string]bool {
	out := map[string]bool{}
	for _, k := range s.AddLinks {
		for _, e := range k.Ends {
			if n := l.node(e.Node); n != nil && l.endedOf(n) == "" {
				out[e.Node] = true
			}
		}
	}
	return out
}

// begins says whether a node's program may start in the change that is under way.
func (l *Lab) begins(n *topology.Node) bool {
	return l.again == "" || n.Name == l.again || l.beside[n.Name]
}

// endedBefore returns the nodes that steps make anew because they have ended, and that may also be
// left as they are.
func (l *Lab) endedBefore(s plan.Steps) map[string]bool {
	out := map[string]bool{}
	for _, n := range s.DropNodes {
		if _, ok := l.nodesOf(n).(Restarted); ok && l.endedOf(n) != "" {
			out[n.Name] = true
		}
	}
	return out
}

// unfinishedFile marks a node that Again is remaking, until it is complete or dropped: for another
// process that resumes the lab, any part of the node may exist.
func (l *Lab) unfinishedFile(node string) string { return filepath.Join(l.Dir, "again", node) }

func (l *Lab) noteUnfinished(node string) error {
	file := l.unfinishedFile(node)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o600)
}

func (l *Lab) forgetUnfinished(node string) error {
	if err := os.Remove(l.unfinishedFile(node)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// unfinished returns the nodes of a topology that Again has left incomplete.
func (l *Lab) unfinished(t *topology.Topology) map[string]bool {
	out := map[string]bool{}
	for _, n := range t.Nodes {
		if _, err := os.Stat(l.unfinishedFile(n.Name)); err == nil {
			out[n.Name] = true
		}
	}
	return out
}

// without returns a topology without some nodes and their links.
func without(t *topology.Topology, nodes map[string]bool) *topology.Topology {
	have := *t
	have.Nodes = slices.DeleteFunc(slices.Clone(t.Nodes), func(n *topology.Node) bool { return nodes[n.Name] })
	have.Links = slices.DeleteFunc(slices.Clone(t.Links), func(k *topology.Link) bool {
		return nodes[k.Ends[0].Node] || nodes[k.Ends[1].Node]
	})
	return &have
}

// pickUpBare removes what exists of nodes that Again has left incomplete, and of their links. The
// nodes are bare from then on, and request to be remade.
func (l *Lab) pickUpBare(nodes map[string]bool) error {
	var s plan.Steps
	t := l.Topology()
	for _, n := range t.Nodes {
		if nodes[n.Name] {
			s.DropNodes = append(s.DropNodes, n)
		}
	}
	for i, key := range topology.LinkKeys(t) {
		if k := t.Links[i]; nodes[k.Ends[0].Node] || nodes[k.Ends[1].Node] {
			s.DropLinks = append(s.DropLinks, plan.Link{Key: key, Link: k})
		}
	}
	return l.takeAway(s)
}
