package local

import (
	"context"
	"errors"
	"fmt"
	"os"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// ErrHalf says that a change of a lab has failed halfway and could not be undone.
var ErrHalf = errors.New("what was changed could not be undone")

// Check says what a resolved topology needs that this machine does not have, before anything is
// made.
func Check(t *topology.Topology) error {
	for _, n := range t.Nodes {
		for _, core := range n.Cores {
			if _, err := os.Stat(fmt.Sprintf("/sys/devices/system/cpu/cpu%d", core)); err != nil {
				return fmt.Errorf("pin %s to cores: this machine has no core %d", n.Name, core)
			}
		}
	}
	return errors.Join(checkExternals(t), checkWifi(t), datapath.TryConfigs(context.Background(), t))
}

// undo makes the lab again what it was before steps that failed at any point: what they make is
// removed as far as it exists, and what they remove or set is made or set as it was.
func (l *Lab) undo(ctx context.Context, old *topology.Topology, s plan.Steps, progress Progress) error {
	l.setTopology(s.New)
	if err := l.takeAway(plan.Steps{DropLinks: s.AddLinks, DropNodes: s.AddNodes}); err != nil {
		return err
	}
	l.setTopology(old)
	return l.take(ctx, s.Undone(old), progress)
}
