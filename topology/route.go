package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// MaxRoutes is the most static routes that Resolve computes: above it routers
// get none, and the user gives some or chooses a routing protocol.
const MaxRoutes = 2_000_000

// A hop is a neighbouring router: the way there from one router over one segment.
type hop struct {
	router  int
	address [2]netip.Addr // of the neighbour's interface in the shared segment
}

// routes gives routers static routes along shortest paths (fewest routers; of
// equals the first neighbour in the file's order), and a default route towards a
// NAT. Where all are routing nodes, their controller finds the paths. Routers that
// speak OSPF get none of IPv4. Where any other router has routes of its own the user
// is taken to route by hand, and nothing is added.
func (r *resolver) routes() {
	routers := r.t.NodesOf(Router)
	index := map[string]int{}
	for i, n := range routers {
		index[n.Name] = i
		if n.OSPF == nil && len(n.Routes) > 0 || slices.ContainsFunc(n.Routes, func(rt Route) bool { return rt.Computed }) {
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
	if r.t.IPv6 == IPv6Off {
		static = slices.DeleteFunc(slices.Clone(static), func(n *Node) bool { return n.OSPF != nil })
	}
	if total := len(static) * len(r.segs); total > MaxRoutes {
		r.problems.Warn(r.t.Pos, "give routes, or fewer routers", "%d routers with %d subnets would need %d static routes: none are set", len(routers), len(r.segs), total)
		return
	}
	graph := r.graph(routers, index)
	for _, s := range r.segs {
		if len(s.routers) == 0 {
			continue
		}
		from := make([]int, 0, len(s.routers))
		for _, e := range s.routers {
			from = append(from, index[e.Node])
		}
		r.flood(static, index, graph, from, s.subnets())
	}
	for i, n := range routers {
		if n.NAT {
			r.flood(routers, index, graph, []int{i}, [2]netip.Prefix{v4: netip.MustParsePrefix("0.0.0.0/0")})
		}
	}
	if len(static) == len(routers) {
		r.longestPath(graph)
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
				if from.Node == to.Node {
					continue
				}
				h := hop{router: index[to.Node]}
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

// flood walks breadth first from the routers that have a subnet and sets a
// route to it in those of the given routers that it meets, back along the step it came by.
func (r *resolver) flood(routers []*Node, index map[string]int, graph [][]hop, from []int, subnets [2]netip.Prefix) {
	if len(routers) == 0 {
		return
	}
	distance := make([]int, len(graph))
	for _, i := range from {
		distance[i] = 1
	}
	for queue := from; len(queue) > 0; queue = queue[1:] {
		for _, h := range graph[queue[0]] {
			if distance[h.router] == 0 {
				distance[h.router] = distance[queue[0]] + 1
				queue = append(queue, h.router)
			}
		}
	}
	for _, n := range routers {
		i := index[n.Name]
		if distance[i] < 2 {
			continue
		}
		toward := graph[i][slices.IndexFunc(graph[i], func(h hop) bool { return distance[h.router] == distance[i]-1 })]
		for fam, subnet := range subnets {
			if subnet.IsValid() && toward.address[fam].IsValid() && !(fam == v4 && n.OSPF != nil) {
				n.Routes = append(n.Routes, Route{To: subnet, Via: toward.address[fam], Computed: true})
			}
		}
	}
}

// longestPath records how many routers the longest shortest path crosses.
func (r *resolver) longestPath(graph [][]hop) {
	for start := range graph {
		distance := make([]int, len(graph))
		distance[start] = 1
		for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
			for _, h := range graph[queue[0]] {
				if distance[h.router] == 0 {
					distance[h.router] = distance[queue[0]] + 1
					r.t.RouterHops = max(r.t.RouterHops, distance[h.router])
					queue = append(queue, h.router)
				}
			}
		}
	}
}

func (rt Route) String() string { return fmt.Sprintf("%s via %s", rt.To, rt.Via) }
