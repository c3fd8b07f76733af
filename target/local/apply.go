package local

import (
	"context"

	"trivet.dev/trivet/datapath"
)

// applySwitches makes the fabrics forward as the topology says: first each stops what must no
// longer be forwarded, and only then does any allow what is new.
func (l *Lab) applySwitches(ctx context.Context, done func()) error {
	forwarding := l.tree.Grow(l.Topology())
	if err := each(l, func(f datapath.Fabric) error { return f.Hold(ctx, forwarding) }); err != nil {
		return err
	}
	if err := l.raiseDevices(); err != nil {
		return err
	}
	if err := each(l, func(f datapath.Fabric) error { return f.Apply(ctx, forwarding) }); err != nil {
		return err
	}
	// Last: by now, a switch that moves here from Open vSwitch has disconnected from its
	// controller.
	if err := each(l, datapath.Controlled.Meet); err != nil {
		return err
	}
	for _, n := range l.Topology().Nodes {
		if n.IsDatapath() {
			done()
		}
	}
	return nil
}
