package spf

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// slowTree is the oracle: Bellman and Ford for distances, then first hops by following every edge
// that lies on a shortest path until nothing changes.
func slowTree(n int, edges []Edge, transparent []bool, root int32) ([]uint32, []map[int32]bool) {
	dist := slices.Repeat([]uint32{Unreachable}, n)
	dist[root] = 0
	for range n {
		for _, e := range edges {
			if dist[e.From] != Unreachable {
				dist[e.To] = min(dist[e.To], dist[e.From]+e.Cost)
			}
		}
	}
	hops := make([]map[int32]bool, n)
	for v := range hops {
		hops[v] = map[int32]bool{}
	}
	for changed := true; changed; {
		changed = false
		for i, e := range edges {
			if dist[e.From] == Unreachable || dist[e.From]+e.Cost != dist[e.To] || e.To == root {
				continue
			}
			before := len(hops[e.To])
			if e.From == root {
				hops[e.To][int32(i)] = true
			}
			for h := range hops[e.From] {
				if transparent[e.From] && edges[h].To == e.From && edges[h].From == root {
					h = int32(i)
				}
				hops[e.To][h] = true
			}
			changed = changed || len(hops[e.To]) != before
		}
	}
	return dist, hops
}

// randomGraph has routers 0..r-1 and networks after them, with few different costs, so that there
// are many equal-cost paths, parallel edges and unreachable parts.
func randomGraph(rnd *rand.Rand, routers, networks int) (n int, edges []Edge, transparent []bool) {
	n = routers + networks
	transparent = make([]bool, n)
	cost := func() uint32 { return 1 + uint32(rnd.IntN(3)) }
	for range routers * 3 / 2 {
		a, b := int32(rnd.IntN(routers)), int32(rnd.IntN(routers))
		if a != b {
			edges = append(edges, Edge{a, b, cost()}, Edge{b, a, cost()})
		}
	}
	for v := int32(routers); v < int32(n); v++ {
		transparent[v] = true
		for _, r := range rnd.Perm(routers)[:min(routers, 2+rnd.IntN(3))] {
			edges = append(edges, Edge{int32(r), v, cost()}, Edge{v, int32(r), 0})
		}
	}
	return n, edges, transparent
}

// Distances and first hops equal those of a slow, plainly right computation, for every root of
// random graphs; one Tree serves all, so that nothing stays behind from the root before.
func TestTreeEqualsOracle(t *testing.T) {
	var tree Tree
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		n, edges, transparent := randomGraph(rnd, 2+rnd.IntN(20), rnd.IntN(8))
		g, err := New(n, edges, transparent)
		if err != nil {
			t.Fatal(err)
		}
		for root := range int32(n) {
			if transparent[root] {
				continue
			}
			g.Tree(root, &tree)
			dist, hops := slowTree(n, edges, transparent, root)
			for v := range int32(n) {
				if tree.Dist(v) != dist[v] {
					t.Fatalf("seed %d root %d: vertex %d is at %d, not %d", seed, root, v, tree.Dist(v), dist[v])
				}
				got := tree.FirstHops(v)
				if !slices.IsSorted(got) || len(got) != len(hops[v]) || slices.ContainsFunc(got, func(h int32) bool { return !hops[v][h] }) {
					t.Fatalf("seed %d root %d: vertex %d has the first hops %v, not %v", seed, root, v, got, hops[v])
				}
			}
		}
	}
}

// Order has every reachable vertex once, none nearer than the one before, and Parent lies on a
// shortest path.
func TestOrderAndParent(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	n, edges, transparent := randomGraph(rnd, 40, 10)
	g, _ := New(n, edges, transparent)
	var tree Tree
	g.Tree(3, &tree)
	seen := map[int32]bool{}
	for i, v := range tree.Order {
		if seen[v] || i > 0 && tree.Dist(v) < tree.Dist(tree.Order[i-1]) {
			t.Fatalf("order %v is wrong at %d", tree.Order, i)
		}
		seen[v] = true
		if v == 3 {
			continue
		}
		e := edges[tree.Parent(v)]
		if e.To != v || tree.Dist(e.From)+e.Cost != tree.Dist(v) {
			t.Errorf("parent of %d is %+v", v, e)
		}
	}
	for v := range int32(n) {
		if seen[v] != (tree.Dist(v) != Unreachable) {
			t.Errorf("vertex %d: in order %v, distance %d", v, seen[v], tree.Dist(v))
		}
	}
}

// A graph that cannot be computed is refused with the edge named: ends that are not there, and a
// cost of 0 but from a network to a router.
func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		edges       []Edge
		transparent []bool
		want        string
	}{
		{[]Edge{{0, 2, 1}}, nil, "edge 0 joins 0 and 2; vertices are 0 to 1"},
		{[]Edge{{0, 1, 1}, {1, 0, 0}}, nil, "edge 1 from 1 to 0 has the cost 0"},
		{[]Edge{{0, 1, 0}}, []bool{true, true}, "edge 0 from 0 to 1 has the cost 0"},
		{nil, []bool{true}, "2 vertices, but transparent has 1 values"},
	} {
		if _, err := New(2, c.edges, c.transparent); err == nil || err.Error() != "spf: "+c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if _, err := New(2, []Edge{{0, 1, 0}}, []bool{true, false}); err != nil {
		t.Errorf("a network's edge to a router: %v", err)
	}
}

// Costs that add up to more than a distance holds give no path instead of a short one.
func TestOverflowIsUnreachable(t *testing.T) {
	g, _ := New(3, []Edge{{0, 1, 1 << 31}, {1, 2, 1 << 31}}, nil)
	var tree Tree
	g.Tree(0, &tree)
	if tree.Dist(2) != Unreachable || len(tree.FirstHops(2)) != 0 {
		t.Errorf("vertex 2 at %d by %v", tree.Dist(2), tree.FirstHops(2))
	}
}

// Once the buffers have grown, a tree allocates nothing.
func TestTreeDoesNotAllocate(t *testing.T) {
	g := benchGraph(1000)
	var tree Tree
	for root := range int32(1000) {
		g.Tree(root, &tree)
	}
	root := int32(0)
	if n := testing.AllocsPerRun(50, func() { g.Tree(root, &tree); root += 7 }); n != 0 {
		t.Errorf("%v allocations a tree", n)
	}
}

// benchGraph is a connected random graph with four links to each router on average.
func benchGraph(n int) *Graph {
	rnd := rand.New(rand.NewPCG(1, 2))
	var edges []Edge
	join := func(a, b int) {
		c := 1 + uint32(rnd.IntN(20))
		edges = append(edges, Edge{int32(a), int32(b), c}, Edge{int32(b), int32(a), c})
	}
	for v := 1; v < n; v++ {
		join(v, rnd.IntN(v))
	}
	for range n {
		if a, b := rnd.IntN(n), rnd.IntN(n); a != b {
			join(a, b)
		}
	}
	g, err := New(n, edges, nil)
	if err != nil {
		panic(err)
	}
	return g
}

// BenchmarkTree computes one root after the other with one Tree.
func BenchmarkTree(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g := benchGraph(n)
			var tree Tree
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				g.Tree(int32(i%n), &tree)
			}
		})
	}
}

// Nearest gives each vertex the distance that the best of the starts' trees gives it.
func TestNearestIsTheBestOfTrees(t *testing.T) {
	var tree, near Tree
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		n, edges, transparent := randomGraph(rnd, 2+rnd.IntN(20), rnd.IntN(8))
		g, err := New(n, edges, transparent)
		if err != nil {
			t.Fatal(err)
		}
		best := slices.Repeat([]uint32{Unreachable}, n)
		var starts []Start
		for v := range int32(n) {
			if transparent[v] || rnd.IntN(4) > 0 {
				continue
			}
			s := Start{v, rnd.Uint32N(5)}
			starts = append(starts, s)
			g.Tree(v, &tree)
			for u := range best {
				if d := tree.Dist(int32(u)); d != Unreachable {
					best[u] = min(best[u], d+s.Dist)
				}
			}
		}
		g.Nearest(starts, &near)
		for u := range best {
			if near.Dist(int32(u)) != best[u] {
				t.Fatalf("seed %d: vertex %d is at %d, not %d", seed, u, near.Dist(int32(u)), best[u])
			}
		}
	}
}
