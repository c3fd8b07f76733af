package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
)

// oracle computes from a topology alone what RFC 2328 makes of it: every router's routing table. It
// knows neither LSAs nor timers nor packets, and shares no code with the engine: edges are relaxed
// until nothing changes, and what border routers tell each other goes round until nobody has news.
type oracle struct {
	routers []topology.OSPFRouter
	segment map[*topology.Endpoint]int
	down    map[*topology.Link]bool
	dead    map[string]bool // routers that do not run

	namespace map[string]bool // routers that are one
}

// wayKind is the type of a path (section 11), the best first.
type wayKind int

const (
	intra wayKind = iota
	inter
	type1
	type2
)

// hop is a next hop: a neighbour's address, and the area of the interface it is behind.
type hop struct {
	via  netip.Addr
	area topology.AreaID
}

// way is a path to a network or a router; one without hops is to the router's own interface.
type way struct {
	kind   wayKind
	area   topology.AreaID
	cost   int
	metric int // outside, of type2
	hops   map[hop]bool
}

// outcome is what one router comes to.
type outcome struct {
	nets    map[netip.Prefix]way
	routers map[int][]way // to border and boundary routers, by area
}

// news is what border routers tell an area: by router, costs of networks and of boundary routers.
type news map[topology.AreaID]map[int]told

type told struct {
	nets    map[netip.Prefix]int
	routers map[int]int
}

func newOracle(t *topology.Topology) *oracle {
	o := &oracle{routers: topology.OSPFOf(t), segment: map[*topology.Endpoint]int{}, down: map[*topology.Link]bool{}, dead: map[string]bool{}, namespace: map[string]bool{}}
	bridge := map[string]bool{}
	for _, n := range t.Nodes {
		bridge[n.Name] = n.Kind == topology.Switch
		o.namespace[n.Name] = n.Datapath == topology.FRR || n.Datapath == topology.BIRD
	}
	for i, l := range t.Links {
		o.segment[&l.Ends[0]], o.segment[&l.Ends[1]] = i, i
	}
	for range t.Links { // ends at one switch are in one segment
		at := map[string]int{}
		for e, s := range o.segment {
			if old, ok := at[e.Node]; bridge[e.Node] && (!ok || s < old) {
				at[e.Node] = s
			}
		}
		for _, l := range t.Links {
			least := min(o.segment[&l.Ends[0]], o.segment[&l.Ends[1]])
			for i := range l.Ends {
				if s, ok := at[l.Ends[i].Node]; ok {
					least = min(least, s)
				}
			}
			o.segment[&l.Ends[0]], o.segment[&l.Ends[1]] = least, least
		}
	}
	return o
}

func (o *oracle) index(id netip.Addr) int {
	return slices.IndexFunc(o.routers, func(r topology.OSPFRouter) bool { return r.RouterID == id })
}

func (o *oracle) up(r int, f *topology.OSPFInterface) bool {
	return !o.dead[o.routers[r].Node.Name] && (f.Link == nil || !o.down[f.Link])
}

// unplugged is what BIRD announces of an interface without a carrier (its option "check link"): the
// address alone. Of a link between two namespaces that is set down the second end is off, and the
// first has no carrier.
func (o *oracle) unplugged(r int, f *topology.OSPFInterface) (netip.Prefix, bool) {
	node := o.routers[r].Node
	if node.Datapath != topology.BIRD || o.dead[node.Name] || f.Passive || f.End == 1 && o.namespace[f.Link.Ends[0].Node] {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(f.Addresses[0].Addr(), 32), true
}

// edge is a step of an area's graph. Vertices are routers by their number, and behind them
// broadcast networks.
type edge struct {
	from, to, cost int
	hops           map[hop]bool // of a router's step to another router
}

// graph is an area.
type graph struct {
	edges  []edge
	across []edge // a router's steps over a broadcast network in one
	leaves []leaf
}

// leaf is a network at a vertex.
type leaf struct {
	vertex int
	prefix netip.Prefix
	cost   int
}

// graph makes the graph of an area, without virtual links.
func (o *oracle) graph(area topology.AreaID) (g graph) {
	speak := map[int][]int{} // routers by segment
	face := map[[2]int]*topology.OSPFInterface{}
	for r := range o.routers {
		for i := range o.routers[r].Interfaces {
			f := &o.routers[r].Interfaces[i]
			if f.Area != area {
				continue
			}
			if !o.up(r, f) {
				if host, ok := o.unplugged(r, f); ok {
					g.leaves = append(g.leaves, leaf{r, host, 0})
				}
				continue
			}
			if f.Link != nil && !f.Passive {
				s := o.segment[&f.Link.Ends[f.End]]
				speak[s], face[[2]int{s, r}] = append(speak[s], r), f
				continue
			}
			for _, p := range f.Addresses {
				g.leaves = append(g.leaves, leaf{r, p.Masked(), f.Cost})
			}
		}
	}
	for s, routers := range speak {
		lan := false
		for _, r := range routers {
			f := face[[2]int{s, r}]
			lan = lan || f.Network == topology.Broadcast && f.Priority > 0 && len(routers) > 1
		}
		for _, r := range routers {
			f := face[[2]int{s, r}]
			prefix := f.Addresses[0].Masked()
			if lan {
				net := len(o.routers) + s
				g.edges = append(g.edges, edge{from: r, to: net, cost: f.Cost}, edge{from: net, to: r})
				g.leaves = append(g.leaves, leaf{net, prefix, 0})
			} else {
				g.leaves = append(g.leaves, leaf{r, prefix, f.Cost})
			}
			for _, x := range routers {
				if x == r || f.Network == topology.Broadcast && !lan {
					continue
				}
				step := edge{r, x, f.Cost, map[hop]bool{{face[[2]int{s, x}].Addresses[0].Addr(), area}: true}}
				if g.across = append(g.across, step); !lan {
					g.edges = append(g.edges, step)
				}
			}
		}
	}
	return g
}

// distances relaxes the edges.
func (g *graph) distances(from int) map[int]int {
	dist := map[int]int{from: 0}
	for changed := true; changed; {
		changed = false
		for _, e := range g.edges {
			if d, ok := dist[e.from]; ok {
				if old, ok := dist[e.to]; !ok || d+e.cost < old {
					dist[e.to], changed = d+e.cost, true
				}
			}
		}
	}
	return dist
}

// ways are the shortest paths from a router to all vertices: a first step is on one if what is left
// is as long as it must be.
func (g *graph) ways(from int, area topology.AreaID) map[int]way {
	dist := g.distances(from)
	out := map[int]way{}
	for v, d := range dist {
		out[v] = way{area: area, cost: d, hops: map[hop]bool{}}
	}
	for _, e := range g.across {
		if e.from != from {
			continue
		}
		for v, rest := range g.distances(e.to) {
			if v != from && e.cost+rest == dist[v] {
				maps.Copy(out[v].hops, e.hops)
			}
		}
	}
	return out
}

// plus is the way, and a cost behind it.
func (w way) plus(cost int, kind wayKind) way {
	w.cost, w.kind = w.cost+cost, kind
	return w
}

// merge takes a way to a network, or router, if it is better than what is there, and both if they
// are equal.
func merge[K comparable](all map[K]way, to K, w way, compare func(a, b way) int) {
	old, ok := all[to]
	switch {
	case !ok || compare(w, old) < 0:
		w.hops = maps.Clone(w.hops)
		all[to] = w
	case compare(w, old) == 0:
		maps.Copy(old.hops, w.hops)
	}
}

func inside(a, b way) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.cost, b.cost)) }

// outside is the order of section 16.4 step 6, without RFC1583Compatibility.
func outside(a, b way) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.metric, b.metric), far(a, b))
}

// far is the order of section 16.4.1 of ways to a boundary router; area tells where they are.
func far(a, b way) int {
	rank := func(w way) int {
		if w.area != 0 && w.area != viaSummary {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.cost, b.cost))
}

// viaSummary stands for the area of a way to a boundary router that a summary has told.
const viaSummary = topology.AreaID(1<<32 - 1)

// String is the way as tables of routers are compared: kind, costs, next hops in order.
func (w way) String() string {
	s := fmt.Sprintf("%s %d", []string{"intra", "inter", "ext1", "ext2"}[w.kind], w.cost)
	if w.kind == type2 {
		s += fmt.Sprintf("/%d", w.metric)
	}
	return s + viaText(w.hops)
}

func viaText(hops map[hop]bool) string {
	var via []string
	for h := range hops {
		via = append(via, h.via.String())
	}
	slices.Sort(via)
	return " via " + strings.Join(slices.Compact(via), " ")
}

// tables computes all routers' outcomes.
func (o *oracle) tables() []outcome {
	areas := map[topology.AreaID]*graph{}
	for r := range o.routers {
		for _, a := range o.routers[r].Areas {
			if areas[a.ID] == nil {
				g := o.graph(a.ID)
				areas[a.ID] = &g
			}
		}
	}
	if areas[0] == nil {
		areas[0] = &graph{}
	}
	c := &computation{oracle: o, areas: areas, transit: map[topology.AreaID]bool{}, attached: make([]map[topology.AreaID]bool, len(o.routers))}
	c.attach()
	c.virtual()
	c.intra()
	said := news{}
	for range 20 {
		out := make([]outcome, len(o.routers))
		for r := range o.routers {
			out[r] = c.table(r, said)
		}
		next := news{}
		for r := range o.routers {
			c.tell(r, out[r], next)
		}
		if reflect.DeepEqual(next, said) {
			return out
		}
		said = next
	}
	panic("the border routers find no end")
}
