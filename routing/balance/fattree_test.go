package balance

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// fatTree is a fat-tree of k-port switches with links of a Gbit/s (Al-Fares et al., "A scalable,
// commodity data center network architecture", SIGCOMM 2008), in which each host sends to another
// one as much as its link takes: the hosts, k/2 at each edge switch, are its last vertices. What
// goes to each host takes one of the shortest paths at random, or all the tree from the first core
// switch.
func fatTree(rnd *rand.Rand, k int, tree bool) *fluid {
	half := k / 2
	core, pods := half*half, k
	agg, edge := core, core+pods*half
	host := edge + pods*half
	n := host + pods*half*half
	f := &fluid{Network: &Network{Entries: slices.Repeat([]int{n}, n)}}
	join := func(a, b int) {
		f.Links = append(f.Links, Link{From: int32(a), To: int32(b), Bandwidth: gbit}, Link{From: int32(b), To: int32(a), Bandwidth: gbit})
	}
	for p := range pods {
		for i := range half {
			for j := range half {
				join(agg+p*half+i, i*half+j)
				join(edge+p*half+i, agg+p*half+j)
				join(edge+p*half+i, host+(p*half+i)*half+j)
			}
		}
	}
	hosts := rnd.Perm(n - host)
	for i, h := range hosts {
		f.pairs = append(f.pairs, pair{int32(host + h), int32(host + hosts[(i+1)%len(hosts)]), gbit})
	}
	f.routeAtRandom(rnd, tree)
	return f
}

// routeAtRandom gives each vertex one of its shortest ways to each destination; tree: over links of
// the breadth-first tree from the first vertex.
func (f *fluid) routeAtRandom(rnd *rand.Rand, tree bool) {
	n := len(f.Entries)
	used := slices.Repeat([]bool{true}, len(f.Links))
	if tree {
		seen := slices.Repeat([]bool{false}, n)
		clear(used)
		seen[0] = true
		for queue := []int32{0}; len(queue) > 0; queue = queue[1:] {
			for i, l := range f.Links {
				if l.From == queue[0] && !seen[l.To] {
					seen[l.To], used[i], used[i^1] = true, true, true
					queue = append(queue, l.To)
				}
			}
		}
	}
	for to := range int32(n) {
		far := slices.Repeat([]int{n}, n)
		far[to] = 0
		for queue := []int32{to}; len(queue) > 0; queue = queue[1:] {
			for i, l := range f.Links {
				if used[i] && l.To == queue[0] && far[l.From] == n {
					far[l.From] = far[l.To] + 1
					queue = append(queue, l.From)
				}
			}
		}
		next, ways := slices.Repeat([]int32{None}, n), make([]int, n)
		for i, l := range f.Links {
			if used[i] && far[l.From] == far[l.To]+1 {
				if ways[l.From]++; rnd.IntN(ways[l.From]) == 0 {
					next[l.From] = int32(i)
				}
			}
		}
		f.demands = append(f.demands, Demand{Ends: []int32{to}, Next: next, Home: slices.Clone(next)})
	}
}

// In a fat-tree in which each host sends to another one the moves come to an end, with what is
// measured wrong by a few per cent, and carry more than shortest paths taken by chance do, which
// carry more than a spanning tree. The optimum is what the hosts' links take, as a fat-tree has
// paths for every permutation. (-v shows how much.)
func TestFatTree(t *testing.T) {
	var trees, chance, balanced []float64
	for seed := range uint64(20) {
		noise := rand.New(rand.NewPCG(seed, 8))
		about := func() float64 { return 1 + 0.03*(2*noise.Float64()-1) }
		optimum := 16 * gbit
		trees = append(trees, fatTree(rand.New(rand.NewPCG(seed, 7)), 4, true).measure(about)/optimum)
		f := fatTree(rand.New(rand.NewPCG(seed, 7)), 4, false)
		before := f.measure(about)
		moved, last := f.balance(t, seed, about)
		after := f.measure(about)
		chance, balanced = append(chance, before/optimum), append(balanced, after/optimum)
		t.Logf("seed %2d: tree %.2f, shortest paths by chance %.2f, balanced %.2f, %d moves, the last in step %d",
			seed, trees[seed], before/optimum, after/optimum, moved, last)
		if after < before {
			t.Errorf("seed %d: the moves have made %.2f of %.2f", seed, after/optimum, before/optimum)
		}
	}
	t.Logf("tree: %s; by chance: %s; balanced: %s", describe(trees), describe(chance), describe(balanced))
	if trees[10] >= chance[10] || chance[10] >= balanced[10] {
		t.Error("the order is another one")
	}
}
