package spf

import (
	"fmt"
	"math"
	"slices"
)

// Unreachable is the distance of a vertex that no path leads to.
const Unreachable uint32 = math.MaxUint32

// Tree holds the shortest paths from one root. The zero value is ready for Graph.Tree.
type Tree struct {
	// Root is the vertex that the paths start from.
	Root int32
	// Order lists the reachable vertices by increasing distance, the root first; at equal distance,
	// transparent vertices come first.
	Order []int32

	nodes []node  // by vertex
	arena []int32 // sets of first hops; equal ones share their place
	heap  heap
}

// node is the state of a vertex, in a quarter of a cache line.
type node struct {
	dist   uint32
	parent int32 // the last edge of a shortest path, -1: none
	hops   span
}

// span is a sorted set of edges in the arena.
type span struct{ at, len int32 }

// Dist returns the cost of the shortest path to v, or Unreachable. A path that costs Unreachable or
// more counts as none.
func (t *Tree) Dist(v int32) uint32 { return t.nodes[v].dist }

// FirstHops returns the edges with which equal-cost shortest paths to v begin, in ascending order:
// edges out of the root, or edges out of a transparent vertex that the root is attached to. For a
// transparent vertex at the root it is the edge to itself. The slice is valid until the tree is
// computed again.
func (t *Tree) FirstHops(v int32) []int32 {
	s := t.nodes[v].hops
	return t.arena[s.at : s.at+s.len]
}

// Parent returns the last edge of a shortest path to v; -1: v is the root or unreachable.
func (t *Tree) Parent(v int32) int32 { return t.nodes[v].parent }

// Tree computes the shortest paths from root into t, reusing its buffers. It panics if root is not
// a vertex of the graph.
func (g *Graph) Tree(root int32, t *Tree) {
	n := g.Vertices()
	if uint32(root) >= uint32(n) {
		panic(fmt.Sprintf("spf: root %d of a graph with %d vertices", root, n))
	}
	t.reset(n)
	t.Root, t.nodes[root].dist = root, 0
	t.heap.push(g.key(0, root))
	for k, ok := t.heap.pop(); ok; k, ok = t.heap.pop() {
		v := k.vertex()
		if k.dist() != t.nodes[v].dist {
			continue // a longer path to v, inserted before the shorter one was found
		}
		t.Order = append(t.Order, v)
		for _, a := range g.arcs[g.first[v]:g.first[v+1]] {
			g.relax(t, v, a)
		}
	}
}

// Start is a vertex from which paths start, at an initial distance.
type Start struct {
	Vertex int32
	Dist   uint32
}

// Nearest computes the distance of each vertex from the nearest of several starts into t, reusing
// its buffers. First hops are then unknown, and Root is not a vertex. It panics if a start is not a
// vertex of the graph.
func (g *Graph) Nearest(starts []Start, t *Tree) {
	t.reset(g.Vertices())
	t.Root = -1
	for _, s := range starts {
		if at := &t.nodes[s.Vertex]; s.Dist < at.dist {
			at.dist = s.Dist
			t.heap.push(g.key(s.Dist, s.Vertex))
		}
	}
	for k, ok := t.heap.pop(); ok; k, ok = t.heap.pop() {
		v := k.vertex()
		from := &t.nodes[v]
		if k.dist() != from.dist {
			continue
		}
		t.Order = append(t.Order, v)
		for _, a := range g.arcs[g.first[v]:g.first[v+1]] {
			if dist := from.dist + a.cost; dist >= a.cost && dist < t.nodes[a.to].dist {
				t.nodes[a.to].dist, t.nodes[a.to].parent = dist, a.edge
				t.heap.push(g.key(dist, a.to))
			}
		}
	}
}

// relax examines an edge out of the finished vertex v.
func (g *Graph) relax(t *Tree, v int32, a arc) {
	to := &t.nodes[a.to]
	dist := t.nodes[v].dist + a.cost
	if dist > to.dist || dist < a.cost || dist == Unreachable {
		return
	}
	if dist < to.dist {
		to.dist, to.parent, to.hops = dist, a.edge, g.through(t, v, a)
		t.heap.push(g.key(dist, a.to))
	} else if a.to != t.Root {
		to.hops = t.union(to.hops, g.through(t, v, a))
	}
}

// through returns the first hops of paths to the end of a through v. They are v's, except at the
// root, and except for hops that only reach a network: there the next router is the hop.
func (g *Graph) through(t *Tree, v int32, a arc) span {
	if v == t.Root {
		return t.put(a.edge)
	}
	s := t.nodes[v].hops
	if !g.isTransparent(v) {
		return s
	}
	direct := func(hop int32) bool { return g.to[hop] == v && g.from[hop] == t.Root }
	if !slices.ContainsFunc(t.arena[s.at:s.at+s.len], direct) {
		return s
	}
	at := int32(len(t.arena))
	for i := range s.len {
		if hop := t.arena[s.at+i]; !direct(hop) {
			t.arena = append(t.arena, hop)
		}
	}
	t.arena = append(t.arena, a.edge)
	slices.Sort(t.arena[at:])
	return span{at, int32(len(t.arena)) - at}
}

// put adds a set of one edge.
func (t *Tree) put(edge int32) span {
	t.arena = append(t.arena, edge)
	return span{int32(len(t.arena)) - 1, 1}
}

// union returns the union of a and b, or one of them if it contains the other.
func (t *Tree) union(a, b span) span {
	if a == b {
		return a
	}
	at := int32(len(t.arena))
	i, j := a.at, b.at
	for i < a.at+a.len && j < b.at+b.len {
		x, y := t.arena[i], t.arena[j]
		t.arena = append(t.arena, min(x, y))
		if x <= y {
			i++
		}
		if y <= x {
			j++
		}
	}
	t.arena = append(t.arena, t.arena[i:a.at+a.len]...)
	t.arena = append(t.arena, t.arena[j:b.at+b.len]...)
	u := span{at, int32(len(t.arena)) - at}
	for _, s := range []span{a, b} {
		if s.len == u.len {
			t.arena = t.arena[:at]
			return s
		}
	}
	return u
}

// reset prepares the buffers for n vertices.
func (t *Tree) reset(n int) {
	t.nodes = slices.Grow(t.nodes[:0], n)[:n]
	for v := range t.nodes {
		t.nodes[v] = node{dist: Unreachable, parent: -1}
	}
	t.Order, t.arena = t.Order[:0], t.arena[:0]
	t.heap.reset()
}
