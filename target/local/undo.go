package local

import (
	"context"
	"errors"
	"fmt"
	"os"

	"trivet.dev/trivet/topology"
)

// ErrHalf is that a change of a lab has failed half way and could not be undone.
var ErrHalf = errors.New("what was changed could not be undone")

// Check says what a resolved topology asks for that this machine does not have, before anything is made.
func Check(t *topology.Topology) error {
	for _, n := range t.Nodes {
		for _, core := range n.Cores {
			if _, err := os.Stat(fmt.Sprintf("/sys/devices/system/cpu/cpu%d", core)); err != nil {
				return fmt.Errorf("pin %s to cores: this machine has no core %d", n.Name, core)
			}
		}
	}
	return checkExternals(t)
}

// undo makes the lab again what it was before steps that have failed, wherever that was: what they make goes as far as
// it is there, and what they take away or set is made and set as it was.
func (l *Lab) undo(ctx context.Context, old *topology.Topology, s steps, progress Progress) error {
	l.setTopology(s.new)
	if err := l.takeAway(steps{dropLinks: s.addLinks, dropNodes: s.addNodes}); err != nil {
		return err
	}
	l.setTopology(old)
	return l.take(ctx, s.undone(old), progress)
}

// undone are the steps back to the old topology, once what these have made is gone.
func (s steps) undone(old *topology.Topology) steps {
	back := steps{new: old, dropLinks: s.dropLinks, addLinks: s.dropLinks, dropNodes: s.dropNodes, addNodes: s.dropNodes, plugged: s.plugged}
	for _, c := range s.setNodes {
		back.setNodes = append(back.setNodes, change[*topology.Node]{c.new, c.old})
	}
	before := byKey(old)
	for _, k := range s.setLinks {
		back.setLinks = append(back.setLinks, keyed{k.key, before[k.key]})
	}
	return back
}
