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

// Restarted are nodes that say themselves when one that has ended is to be made anew, by OnAgain.
type Restarted interface {
	// Remake makes a node that has ended anew, apart from its network, in which nothing changes
	// yet. After an error the node has ended still. Until done is called, Remove and Make of the
	// node leave what Remake has made and change its network only, and Begin begins its program,
	// and does not wait for more.
	Remake(context.Context, *topology.Node) (done func(), err error)

	// Bare makes of a node nothing but its network. It has ended then.
	Bare(*topology.Node) error
}

// Again makes a node anew that has ended, and nothing else; one that has not stays as it is. The
// topology is the same before and after. Whether the node's program then begins, and is healthy, is
// the node's matter. After an error the node has ended still; Again may be called once more, and
// the lab be changed, and resumed.
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

// farEnds are the nodes with programs at the other ends of links that steps make anew: some have
// devices of their own beside those of their links.
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

// begins says whether a node's program may begin in the change that is under way.
func (l *Lab) begins(n *topology.Node) bool {
	return l.again == "" || n.Name == l.again || l.beside[n.Name]
}

// endedBefore are the nodes that steps make anew as they have ended, and that can be left so.
func (l *Lab) endedBefore(s plan.Steps) map[string]bool {
	out := map[string]bool{}
	for _, n := range s.DropNodes {
		if _, ok := l.nodesOf(n).(Restarted); ok && l.endedOf(n) != "" {
			out[n.Name] = true
		}
	}
	return out
}

// Again notes which node it makes anew, and forgets that once the node is whole, or is dropped:
// another process that resumes the lab finds anything of it, or nothing.
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

// unfinished are the nodes of a topology that Again has left so.
func (l *Lab) unfinished(t *topology.Topology) map[string]bool {
	out := map[string]bool{}
	for _, n := range t.Nodes {
		if _, err := os.Stat(l.unfinishedFile(n.Name)); err == nil {
			out[n.Name] = true
		}
	}
	return out
}

// without is a topology without some nodes, and their links.
func without(t *topology.Topology, nodes map[string]bool) *topology.Topology {
	have := *t
	have.Nodes = slices.DeleteFunc(slices.Clone(t.Nodes), func(n *topology.Node) bool { return nodes[n.Name] })
	have.Links = slices.DeleteFunc(slices.Clone(t.Links), func(k *topology.Link) bool {
		return nodes[k.Ends[0].Node] || nodes[k.Ends[1].Node]
	})
	return &have
}

// pickUpBare makes of nodes that Again has left unfinished, and of their links, what a change can
// make anew: nothing. They are bare from then on, and ask to be made anew.
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
