package topology

import (
	"math"
	"math/rand/v2"
	"slices"
)

// seedParam selects another random network of the same kind; the same seed gives the same network.
var seedParam = param{name: "seed", min: 0, max: 1 << 53}.or(1)

func random(a arguments) *rand.Rand { return rand.New(rand.NewPCG(uint64(a["seed"]), 0)) }

// pair is a link between the nodes numbered i < j.
type pair [2]int

func ordered(i, j int) pair { return pair{min(i, j), max(i, j)} }

// network adds n inner nodes with a host each, and links between them in sorted order.
func (b *builder) network(n int, links []pair) {
	slices.SortFunc(links, func(p, q pair) int { return slices.Compare(p[:], q[:]) })
	row := b.row(n)
	for i, hosts := range b.hostsFor(row, 1) {
		b.attach(hosts, row[i])
	}
	for _, l := range links {
		b.link(row[l[0]], row[l[1]])
	}
}

// parts numbers the connected parts of a graph: the part of each node.
func parts(n int, links []pair) []int {
	neighbours := make([][]int, n)
	for _, l := range links {
		neighbours[l[0]] = append(neighbours[l[0]], l[1])
		neighbours[l[1]] = append(neighbours[l[1]], l[0])
	}
	part, count := make([]int, n), 0
	for start := range n {
		if part[start] != 0 {
			continue
		}
		count++
		part[start] = count
		for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
			for _, v := range neighbours[queue[0]] {
				if part[v] == 0 {
					part[v] = count
					queue = append(queue, v)
				}
			}
		}
	}
	return part
}

// waxman places the nodes at random in a unit square and links two at distance d with probability
// β·exp(-d / (α·√2)), after B. Waxman, "Routing of Multipoint Connections", IEEE JSAC 6(9), 1988.
// Parts that remain disconnected are then joined by the shortest links that connect them.
func waxman(b *builder, a arguments) error {
	n, alpha, beta, rng := a.int("n"), a["alpha"], a["beta"], random(a)
	at := make([]Point, n)
	for i := range at {
		at[i] = Point{X: rng.Float64(), Y: rng.Float64()}
	}
	var links []pair
	for i := range n {
		for j := i + 1; j < n; j++ {
			if rng.Float64() < beta*math.Exp(-distance(at[i], at[j])/(alpha*math.Sqrt2)) {
				links = append(links, pair{i, j})
			}
		}
		if len(links)+n > maxGenerated {
			return tooLarge("waxman", "links or more", float64(len(links)+n), "waxman,60,alpha=0.2,beta=0.15")
		}
	}
	b.network(n, joinNearest(at, links))
	return nil
}

func distance(p, q Point) float64 { return math.Hypot(p.X-q.X, p.Y-q.Y) }

// joinNearest grows the first part as Prim's algorithm does: it links the nearest node outside,
// which adds that node's whole part.
func joinNearest(at []Point, links []pair) []pair {
	part := parts(len(at), links)
	members := map[int][]int{}
	for v, p := range part {
		members[p] = append(members[p], v)
	}
	inside, nearest := make([]bool, len(at)), make([]int, len(at)) // for each node outside, the nearest node inside
	enter := func(p int, first bool) {
		for _, v := range members[p] {
			inside[v] = true
		}
		for u := range at {
			for _, v := range members[p] {
				if !inside[u] &&
					(first && v == members[p][0] || distance(at[u], at[v]) < distance(at[u], at[nearest[u]])) {
					nearest[u] = v
				}
			}
		}
	}
	enter(1, true)
	for range len(members) - 1 {
		best := -1
		for u := range at {
			if !inside[u] && (best < 0 || distance(at[u], at[nearest[u]]) < distance(at[best], at[nearest[best]])) {
				best = u
			}
		}
		links = append(links, ordered(best, nearest[best]))
		enter(part[best], false)
	}
	return links
}

// erdosRenyi links each pair of nodes with probability p (E. N. Gilbert's G(n, p)). Parts that
// remain disconnected are then joined, one after another, by a link between a random node of the
// part and a random earlier node.
func erdosRenyi(b *builder, a arguments) error {
	n, p, rng := a.int("n"), a["p"], random(a)
	links := gilbert(n, p, rng)
	part := parts(n, links)
	members := map[int][]int{}
	for v, p := range part {
		members[p] = append(members[p], v)
	}
	pick := func(from []int) int { return from[int(rng.Float64()*float64(len(from)))] }
	joined := members[1]
	for p := 2; p <= len(members); p++ {
		links = append(links, ordered(pick(joined), pick(members[p])))
		joined = append(joined, members[p]...)
	}
	if len(links)+n > maxGenerated {
		return tooLarge("erdos-renyi", "links", float64(len(links)+n), "erdos-renyi,30,0.1")
	}
	b.network(n, links)
	return nil
}

// gilbert draws the pairs by the lengths of the gaps between them, which are geometrically
// distributed: V. Batagelj and U. Brandes, "Efficient generation of large random networks", Phys.
// Rev. E 71, 2005.
func gilbert(n int, p float64, rng *rand.Rand) []pair {
	var links []pair
	if p == 0 {
		return nil
	}
	w := -1.0
	for v := 1; v < n; {
		w += 1 + math.Floor(math.Log1p(-rng.Float64())/math.Log1p(-p))
		for ; v < n && w >= float64(v); v++ {
			w -= float64(v)
		}
		if v < n {
			links = append(links, pair{int(w), v})
		}
	}
	return links
}

func oneEach(a arguments) float64 { return a["n"] }

func waxmanSize(a arguments) (nodes, links float64) { return 2 * a["n"], 2*a["n"] - 1 }

func erdosRenyiSize(a arguments) (nodes, links float64) {
	n := a["n"]
	return 2 * n, n + max(n-1, a["p"]*n*(n-1)/2)
}
