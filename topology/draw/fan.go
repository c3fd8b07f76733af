package draw

import (
	"cmp"
	"math"
	"slices"

	"trivet.dev/trivet/internal/lists"
)

const (
	rowStep = 30.0 // from one row of leaves to the next, pixels
	spare   = 8.0  // between neighbours in a row
)

// near is the distance from the middle of a vertex to its nearest row of leaves: more if their
// links have labels.
func (g *graph) near(v int) float64 {
	radius := 46 + g.vertices[v].size.x/8
	if g.vertices[v].leafLabel > 0 {
		radius += 18
	}
	return radius
}

// leafWidth is how much room a leaf of a vertex takes in its row.
func (g *graph) leafWidth(v int) float64 {
	w := g.vertices[v].leafLabel
	for _, l := range g.vertices[v].leaves {
		w = max(w, g.vertices[l].size.x)
	}
	return w + spare
}

// reach is about how far from the middle of a vertex its leaves extend if they have half a circle.
func (g *graph) reach(v int) float64 { return g.reachOn(v, math.Pi*0.8) }

// reachOn is about how far they extend on an arc of a given angle.
func (g *graph) reachOn(v int, angle float64) float64 {
	n, radius := len(g.vertices[v].leaves), g.near(v)
	if n == 0 {
		return g.vertices[v].size.x / 2
	}
	w := g.leafWidth(v)
	for n -= rowCapacity(radius, w, angle); n > 0; n -= rowCapacity(radius, w, angle) {
		radius += rowStep
	}
	return radius + w/2
}

// rowCapacity is how many leaves of a given width fit on an arc.
func rowCapacity(radius, width, angle float64) int { return 1 + int(angle*radius/width) }

// fanTowards places the leaves of a part in a preferred direction if there is room, else where
// there is most room.
func (g *graph) fanTowards(part []int, prefer float64) {
	for _, v := range part {
		all := g.arcs(v)
		chosen := all[0]
		if free := g.clearance(v, prefer); free > math.Pi/5 {
			chosen = arc{prefer, 2 * (free - arcMargin)}
		}
		g.fan(v, chosen)
	}
}

// fanAll places the leaves of a part where there is most room and the least in the way.
func (g *graph) fanAll(part []int) {
	lines := g.lines(part)
	thorough := len(part)+len(lines) < 8000
	var boxes []int
	boxes = append(boxes, part...)
	for _, v := range part {
		best, fewest := arc{}, math.MaxInt
		for i, a := range g.arcs(v) {
			if i > 0 && (!thorough || fewest == 0 || a.size < math.Pi/6) {
				break
			}
			g.fan(v, a)
			if n := g.inTheWay(v, boxes, lines); n < fewest {
				best, fewest = a, n
			}
		}
		g.fan(v, best)
		boxes = append(boxes, g.vertices[v].leaves...)
	}
}

// inTheWay counts the boxes that the leaves of a vertex overlap, and the links that run through
// them.
func (g *graph) inTheWay(v int, boxes []int, lines [][2]int) int {
	count := 0
	for _, l := range g.vertices[v].leaves {
		leaf := &g.vertices[l]
		for _, b := range boxes {
			if o := overlap(leaf.at, leaf.size, g.vertices[b].at, g.vertices[b].size, 5); o.x > 0 && o.y > 0 {
				count += 3
			}
		}
		for _, line := range lines {
			if awayFrom(leaf.at, g.vertices[line[0]].at, g.vertices[line[1]].at) < leaf.size.y/2+4 {
				count++
			}
		}
	}
	return count
}

// lines are the links among the core vertices of a part, each once.
func (g *graph) lines(part []int) [][2]int {
	var out [][2]int
	for _, v := range part {
		for _, u := range g.vertices[v].core {
			if u > v {
				out = append(out, [2]int{v, u})
			}
		}
	}
	return out
}

// awayFrom is the distance of a point from the line segment from a to b.
func awayFrom(p, a, b point) float64 {
	ab, ap := b.minus(a), p.minus(a)
	along := (ab.x*ap.x + ab.y*ap.y) / max(ab.x*ab.x+ab.y*ab.y, 1e-9)
	return p.distance(lerp(a, b, min(max(along, 0), 1)))
}

// fan places the leaves of a vertex on an arc around it, in as many rows as necessary.
func (g *graph) fan(v int, on arc) {
	here := &g.vertices[v]
	leaves := slices.DeleteFunc(slices.Clone(here.leaves), func(l int) bool { return g.vertices[l].pinned })
	width := g.leafWidth(v)
	for row, radius := 0, g.near(v); len(leaves) > 0; row, radius = row+1, radius+rowStep {
		n := min(len(leaves), rowCapacity(radius, width, on.size))
		step := width * 1.15 / radius
		switch {
		case on.size >= 2*math.Pi: // a full circle: the last place is not the first again
			n = min(len(leaves), max(1, int(2*math.Pi*radius/width)))
			step = 2 * math.Pi / float64(n)
		case n > 1:
			step = min(step, on.size/float64(n-1))
		}
		// Below the vertex, where angles increase to the left, but people read to the right.
		if math.Sin(on.middle) > 0 {
			step = -step
		}
		for i, l := range leaves[:n] {
			// Rows are staggered, so that links show between boxes.
			place := float64(i) - float64(n-1)/2 + float64(row%2)/2
			angle := on.middle + place*step
			stretch := 1 + 0.25*math.Abs(math.Cos(angle)) // boxes are wider than they are high
			g.vertices[l].at = here.at.plus(polar(angle, radius*stretch))
		}
		leaves = leaves[n:]
	}
}

// arc is a range of directions from a vertex, in radians.
type arc struct{ middle, size float64 }

// arcMargin is kept free between leaves and the links to neighbours.
const arcMargin = math.Pi / 9

// arcs are the gaps between the neighbours of a vertex, the widest first.
func (g *graph) arcs(v int) []arc {
	here := &g.vertices[v]
	if len(here.core) == 0 {
		return []arc{{math.Pi / 2, 2 * math.Pi}}
	}
	angles := lists.Map(here.core, func(u int) float64 { return here.at.angleTo(g.vertices[u].at) })
	slices.Sort(angles)
	var out []arc
	for i, a := range angles {
		gap := 2 * math.Pi
		if len(angles) > 1 {
			gap = math.Mod(angles[(i+1)%len(angles)]-a+2*math.Pi, 2*math.Pi)
		}
		out = append(out, arc{a + gap/2, max(gap-2*arcMargin, math.Pi/18)})
	}
	slices.SortStableFunc(out,
		func(a, b arc) int { return cmp.Compare(math.Round(b.size*1e6), math.Round(a.size*1e6)) })
	return out
}

// clearance is the angle between a direction and the nearest link to a neighbour.
func (g *graph) clearance(v int, direction float64) float64 {
	free := math.Pi
	for _, u := range g.vertices[v].core {
		free = min(free, math.Abs(math.Remainder(g.vertices[v].at.angleTo(g.vertices[u].at)-direction, 2*math.Pi)))
	}
	return free
}
