package local

import (
	"context"
	"fmt"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// Drops returns what delay lines and datapaths have dropped since the lab is up. What network devices drop they say themselves.
func (l *Lab) Drops(ctx context.Context) (out []datapath.Drop, err error) {
	out = append(l.dropsOfLines(), l.dropsOfEmbedded()...)
	err = l.all(func(f datapath.Fabric) error {
		lost, err := f.Drops(ctx)
		out = append(out, lost...)
		return err
	})
	return out, err
}

func (l *Lab) dropsOfLines() (out []datapath.Drop) {
	keys := topology.LinkKeys(l.Topology())
	for i, link := range l.Topology().Links {
		line := l.lines[keys[i]]
		if line == nil {
			continue
		}
		for end, d := range line.Stats() {
			name := fmt.Sprintf("delay line %s to %s", link.Ends[end].Node, link.Ends[1-end].Node)
			out = append(out,
				datapath.Drop{Where: name + ", as asked for", Dropped: d.Lost.Packets + d.Overflowed.Packets + d.Cleared.Packets, Passed: d.Out.Packets, Expected: true},
				datapath.Drop{Where: name + ", overload", Dropped: d.Overrun + d.NoMemory.Packets + d.Refused.Packets, Passed: d.Out.Packets})
		}
	}
	return out
}

// dropsOfEmbedded are those of the embedded switches: at their ports, and of packets for which user space had no room.
func (l *Lab) dropsOfEmbedded() (out []datapath.Drop) {
	s := l.embedded
	if s == nil {
		return nil
	}
	fast := s.fast.Stats()
	out = append(out, datapath.Drop{Where: "embedded switches: packets to user space", Dropped: fast.Dropped, Passed: fast.Missed},
		datapath.Drop{Where: "embedded switches: packets that could not be changed", Dropped: fast.Failed})
	for _, link := range l.Topology().Links {
		for _, e := range link.Ends {
			n := l.node(e.Node)
			if !isEmbedded(n) || s.agents[e.Node] == nil {
				continue
			}
			p := s.agents[e.Node].Switch().Port(n.OpenFlowPort(e))
			if p == nil {
				continue
			}
			desc := p.Desc()
			shut := desc.Config&(openflow.PortConfigDown|openflow.PortConfigNoRecv|openflow.PortConfigNoFwd) != 0 || !desc.Works()
			received, sent := p.Dropped()
			name := "port " + e.Interface + " of the embedded switch " + e.Node
			out = append(out, datapath.Drop{Where: name, Dropped: received + sent, Passed: p.Received().Packets() + p.Sent().Packets(), Expected: shut || link.Impaired()},
				datapath.Drop{Where: name + ", in a loop", Dropped: p.Looped().Packets(), Passed: p.Received().Packets()})
		}
	}
	return out
}
