package draw

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"

	"trivet.dev/trivet/internal/lists"
)

// snake lays a line of vertices out in rows, back and forth, so that a long line does not make the
// picture wide.
func (g *graph) snake(part []int) {
	start := part[0]
	for _, v := range part {
		if len(g.vertices[v].core) == 1 {
			start = v
			break
		}
	}
	line := g.walk(start, len(part))
	rows := 1
	if len(line) > 12 {
		rows = max(2, int(math.Round(math.Sqrt(float64(len(line))/3))))
	}
	perRow := (len(line) + rows - 1) / rows
	dx, dy := g.longestLabelled(part, 84), 0.0
	for _, v := range line {
		dx, dy = max(dx, g.snakeWidth(v)), max(dy, g.reach(v)+64)
	}
	for i, v := range line {
		row, column := i/perRow, i%perRow
		if row%2 == 1 {
			column = perRow - 1 - column
		}
		g.vertices[v].at = point{float64(column) * dx, float64(row) * dy}
	}
}

// snakeWidth is the room that a vertex needs in its row, with its leaves below it.
func (g *graph) snakeWidth(v int) float64 {
	w := g.vertices[v].size.x + 44
	switch len(g.vertices[v].leaves) {
	case 0:
		return w
	case 1:
		return max(w, g.leafWidth(v)+36)
	}
	return max(w, 2*g.reach(v)-30)
}

// walk follows neighbours from a vertex, for lines and rings.
func (g *graph) walk(start, length int) []int {
	path, seen := []int{start}, map[int]bool{start: true}
	for len(path) < length {
		next := -1
		for _, u := range g.vertices[path[len(path)-1]].core {
			if !seen[u] {
				next = u
				break
			}
		}
		if next < 0 {
			break
		}
		seen[next] = true
		path = append(path, next)
	}
	return path
}

// circle puts the vertices of a ring, or of a dense part, on a circle, the first at the top.
func (g *graph) circle(part []int) {
	order := slices.Sorted(slices.Values(part))
	if g.mostNeighbours(part) == 2 {
		order = g.walk(order[0], len(order))
	}
	around := 0.0
	for _, v := range order {
		around += max(g.vertices[v].size.x+24, g.reach(v)+14)
	}
	around = max(around, g.longestLabelled(part, 0)*float64(len(order)))
	radius := max(around/(2*math.Pi), 90)
	for i, v := range order {
		g.vertices[v].at = polar(2*math.Pi*float64(i)/float64(len(order))-math.Pi/2, radius)
	}
}

// treeNode is a vertex in a rooted tree of core vertices and leaves.
type treeNode struct {
	v, depth int
	children []*treeNode
}

// rooted is the tree of a part, rooted at its center.
func (g *graph) rooted(part []int) *treeNode {
	root := &treeNode{v: g.center(part)}
	var grow func(n *treeNode, parent int)
	grow = func(n *treeNode, parent int) {
		for _, u := range g.vertices[n.v].core {
			if u != parent {
				n.children = append(n.children, &treeNode{v: u, depth: n.depth + 1})
			}
		}
		for _, c := range n.children {
			grow(c, n.v)
		}
		for _, l := range g.vertices[n.v].leaves {
			n.children = append(n.children, &treeNode{v: l, depth: n.depth + 1})
		}
	}
	grow(root, -1)
	return root
}

// each calls f for every node of the tree, parents first.
func (n *treeNode) each(f func(*treeNode)) {
	f(n)
	for _, c := range n.children {
		c.each(f)
	}
}

// ends are the nodes without children, from left to right.
func (n *treeNode) ends() []*treeNode {
	var out []*treeNode
	n.each(func(c *treeNode) {
		if len(c.children) == 0 {
			out = append(out, c)
		}
	})
	return out
}

// fitsTopDown: a small tree whose ends are all at the same depth is drawn from the top down.
func (g *graph) fitsTopDown(part []int) bool {
	if len(part) > 24 {
		return false
	}
	root := g.rooted(part)
	ends := root.ends()
	level := !slices.ContainsFunc(ends, func(n *treeNode) bool { return n.depth != ends[0].depth })
	return level && len(root.children) <= 4 && len(ends) <= 24
}

func (g *graph) topDown(part []int) {
	root, x := g.rooted(part), 0.0
	var place func(n *treeNode)
	place = func(n *treeNode) {
		v := &g.vertices[n.v]
		v.at.y = float64(n.depth) * 84
		for _, c := range n.children {
			place(c)
		}
		if len(n.children) == 0 {
			v.at.x = x + v.size.x/2
			x += v.size.x + 14
			return
		}
		first, last := n.children[0].v, n.children[len(n.children)-1].v
		v.at.x = (g.vertices[first].at.x + g.vertices[last].at.x) / 2
		x = max(x, v.at.x+v.size.x/2+14)
	}
	place(root)
}

// fitsRadial: with many hosts, rows of them are better than one wide circle; with long labels, the
// links to hosts would be long, too.
func (g *graph) fitsRadial(part []int) bool {
	leaves, most := 0, 0
	for _, v := range part {
		leaves += len(g.vertices[v].leaves)
		most = max(most, len(g.vertices[v].leaves))
	}
	return most <= 12 && leaves+len(part) <= 400 && g.longestLabelled(part, 0) <= 130
}

// radial puts a tree's center in the middle and each depth on a circle around it. Each end gets as
// wide an angle as it needs on its circle; the circles are as close together as the ends allow.
func (g *graph) radial(part []int) {
	root := g.rooted(part)
	between, innermost := g.betweenSpokes(root)
	angles := map[*treeNode]float64{}
	var need func(n *treeNode) float64
	need = func(n *treeNode) float64 {
		sum := 0.0
		for _, c := range n.children {
			sum += need(c)
		}
		if n.depth > 0 {
			sum = max(sum, (g.vertices[n.v].size.x+spare)/float64(n.depth))
		}
		angles[n] = sum
		return sum
	}
	total := need(root)
	step := max(total/(2*math.Pi), g.longestLabelled(part, 92), innermost)
	var place func(n *treeNode, from float64)
	place = func(n *treeNode, from float64) {
		width := angles[n] / total * 2 * math.Pi
		g.vertices[n.v].at = polar(from+width/2, float64(n.depth)*step)
		children := 0.0
		for _, c := range n.children {
			children += angles[c]
		}
		from += (width - children/total*2*math.Pi) / 2
		for _, c := range n.children {
			place(c, from)
			from += angles[c] / total * 2 * math.Pi
		}
	}
	place(root, -math.Pi/2)
	g.vertices[root.v].at = point{}
	between()
}

// betweenSpokes takes the leaves of the root out of the tree if they fit between its branches, so
// that the branches are spaced evenly around it. It returns a function that places them in the end,
// and how far out the branches must then be.
func (g *graph) betweenSpokes(root *treeNode) (place func(), radius float64) {
	leaves := g.vertices[root.v].leaves
	branches := slices.DeleteFunc(slices.Clone(root.children),
		func(n *treeNode) bool { return g.vertices[n.v].parent >= 0 })
	if len(leaves) == 0 || len(leaves) > len(branches) || len(branches) > 16 {
		return func() {}, 0
	}
	root.children = branches
	radius = max(g.near(root.v)+14, float64(len(branches))*(g.leafWidth(root.v)+12)/(2*math.Pi))
	return func() {
		for i, l := range leaves {
			k := i * len(branches) / len(leaves)
			a := math.Atan2(g.vertices[branches[k].v].at.y, g.vertices[branches[k].v].at.x)
			next := g.vertices[branches[(k+1)%len(branches)].v].at
			gap := math.Mod(math.Atan2(next.y, next.x)-a+4*math.Pi, 2*math.Pi)
			if len(branches) == 1 {
				gap = 2 * math.Pi
			}
			g.vertices[l].at = polar(a+gap/2, radius)
		}
	}, radius + 64
}

var latticeName = regexp.MustCompile(`^\D+(\d{1,5})x(\d{1,5})$`)

// lattice places vertices whose names all give a row and a column (s2x3), as in grids and tori, and
// lists the leaves of each below it on the right. It says whether the names do.
func (g *graph) lattice(part []int) bool {
	taken, largest := map[[2]int]bool{}, 0
	cell := point{g.longestLabelled(part, 96), g.longestLabelled(part, 96)}
	for _, v := range part {
		m := latticeName.FindStringSubmatch(g.vertices[v].name)
		if m == nil {
			return false
		}
		row, _ := strconv.Atoi(m[1])
		column, _ := strconv.Atoi(m[2])
		taken[[2]int{row, column}] = true
		largest = max(largest, row*column)
		columns, rows := g.listSize(v)
		cell.x = max(cell.x, g.vertices[v].size.x+columns*g.leafWidth(v)+16)
		cell.y = max(cell.y, 56+rows*listStep)
		g.vertices[v].at = point{float64(column), float64(row)}
	}
	if len(taken) < len(part) || largest > 4*len(part) {
		return false
	}
	for _, v := range part {
		here := &g.vertices[v]
		here.at = point{here.at.x * cell.x, here.at.y * cell.y}
		_, rows := g.listSize(v)
		first := here.at.plus(point{(here.size.x + g.leafWidth(v)) / 2, 36})
		for i, l := range here.leaves {
			column, row := i/int(rows), i%int(rows)
			g.vertices[l].at = first.plus(point{float64(column) * g.leafWidth(v), float64(row) * listStep})
		}
	}
	return true
}

const listStep = 25.0 // from one leaf in a list to the next, pixels

// listSize is the number of columns and rows in which the leaves of a vertex are listed.
func (g *graph) listSize(v int) (columns, rows float64) {
	n := float64(len(g.vertices[v].leaves))
	columns = max(1, math.Round(math.Sqrt(n)/2))
	return columns, max(1, math.Ceil(n/columns))
}

// layered draws networks of tiers (leaf and spine, fat-tree) one tier above another: hosts below
// the lowest, links only between adjacent tiers, no tier wider than the one below. It says whether
// the part is of that kind.
func (g *graph) layered(part []int) bool {
	lowest := lists.Filter(part, func(v int) bool { return len(g.vertices[v].leaves) > 0 })
	if len(lowest) < 3 || len(lowest) == len(part) {
		return false
	}
	tier := g.distances(lowest...)
	var tiers [][]int
	for _, v := range slices.Sorted(slices.Values(part)) {
		for len(tiers) <= tier[v] {
			tiers = append(tiers, nil)
		}
		tiers[tier[v]] = append(tiers[tier[v]], v)
		if slices.ContainsFunc(g.vertices[v].core, func(u int) bool { return tier[u] == tier[v] }) {
			return false
		}
	}
	for i, t := range tiers[1:] {
		if len(t) > len(tiers[i]) {
			return false
		}
	}
	g.placeTiers(tiers)
	return true
}

// placeTiers spreads each tier over the width of the lowest, each vertex above the middle of those
// that it is linked to below.
func (g *graph) placeTiers(tiers [][]int) {
	cell := 0.0
	for _, t := range tiers {
		for _, v := range t {
			cell = max(cell, g.vertices[v].size.x+26)
		}
	}
	for _, v := range tiers[0] {
		if len(g.vertices[v].leaves) > 1 {
			cell = max(cell, 2*g.reach(v)-20)
		}
	}
	width := cell * float64(len(tiers[0]))
	height := max(110, width/12)
	if len(g.labelled) > 0 {
		height = max(height, 150)
	}
	for y, t := range tiers {
		if y > 0 {
			slices.SortStableFunc(t,
				func(a, b int) int { return cmp.Compare(g.below(a, y, height), g.below(b, y, height)) })
		}
		for i, v := range t {
			g.vertices[v].at = point{(float64(i) + 0.5) * width / float64(len(t)), -height * float64(y)}
		}
	}
}

// below is the mean x of the neighbours of a vertex in the tier below it.
func (g *graph) below(v, tier int, height float64) float64 {
	sum, n := 0.0, 0.0
	for _, u := range g.vertices[v].core {
		if at := g.vertices[u].at; at.y == -height*float64(tier-1) {
			sum, n = sum+at.x, n+1
		}
	}
	return sum / max(n, 1)
}
