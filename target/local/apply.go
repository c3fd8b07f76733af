package local

import (
	"context"

	"trivet.dev/trivet/datapath"
)

// applySwitches makes the fabrics what the topology says: first all take what must not forward from
// it, then all give.
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
	if err := each(l, datapath.Controlled.Meet); err != nil { // last: one that was Open vSwitch's has left its controller by now
		return err
	}
	for _, n := range l.Topology().Nodes {
		if n.IsDatapath() {
			done()
		}
	}
	return nil
}
