package topology

import (
	"net/netip"
	"slices"

	"trivet.dev/trivet/internal/lists"
)

// NodesByName returns the nodes by name.
func (t *Topology) NodesByName() map[string]*Node {
	m := lists.Index(t.Nodes, func(n *Node) string { return n.Name })
	return m
}

// LinksByKey returns the links by key: see LinkKeys.
func LinksByKey(t *Topology) map[string]*Link { return index(LinkKeys(t), t.Links) }

// EndsOf lists the ends of links at each node.
func EndsOf(t *Topology) map[string][]*Endpoint {
	ends := map[string][]*Endpoint{}
	for _, l := range t.Links {
		for i := range l.Ends {
			if e := &l.Ends[i]; !e.External() {
				ends[e.Node] = append(ends[e.Node], e)
			}
		}
	}
	return ends
}

// AddressesOf lists the addresses of a node's interfaces, those of links first, in their order,
// then those of its loopback.
func AddressesOf(t *Topology, n *Node) (out []netip.Prefix) {
	for _, link := range t.Links {
		for _, e := range link.Ends {
			if e.Node == n.Name {
				out = append(out, e.Addresses...)
			}
		}
	}
	for _, list := range n.interfaceAddresses() {
		out = append(out, list...)
	}
	return append(out, n.Loopback...)
}

// interfaceAddresses are the addresses of each of the node's interfaces beside those of links.
func (n *Node) interfaceAddresses() [][]netip.Prefix {
	return lists.Map(n.Interfaces, func(i Interface) []netip.Prefix { return i.Addresses })
}

// BetweenRouters says whether both ends of a link are routing nodes.
func (l *Link) BetweenRouters(nodes map[string]*Node) bool {
	for _, e := range l.Ends {
		if n := nodes[e.Node]; n == nil || !n.RoutingNode() {
			return false
		}
	}
	return true
}

var defaultRoutes = map[bool]netip.Prefix{true: netip.MustParsePrefix("0.0.0.0/0"),
	false: netip.MustParsePrefix("::/0")}

// StaticRoutes lists a node's routes, with gateways as default routes. Routes through a device come
// first: they may lead to the neighbours that others go through.
func (n *Node) StaticRoutes() []Route {
	routes := slices.Clone(n.Routes)
	slices.SortStableFunc(routes, func(a, b Route) int {
		switch {
		case a.Via.IsValid() == b.Via.IsValid():
			return 0
		case b.Via.IsValid():
			return -1
		}
		return 1
	})
	for _, g := range n.Gateways {
		routes = append(routes, Route{To: defaultRoutes[g.Is4()], Via: g})
	}
	return routes
}

// ControllersOf returns the addresses of a switch's controllers outside the lab; none if the switch
// learns, or is controlled by something that the lab runs.
func ControllersOf(t *Topology, n *Node) []string {
	var out []string
	for _, c := range n.Controllers {
		if c == ControllerNone || c == ControllerTrivet || t.IsControllerProgram(c) {
			continue
		}
		if node := t.Node(c); node != nil {
			c = node.Address
		}
		if c != "" {
			out = append(out, c)
		}
	}
	return out
}

// ForeignControllers returns the controllers of a switch that are not Trivet's: addresses, and
// names of programs that a lab runs.
func ForeignControllers(t *Topology, n *Node) []string {
	out := ControllersOf(t, n)
	out = append(out, lists.Filter(n.Controllers, t.IsControllerProgram)...)
	return out
}
