// Package spf computes shortest path trees with all equal-cost first hops: Dijkstra's algorithm
// with a radix heap, over a directed graph whose vertices and edges are small integers. It knows no
// protocol.
//
// A Graph is immutable, so trees of different roots may be computed from it concurrently, each in a
// Tree of its own. A Tree reuses its buffers: computing one root after the other allocates nothing
// once they have grown.
package spf

import "fmt"

// Edge is a directed edge. Its number is its index in the slice given to New.
type Edge struct {
	From, To int32
	// Cost must be above 0, except that it may be 0 from a transparent vertex to one that is not (a
	// network to its routers).
	Cost uint32
}

// Graph is a directed graph in compressed rows: the edges out of vertex v are at
// first[v]..first[v+1].
type Graph struct {
	first       []int32
	arcs        []arc
	from        []int32 // by number of edge
	to          []int32 // by number of edge
	transparent []bool
}

// arc is an edge as stored with the vertex where it begins.
type arc struct {
	to, edge int32
	cost     uint32
}

// New builds a graph of n vertices. A transparent vertex (a network) is no hop by itself: if the
// root is attached to it, the first hop is the edge out of it, towards the next router. transparent
// may be nil; otherwise its length is n. Parallel edges are allowed, and are different first hops.
func New(n int, edges []Edge, transparent []bool) (*Graph, error) {
	if transparent != nil && len(transparent) != n {
		return nil, fmt.Errorf("spf: %d vertices, but transparent has %d values", n, len(transparent))
	}
	g := &Graph{
		first:       make([]int32, n+1),
		arcs:        make([]arc, len(edges)),
		from:        make([]int32, len(edges)),
		to:          make([]int32, len(edges)),
		transparent: transparent,
	}
	for i, e := range edges {
		if uint32(e.From) >= uint32(n) || uint32(e.To) >= uint32(n) {
			return nil, fmt.Errorf("spf: edge %d joins %d and %d; vertices are 0 to %d", i, e.From, e.To, n-1)
		}
		if e.Cost == 0 && (!g.isTransparent(e.From) || g.isTransparent(e.To)) {
			return nil, fmt.Errorf("spf: edge %d from %d to %d has the cost 0", i, e.From, e.To)
		}
		g.first[e.From+1]++
		g.from[i], g.to[i] = e.From, e.To
	}
	for v := range n {
		g.first[v+1] += g.first[v]
	}
	next := append([]int32(nil), g.first[:n]...)
	for i, e := range edges {
		g.arcs[next[e.From]] = arc{to: e.To, edge: int32(i), cost: e.Cost}
		next[e.From]++
	}
	return g, nil
}

// Vertices returns the number of vertices.
func (g *Graph) Vertices() int { return len(g.first) - 1 }

// Ends returns the two vertices of an edge.
func (g *Graph) Ends(edge int32) (from, to int32) { return g.from[edge], g.to[edge] }

func (g *Graph) isTransparent(v int32) bool { return g.transparent != nil && g.transparent[v] }
