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

// Config is the set of routers.
type Config struct {
	Routers []Router

	// Reactive installs a route when the first packet needs it, instead of all in advance. A
	// network of more than MaxRoutes routers × prefixes is always reactive.
	Reactive bool

	Balance topology.BalanceBy // how packets are spread over equal paths; "" is ECMP
}

// MaxRoutes is the number of routes, over all routers, up to which they are installed in advance.
// Each takes 2.4 kB, and 15 µs to install: docs/performance.md.
const MaxRoutes = 100_000

// Router is a routing node: a datapath with addresses.
type Router struct {
	DPID       uint64
	Name       string
	Interfaces []Interface
	Loopback   []netip.Prefix // addresses that are at no interface
	Static     []StaticRoute

	// Distances override the default distances of sources, and those that programs ask for.
	Distances map[Origin]rib.Distance

	Redistribute []topology.Redistribute // into programs and protocols; for each the first match decides
}

// hasIPv6 reports whether the router has an IPv6 address; otherwise it does not speak IPv6.
func (r *Router) hasIPv6() bool {
	six := func(p netip.Prefix) bool { return !p.Addr().Is4() }
	return slices.ContainsFunc(r.Loopback, six) ||
		slices.ContainsFunc(r.Interfaces, func(f Interface) bool { return slices.ContainsFunc(f.Prefixes, six) })
}

// speaks reports whether the router forwards the prefix's IP version.
func (r *Router) speaks(p netip.Prefix) bool { return p.Addr().Is4() || r.hasIPv6() }

// Interface is a port of a router.
type Interface struct {
	Port     uint32
	Name     string
	MAC      openflow.MAC
	Prefixes []netip.Prefix // addresses, each with its subnet's length
	Cost     uint32         // of sending out of it; 0 means 1
	MTU      int            // bytes; 0 means 1500

	RA *topology.Advertisement // advertisement from which hosts form addresses; nil: none
}

// isLinkLocal reports whether an address is valid on one link only. IPv4's 169.254.0.0/16 is
// treated like any other prefix.
func isLinkLocal(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }

// at returns an address as seen by the interface's neighbour: a link-local one gets the interface's
// name as its zone (RFC 4007, section 6).
func (f *Interface) at(a netip.Addr) netip.Addr {
	if isLinkLocal(a) {
		return a.WithZone(f.Name)
	}
	return a
}

// StaticRoute is a route given by the configuration.
type StaticRoute struct {
	To      netip.Prefix
	Via     netip.Addr // a neighbour, or an address that another route leads to; invalid: see Discard
	Discard bool       // packets that match are dropped
	Program string     // the program that gave it, see App.SetProgram; "": static

	Distance rib.Distance // 0: the router's for static routes
	Metric   uint32
	Tag      uint32

	// Fallback routes are used only where the app finds no path.
	Fallback bool
}

// StaticOf converts a static route of a topology.
func StaticOf(s topology.Route) StaticRoute {
	return StaticRoute{To: s.To.Masked(), Via: s.Via, Discard: s.Discard, Distance: s.Distance, Metric: s.Metric,
		Tag: s.Tag, Fallback: s.Computed}
}

// ConfigOf returns the configuration of a resolved topology's routing nodes.
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
		for _, d := range n.Distances {
			if r.Distances == nil {
				r.Distances = map[Origin]rib.Distance{}
			}
			r.Distances[originOf(d)] = d.Distance
		}
		r.Redistribute = n.Redistribute
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
			i, ok := at[e.Node]
			if !ok {
				continue
			}
			r := &c.Routers[i]
			r.Interfaces = append(r.Interfaces, Interface{Port: nodes[i].OpenFlowPort(e), Name: e.Interface,
				MAC: openflow.MAC(e.MAC), Prefixes: e.Addresses, MTU: l.MTUAt(j), RA: e.RA})
		}
	}
	return c
}

// originOf returns the origin for which a topology sets a distance.
func originOf(d topology.SourceDistance) Origin {
	if topology.IsProtocol(d.Source) {
		return Origin{Spoken, d.Source}
	}
	return Origin{sourcesByName[d.Source], d.Name}
}

var sourcesByName = map[string]Source{topology.SourceStatic: Static, topology.SourceBalanced: Balanced,
	topology.SourceShortestPath: Computed,
	topology.SourceProgram:      Program, topology.SourceProtocol: Spoken}

// check reports what is wrong with a configuration.
func (c *Config) check() error {
	seen := map[uint64]string{}
	for i := range c.Routers {
		r := &c.Routers[i]
		if other, ok := seen[r.DPID]; ok {
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
