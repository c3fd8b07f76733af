package balance

import (
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/path"
	"gonum.org/v1/gonum/graph/simple"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/routing/spf"
)

// grapher finds best paths. Its buffers are reused.
type grapher struct {
	edges []spf.Edge
	links []int32 // of each edge
	tree  spf.Tree
}

// scale converts a load to an integer, with a resolution of a millionth.
const scale = 1e6

// best returns the links of the cheapest path from a router to a demand's destination, over links
// that have room for its throughput; nil: there is none. It is Dijkstra's algorithm from the
// destination backwards (algorithm 1).
func (g *grapher) best(s *state, d int, from int32, carried float64) (out []int32) {
	f, n := &s.flows[d], len(s.demands[d].Next)
	g.edges, g.links = g.edges[:0], g.links[:0]
	for i := range s.Links {
		l := int32(i)
		x := s.Links[l]
		kept := s.demands[d].keeps(x.From) && f.next[x.From] != l
		if f.next[x.From] == Fixed || kept || !s.hasRoom(f, l, carried) {
			continue
		}
		g.edges = append(g.edges, spf.Edge{From: x.To, To: x.From,
			Cost: uint32(max(1, math.Round(scale*s.cost(f, l))))})
		g.links = append(g.links, l)
	}
	graph, err := spf.New(n, g.edges, nil)
	if err != nil {
		return nil // a link of an unknown router
	}
	ends := lists.Map(s.demands[d].Ends, func(e int32) spf.Start { return spf.Start{Vertex: e} })
	graph.Nearest(ends, &g.tree)
	if g.tree.Dist(from) == spf.Unreachable {
		return nil
	}
	for r := from; ; {
		e := g.tree.Parent(r)
		if e < 0 {
			return out
		}
		out = append(out, g.links[e])
		r = g.edges[e].From
	}
}

// Best returns the k loop-free paths with the least load from a router to any of others, the best
// first, as numbers of links: Yen's algorithm. hopCost is added to the load of each link. Paths end
// at the first router in to, and do not pass routers for which fixed is true. It takes long in a
// large network, and fails when ctx ends.
func (m Model) Best(ctx context.Context, n *Network, from int32, to []int32, k int, hopCost float64,
	fixed func(router int32) bool) (out [][]int32, err error) {
	if slices.Contains(to, from) || k <= 0 {
		return nil, nil
	}
	// Several links may join the same routers, so links are vertices, too, besides routers and the
	// end.
	g := simple.NewWeightedDirectedGraph(0, math.Inf(1))
	router := func(r int32) graph.Node { return simple.Node(r) }
	link := func(l int) graph.Node { return simple.Node(len(n.Entries) + l) }
	end := simple.Node(len(n.Entries) + len(n.Links))
	loads := m.Loads(n)
	g.AddNode(router(from))
	g.AddNode(end)
	for i, l := range n.Links {
		if l.From == l.To || slices.Contains(to, l.From) || fixed(l.From) {
			continue
		}
		g.SetWeightedEdge(g.NewWeightedEdge(router(l.From), link(i), loads[i]+hopCost))
		g.SetWeightedEdge(g.NewWeightedEdge(link(i), router(l.To), 0))
	}
	for _, t := range to {
		g.SetWeightedEdge(g.NewWeightedEdge(router(t), end, 0))
	}
	list := path.YenKShortestPaths(until{g, ctx}, k, math.Inf(1), router(from), end)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, nodes := range list {
		var links []int32
		for _, v := range nodes {
			if at := int(v.ID()) - len(n.Entries); at >= 0 && at < len(n.Links) {
				links = append(links, int32(at))
			}
		}
		out = append(out, links)
	}
	return out, nil
}

// until is a graph whose edges vanish once a context has ended, so that a search ends.
type until struct {
	*simple.WeightedDirectedGraph
	ctx context.Context
}

func (g until) From(id int64) graph.Nodes {
	if g.ctx.Err() != nil {
		return graph.Empty
	}
	return g.WeightedDirectedGraph.From(id)
}
