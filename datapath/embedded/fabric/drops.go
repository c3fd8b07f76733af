package fabric

import (
	"context"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/openflow"
)

// Drops returns the drops of the embedded switches: at their ports, and for lack of room in user
// space.
func (f *fabric) Drops(context.Context) (out []datapath.Drop, err error) {
	s := f.now.Load()
	if s == nil {
		return nil, nil
	}
	fast := s.fast.Stats()
	out = append(out, datapath.Drop{Where: "embedded switches: packets to user space", Dropped: fast.Dropped,
		Passed: fast.Missed},
		datapath.Drop{Where: "embedded switches: packets that could not be changed", Dropped: fast.Failed})
	for _, link := range f.site.Topology().Links {
		for _, e := range link.Ends {
			p := f.port(e)
			if p == nil {
				continue
			}
			desc := p.Desc()
			shut := desc.Config&(openflow.PortConfigDown|openflow.PortConfigNoRecv|openflow.PortConfigNoFwd) != 0 ||
				!desc.Works()
			received, sent := p.Dropped()
			name := "port " + e.Interface + " of the embedded switch " + e.Node
			out = append(out, datapath.Drop{Where: name, Dropped: received + sent,
				Passed: p.Received().Packets() + p.Sent().Packets(), Expected: shut || link.Impaired()},
				datapath.Drop{Where: name + ", in a loop", Dropped: p.Looped().Packets(),
					Passed: p.Received().Packets()})
		}
	}
	return out, nil
}
