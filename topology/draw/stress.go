package draw

import (
	"math"
	"math/rand/v2"
	"slices"

	"trivet.dev/trivet/internal/lists"
)

// general lays out any connected part by stress: the distance between two vertices in the drawing
// should equal the length of their shortest path. In small parts it makes several attempts and
// takes the one with the fewest crossings.
func (g *graph) general(part []int) {
	starts := 1
	if len(part) <= 80 {
		starts = 8
	}
	best, fewest := []point(nil), math.MaxInt
	springs := g.springs(part)
	for seed := range starts {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		side := 100 * math.Sqrt(float64(len(part)))
		for _, v := range part {
			g.vertices[v].at = point{rng.Float64() * side, rng.Float64() * side}
		}
		g.relax(springs, rng)
		if starts == 1 {
			break
		}
		if n := g.crossings(part); n < fewest {
			fewest, best = n, g.places(part)
		}
	}
	for i, at := range best {
		g.vertices[part[i]].at = at
	}
	g.turnFlat(part)
	g.loosen(part)
}

// loosen scales a part up until there is room for its boxes: in total, and between most adjacent
// ones.
func (g *graph) loosen(part []int) {
	needed := 0.0
	for _, v := range part {
		needed += 4 * g.reach(v) * g.reach(v)
	}
	low, high := g.bounds(part)
	scale := math.Sqrt(needed / max((high.x-low.x)*(high.y-low.y), 1))
	nearest := nearestDistances(g.places(part))
	scale = max(min(scale, 3), min(72/max(nearest[len(nearest)/10], 1), 1.5), 1)
	for _, v := range part {
		g.vertices[v].at = g.vertices[v].at.times(scale)
	}
}

// nearestDistances returns the sorted distances from (up to 2,000) points to the nearest other
// point.
func nearestDistances(at []point) []float64 {
	at = at[:min(len(at), 2000)]
	nearest := make([]float64, 0, len(at))
	for i, p := range at {
		least := math.Inf(1)
		for j, q := range at {
			if d := p.distance(q); i != j && d > 0 {
				least = min(least, d)
			}
		}
		nearest = append(nearest, least)
	}
	slices.Sort(nearest)
	return nearest
}

func (g *graph) places(part []int) []point {
	out := make([]point, len(part))
	for i, v := range part {
		out[i] = g.vertices[v].at
	}
	return out
}

// spring pulls two vertices towards a given distance.
type spring struct {
	a, b   int32
	length float32
}

// maxSprings bounds the work: beyond about 1,000 vertices, only some of them pull on all others.
const maxSprings = 500_000

// springs are between all pairs of vertices of a part, each as long as their shortest path.
func (g *graph) springs(part []int) []spring {
	var out []spring
	every := 1 + len(part)*len(part)/2/maxSprings
	for i := 0; i < len(part); i += every {
		from := part[i]
		for v, d := range g.lengths(from) {
			if d > 0 && (v > from || every > 1) {
				out = append(out, spring{int32(from), int32(v), float32(d)})
			}
		}
	}
	if every > 1 {
		for _, v := range part {
			for _, u := range g.vertices[v].core {
				if u > v {
					out = append(out, spring{int32(v), int32(u), float32(g.wanted(v, u))})
				}
			}
		}
	}
	return out
}

// wanted is the length in pixels of a link that leaves room for the leaves at both ends and for its
// label.
func (g *graph) wanted(a, b int) float64 {
	return max(44+0.5*(g.reach(a)+g.reach(b)), g.labelled[ordered(a, b)])
}

// lengths are the lengths of the paths with the fewest hops from a vertex; unreached vertices have
// 0.
func (g *graph) lengths(from int) []float64 {
	length := make([]float64, len(g.vertices))
	queue := []int{from}
	for i := 0; i < len(queue); i++ {
		v := queue[i]
		for _, u := range g.vertices[v].core {
			if u != from && length[u] == 0 {
				length[u] = length[v] + g.wanted(v, u)
				queue = append(queue, u)
			}
		}
	}
	return length
}

// relax moves the vertices that are not pinned until the springs are as relaxed as possible, by
// stochastic gradient descent: J. X. Zheng, S. Pawar and D. F. M. Goodman, "Graph Drawing by
// Stochastic Gradient Descent", IEEE TVCG 25(9), 2019.
func (g *graph) relax(springs []spring, rng *rand.Rand) {
	if len(springs) == 0 {
		return
	}
	shortest, longest := slices.MinFunc(springs, byLength).length, slices.MaxFunc(springs, byLength).length
	const rounds, rest = 30, 0.03
	first, last := float64(longest)*float64(longest), rest*float64(shortest)*float64(shortest)
	for round := range rounds {
		rate := first * math.Pow(last/first, float64(round)/(rounds-1))
		rng.Shuffle(len(springs), func(i, j int) { springs[i], springs[j] = springs[j], springs[i] })
		for _, s := range springs {
			a, b, want := &g.vertices[s.a], &g.vertices[s.b], float64(s.length)
			way := b.at.minus(a.at)
			length := max(math.Hypot(way.x, way.y), 1e-3)
			push := way.times(min(rate/(want*want), 1) * (length - want) / length / 2)
			if !a.pinned {
				a.at = a.at.plus(push)
			}
			if !b.pinned {
				b.at = b.at.minus(push)
			}
		}
	}
}

func byLength(a, b spring) int { return int(a.length - b.length) }

// crossings counts the pairs of core links of a part that cross.
func (g *graph) crossings(part []int) int {
	lines := g.lines(part)
	lines = lines[:min(len(lines), 400)]
	count := 0
	for i, l := range lines {
		for _, m := range lines[:i] {
			if l[0] != m[0] && l[0] != m[1] && l[1] != m[0] && l[1] != m[1] && g.cross(l, m) {
				count++
			}
		}
	}
	return count
}

func (g *graph) cross(l, m [2]int) bool {
	a, b, c, d := g.vertices[l[0]].at, g.vertices[l[1]].at, g.vertices[m[0]].at, g.vertices[m[1]].at
	return side(a, b, c) != side(a, b, d) && side(c, d, a) != side(c, d, b)
}

// side says on which side of the line a-b a point is.
func side(a, b, p point) bool { return (b.x-a.x)*(p.y-a.y) > (b.y-a.y)*(p.x-a.x) }

// turnFlat rotates a part so that its longest extent (its principal axis) is horizontal.
func (g *graph) turnFlat(part []int) {
	var mean point
	for _, v := range part {
		mean = mean.plus(g.vertices[v].at.times(1 / float64(len(part))))
	}
	var xx, xy, yy float64
	for _, v := range part {
		d := g.vertices[v].at.minus(mean)
		xx, xy, yy = xx+d.x*d.x, xy+d.x*d.y, yy+d.y*d.y
	}
	sin, cos := math.Sincos(-math.Atan2(2*xy, xx-yy) / 2)
	for _, v := range part {
		d := g.vertices[v].at.minus(mean)
		g.vertices[v].at = point{d.x*cos - d.y*sin, d.x*sin + d.y*cos}
	}
}

// layoutAroundPinned keeps the given places, and places the rest of the core around them.
func (g *graph) layoutAroundPinned() {
	g.spreadPinned()
	g.pinAmongLeaves()
	var loose [][]int
	for _, part := range g.components() {
		switch g.pinnedIn(part) {
		case 0:
			g.layoutPart(part)
			loose = append(loose, part)
			continue
		case len(part):
		default:
			rng := rand.New(rand.NewPCG(0, 1))
			g.startNearPinned(part, rng)
			g.relax(g.springs(part), rng)
		}
		g.fanAll(part)
	}
	low, high := g.bounds(g.settled(loose))
	g.shelve(loose, high.y+apart, max(high.x-low.x, 400), apart)
}

// pinAmongLeaves places a vertex without a place amid those of its leaves that have one.
func (g *graph) pinAmongLeaves() {
	for i := range g.vertices {
		v := &g.vertices[i]
		if v.pinned {
			continue
		}
		var sum point
		n := 0.0
		for _, l := range v.leaves {
			if g.vertices[l].pinned {
				sum, n = sum.plus(g.vertices[l].at), n+1
			}
		}
		if n > 0 {
			v.at, v.pinned = sum.times(1/n).plus(point{0, -g.near(i)}), true
		}
	}
}

// settled returns all vertices except those of the loose parts.
func (g *graph) settled(loose [][]int) []int {
	moving := make([]bool, len(g.vertices))
	for _, part := range loose {
		for _, v := range g.withLeaves(part) {
			moving[v] = true
		}
	}
	var out []int
	for v := range g.vertices {
		if !moving[v] {
			out = append(out, v)
		}
	}
	return out
}

func (g *graph) pinnedIn(part []int) int {
	return lists.Count(part, func(v int) bool { return g.vertices[v].pinned })
}

// startNearPinned starts each vertex near the neighbour through which it is reached first from
// pinned ones.
func (g *graph) startNearPinned(part []int, rng *rand.Rand) {
	queue := lists.Filter(part, func(v int) bool { return g.vertices[v].pinned })
	seen := map[int]bool{}
	for _, v := range queue {
		seen[v] = true
	}
	for i := 0; i < len(queue); i++ {
		for _, u := range g.vertices[queue[i]].core {
			if !seen[u] {
				seen[u] = true
				g.vertices[u].at = g.vertices[queue[i]].at.plus(polar(2*math.Pi*rng.Float64(), 90))
				queue = append(queue, u)
			}
		}
	}
}

// spreadPinned scales given places up if they are too close together to be in pixels, as longitudes
// and latitudes are.
func (g *graph) spreadPinned() {
	var at []point
	for _, v := range g.vertices {
		if v.pinned {
			at = append(at, v.at)
		}
	}
	nearest := nearestDistances(at)
	median := nearest[len(nearest)/2]
	if median >= 45 || math.IsInf(median, 1) {
		return
	}
	for i := range g.vertices {
		if g.vertices[i].pinned {
			g.vertices[i].at = g.vertices[i].at.times(70 / median)
		}
	}
}
