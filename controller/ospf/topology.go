package ospf

import (
	"cmp"
	"slices"
	"time"

	engine "trivet.dev/trivet/routing/ospf"
	"trivet.dev/trivet/topology"
)

// ConfigOf returns the configuration of a resolved topology's routing nodes that speak OSPF.
func ConfigOf(t *topology.Topology) (c Config) {
	c.Names = map[engine.ID]string{}
	areas := map[engine.ID]engine.AreaConfig{}
	for _, o := range topology.OSPFOf(t) {
		if !o.Node.RoutingNode() {
			c.Names[engine.IDOf(o.RouterID)] = o.Node.Name
			continue
		}
		r := Router{DPID: uint64(o.Node.DPID), Name: o.Node.Name, ID: engine.IDOf(o.RouterID)}
		for _, a := range o.Areas {
			addArea(areas, a)
		}
		on := map[uint32]bool{}
		for _, f := range o.Interfaces {
			port := uint32(0)
			if f.Link != nil {
				port = o.Node.OpenFlowPort(f.Link.Ends[f.End])
			}
			on[port] = true
			r.Interfaces = append(r.Interfaces, interfacesOf(f, port)...)
		}
		for _, v := range o.VirtualLinks {
			r.Virtual = append(r.Virtual, engine.VirtualLinkConfig{Transit: engine.ID(v.Area),
				Peer: engine.IDOf(v.Peer), HelloInterval: v.Hello,
				DeadInterval: v.Dead, RxmtInterval: v.Retransmit, TransmitDelay: v.Delay, Auth: authOf(v.Auth)})
		}
		r.Redistribute = o.Redistribute
		r.Off = offOf(t, o.Node, on)
		c.Routers = append(c.Routers, r)
	}
	for _, a := range areas {
		c.Areas = append(c.Areas, a)
	}
	slices.SortFunc(c.Areas, func(a, b engine.AreaConfig) int { return cmp.Compare(a.ID, b.ID) })
	return c
}

// addArea adds a router's settings of an area. The engine has one area for all routers: what any of
// them says holds for all.
func addArea(areas map[engine.ID]engine.AreaConfig, a topology.OSPFArea) {
	x := areas[engine.ID(a.ID)]
	x.ID = engine.ID(a.ID)
	x.Stub, x.NoSummary = x.Stub || a.Stub, x.NoSummary || a.NoSummary
	x.DefaultCost = max(x.DefaultCost, uint32(a.DefaultCost))
	if a.MaxLSAs > 0 && (x.MaxLSAs == 0 || a.MaxLSAs < x.MaxLSAs) {
		x.MaxLSAs = a.MaxLSAs
	}
	for _, r := range a.Ranges {
		if y := (engine.Range{Prefix: r.Prefix, Hide: r.Hide}); !slices.Contains(x.Ranges, y) {
			x.Ranges = append(x.Ranges, y)
		}
	}
	areas[x.ID] = x
}

// interfacesOf makes an interface for each address.
func interfacesOf(f topology.OSPFInterface, port uint32) (out []Interface) {
	for i, a := range f.Addresses {
		s := engine.InterfaceConfig{Area: engine.ID(f.Area), Address: a, Cost: uint16(f.Cost),
			Passive:  f.Passive || i > 0,
			Priority: uint8(f.Priority), NeverDR: f.Priority == 0, HelloInterval: f.Hello, DeadInterval: f.Dead,
			RxmtInterval: f.Retransmit, TransmitDelay: max(f.Delay, time.Second), MaxLSAs: f.MaxLSAs,
			Auth: authOf(f.Auth)}
		if f.Link != nil {
			s.MTU = uint16(f.Link.MTUAt(f.End))
		}
		s.Type = map[topology.OSPFNetwork]engine.InterfaceType{topology.PointToPoint: engine.PointToPoint,
			topology.Broadcast: engine.Broadcast,
			topology.Loopback:  engine.Loopback}[f.Network]
		out = append(out, Interface{Port: port, Name: f.Name, Settings: s})
	}
	return out
}

// offOf lists the networks of interfaces on which OSPF is off.
func offOf(t *topology.Topology, n *topology.Node, on map[uint32]bool) (out []Network) {
	for _, l := range t.Links {
		for _, e := range l.Ends {
			if e.Node != n.Name || on[n.OpenFlowPort(e)] {
				continue
			}
			for _, a := range e.Addresses {
				out = append(out, Network{n.OpenFlowPort(e), a})
			}
		}
	}
	return out
}

func authOf(a topology.OSPFAuth) engine.Auth {
	switch a.Type {
	case topology.AuthNone, "":
		return engine.Auth{}
	case topology.AuthSimple:
		return engine.Auth{Type: engine.AuthSimple, Password: a.Key}
	}
	algorithm := map[topology.OSPFAuthType]engine.Algorithm{topology.AuthMD5: engine.KeyedMD5,
		topology.AuthSHA1:   engine.HMACSHA1,
		topology.AuthSHA256: engine.HMACSHA256, topology.AuthSHA384: engine.HMACSHA384,
		topology.AuthSHA512: engine.HMACSHA512}[a.Type]
	return engine.Auth{Type: engine.AuthCryptographic,
		Keys: []engine.Key{{ID: uint8(a.ID), Algorithm: algorithm, Secret: []byte(a.Key)}}}
}
