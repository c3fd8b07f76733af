package draw

import (
	"math"
	"slices"
)

// index finds the vertices near a point. Its cells are larger than most boxes.
type index struct {
	g     *graph
	cells map[[2]int][]int
}

const cellSize = 64

func newIndex(g *graph) *index {
	x := &index{g: g, cells: map[[2]int][]int{}}
	for v := range g.vertices {
		x.eachCell(g.vertices[v].at, g.vertices[v].size, func(c [2]int) { x.cells[c] = append(x.cells[c], v) })
	}
	return x
}

// eachCell calls f for each cell that a box touches.
func (x *index) eachCell(at, size point, f func(c [2]int)) {
	cell := func(v float64) int { return int(math.Floor(v / cellSize)) }
	for cx := cell(at.x - size.x/2); cx <= cell(at.x+size.x/2); cx++ {
		for cy := cell(at.y - size.y/2); cy <= cell(at.y+size.y/2); cy++ {
			f([2]int{cx, cy})
		}
	}
}

// overlap is by how much two boxes with a margin overlap, in each direction; not positive in some
// direction if they do not.
func overlap(a, sizeA, b, sizeB point, margin float64) point {
	return point{(sizeA.x+sizeB.x)/2 + margin - math.Abs(a.x-b.x), (sizeA.y+sizeB.y)/2 + margin - math.Abs(a.y-b.y)}
}

// covered says whether a box would cover a vertex, other than those excepted.
func (x *index) covered(at, size point, except ...int) bool {
	hit := false
	x.eachCell(at, size, func(c [2]int) {
		for _, v := range x.cells[c] {
			o := overlap(at, size, x.g.vertices[v].at, x.g.vertices[v].size, 0)
			hit = hit || o.x > 0 && o.y > 0 && !slices.Contains(except, v)
		}
	})
	return hit
}

// separate pushes overlapping boxes apart, each vertex with its leaves, until none overlap or it
// has tried often enough.
func (g *graph) separate() {
	for range 40 {
		x, moved := newIndex(g), false
		for a := range g.vertices {
			x.eachCell(g.vertices[a].at, g.vertices[a].size, func(c [2]int) {
				for _, b := range x.cells[c] {
					if b > a && g.push(a, b) {
						moved = true
					}
				}
			})
		}
		if !moved {
			return
		}
	}
}

// push moves two vertices apart in the direction that takes less, if their boxes touch.
func (g *graph) push(a, b int) bool {
	va, vb := &g.vertices[a], &g.vertices[b]
	o := overlap(va.at, va.size, vb.at, vb.size, 4)
	if o.x <= 0.01 || o.y <= 0.01 || va.pinned && vb.pinned {
		return false
	}
	by := point{math.Copysign(o.x/2, vb.at.x-va.at.x), 0}
	if o.y < o.x {
		by = point{0, math.Copysign(o.y/2, vb.at.y-va.at.y)}
	}
	switch {
	case va.pinned:
		g.carry(b, by.times(2))
	case vb.pinned:
		g.carry(a, by.times(-2))
	case vb.parent == a: // a leaf gives way to its switch
		g.carry(b, by.times(2))
	case va.parent == b:
		g.carry(a, by.times(-2))
	default:
		g.carry(a, by.times(-1))
		g.carry(b, by)
	}
	return true
}

// carry moves a vertex together with its leaves.
func (g *graph) carry(v int, by point) {
	g.vertices[v].at = g.vertices[v].at.plus(by)
	for _, l := range g.vertices[v].leaves {
		if !g.vertices[l].pinned {
			g.vertices[l].at = g.vertices[l].at.plus(by)
		}
	}
}

// bendParallel draws several links between the same two vertices as a bundle of curves.
func (g *graph) bendParallel() {
	bundle := map[[2]int][]int{}
	for i, e := range g.edges {
		key := ordered(e.ends[0], e.ends[1])
		bundle[key] = append(bundle[key], i)
	}
	for _, same := range bundle {
		for k, i := range same {
			e := &g.edges[i]
			e.bend = 36 * (float64(k) - float64(len(same)-1)/2)
			if e.ends[0] > e.ends[1] {
				e.bend = -e.bend
			}
		}
	}
}

// bendAround bends straight links that would run through other vertices, as far as necessary.
func (g *graph) bendAround() {
	x := newIndex(g)
	for i := range g.edges {
		e := &g.edges[i]
		length := g.vertices[e.ends[0]].at.distance(g.vertices[e.ends[1]].at)
		leaf := g.vertices[e.ends[0]].parent >= 0 || g.vertices[e.ends[1]].parent >= 0
		if leaf || e.bend != 0 || e.ends[0] == e.ends[1] || length > 4000 {
			continue
		}
		best, fewest := 0.0, x.hits(e)
		for _, bend := range []float64{44, -44, 72, -72, 104, -104, 0.15 * length, -0.15 * length} {
			if fewest == 0 || math.Abs(bend) > length/2 {
				break
			}
			e.bend = g.upwards(e, bend)
			if n := x.hits(e); n < fewest {
				best, fewest = e.bend, n
			}
		}
		e.bend = best
	}
}

// upwards gives a bend the sign that makes positive ones go up, or left if the link is upright.
func (g *graph) upwards(e *edge, bend float64) float64 {
	way := g.vertices[e.ends[1]].at.minus(g.vertices[e.ends[0]].at)
	if way.x > 1 || math.Abs(way.x) <= 1 && way.y < 0 {
		return -bend
	}
	return bend
}

// hits counts the places where a link runs over vertices that are not its own.
func (x *index) hits(e *edge) int {
	n := 0
	a, c, b := x.g.curve(e)
	steps := max(4, int(a.distance(b)/12))
	for i := 1; i < steps; i++ {
		at := bezier(a, c, b, float64(i)/float64(steps))
		if x.covered(at, point{3, 3}, e.ends[0], e.ends[1]) {
			n++
		}
	}
	return n
}

// curve is the quadratic Bézier curve of a link: start, control point, end.
func (g *graph) curve(e *edge) (a, c, b point) {
	a, b = g.vertices[e.ends[0]].at, g.vertices[e.ends[1]].at
	c = a.middle(b)
	if length := a.distance(b); length > 0 {
		c = c.plus(point{a.y - b.y, b.x - a.x}.times(e.bend / length))
	}
	return a, c, b
}
