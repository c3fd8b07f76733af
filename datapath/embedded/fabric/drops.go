package fabric

import (
	"context"
	"fmt"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
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

// Carried returns what virtual links have carried: what the port at the far end has received.
func (f *fabric) Carried(context.Context) (map[*topology.Link][2]datapath.Carried, error) {
	s := f.now.Load()
	if s == nil {
		return nil, nil
	}
	ports := map[portID]openflow.PortStats{}
	for name, a := range s.agents {
		all, err := a.Switch().Multipart(openflow.PortStatsRequest{Port: openflow.PortAny}, s.Now())
		if err != nil {
			return nil, fmt.Errorf("switch %s: %w", name, err)
		}
		list, _ := all.(openflow.PortStatsList)
		for _, p := range list {
			ports[portID{name, p.Port}] = p
		}
	}
	out := map[*topology.Link][2]datapath.Carried{}
	for _, link := range f.site.Topology().Links {
		if f.site.Wire(link) != Virtual {
			continue
		}
		var both [2]datapath.Carried
		for i, e := range link.Ends {
			own := ports[portID{e.Node, f.site.Node(e.Node).OpenFlowPort(e)}]
			both[i].Dropped += own.TxDropped
			both[1-i] = datapath.Carried{Packets: own.RxPackets, Bytes: own.RxBytes,
				Dropped: both[1-i].Dropped + own.RxDropped}
		}
		out[link] = both
	}
	return out, nil
}
