package draw

import (
	"cmp"
	"math"
	"slices"

	"trivet.dev/trivet/topology"
)

const apart = 60.0 // between parts of a topology that are not connected, pixels

// layout gives every vertex a place and every edge its bend.
func (g *graph) layout() {
	pinned := slices.ContainsFunc(g.vertices, func(v vertex) bool { return v.pinned })
	if pinned {
		g.layoutAroundPinned()
	} else {
		g.layoutParts()
	}
	g.separate()
	g.bendParallel()
	g.bendAround()
}

// layoutParts lays out each connected part by itself and arranges them in rows, the largest first.
// Controllers without links form a row of their own at the top.
func (g *graph) layoutParts() {
	var rows, alone, singles [][]int
	for _, part := range g.components() {
		switch v := g.vertices[part[0]]; {
		case len(part) == 1 && len(v.leaves) == 0 && v.kind == topology.Controller:
			alone = append(alone, part)
		case len(part) == 1 && len(v.leaves) == 0:
			singles = append(singles, part)
		default:
			g.layoutPart(part)
			rows = append(rows, part)
		}
	}
	slices.SortStableFunc(rows, func(a, b []int) int { return cmp.Compare(len(b), len(a)) })
	rows = append(rows, singles...)
	area := 0.0
	widest := 0.0
	for _, part := range rows {
		low, high := g.bounds(g.withLeaves(part))
		area += (high.x - low.x + apart) * (high.y - low.y + apart)
		widest = max(widest, high.x-low.x)
	}
	width := max(widest, 1.4*math.Sqrt(area), 400)
	y := g.shelve(alone, 0, width, apart/2)
	g.shelve(rows, y, width, apart)
	if above, below := slices.Concat(alone...), slices.Concat(rows...); len(above) > 0 && len(below) > 0 {
		low, high := g.bounds(g.withLeaves(below))
		from, to := g.bounds(above)
		g.move(above, point{(low.x + high.x - from.x - to.x) / 2, 0})
	}
}

// shelve puts parts side by side in rows from y on, and returns where the next row would begin.
func (g *graph) shelve(parts [][]int, y, width, gap float64) float64 {
	x, height := 0.0, 0.0
	for _, part := range parts {
		all := g.withLeaves(part)
		low, high := g.bounds(all)
		w, h := high.x-low.x, high.y-low.y
		if x > 0 && x+w > width {
			x, y, height = 0, y+height+gap, 0
		}
		g.move(all, point{x, y}.minus(low))
		x, height = x+w+gap, max(height, h)
	}
	if len(parts) > 0 {
		y += height + gap
	}
	return y
}

// layoutPart chooses the layout that suits a connected part best.
func (g *graph) layoutPart(part []int) {
	k, edges := len(part), g.coreEdges(part)
	tree, most := edges == k-1, g.mostNeighbours(part)
	switch {
	case k == 1:
		g.fanAll(part)
	case tree && most <= 2:
		g.snake(part)
		g.fanTowards(part, math.Pi/2)
	case tree && g.fitsTopDown(part):
		g.topDown(part)
	case tree && g.fitsRadial(part):
		g.radial(part)
	case edges == k && most == 2, k <= 24 && edges >= 4 && edges > k*(k-1)/4:
		g.circle(part)
		g.fanAll(part)
	case g.lattice(part):
	case g.layered(part):
		g.fanTowards(part, math.Pi/2)
	default:
		g.general(part)
		g.fanAll(part)
	}
}

func (g *graph) mostNeighbours(part []int) int {
	most := 0
	for _, v := range part {
		most = max(most, len(g.vertices[v].core))
	}
	return most
}

// withLeaves returns a part together with the leaves around it.
func (g *graph) withLeaves(part []int) []int {
	all := slices.Clone(part)
	for _, v := range part {
		all = append(all, g.vertices[v].leaves...)
	}
	return all
}

// bounds are the upper left and lower right corners of the area that the vertices cover.
func (g *graph) bounds(vertices []int) (low, high point) {
	low, high = point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, i := range vertices {
		v := &g.vertices[i]
		low = point{min(low.x, v.at.x-v.size.x/2), min(low.y, v.at.y-v.size.y/2)}
		high = point{max(high.x, v.at.x+v.size.x/2), max(high.y, v.at.y+v.size.y/2)}
	}
	return low, high
}

func (g *graph) move(vertices []int, by point) {
	for _, v := range vertices {
		g.vertices[v].at = g.vertices[v].at.plus(by)
	}
}
