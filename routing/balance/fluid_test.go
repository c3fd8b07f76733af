package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"

	"trivet.dev/trivet/routing/spf"
)

// pair is traffic from a router to another, that takes what it gets up to what it wants, as TCP
// does.
type pair struct {
	from, to int32
	wants    float64
}

// fluid is a network in which rates are what max-min fairness gives, at once.
type fluid struct {
	*Network
	pairs   []pair
	demands []Demand // one for each destination
}

// random is a connected network of n routers with links of two speeds, and pairs between them.
func random(rnd *rand.Rand, n, links, pairs int) *fluid {
	f := &fluid{Network: &Network{Entries: slices.Repeat([]int{n}, n)}}
	join := func(a, b int) {
		speed := []float64{gbit, gbit, 0.5 * gbit}[rnd.IntN(3)]
		f.Links = append(f.Links, Link{From: int32(a), To: int32(b), Bandwidth: speed}, Link{From: int32(b), To: int32(a), Bandwidth: speed})
	}
	for v := 1; v < n; v++ {
		join(v, rnd.IntN(v))
	}
	for len(f.Links) < 2*links {
		if a, b := rnd.IntN(n), rnd.IntN(n); a != b {
			join(a, b)
		}
	}
	for range pairs {
		a, b := rnd.IntN(n), rnd.IntN(n-1)
		if b >= a {
			b++
		}
		f.pairs = append(f.pairs, pair{int32(a), int32(b), gbit * (0.2 + 0.8*rnd.Float64())})
	}
	f.route()
	return f
}

// route gives each destination its shortest paths.
func (f *fluid) route() {
	n := len(f.Entries)
	var edges []spf.Edge
	for _, l := range f.Links {
		edges = append(edges, spf.Edge{From: l.To, To: l.From, Cost: 1})
	}
	g, err := spf.New(n, edges, nil)
	if err != nil {
		panic(err)
	}
	var tree spf.Tree
	for to := range int32(n) {
		g.Nearest([]spf.Start{{Vertex: to}}, &tree)
		next := make([]int32, n)
		for r := range next {
			next[r] = tree.Parent(int32(r))
		}
		f.demands = append(f.demands, Demand{Ends: []int32{to}, Next: next, Home: slices.Clone(next)})
	}
}

// ways lists the links of each pair's path.
func (f *fluid) ways() (out [][]int32) {
	for _, p := range f.pairs {
		var path []int32
		for r := p.from; r != p.to; {
			l := f.demands[p.to].Next[r]
			path = append(path, l)
			r = f.Links[l].To
			if len(path) > len(f.Entries) {
				panic("a loop")
			}
		}
		out = append(out, path)
	}
	return out
}

// fair gives each way its max-min fair rate, by filling.
func (f *fluid) fair(ways [][]int32, wants []float64) []float64 {
	rate, done := make([]float64, len(ways)), make([]bool, len(ways))
	room := make([]float64, len(f.Links))
	for i, l := range f.Links {
		room[i] = l.Bandwidth
	}
	for {
		count := make([]int, len(f.Links))
		more, left := math.Inf(1), 0
		for i, way := range ways {
			if !done[i] {
				left++
				more = min(more, wants[i]-rate[i])
				for _, l := range way {
					count[l]++
				}
			}
		}
		if left == 0 {
			return rate
		}
		for l, c := range count {
			if c > 0 {
				more = min(more, room[l]/float64(c))
			}
		}
		for i, way := range ways {
			if !done[i] {
				rate[i] += more
				for _, l := range way {
					room[l] -= more
				}
			}
		}
		for i, way := range ways {
			done[i] = done[i] || rate[i] >= wants[i]-1 || slices.ContainsFunc(way, func(l int32) bool { return room[l] < 1 })
		}
	}
}

// measure sets what links and routers carry, and returns the sum of the pairs' rates.
func (f *fluid) measure(noise func() float64) (sum float64) {
	ways, wants := f.ways(), make([]float64, len(f.pairs))
	for i, p := range f.pairs {
		wants[i] = p.wants
	}
	rate := f.fair(ways, wants)
	for i := range f.Links {
		f.Links[i].Used = 0
	}
	for d := range f.demands {
		f.demands[d].Rate = make([]float64, len(f.Entries))
	}
	for i, way := range ways {
		sum += rate[i]
		for _, l := range way {
			f.Links[l].Used += rate[i]
			f.demands[f.pairs[i].to].Rate[f.Links[l].From] += rate[i]
		}
	}
	for i := range f.Links {
		f.Links[i].Used *= noise()
	}
	for d := range f.demands {
		for r := range f.demands[d].Rate {
			f.demands[d].Rate[r] *= noise()
		}
	}
	return sum
}

// follow makes moves.
func (f *fluid) follow(moves []Move) {
	for _, m := range moves {
		if len(m.Path) == 0 {
			f.demands[m.Demand].Next = slices.Clone(f.demands[m.Demand].Home)
		}
		for _, l := range m.Path {
			f.demands[m.Demand].Next[f.Links[l].From] = l
		}
	}
}

// ecmp is the sum of the rates where each pair is 32 flows that take equal paths by chance.
func (f *fluid) ecmp(rnd *rand.Rand) (sum float64) {
	n := len(f.Entries)
	far := make([][]int, n) // hops to a destination
	for to := range n {
		far[to] = slices.Repeat([]int{math.MaxInt32}, n)
		far[to][to] = 0
		for range n {
			for _, l := range f.Links {
				far[to][l.From] = min(far[to][l.From], far[to][l.To]+1)
			}
		}
	}
	const flows = 32
	var ways [][]int32
	var wants []float64
	for _, p := range f.pairs {
		for range flows {
			var way []int32
			for r := p.from; r != p.to; {
				var equal []int32
				for i, l := range f.Links {
					if l.From == r && far[p.to][l.To]+1 == far[p.to][r] {
						equal = append(equal, int32(i))
					}
				}
				l := equal[rnd.IntN(len(equal))]
				way, r = append(way, l), f.Links[l].To
			}
			ways, wants = append(ways, way), append(wants, p.wants/flows)
		}
	}
	for _, r := range f.fair(ways, wants) {
		sum += r
	}
	return sum
}

// optimum is the largest sum of rates that any splitting of the traffic over any paths could reach:
// a linear program. Its variables are what each destination's traffic uses of each link, and what
// each pair sends.
func (f *fluid) optimum() (float64, error) {
	n, links := len(f.Entries), len(f.Links)
	var ends []int32
	for _, p := range f.pairs {
		if !slices.Contains(ends, p.to) {
			ends = append(ends, p.to)
		}
	}
	flows := len(ends) * links
	columns := flows + len(f.pairs) + links + len(f.pairs) // and the slacks
	rows := len(ends)*(n-1) + links + len(f.pairs)
	a, b, c := mat.NewDense(rows, columns, nil), make([]float64, rows), make([]float64, columns)
	row := 0
	for k, to := range ends { // what comes to a router and what is sent there leaves it
		for r := range int32(n) {
			if r == to {
				continue
			}
			for i, l := range f.Links {
				switch r {
				case l.From:
					a.Set(row, k*links+i, 1)
				case l.To:
					a.Set(row, k*links+i, -1)
				}
			}
			for i, p := range f.pairs {
				if p.to == to && p.from == r {
					a.Set(row, flows+i, -1)
				}
			}
			row++
		}
	}
	for i, l := range f.Links {
		for k := range ends {
			a.Set(row, k*links+i, 1)
		}
		a.Set(row, flows+len(f.pairs)+i, 1)
		b[row] = l.Bandwidth / gbit
		row++
	}
	for i, p := range f.pairs {
		a.Set(row, flows+i, 1)
		a.Set(row, flows+len(f.pairs)+links+i, 1)
		b[row] = p.wants / gbit
		c[flows+i] = -1
		row++
	}
	sum, _, err := lp.Simplex(c, a, b, 1e-9, nil)
	return -sum * gbit, err
}

// balance makes moves until there have been none for 20 steps, and returns how many, and the last
// step of one.
func (f *fluid) balance(t *testing.T, seed uint64, noise func() float64) (moved, last int) {
	t.Helper()
	for step := 0; step < last+20; step++ {
		moves := Step(f.Network, f.demands, Defaults())
		f.follow(moves)
		f.measure(noise)
		if len(moves) > 0 {
			moved, last = moved+len(moves), step+1
		}
		if step > 200 {
			t.Fatalf("seed %d: still moving after %d steps: %+v", seed, step, moves)
		}
	}
	return moved, last
}

// describe sorts figures, and sums them up.
func describe(list []float64) string {
	slices.Sort(list)
	return fmt.Sprintf("least %.2f, median %.2f, most %.2f", list[0], list[len(list)/2], list[len(list)-1])
}

// In random networks with elastic traffic the moves come to an end, although what is measured has
// an error of a few per cent, and there is no loop on the way. No network carries less than by its
// shortest paths, and most carry more. (-v shows how much, beside ECMP and the optimum: with a path
// for each destination about what ECMP reaches with many flows.)
func TestRandomNetworks(t *testing.T) {
	var shortest, ecmp, balanced []float64
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		f := random(rnd, 8+rnd.IntN(5), 16+rnd.IntN(6), 12)
		optimum, err := f.optimum()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		noise := func() float64 { return 1 + 0.03*(2*rnd.Float64()-1) }
		before := f.measure(noise)
		moved, last := f.balance(t, seed, noise)
		after := f.measure(noise)
		if after < 0.95*before {
			t.Errorf("seed %d: the moves have made %.2f of %.2f Gbit/s", seed, after/gbit, before/gbit)
		}
		shortest, ecmp, balanced = append(shortest, before/optimum), append(ecmp, f.ecmp(rnd)/optimum), append(balanced, after/optimum)
		t.Logf("seed %2d: %2d routers, optimum %5.2f Gbit/s; shortest paths %.2f, ECMP %.2f, balanced %.2f of it, %d moves, the last in step %d",
			seed, len(f.Entries), optimum/gbit, before/optimum, ecmp[len(ecmp)-1], after/optimum, moved, last)
	}
	t.Logf("shortest paths: %s; ECMP: %s; balanced: %s", describe(shortest), describe(ecmp), describe(balanced))
	if balanced[len(balanced)/2] <= shortest[len(shortest)/2] {
		t.Error("balanced is no better than shortest paths")
	}
}
