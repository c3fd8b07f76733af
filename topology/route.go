package topology

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/words"
)

// MaxRoutes is the maximum number of static routes that Resolve computes: beyond it, routers get
// none, and users must give some or choose a routing protocol.
const MaxRoutes = 2_000_000

// A hop is a neighbouring router, as reached from a router over one segment.
type hop struct {
	router  int
	address [2]netip.Addr // of the neighbour's interface in the shared segment

	unaddressed bool // the address of one of the two interfaces is unknown: no route leads this way
}

// routes gives routers static routes along shortest paths (fewest routers; among equals, the first
// neighbour in the file's order), and a default route towards a NAT. If all are routing nodes,
// their controller finds the paths. Routes that protocols find are not computed. If any other
// router has routes of its own, or a configuration of its routing daemons, the user is assumed to
// route by hand, and nothing is added.
func (r *resolver) routes() {
	r.routeDevices()
	r.reachable()
	if r.t.Routes == RoutesAsWritten {
		r.routesMissing()
	} else {
		r.computeRoutes()
	}
	r.learntRoutes()
}

func (r *resolver) computeRoutes() {
	routers := r.t.NodesOf(Router)
	index := map[string]int{}
	for i, n := range routers {
		index[n.Name] = i
		if len(n.Protocols) == 0 && slices.ContainsFunc(n.Routes, Route.InMain) || n.OwnRouting() != "" ||
			slices.ContainsFunc(n.Routes, func(rt Route) bool { return rt.Computed }) {
			return
		}
	}
	if len(routers) < 2 {
		return
	}
	static := slices.DeleteFunc(slices.Clone(routers), (*Node).RoutingNode) // those that need static routes
	if slices.ContainsFunc(static, func(n *Node) bool { return !n.NAT }) {
		static = routers // also the routing nodes: their controller may see no path through kernel routers
	}
	v6Too := r.t.IPv6.Addressed()
	static = slices.DeleteFunc(slices.Clone(static),
		func(n *Node) bool { return n.learns(v4) && (!v6Too || n.learns(v6)) })
	if total := len(static) * len(r.segs); total > MaxRoutes {
		r.problems.Warn(r.t.Pos, "give routes, or fewer routers",
			"%d routers with %d subnets would need %d static routes: none are set", len(routers), len(r.segs), total)
		return
	}
	graph := r.graph(routers, index)
	r.longestPath(graph)
	for _, d := range r.destinations(index) {
		r.flood(static, index, graph, d)
	}
	for i, n := range routers {
		if n.NAT {
			// NATs have their own way out.
			inner := slices.DeleteFunc(slices.Clone(routers), func(n *Node) bool { return n.NAT })
			r.flood(inner, index, graph, &destination{subnet: netip.MustParsePrefix("0.0.0.0/0"), from: []int{i}})
		}
	}
}

// destination is what routes lead to: a subnet, and the routers connected to it.
type destination struct {
	subnet netip.Prefix
	from   []int
}

// destinations returns each subnet of the segments once: a subnet in several segments is reached in
// the nearest one.
func (r *resolver) destinations(index map[string]int) []*destination {
	var all []*destination
	at := map[netip.Prefix]*destination{}
	for _, s := range r.segs {
		if len(s.routers) == 0 {
			continue
		}
		for _, subnet := range s.subnets() {
			if !subnet.IsValid() {
				continue
			}
			if at[subnet] == nil {
				at[subnet] = &destination{subnet: subnet}
				all = append(all, at[subnet])
			}
			for _, e := range s.routers {
				if !e.Unaddressed && !r.inVRF[e] {
					at[subnet].from = append(at[subnet].from, index[e.Node])
				}
			}
		}
	}
	return all
}

// routeDevices checks the devices of routes; a routing node has none.
func (r *resolver) routeDevices() {
	for _, n := range r.t.Nodes {
		devices, addresses := r.devicesOf(n)
		own := ownAddresses(n, addresses)
		check := func(what, device string) {
			switch {
			case device == "":
			case n.RoutingNode():
				r.problems.Add(n.Pos, "name the next router: via 10.0.0.254; or use datapath kernel",
					"router %s: %s: a routing node has no devices", n.Name, what)
			case !slices.Contains(devices, device):
				r.problems.Add(n.Pos, cmp.Or(DidYouMean(device, devices), "it has "+strings.Join(devices, ", ")),
					"%s %s: %s: it has no device %s", n.Kind, n.Name, what, clip(device))
			}
		}
		for _, route := range n.Routes {
			check("route "+route.String(), route.Device)
			switch {
			case !route.OnlyKernels() || n.RoutingNode() || n.Datapath.Provided(): // reported elsewhere, if at all
			case !n.Made().Own || n.Made().Guest:
				r.problems.Add(n.Pos, "leave table, src, onlink and labels out",
					"%s %s: route %s: it has no namespace of its own that could have it", n.Kind, n.Name, route)
			case route.Source.IsValid() && !own[route.Source]:
				r.problems.Add(n.Pos, "write one of its own", "%s %s: route %s: %s is not an address of its", n.Kind,
					n.Name, route, route.Source)
			}
		}
		for _, m := range n.Masquerade {
			check("masquerade "+m.String(), m.Device)
		}
	}
}

// reachable removes routes and gateways via neighbours that the kernel could not reach.
func (r *resolver) reachable() {
	for _, n := range r.t.Nodes {
		if n.Kind != Host && n.Kind != Router || n.RoutingNode() {
			continue
		}
		var own, behind []netip.Prefix
		for _, e := range r.ends[n.Name] {
			own = append(own, e.Addresses...)
		}
		own = slices.Concat(append(n.interfaceAddresses(), own)...)
		for _, route := range n.Routes {
			if !route.Via.IsValid() && !route.Discard {
				behind = append(behind, route.To)
			}
		}
		wrong := func(what string, via netip.Addr) bool {
			contains := func(p netip.Prefix) bool { return p.Contains(via) }
			is := func(p netip.Prefix) bool { return p.Addr() == via }
			switch {
			case !via.IsValid() || via.IsLinkLocalUnicast():
				return false
			case via.Is6() && !r.t.IPv6.Addressed():
				r.problems.Warn(n.Pos, "ipv6: assigned, or --ipv6 assigned",
					"%s %s: %s is left out, as there are no addresses of IPv6", n.Kind, n.Name, what)
				return true
			case slices.ContainsFunc(own, is):
				r.problems.Warn(n.Pos, "name another node's address address",
					"%s %s: %s is its own address: it is left out", n.Kind, n.Name, what)
				return true
			case !slices.ContainsFunc(own, contains) && !slices.ContainsFunc(behind, contains):
				r.problems.Warn(n.Pos, "a neighbour's address is in a subnet of the node",
					"%s %s: %s cannot be reached: it is left out", n.Kind, n.Name, what)
				return true
			}
			return false
		}
		n.Gateways = slices.DeleteFunc(n.Gateways, func(a netip.Addr) bool { return wrong("gateway "+a.String(), a) })
		n.Routes = slices.DeleteFunc(n.Routes,
			func(rt Route) bool { return rt.Device == "" && !rt.Discard && wrong("route "+rt.String(), rt.Via) })
	}
}

// routesMissing leaves the routes as they are, and warns if some would be needed.
func (r *resolver) routesMissing() {
	byHand := slices.ContainsFunc(r.t.NodesOf(Router), func(n *Node) bool { return len(n.Routes)+len(n.Gateways) > 0 })
	const hint = "--routes computed adds what is missing"
	var lonely []string
	for _, s := range r.segs {
		routers := slices.DeleteFunc(slices.Clone(s.routers),
			func(e *Endpoint) bool { return len(r.nodes[e.Node].Masquerade) > 0 })
		for _, e := range s.ends { // hosts in front of a masquerading router need no routes to what is behind it
			n := r.nodes[e.Node]
			if len(n.Gateways)+len(n.Routes) == 0 && gatewayFor(e, routers, v4).IsValid() {
				lonely = append(lonely, n.Name)
			}
		}
	}
	if len(lonely) > 0 {
		r.problems.Warn(r.t.Pos, hint, "no gateway is written for %s", words.Some(lonely))
	}
	if byHand {
		return
	}
	asWritten := r.t
	r.t = r.t.Clone()
	before := len(r.problems)
	r.computeRoutes()
	r.problems = r.problems[:before]
	lonely = nil
	for _, n := range r.t.NodesOf(Router) {
		if len(n.Routes) > 0 && len(n.Masquerade) == 0 {
			lonely = append(lonely, n.Name)
		}
	}
	asWritten.RouterHops = r.t.RouterHops
	r.t = asWritten
	if len(lonely) > 0 {
		r.problems.Warn(r.t.Pos, hint, "no route is written for %s, to which some subnets are not connected",
			words.Some(lonely))
	}
}

// subnets returns the segment's subnet of each family, assigned or given.
func (s *segment) subnets() [2]netip.Prefix {
	all := slices.Concat(s.routers, s.ends)
	return [2]netip.Prefix{cmp.Or(s.prefix[v4], givenPrefix(all, v4)), cmp.Or(s.prefix[v6], givenPrefix(all, v6))}
}

func (r *resolver) graph(routers []*Node, index map[string]int) [][]hop {
	graph := make([][]hop, len(routers))
	for _, s := range r.segs {
		for _, from := range s.routers {
			for _, to := range s.routers {
				if from.Node == to.Node || r.inVRF[from] || r.inVRF[to] {
					continue
				}
				h := hop{router: index[to.Node], unaddressed: from.Unaddressed || to.Unaddressed}
				for fam := range 2 {
					h.address[fam] = gatewayFor(from, []*Endpoint{to}, fam)
				}
				i := index[from.Node]
				graph[i] = append(graph[i], h)
			}
		}
	}
	return graph
}

// flood walks breadth first from the routers that are connected to a subnet and gives each of the
// given routers that it meets a route to it, back along the hop by which it was reached.
func (r *resolver) flood(routers []*Node, index map[string]int, graph [][]hop, to *destination) {
	if len(routers) == 0 {
		return
	}
	fam := family(to.subnet.Addr())
	distance := make([]int, len(graph))
	for _, i := range to.from {
		distance[i] = 1
	}
	for queue := to.from; len(queue) > 0; queue = queue[1:] {
		for _, h := range graph[queue[0]] {
			if distance[h.router] == 0 && !h.unaddressed {
				distance[h.router] = distance[queue[0]] + 1
				queue = append(queue, h.router)
			}
		}
	}
	for _, n := range routers {
		i := index[n.Name]
		if distance[i] < 2 || n.learns(fam) {
			continue
		}
		toward := graph[i][slices.IndexFunc(graph[i],
			func(h hop) bool { return !h.unaddressed && distance[h.router] == distance[i]-1 })]
		if via := toward.address[fam]; via.IsValid() {
			n.Routes = append(n.Routes, Route{To: to.subnet, Via: via, Computed: true})
		}
	}
}

// manyRouters is the number of routers above which the longest path is bounded, not measured:
// measuring takes a walk from each router.
const manyRouters = 2000

// longestPath records how many routers the longest shortest path crosses; with many routers, an
// upper bound.
func (r *resolver) longestPath(graph [][]hop) {
	if len(graph) <= manyRouters {
		for start := range graph {
			distance, last := walk(graph, start)
			r.t.RouterHops = max(r.t.RouterHops, distance[last])
		}
		return
	}
	seen := make([]bool, len(graph))
	for start := range graph { // once for each connected part
		if seen[start] {
			continue
		}
		part, far := walk(graph, start)
		for i, d := range part {
			seen[i] = seen[i] || d > 0
		}
		// Nothing is far from the middle of a long path, and no path is longer than twice that
		// distance.
		distance, end := walk(graph, far)
		middle := end
		for distance[middle] > (distance[end]+1)/2 {
			i := slices.IndexFunc(graph[middle], func(h hop) bool { return distance[h.router] == distance[middle]-1 })
			middle = graph[middle][i].router
		}
		distance, end = walk(graph, middle)
		r.t.RouterHops = max(r.t.RouterHops, 2*distance[end]-1)
	}
}

// walk returns the number of routers on the path from start to each, both included (0: there is no
// path), and one of the farthest.
func walk(graph [][]hop, start int) (distance []int, last int) {
	distance = make([]int, len(graph))
	distance[start] = 1
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		last = queue[0]
		for _, h := range graph[last] {
			if distance[h.router] == 0 {
				distance[h.router] = distance[last] + 1
				queue = append(queue, h.router)
			}
		}
	}
	return distance, last
}
