package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// PathQuery asks for the path of a packet: an ICMP echo request, or the first of a TCP or UDP flow.
type PathQuery struct {
	From string `query:"from" required:"true" doc:"Host or router: its name, an address, a MAC"`
	To   string `query:"to" required:"true"`
	TCP  uint16 `query:"tcp" minimum:"1" maximum:"65535" doc:"Destination port"`
	UDP  uint16 `query:"udp" minimum:"1" maximum:"65535" doc:"Destination port"`
	IPv6 bool   `query:"ipv6"`
}

func (q PathQuery) encode() string {
	port := func(n uint16) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(int(n))
	}
	v6 := ""
	if q.IPv6 {
		v6 = "true"
	}
	return query("from", q.From, "to", q.To, "tcp", port(q.TCP), "udp", port(q.UDP), "ipv6", v6)
}

// Path is what happens to a packet.
type Path struct {
	From    string   `json:"from"`
	To      string   `json:"to"`
	Packet  string   `json:"packet" doc:"As it leaves the first node, as ovs-ofctl writes a match"`
	Arrives string   `json:"arrives" enum:"yes,partly,no,unknown" doc:"Partly: on some of the paths that a switch may choose; unknown: it cannot be traced to its end"`
	Why     []string `json:"why" doc:"What determined the path"`
	Ways    []Way    `json:"ways" doc:"Those that arrive come first. There are several if a switch chooses or floods"`
	More    bool     `json:"more,omitempty" doc:"There are more ways than are listed"`
}

// Way is one of the packet's paths, from its source to where it ends.
type Way struct {
	Arrives bool      `json:"arrives"`
	Unknown bool      `json:"unknown,omitempty" doc:"It cannot be traced further; the reason says why"`
	Copy    bool      `json:"copy,omitempty" doc:"One of several copies of the packet"`
	End     string    `json:"end" doc:"Node where it ends"`
	Reason  string    `json:"reason,omitempty" doc:"Why it ends there, if that is not its destination"`
	Hops    []PathHop `json:"hops"`
	Free    *float64  `json:"free,omitempty" doc:"bit/s that the busiest of its links has left, where capacities are known"`
	Narrow  *float64  `json:"narrow,omitempty" doc:"bit/s that this link carries"`
}

// PathHop is a switch on the path.
type PathHop struct {
	Switch      string     `json:"switch"`
	In          string     `json:"in,omitempty" doc:"Port; missing: the packet begins here"`
	Out         string     `json:"out,omitempty" doc:"Port; missing: the packet ends here"`
	Entries     []PathFlow `json:"entries" doc:"That it matched, table by table"`
	Choice      string     `json:"choice,omitempty" doc:"How this output was chosen among several"`
	Controller  string     `json:"controller,omitempty" doc:"What an app does with this packet: there is no entry for it yet"`
	Route       string     `json:"route,omitempty" doc:"Of a Linux router: that which its kernel takes"`
	Notes       []string   `json:"notes,omitempty"`
	Rate        *float64   `json:"rate,omitempty" doc:"bit/s that the port sends now"`
	Capacity    float64    `json:"capacity,omitempty" doc:"bit/s"`
	Utilisation *float64   `json:"utilisation,omitempty"`

	to openflow.MAC // the packet's destination MAC there
}

// PathFlow is a flow entry that the packet matched.
type PathFlow struct {
	Table    uint8  `json:"table"`
	Priority uint16 `json:"priority"`
	Entry    string `json:"entry" doc:"Match and actions, as ovs-ofctl writes them"`
	Readable string `json:"readable" doc:"With names of ports and hosts"`
	App      string `json:"app,omitempty"`
	ID       int64  `json:"id,omitempty" doc:"Of a user's entry"`
}

// station is the place of a host or router in the network.
type station struct {
	name    string
	mac     openflow.MAC
	address netip.Addr
	at      place            // of a host
	node    *builtin.MapNode // nil: not on the map
	router  *routing.Router
}

func findPath(ctx context.Context, c *builtin.Controller, q PathQuery) (Path, error) {
	w, err := follow(ctx, c, q, nil)
	return w.path, err
}

// follow traces the packet, with the masters' answers.
func follow(ctx context.Context, c *builtin.Controller, q PathQuery, others *pathParts) (w walk, err error) {
	v := newView(c)
	if q.TCP != 0 && q.UDP != 0 {
		return w, errors.New("a packet is either TCP or UDP, not both")
	}
	if a, err := netip.ParseAddr(q.To); err == nil {
		q.IPv6 = a.Is6()
	} else if a, err := netip.ParseAddr(q.From); err == nil {
		q.IPv6 = a.Is6()
	}
	from, err := v.station(q.From, q.IPv6)
	if err != nil {
		return w, err
	}
	to, err := v.station(q.To, q.IPv6)
	if err != nil {
		return w, err
	}
	if from.name == to.name {
		return w, fmt.Errorf("%s is both source and destination", from.name)
	}
	w = walk{view: v, others: others, ctx: ctx, to: to, read: map[uint64]*tables{}, failed: map[uint64]error{},
		been: map[visit]fate{}}
	w.path = Path{From: from.name, To: to.name, Why: []string{}, Ways: []Way{}}
	w.begin(from, q)
	w.finish()
	return w, ctx.Err()
}

// station finds a host or router by its name, an address or a MAC.
func (v *view) station(text string, v6 bool) (station, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return v.stationAt(a.Unmap())
	}
	if mac, err := openflow.ParseMAC(text); err == nil {
		if f := v.m.ByMAC(mac); f != nil {
			return v.stationOf(f.Node, v6)
		}
		if h, ok := v.c.Discovery.Host(mac); ok {
			s := station{name: v.host(mac), mac: mac, at: place{h.Switch, h.Port}}
			for _, a := range h.Addresses {
				if a.Is6() == v6 {
					s.address = a
				}
			}
			if !s.address.IsValid() {
				return s, fmt.Errorf("%s has no address that the controller has heard of", text)
			}
			return s, nil
		}
		return station{}, fmt.Errorf("nobody has the MAC %s, as far as the controller knows", text)
	}
	return v.stationOf(text, v6)
}

// stationAt finds the host or router that has an address.
func (v *view) stationAt(a netip.Addr) (station, error) {
	if f := v.m.ByAddress(a); f != nil {
		s := station{name: f.Node, mac: f.MAC, address: a, at: place{f.Switch, f.Port}, node: v.m.Node(f.Node)}
		s.router = v.router(f.Node)
		return s, nil
	}
	for _, r := range v.c.Routers() {
		for _, p := range r.Loopback {
			if p.Addr() == a {
				return station{name: r.Name, address: a, router: &r}, nil
			}
		}
	}
	if h, ok := v.c.Discovery.HostOf(a); ok {
		return station{name: v.host(h.MAC), mac: h.MAC, address: a, at: place{h.Switch, h.Port}}, nil
	}
	return station{name: a.String(), address: a}, nil // outside the network
}

// stationOf finds a node by its name.
func (v *view) stationOf(name string, v6 bool) (station, error) {
	if r := v.router(name); r != nil {
		for _, f := range r.Interfaces {
			for _, p := range f.Prefixes {
				if p.Addr().Is6() == v6 {
					return station{name: name, mac: f.MAC, address: p.Addr(), router: r}, nil
				}
			}
		}
		return station{}, fmt.Errorf("%s has no IPv%s address", name, version6(v6))
	}
	n := v.m.Node(name)
	if n == nil {
		hint := cmp.Or(topology.DidYouMean(name, v.m.NodeNames()), "trivet inspect lists the nodes")
		if dpid, ok := v.m.Find(name); ok && v.switchName(dpid) == name {
			hint = "a switch has no address of its own"
		}
		return station{}, fmt.Errorf("there is no host or router %q; %s", name, hint)
	}
	for _, f := range n.Interfaces {
		for _, p := range f.Addresses {
			if p.Addr().Is6() == v6 {
				return station{name: name, mac: f.MAC, address: p.Addr(), at: place{f.Switch, f.Port}, node: n}, nil
			}
		}
	}
	return station{}, fmt.Errorf("%s has no IPv%s address", name, version6(v6))
}

func version6(v6 bool) string {
	if v6 {
		return "6"
	}
	return "4"
}

func (v *view) router(name string) *routing.Router {
	if v.c.Routing == nil {
		return nil
	}
	for _, r := range v.c.Routers() {
		if r.Name == name {
			return &r
		}
	}
	return nil
}

// macOf returns the MAC of the interface that has an address.
func (v *view) macOf(a netip.Addr) (openflow.MAC, bool) {
	if f := v.m.ByAddress(a); f != nil {
		return f.MAC, true
	}
	h, ok := v.c.Discovery.HostOf(a)
	return h.MAC, ok
}

// leave returns the interface through which a host sends to an address, and the destination MAC, or
// an error.
func (v *view) leave(from station, to netip.Addr) (src station, dst openflow.MAC, err error) {
	via := to
	src = from
	if from.node != nil {
		if via, src, err = v.hostRoute(from, to); err != nil {
			return src, dst, err
		}
	}
	dst, known := v.macOf(via)
	if !known {
		return src, dst, fmt.Errorf("%s asks who has %v, and no known host answers", from.name, via)
	}
	return src, dst, nil
}

// hostRoute looks up the routing table of a host of the topology: its subnets, routes and gateways.
func (v *view) hostRoute(from station, to netip.Addr) (via netip.Addr, src station, err error) {
	reach := func(a netip.Addr) bool {
		for _, f := range from.node.Interfaces {
			for _, p := range f.Addresses {
				if p.Contains(a) {
					src = station{name: from.name, mac: f.MAC, address: p.Addr(), at: place{f.Switch, f.Port},
						node: from.node}
					return true
				}
			}
		}
		return false
	}
	if reach(to) {
		return to, src, nil
	}
	best, device := -1, ""
	for _, r := range from.node.Routes {
		if r.To.Contains(to) && r.To.Bits() > best {
			best, via, device = r.To.Bits(), r.Via, r.Device
		}
	}
	for _, g := range from.node.Gateways {
		if best < 0 && g.Is4() == to.Is4() {
			via = g
		}
	}
	if device != "" { // hosts behind it answer ARP themselves, or there is a neighbour
		for _, f := range from.node.Interfaces {
			if f.Name == device && len(f.Addresses) > 0 {
				src = station{name: from.name, mac: f.MAC, address: f.Addresses[0].Addr(), at: place{f.Switch, f.Port},
					node: from.node}
				if !via.IsValid() {
					via = to
				}
				return via, src, nil
			}
		}
	}
	switch {
	case !via.IsValid():
		return via, from, fmt.Errorf("%s has no route to %v", from.name, to)
	case !reach(via):
		return via, from, fmt.Errorf("%s has no interface to its gateway %v", from.name, via)
	}
	return via, src, nil
}
