package local

import (
	"context"
	"fmt"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// Drops returns what delay lines and datapaths have dropped since the lab came up. Network devices
// count their drops themselves.
func (l *Lab) Drops(ctx context.Context) (out []datapath.Drop, err error) {
	out = append(l.dropsOfLines(), l.dropsOfModels()...)
	err = each(l, func(f datapath.Fabric) error {
		lost, err := f.Drops(ctx)
		out = append(out, lost...)
		return err
	})
	return out, err
}

// dropsOfModels returns the drops in the queues of modelled devices.
func (l *Lab) dropsOfModels() (out []datapath.Drop) {
	nodes, _ := l.Models()
	for _, m := range nodes {
		if m.Model.Serves() {
			out = append(out,
				datapath.Drop{Where: fmt.Sprintf("model of %s, its queue", m.Node),
					Dropped: m.Device.Overflowed.Packets,
					Passed:  m.Device.Served.Packets, Expected: true})
		}
	}
	return out
}

func (l *Lab) dropsOfLines() (out []datapath.Drop) {
	keys := topology.LinkKeys(l.Topology())
	for i, link := range l.Topology().Links {
		line := l.lines[keys[i]]
		if line == nil {
			continue
		}
		for end, d := range line.Stats() {
			if end == carried(link) {
				continue // its egress here is the tunnel's
			}
			name := fmt.Sprintf("delay line %s to %s", link.Ends[end].Node, link.Ends[1-end].Label())
			out = append(out,
				datapath.Drop{Where: name + ", as asked for",
					Dropped: d.Lost.Packets + d.Overflowed.Packets + d.Dropped.Packets + d.Cleared.Packets,
					Passed:  d.Out.Packets, Expected: true},
				datapath.Drop{Where: name + ", overload", Dropped: d.Overrun + d.NoMemory.Packets + d.Refused.Packets,
					Passed: d.Out.Packets})
		}
	}
	return out
}
