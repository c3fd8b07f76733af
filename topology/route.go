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
	r.longestPath(graph)
	for _, s := range r.segs {
		if len(s.routers) == 0 || len(static) == 0 {
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

// manyRouters is from how many on the longest path is bounded, not measured: that takes as many walks as there are.
const manyRouters = 2000

// longestPath records how many routers the longest shortest path crosses; of many, how many at most.
func (r *resolver) longestPath(graph [][]hop) {
	if len(graph) <= manyRouters {
		for start := range graph {
			distance, last := walk(graph, start)
			r.t.RouterHops = max(r.t.RouterHops, distance[last])
		}
		return
	}
	seen := make([]bool, len(graph))
	for start := range graph { // once for each part of the network
		if seen[start] {
			continue
		}
		part, far := walk(graph, start)
		for i, d := range part {
			seen[i] = seen[i] || d > 0
		}
		// From the middle of a long path nothing is far, and no path is longer than twice as far.
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

// walk returns how many routers there are on the way from one to each, both counted (0: there is no way), and
// one of those that are farthest.
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

func (rt Route) String() string { return fmt.Sprintf("%s via %s", rt.To, rt.Via) }
