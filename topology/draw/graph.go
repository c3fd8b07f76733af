package draw

import (
	"math"
	"slices"

	"trivet.dev/trivet/topology"
)

// Kinds of vertices that a topology has no nodes for.
const (
	realInterface topology.Kind = "interface" // a real interface of the machine, at the end of a link
	network       topology.Kind = "network"   // that others made, such as a cloud's
	missing       topology.Kind = "missing"   // a node that a link names but the topology does not have
)

// farthest is the largest coordinate that is believed; NaN is not believed either.
const farthest = 1e6

// point is a place in the drawing in pixels, y downwards.
type point struct{ x, y float64 }

func (p point) plus(q point) point       { return point{p.x + q.x, p.y + q.y} }
func (p point) minus(q point) point      { return point{p.x - q.x, p.y - q.y} }
func (p point) times(f float64) point    { return point{p.x * f, p.y * f} }
func (p point) distance(q point) float64 { return math.Hypot(p.x-q.x, p.y-q.y) }
func (p point) angleTo(q point) float64  { return math.Atan2(q.y-p.y, q.x-p.x) }
func polar(angle, radius float64) point {
	return point{radius * math.Cos(angle), radius * math.Sin(angle)}
}
func lerp(p, q point, at float64) point     { return p.plus(q.minus(p).times(at)) }
func (p point) middle(q point) point        { return lerp(p, q, 0.5) }
func bezier(a, c, b point, t float64) point { return lerp(lerp(a, c, t), lerp(c, b, t), t) }

// vertex is anything with a place: a node, or what stands for one.
type vertex struct {
	node   *topology.Node // nil unless it is one of the topology's
	name   string
	kind   topology.Kind
	size   point // width and height
	at     point
	pinned bool // its author gave it a place

	core   []int // neighbours that are not leaves, each once
	leaves []int // neighbours that have no other neighbour and are drawn around this vertex
	parent int   // of a leaf; else -1

	leafLabel float64 // width of the longest label of a link to a leaf, pixels
}

// edge is a link between two vertices.
type edge struct {
	ends  [2]int
	link  *topology.Link
	label string  // how it differs from the usual; "" if it does not
	bend  float64 // distance in pixels of the curve's control point from the straight line's middle
}

// graph is a topology as a drawing sees it.
type graph struct {
	vertices []vertex
	edges    []edge
	usual    string             // impairment that most links have
	sites    []string           // that nodes are at, but for the head, sorted
	labelled map[[2]int]float64 // length in pixels that the label of a link in the core needs
}

func ordered(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

func newGraph(t *topology.Topology) *graph {
	g := &graph{usual: usual(t), labelled: map[[2]int]float64{}}
	number, networks := map[string]int{}, map[string]int{}
	for _, n := range t.Nodes {
		v := g.add(n.Kind, n.Name)
		g.vertices[v].node = n
		if n.On != "" && !slices.Contains(g.sites, n.On) {
			g.sites = append(g.sites, n.On)
		}
		if _, twice := number[n.Name]; !twice {
			number[n.Name] = v
		}
		if n.Place != nil && math.Abs(n.Place.X) < farthest && math.Abs(n.Place.Y) < farthest {
			g.vertices[v].at, g.vertices[v].pinned = point{n.Place.X, n.Place.Y}, true
		}
	}
	slices.Sort(g.sites)
	for _, l := range t.Links {
		e := edge{link: l, label: g.labelOf(l)}
		for i, end := range l.Ends {
			v, known := number[end.Node]
			switch {
			case end.Network != "":
				if v, known = networks[end.Network]; !known {
					v = g.add(network, end.Network)
					networks[end.Network] = v
				}
			case end.External():
				v = g.add(realInterface, end.Interface)
			case !known:
				v = g.add(missing, end.Node)
				number[end.Node] = v
			}
			e.ends[i] = v
		}
		g.edges = append(g.edges, e)
	}
	g.findLeaves()
	g.measureLabels()
	return g
}

// siteOf is the site of a vertex; "" is the head, or wherever there is room.
func (g *graph) siteOf(v int) string {
	if n := g.vertices[v].node; n != nil {
		return n.On
	}
	return ""
}

// labelOf is what is written at a link: nothing if it is like most.
func (g *graph) labelOf(l *topology.Link) string {
	w := linkWords(l)
	switch {
	case w == g.usual:
		return ""
	case w == "":
		return "no limits"
	}
	return w
}

// measureLabels records how much room the labels of links need.
func (g *graph) measureLabels() {
	for _, e := range g.edges {
		a, b := &g.vertices[e.ends[0]], &g.vertices[e.ends[1]]
		width := labelSize(e.label).x
		switch {
		case e.label == "":
		case a.parent >= 0:
			b.leafLabel = max(b.leafLabel, width)
		case b.parent >= 0:
			a.leafLabel = max(a.leafLabel, width)
		default:
			key := ordered(e.ends[0], e.ends[1])
			g.labelled[key] = max(g.labelled[key], width+(a.size.x+b.size.x)/2+spare)
		}
	}
}

// longestLabelled is the length that the longest label of a link in a part needs, at least atLeast.
func (g *graph) longestLabelled(part []int, atLeast float64) float64 {
	for _, l := range g.lines(part) {
		atLeast = max(atLeast, g.labelled[ordered(l[0], l[1])])
	}
	return atLeast
}

func (g *graph) add(kind topology.Kind, name string) int {
	g.vertices = append(g.vertices, vertex{kind: kind, name: name, size: boxSize(kind, name), parent: -1})
	return len(g.vertices) - 1
}

// findLeaves separates leaves (hosts, real interfaces and networks with one link) from the core.
func (g *graph) findLeaves() {
	degree := make([]int, len(g.vertices))
	for _, e := range g.edges {
		degree[e.ends[0]]++
		degree[e.ends[1]]++
	}
	leaf := func(v int) bool {
		k := g.vertices[v].kind
		return degree[v] == 1 && (k == topology.Host || k == realInterface || k == network)
	}
	seen := map[[2]int]bool{}
	for _, e := range g.edges {
		a, b := e.ends[0], e.ends[1]
		switch {
		case a == b || seen[[2]int{a, b}] || seen[[2]int{b, a}]:
		case leaf(a) && !leaf(b):
			g.vertices[a].parent = b
			g.vertices[b].leaves = append(g.vertices[b].leaves, a)
		case leaf(b) && !leaf(a):
			g.vertices[b].parent = a
			g.vertices[a].leaves = append(g.vertices[a].leaves, b)
		default:
			g.vertices[a].core = append(g.vertices[a].core, b)
			g.vertices[b].core = append(g.vertices[b].core, a)
		}
		seen[[2]int{a, b}] = true
	}
}

// components are the connected parts of the core, in the order of their first vertices.
func (g *graph) components() [][]int {
	var out [][]int
	seen := make([]bool, len(g.vertices))
	for start := range g.vertices {
		if seen[start] || g.vertices[start].parent >= 0 {
			continue
		}
		seen[start] = true
		part := []int{start}
		for i := 0; i < len(part); i++ {
			for _, v := range g.vertices[part[i]].core {
				if !seen[v] {
					seen[v] = true
					part = append(part, v)
				}
			}
		}
		out = append(out, part)
	}
	return out
}

// coreEdges counts the distinct links among core vertices of a part.
func (g *graph) coreEdges(part []int) int {
	sum := 0
	for _, v := range part {
		sum += len(g.vertices[v].core)
	}
	return sum / 2
}

// distances counts the hops from given vertices to all of the core; -1 means unreachable.
func (g *graph) distances(from ...int) []int {
	d := make([]int, len(g.vertices))
	for i := range d {
		d[i] = -1
	}
	for _, v := range from {
		d[v] = 0
	}
	queue := append([]int(nil), from...)
	for i := 0; i < len(queue); i++ {
		for _, v := range g.vertices[queue[i]].core {
			if d[v] < 0 {
				d[v] = d[queue[i]] + 1
				queue = append(queue, v)
			}
		}
	}
	return d
}

// center is the vertex of a part whose farthest vertex is nearest; among several, the one with the
// most neighbours. In large parts only some vertices are candidates.
func (g *graph) center(part []int) int {
	best, bestFar := part[0], math.MaxInt
	for i := 0; i < len(part); i += 1 + len(part)/1000 {
		v, far, d := part[i], 0, g.distances(part[i])
		for _, u := range part {
			far = max(far, d[u])
		}
		if far < bestFar || far == bestFar && len(g.vertices[v].core) > len(g.vertices[best].core) {
			best, bestFar = v, far
		}
	}
	return best
}
