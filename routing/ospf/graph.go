package ospf

import (
	"encoding/binary"
	"slices"

	"trivet.dev/trivet/routing/spf"
)

// graph is an area's router- and network-LSAs as a graph (section 16.1): a vertex for each, an edge
// for each link whose other end has a link back. All routers of the domain take their trees from
// it.
type graph struct {
	*spf.Graph
	area    *Area
	lsas    []LSA        // by vertex; those of the last calculation
	routers map[ID]int32 // vertices by Router ID
	edges   []graphEdge
	nets    []netKey // the area's networks, sorted; some may no longer exist
	leaves  []leaf
}

// leaf is a network at a vertex: the network that the vertex represents, or a stub network of a
// router.
type leaf struct {
	vertex, net int32 // net is an index in nets
	cost        uint32
}

// graphEdge identifies the link of a router-LSA that an edge represents; it is not set for edges
// out of networks.
type graphEdge struct {
	from, to int32
	link     uint16 // index in the LSA
}

func emptyGraph(a *Area) *graph {
	g, _ := spf.New(0, nil, nil)
	return &graph{Graph: g, area: a, routers: map[ID]int32{}}
}

// buildGraph builds the graph from the current database.
func buildGraph(a *Area) *graph {
	routers, networks := len(a.db.typed[TypeRouter]), len(a.db.typed[TypeNetwork])
	g := &graph{area: a, routers: make(map[ID]int32, routers), lsas: make([]LSA, 0, routers+networks)}
	for _, e := range a.db.typed[TypeRouter] {
		if !e.maxAged() {
			g.routers[e.AdvRouter] = int32(len(g.lsas))
			g.lsas = append(g.lsas, LSA{e.header(), e.Body})
		}
	}
	edges, costs := g.links(g.addNetworks())
	g.keepBidirectional(edges, costs)
	g.addLeaves()
	return g
}

// addLeaves lists the networks, once for all routers.
func (g *graph) addLeaves() {
	keys := make([]netKey, 0, len(g.area.graph.leaves))
	g.leaves = make([]leaf, 0, len(g.area.graph.leaves))
	for v, lsa := range g.lsas {
		if lsa.Type == TypeNetwork {
			keys = append(keys, keyOf(lsa.ID, bodyMask(lsa.Body)))
			g.leaves = append(g.leaves, leaf{vertex: int32(v)})
			continue
		}
		for l := range lsa.links() {
			if l.Type == LinkStub {
				keys = append(keys, keyOf(l.ID, l.Data))
				g.leaves = append(g.leaves, leaf{vertex: int32(v), cost: uint32(l.Metric)})
			}
		}
	}
	if !g.numberAsBefore(keys) {
		g.number(keys)
	}
}

// number sets each leaf's index in nets, given the leaves' keys.
func (g *graph) number(keys []netKey) {
	g.nets = slices.Clone(keys)
	slices.Sort(g.nets)
	g.nets = slices.Compact(g.nets)
	for i, k := range keys {
		n, _ := slices.BinarySearch(g.nets, k)
		g.leaves[i].net = int32(n)
	}
}

// numberAsBefore takes the indexes from the previous graph if that has all networks, as after most
// changes: then nothing needs sorting. Most leaves come in the same order as before, so few must be
// searched for.
func (g *graph) numberAsBefore(keys []netKey) bool {
	old, next := g.area.graph, 0
	if len(old.nets) > 2*len(keys) {
		return false // most of them are gone
	}
	for i, k := range keys {
		if next < len(old.leaves) && old.nets[old.leaves[next].net] == k {
			g.leaves[i].net = old.leaves[next].net
			next++
			continue
		}
		n, ok := slices.BinarySearch(old.nets, k)
		if !ok {
			return false
		}
		g.leaves[i].net = int32(n)
		for ahead := next; ahead < min(next+4, len(old.leaves)); ahead++ { // resume the order
			if old.leaves[ahead].net == int32(n) {
				next = ahead + 1
				break
			}
		}
	}
	g.nets = old.nets
	return true
}

// addNetworks adds the network-LSAs, and returns their vertices by the DR's address. If several
// have the same address, those of former DRs have not been flushed yet; the one whose router still
// has the address counts.
func (g *graph) addNetworks() map[ID]int32 {
	networks := map[ID]int32{}
	owns := func(lsa LSA) bool {
		v, ok := g.routers[lsa.AdvRouter]
		if !ok {
			return false
		}
		for l := range g.lsas[v].links() {
			if l.Type == LinkTransit && l.ID == lsa.ID && l.Data == lsa.ID {
				return true
			}
		}
		return false
	}
	for _, e := range g.area.db.typed[TypeNetwork] {
		if e.maxAged() {
			continue
		}
		lsa := LSA{e.header(), e.Body}
		v, double := networks[e.ID]
		switch {
		case !double:
			networks[e.ID] = int32(len(g.lsas))
			g.lsas = append(g.lsas, lsa)
		case owns(lsa) && !owns(g.lsas[v]), owns(lsa) == owns(g.lsas[v]) && lsa.AdvRouter > g.lsas[v].AdvRouter:
			g.lsas[v] = lsa
		}
	}
	return networks
}

// links lists the edges described by one end.
func (g *graph) links(networks map[ID]int32) (edges []graphEdge, costs []uint32) {
	before := len(g.area.graph.edges) // there will be about as many
	edges, costs = make([]graphEdge, 0, before), make([]uint32, 0, before)
	for v := range int32(len(g.lsas)) {
		lsa := g.lsas[v]
		if lsa.Type == TypeNetwork {
			for i := 4; i < len(lsa.Body); i += 4 {
				if to, ok := g.routers[ID(binary.BigEndian.Uint32(lsa.Body[i:]))]; ok {
					edges, costs = append(edges, graphEdge{from: v, to: to}), append(costs, 0)
				}
			}
			continue
		}
		place := uint16(0)
		for l := range lsa.links() {
			to, ok := int32(0), false
			switch l.Type {
			case LinkPointToPoint, LinkVirtual:
				to, ok = g.routers[l.ID]
			case LinkTransit:
				to, ok = networks[l.ID]
			}
			if ok && to != v {
				edges, costs = append(edges, graphEdge{v, to, place}), append(costs, max(1, uint32(l.Metric)))
			}
			place++
		}
	}
	return edges, costs
}

// keepBidirectional builds the graph from the edges that have an edge in the opposite direction
// (section 16.1 step 2b).
func (g *graph) keepBidirectional(edges []graphEdge, costs []uint32) {
	n := len(g.lsas)
	first := make([]int32, n+2) // into: the starts of edges by the vertex that they lead to
	for _, e := range edges {
		first[e.to+2]++
	}
	for v := range n {
		first[v+2] += first[v+1]
	}
	into := make([]int32, len(edges))
	for _, e := range edges {
		into[first[e.to+1]] = e.from
		first[e.to+1]++
	}
	seen := make([]int32, n) // the vertex + 1 whose neighbours are marked
	kept := make([]spf.Edge, 0, len(edges))
	g.edges = make([]graphEdge, 0, len(edges))
	for i, e := range edges { // edges of one vertex are consecutive
		if i == 0 || edges[i-1].from != e.from {
			for _, u := range into[first[e.from]:first[e.from+1]] {
				seen[u] = e.from + 1
			}
		}
		if seen[e.to] == e.from+1 {
			kept = append(kept, spf.Edge{From: e.from, To: e.to, Cost: costs[i]})
			g.edges = append(g.edges, e)
		}
	}
	transparent := make([]bool, n)
	for v, lsa := range g.lsas {
		transparent[v] = lsa.Type == TypeNetwork
	}
	var err error
	if g.Graph, err = spf.New(n, kept, transparent); err != nil {
		panic(err) // numbers and costs were made above
	}
}

// link returns the link of a router-LSA that an edge represents.
func (g *graph) link(edge int32) RouterLink {
	e, place := g.edges[edge], uint16(0)
	for l := range g.lsas[e.from].links() {
		if place == e.link {
			return l
		}
		place++
	}
	return RouterLink{}
}
