package topology

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"trivet.dev/trivet/internal/lists"
)

// OSPFRouter is a router that speaks OSPF, with all its settings assigned.
type OSPFRouter struct {
	Node     *Node
	RouterID netip.Addr

	Areas        []OSPFArea      // those that it has interfaces in, by number; DefaultCost is set for stub areas
	Interfaces   []OSPFInterface // by port; the loopback last
	VirtualLinks []OSPFVirtual
	Redistribute []OSPFRedistribute // with metric and type set, except for rules that deny
	// The networks that Redistribute stands for, from the topology's routes and addresses.
	Externals []OSPFExternal

	Helps bool // neighbours restart gracefully (RFC 3623): routing nodes of a cluster, when another member has them
}

// OSPFInterface is an interface on which OSPF runs.
type OSPFInterface struct {
	Link *Link // nil: the loopback
	End  int   // of the link: 0 or 1

	Name      string         // of the device: r1-eth0, lo
	Port      int            // as in Endpoint.Port
	Addresses []netip.Prefix // IPv4; packets are sent from the first, the networks of all are announced

	Area       AreaID
	Network    OSPFNetwork
	Cost       int
	Passive    bool // announced, but no packets are exchanged; always so for the loopback
	Priority   int  // 0: never the designated router
	Hello      time.Duration
	Dead       time.Duration
	Retransmit time.Duration
	Delay      time.Duration // InfTransDelay
	Auth       OSPFAuth
	MaxLSAs    int // accepted from a neighbour; 0: the default
}

// OSPFVirtual is a virtual link of a router.
type OSPFVirtual struct {
	Area                           AreaID     // the area it passes through
	Peer                           netip.Addr // the other end's router id
	Hello, Dead, Retransmit, Delay time.Duration
	Auth                           OSPFAuth
}

// OSPFExternal is a network that a router announces as external.
type OSPFExternal struct {
	Prefix netip.Prefix
	Metric int
	Type2  bool // the metric exceeds any cost within OSPF
	Tag    uint32
}

// The defaults of RFC 2328 (appendix C), and of most routers.
const (
	ospfHello      = Duration(10 * time.Second)
	ospfRetransmit = Duration(5 * time.Second)
	ospfDelay      = Duration(time.Second)
	ospfMetric     = 20
)

// OSPFOf returns the routers of a resolved topology that speak OSPF, in the order of its nodes.
func OSPFOf(t *Topology) []OSPFRouter {
	o := &ospfOf{t: t, ids: map[string]netip.Addr{}, at: map[string][]ospfEnd{}, stub: map[AreaID]bool{}}
	nodes := byName(t)
	for _, n := range t.Nodes {
		if n.OSPF() == nil || n.Kind != Router {
			continue
		}
		o.ids[n.Name] = n.OSPF().RouterID
		for _, a := range n.OSPF().Areas {
			o.stub[a.ID] = o.stub[a.ID] || a.Stub
		}
	}
	if len(o.ids) == 0 {
		return nil
	}
	o.findEnds(nodes)
	var out []OSPFRouter
	for _, n := range t.Nodes {
		if _, ok := o.ids[n.Name]; ok {
			r := o.router(n)
			r.Helps = t.Cluster != nil
			out = append(out, r)
		}
	}
	return out
}

// ospfOf is the context for making the routers.
type ospfOf struct {
	t    *Topology
	ids  map[string]netip.Addr
	at   map[string][]ospfEnd // for each router that speaks OSPF, by port
	stub map[AreaID]bool
}

// ospfEnd is an end of a link at a router that speaks OSPF.
type ospfEnd struct {
	link    *Link
	i       int
	direct  bool // the link leads to another router
	routers bool // there may be other routers in the segment
}

func (o *ospfOf) findEnds(nodes map[string]*Node) {
	r := &resolver{t: o.t, nodes: nodes, ends: map[string][]*Endpoint{}}
	position := map[*Endpoint]ospfEnd{}
	for _, l := range o.t.Links {
		for i := range l.Ends {
			e := &l.Ends[i]
			r.ends[e.Node] = append(r.ends[e.Node], e)
			other := nodes[l.Ends[1-i].Node]
			position[e] = ospfEnd{link: l, i: i, direct: other != nil && other.Kind == Router}
		}
	}
	for _, s := range r.segments() {
		routers := lists.Count(s.routers, func(e *Endpoint) bool { return !nodes[e.Node].NAT })
		for _, e := range s.routers {
			if _, ok := o.ids[e.Node]; !ok {
				continue
			}
			p := position[e]
			p.routers = routers > 1 || s.external
			o.at[e.Node] = append(o.at[e.Node], p)
		}
	}
	for _, ends := range o.at {
		slices.SortFunc(ends, func(a, b ospfEnd) int { return cmp.Compare(*a.end().Port, *b.end().Port) })
	}
}

func (e ospfEnd) end() *Endpoint { return &e.link.Ends[e.i] }

func (o *ospfOf) router(n *Node) OSPFRouter {
	r := OSPFRouter{Node: n, RouterID: n.OSPF().RouterID}
	var off []netip.Prefix
	for _, e := range o.at[n.Name] {
		addresses := ipv4(e.end().Addresses)
		s := merged(e.link.OSPF(), e.end().OSPF())
		switch {
		case len(addresses) == 0:
		case s.Off:
			off = append(off, addresses...)
		default:
			r.Interfaces = append(r.Interfaces, o.iface(n, e, s, addresses))
		}
	}
	if own := ipv4(n.Loopback); len(own) > 0 {
		r.Interfaces = append(r.Interfaces, loopback(own, n.OSPF().Area, r.Interfaces))
	}
	r.Areas = o.areas(n, r.Interfaces)
	for _, v := range n.OSPF().VirtualLinks {
		r.VirtualLinks = append(r.VirtualLinks, o.virtual(n, v))
	}
	r.redistribute(n, off)
	return r
}

// loopback is the interface of a router's loopback addresses. It costs 1, as FRR and BIRD do not
// accept 0. It is in the router's area, unless no other interface is: it should not make the router
// a border router.
func loopback(addresses []netip.Prefix, area AreaID, others []OSPFInterface) OSPFInterface {
	if len(others) > 0 && !slices.ContainsFunc(others, func(i OSPFInterface) bool { return i.Area == area }) {
		area = others[0].Area
	}
	out := OSPFInterface{Name: "lo", Port: -1, Addresses: addresses, Area: area, Network: Loopback, Cost: 1,
		Passive: true, Auth: OSPFAuth{Type: AuthNone}}
	out.Hello, out.Dead, out.Retransmit, out.Delay = timers(0, 0, 0, 0)
	return out
}

func ipv4(all []netip.Prefix) []netip.Prefix {
	return lists.Filter(all, func(p netip.Prefix) bool { return p.Addr().Is4() })
}

// merged returns an end's settings, with those of its link where the end has none.
func merged(link, end *OSPFLink) OSPFLink {
	l, e := OSPFLink{}, OSPFLink{}
	if link != nil {
		l = *link
	}
	if end != nil {
		e = *end
	}
	return OSPFLink{
		Off:        e.Off || l.Off && end == nil,
		Area:       cmp.Or(e.Area, l.Area),
		Cost:       cmp.Or(e.Cost, l.Cost),
		Network:    cmp.Or(e.Network, l.Network),
		Hello:      cmp.Or(e.Hello, l.Hello),
		Dead:       cmp.Or(e.Dead, l.Dead),
		Retransmit: cmp.Or(e.Retransmit, l.Retransmit),
		Delay:      cmp.Or(e.Delay, l.Delay),
		Priority:   cmp.Or(e.Priority, l.Priority),
		Passive:    cmp.Or(e.Passive, l.Passive),
		MaxLSAs:    cmp.Or(e.MaxLSAs, l.MaxLSAs),
		Auth:       cmp.Or(e.Auth, l.Auth),
	}
}

func (o *ospfOf) iface(n *Node, e ospfEnd, s OSPFLink, addresses []netip.Prefix) OSPFInterface {
	end := e.end()
	out := OSPFInterface{Link: e.link, End: e.i, Name: end.Interface, Port: *end.Port, Addresses: addresses,
		Area: n.OSPF().Area, Network: Broadcast, Cost: s.Cost, Priority: 1, MaxLSAs: s.MaxLSAs,
		Auth: authOf(s.Auth, n.OSPF().Auth)}
	if s.Area != nil {
		out.Area = *s.Area
	}
	if e.direct {
		out.Network = PointToPoint
	}
	out.Network = cmp.Or(s.Network, out.Network)
	if out.Cost == 0 {
		out.Cost = costOf(n.OSPF().ReferenceBandwidth, e.link.Egress(e.i).Bandwidth)
	}
	if s.Priority != nil {
		out.Priority = *s.Priority
	}
	other := e.link.Ends[1-e.i].Label()
	out.Passive = !e.routers || slices.Contains(n.OSPF().Passive, end.Interface) ||
		slices.Contains(n.OSPF().Passive, other)
	if s.Passive != nil {
		out.Passive = *s.Passive
	}
	out.Hello, out.Dead, out.Retransmit, out.Delay = timers(s.Hello, s.Dead, s.Retransmit, s.Delay)
	return out
}

// timers fills in defaults.
func timers(hello, dead, retransmit, delay Duration) (h, d, r, t time.Duration) {
	hello = cmp.Or(hello, ospfHello)
	return hello.std(), cmp.Or(dead, 4*hello).std(), cmp.Or(retransmit, ospfRetransmit).std(), cmp.Or(delay,
		ospfDelay).std()
}

func (d Duration) std() time.Duration { return time.Duration(d) }

// authOf returns the first that is set.
func authOf(all ...*OSPFAuth) OSPFAuth {
	a := cmp.Or(all...)
	if a == nil || a.Type == AuthNone {
		return OSPFAuth{Type: AuthNone}
	}
	out := *a
	if out.Type == AuthSimple {
		out.ID = 0
	} else {
		out.ID = cmp.Or(out.ID, 1)
	}
	return out
}

func costOf(reference, bandwidth Rate) int {
	if reference == 0 || bandwidth == 0 {
		return 1
	}
	return int(min(max(reference/bandwidth, 1), 65535))
}

// areas returns the interfaces' areas, with the router's settings for them.
func (o *ospfOf) areas(n *Node, interfaces []OSPFInterface) (out []OSPFArea) {
	seen := map[AreaID]bool{}
	for _, i := range interfaces {
		if seen[i.Area] {
			continue
		}
		seen[i.Area] = true
		a := OSPFArea{ID: i.Area}
		for _, given := range n.OSPF().Areas {
			if given.ID == i.Area {
				a = given
			}
		}
		if a.Stub = o.stub[a.ID]; a.Stub {
			a.DefaultCost = cmp.Or(a.DefaultCost, 1)
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b OSPFArea) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (o *ospfOf) virtual(n *Node, v OSPFVirtualLink) OSPFVirtual {
	out := OSPFVirtual{Area: v.Area, Peer: o.ids[v.Router], Auth: authOf(v.Auth, n.OSPF().Auth)}
	if id, err := netip.ParseAddr(v.Router); err == nil {
		out.Peer = id
	}
	out.Hello, out.Dead, out.Retransmit, out.Delay = timers(v.Hello, v.Dead, v.Retransmit, v.Delay)
	return out
}

// redistribute lists what the router announces as external; off are the addresses of interfaces
// without OSPF. Of a network's rules, the first that matches counts.
func (r *OSPFRouter) redistribute(n *Node, off []netip.Prefix) {
	decided := map[netip.Prefix]bool{}
	for _, rule := range n.OSPF().Redistribute {
		if !rule.Deny {
			rule.Metric, rule.Type = cmp.Or(rule.Metric, ospfMetric), cmp.Or(rule.Type, 2)
		}
		r.Redistribute = append(r.Redistribute, rule)
		decide := func(p netip.Prefix, tag uint32) {
			if p = p.Masked(); !p.Addr().Is4() || decided[p] || !rule.Matches(p, tag) {
				return
			}
			if decided[p] = true; !rule.Deny {
				r.Externals = append(r.Externals,
					OSPFExternal{p, rule.Metric, rule.Type == 2, cmp.Or(rule.SetTag, tag)})
			}
		}
		switch rule.Source {
		case SourceConnected:
			for _, p := range off {
				decide(p, 0)
			}
		case SourceStatic:
			for _, route := range n.Routes {
				decide(route.To, route.Tag)
			}
			for _, g := range n.Gateways {
				decide(netip.PrefixFrom(g, 0), 0)
			}
		case SourceDefault:
			decide(netip.PrefixFrom(netip.IPv4Unspecified(), 0), 0)
		}
	}
}

// routerIDs gives each router that speaks OSPF an id: its highest loopback address, else 0.0.0.N,
// with the first number in its name or, if that is taken or missing, the lowest free one.
func routerIDs(r *Resolving) {
	taken := map[netip.Addr]*Node{}
	var open []*Node
	take := func(n *Node, id netip.Addr) bool {
		if taken[id] != nil {
			return false
		}
		n.OSPF().RouterID, taken[id] = id, n
		return true
	}
	for _, n := range r.Nodes {
		if n.OSPF() != nil && n.OSPF().RouterID.IsValid() && !take(n, n.OSPF().RouterID) {
			r.Problems.Add(n.Pos, "router ids must be unique", "router %s: the router_id %s is already that of %s",
				n.Name, n.OSPF().RouterID, taken[n.OSPF().RouterID].Name)
		}
	}
	for _, n := range r.Nodes {
		if n.OSPF() == nil || n.OSPF().RouterID.IsValid() {
			continue
		}
		var highest netip.Addr
		for _, p := range ipv4(n.Loopback) {
			if !highest.IsValid() || highest.Less(p.Addr()) {
				highest = p.Addr()
			}
		}
		if !highest.IsValid() || !take(n, highest) {
			open = append(open, n)
		}
	}
	var rest []*Node
	for _, n := range open {
		v, err := strconv.ParseUint(firstNumber.FindString(n.Name), 10, 24)
		if err != nil || v == 0 || !take(n, idOf(uint32(v))) {
			rest = append(rest, n)
		}
	}
	free := uint32(1)
	for _, n := range rest {
		for !take(n, idOf(free)) {
			free++
		}
	}
}

func idOf(v uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, v)))
}
