package routing

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/routing/rib"
	"trivet.dev/trivet/topology"
)

// Config is the routers that the app is the brain of.
type Config struct {
	Routers []Router

	// Reactive installs a route when the first packet needs it, instead of all at once. So does
	// a network of more than MaxRoutes routers × prefixes, whatever stands here.
	Reactive bool

	Balance topology.BalanceBy // what packets are spread over equal paths by; "" is ECMP
}

// MaxRoutes is the most routes, over all routers, that are installed before a packet needs them.
// Each takes 2.4 kB, and 15 µs to install: docs/performance.md.
const MaxRoutes = 100_000

// Router is a routing node: a datapath with addresses.
type Router struct {
	DPID       uint64
	Name       string
	Interfaces []Interface
	Loopback   []netip.Prefix // addresses at no interface
	Static     []StaticRoute

	// Distances are those that the router gives to sources in place of the usual ones.
	Distances map[Source]rib.Distance

	// Protocol is the routing protocol that finds this router's paths (OSPF), which App.Speak
	// has introduced; empty: the app itself, over what discovery has found.
	Protocol string
}

// Interface is a port of a router.
type Interface struct {
	Port     uint32
	Name     string
	MAC      openflow.MAC
	Prefixes []netip.Prefix // addresses, each with the length of its subnet
	Cost     uint32         // of sending out of it; 0 is taken for 1
	MTU      int            // bytes of the largest packet that it sends; 0 is taken for 1500
}

// StaticRoute is a route that the configuration gives.
type StaticRoute struct {
	To      netip.Prefix
	Via     netip.Addr // a neighbour, or an address that another route leads to; none: see Discard
	Discard bool       // what follows the route is dropped
	Program string     // whose route it is, see App.SetProgram; "": static

	Distance rib.Distance // 0: what the router gives to static routes
	Metric   uint32
	Tag      uint32

	// Fallback routes count only where the app finds no path itself.
	Fallback bool
}

// StaticOf returns a static route of a topology.
func StaticOf(s topology.Route) StaticRoute {
	return StaticRoute{To: s.To.Masked(), Via: s.Via, Discard: s.Discard, Distance: s.Distance, Metric: s.Metric, Tag: s.Tag, Fallback: s.Computed}
}

// Speaker is a routing protocol. Its methods are called while the app computes or handles a packet:
// they must be quick, and must not call the app.
type Speaker interface {
	// Routes returns the routes that the protocol has for a router now, sorted by prefix.
	Routes(dpid uint64) []Learned

	// RouteTo returns one of them, that of exactly a prefix.
	RouteTo(dpid uint64, p netip.Prefix) (Learned, bool)

	// Networks returns the prefixes that some router may have a route to, sorted.
	Networks() []netip.Prefix

	// Settled says whether the routes follow what is known of the network. The app waits for it at
	// the start, for some seconds at most.
	Settled() bool

	// Receive takes a packet that the protocol wants, with its IP header, that has come in by a
	// port.
	Receive(dpid uint64, port uint32, packet []byte)
}

// Wanted is packets that a protocol is given: of an IP protocol, to an address of the router, those
// of IPv6 that are link-local included, or to groups.
type Wanted struct {
	Protocol uint8
	Groups   []netip.Prefix
}

// Learned is a route that a protocol has found.
type Learned struct {
	Prefix netip.Prefix
	Metric uint32
	Tag    uint32
	Hops   []LearnedHop // of equal cost
	Drop   bool         // packets that follow it are dropped: an aggregate without next hops
}

// LearnedHop is a next hop of a Learned route: a neighbour's address, or none where the prefix is
// that of the port itself.
type LearnedHop struct {
	Port uint32
	Via  netip.Addr
}

// ConfigOf returns the routing nodes of a resolved topology.
func ConfigOf(t *topology.Topology) Config {
	c := Config{Reactive: t.Routing == topology.Reactive, Balance: t.Balancing()}
	at := map[string]int{}
	var nodes []*topology.Node
	for _, n := range t.Nodes {
		if !n.RoutingNode() {
			continue
		}
		at[n.Name] = len(c.Routers)
		nodes = append(nodes, n)
		r := Router{DPID: uint64(n.DPID), Name: n.Name, Loopback: n.Loopback}
		if n.OSPF != nil {
			r.Protocol = "ospf"
		}
		for _, d := range n.Distances {
			if r.Distances == nil {
				r.Distances = map[Source]rib.Distance{}
			}
			r.Distances[sourcesByName[d.Source]] = d.Distance
		}
		for _, s := range n.Routes {
			r.Static = append(r.Static, StaticOf(s))
		}
		for _, g := range n.Gateways {
			r.Static = append(r.Static, StaticRoute{To: netip.PrefixFrom(g, 0).Masked(), Via: g})
		}
		c.Routers = append(c.Routers, r)
	}
	for _, l := range t.Links {
		for j, e := range l.Ends {
			i, is := at[e.Node]
			if !is {
				continue
			}
			r := &c.Routers[i]
			r.Interfaces = append(r.Interfaces, Interface{Port: nodes[i].OpenFlowPort(e), Name: e.Interface,
				MAC: openflow.MAC(e.MAC), Prefixes: e.Addresses, MTU: l.MTUAt(j)})
		}
	}
	return c
}

// sourcesByName are those that topologies give distances to.
var sourcesByName = map[string]Source{topology.SourceStatic: Static, topology.SourceBalanced: Balanced, topology.SourceOSPF: Protocol, topology.SourceShortestPath: Computed}

// check says what is wrong with a configuration.
func (c *Config) check() error {
	seen := map[uint64]string{}
	for i := range c.Routers {
		r := &c.Routers[i]
		if other, is := seen[r.DPID]; is {
			return fmt.Errorf("routers %s and %s have the same datapath id %016x", other, r.Name, r.DPID)
		}
		seen[r.DPID] = r.Name
		slices.SortFunc(r.Interfaces, func(a, b Interface) int { return int(a.Port) - int(b.Port) })
		for j := range r.Interfaces {
			f := &r.Interfaces[j]
			f.Cost, f.MTU = max(f.Cost, 1), cmp.Or(f.MTU, topology.MTU)
			if f.Port == 0 || f.Port > openflow.PortMax {
				return fmt.Errorf("router %s: interface %s: %d is not an OpenFlow port", r.Name, f.Name, f.Port)
			}
		}
	}
	return nil
}
