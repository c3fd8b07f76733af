package fabric

import (
	"context"
	"fmt"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/lists"
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
	links := f.virtual()
	if len(links) == 0 {
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
	for _, link := range links {
		var both [2]datapath.Carried
		known := true
		for i, e := range link.Ends {
			own, has := ports[portID{e.Node, f.site.Node(e.Node).OpenFlowPort(e)}]
			known = known && has
			both[i].Dropped += own.TxDropped
			both[1-i] = datapath.Carried{Packets: own.RxPackets, Bytes: own.RxBytes,
				Dropped: both[1-i].Dropped + own.RxDropped}
		}
		if known {
			out[link] = both
		}
	}
	return out, nil
}

// virtual lists the links without devices.
func (f *fabric) virtual() []*topology.Link {
	return lists.Filter(f.site.Topology().Links, func(l *topology.Link) bool { return f.site.Wire(l) == Virtual })
}
