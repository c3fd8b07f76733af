package topology

import (
	"math"
	"strconv"
)

// generators are in the order in which help shows them.
var generators = []generator{
	{name: "minimal", description: "one switch with two hosts", example: "minimal",
		size: func(arguments) (float64, float64) { return 3, 2 }, hosts: twoHosts, build: minimal},
	{name: "single", description: "one switch with k hosts", example: "single,5",
		params: []param{count("k", 1).or(2)}, size: star1, hosts: func(a arguments) float64 { return a["k"] },
		build: single},
	{name: "reversed", description: "one switch with k hosts, the first at the highest port", example: "reversed,5",
		params: []param{count("k", 1).or(2)}, size: star1, hosts: func(a arguments) float64 { return a["k"] },
		build: reversed},
	{name: "linear", description: "k switches in a line, n hosts at each", example: "linear,4",
		params: []param{count("k", 1).or(2), count("n", 0).or(1)}, size: withHosts(0), hosts: nEach, build: linear},
	{name: "line", description: "k switches in a line, one host at each end; with none the two are joined directly",
		example: "line,4",
		params:  []param{count("k", 0)}, size: func(a arguments) (float64, float64) { return a["k"] + 2, a["k"] + 1 },
		hosts: twoHosts, build: line},
	{name: "star", description: "a switch in the middle, k switches around it, n hosts at each of these",
		example: "star,9",
		params:  []param{count("k", 1), count("n", 0).or(1)}, size: withHosts(1), hosts: nEach, build: star},
	{name: "tree", description: "a tree of switches, fanout branches at each, hosts as the leaves",
		example: "tree,depth=3,fanout=2",
		params:  []param{count("depth", 1).or(1), count("fanout", 1).or(2)}, size: treeSize,
		hosts: func(a arguments) float64 { return math.Pow(a["fanout"], a["depth"]) }, build: tree},
	{name: "ring", description: "k switches in a ring, n hosts at each", example: "ring,6",
		params: []param{count("k", 3), count("n", 0).or(1)}, size: withHosts(0), hosts: nEach, build: ring},
	{name: "mesh", description: "k switches, each linked to all others, n hosts at each", example: "mesh,5",
		params: []param{count("k", 2), count("n", 0).or(1)}, size: meshSize, hosts: nEach, build: mesh},
	{name: "grid",
		description: "x by y switches, each linked to its neighbours, n hosts at each (or at each k-th: every=k)",
		example:     "grid,4,3",
		params:      []param{count("x", 1), count("y", 1), count("n", 0).or(1), count("every", 1).or(1)},
		size:        latticeSize, hosts: latticeHosts, build: grid},
	{name: "torus", description: "a grid whose rows and columns are closed into rings", example: "torus,3,3",
		params: []param{count("x", 3), count("y", 3), count("n", 0).or(1), count("every", 1).or(1)}, size: latticeSize,
		hosts: latticeHosts, build: torus},
	{name: "fat-tree", description: "k pods of edge (e…) and aggregation (a…) switches under core (c…) switches",
		example: "fat-tree,4",
		params:  []param{{name: "k", min: 2, max: 1000, even: true}, count("hosts-per-edge", 0).or(1)},
		size:    fatTreeSize, hosts: func(a arguments) float64 { return a["k"] * a["k"] / 2 * a["hosts-per-edge"] },
		build: fatTree},
	{name: "waxman",
		description: "a random network in which nearby switches are linked more often; connected, a host at each",
		example:     "waxman,60,seed=7",
		params: []param{{name: "n", min: 1, max: 10_000},
			param{name: "alpha", real: true, min: 0.001, max: 1000}.or(0.2),
			param{name: "beta", real: true, min: 0, max: 1}.or(0.15), seedParam}, size: waxmanSize, hosts: oneEach,
		build: waxman},
	{name: "erdos-renyi",
		description: "a random network in which any two switches are linked with probability p; connected, a host at each", example: "erdos-renyi,30,0.1",
		params: []param{count("n", 1), {name: "p", real: true, min: 0, max: 1}, seedParam}, size: erdosRenyiSize,
		hosts: oneEach, build: erdosRenyi},
}

// builder collects what a generator makes: inner nodes (switches or routers) and hosts.
type builder struct {
	kind   Kind
	prefix string // of the names of inner nodes: s or r
	inner  []*Node
	hosts  []*Node
	links  []*Link
}

func newBuilder(kind Kind) *builder { return &builder{kind: kind, prefix: string(kind[:1])} }

// node adds an inner node.
func (b *builder) node(name string) string {
	b.inner = append(b.inner, &Node{Name: name, Kind: b.kind})
	return name
}

// next adds an inner node with the next number.
func (b *builder) next() string { return b.node(b.prefix + strconv.Itoa(len(b.inner)+1)) }

// row adds k inner nodes.
func (b *builder) row(k int) []string {
	names := make([]string, k)
	for i := range names {
		names[i] = b.next()
	}
	return names
}

func (b *builder) host(name string) string {
	b.hosts = append(b.hosts, &Node{Name: name, Kind: Host})
	return name
}

// nextHost adds a host with the next number.
func (b *builder) nextHost() string { return b.host("h" + strconv.Itoa(len(b.hosts)+1)) }

// hostsFor adds n hosts for each of the inner nodes: h1, h2, … if n is 1, else h1s1, h2s1, …. They
// are in the order in which Mininet gives them addresses: the first hosts of all nodes, then the
// second.
func (b *builder) hostsFor(inner []string, n int) [][]string {
	hosts := make([][]string, len(inner))
	for j := range n {
		for i, at := range inner {
			name := "h" + strconv.Itoa(i+1)
			if n > 1 {
				name = "h" + strconv.Itoa(j+1) + at
			}
			hosts[i] = append(hosts[i], b.host(name))
		}
	}
	return hosts
}

func (b *builder) link(x, y string) *Link {
	l := &Link{Ends: [2]Endpoint{{Node: x}, {Node: y}}}
	b.links = append(b.links, l)
	return l
}

// attach links hosts to an inner node.
func (b *builder) attach(hosts []string, to string) {
	for _, h := range hosts {
		b.link(h, to)
	}
}

func minimal(b *builder, _ arguments) error { return single(b, arguments{"k": 2}) }

func single(b *builder, a arguments) error {
	middle := b.next()
	for range a.int("k") {
		b.link(b.nextHost(), middle)
	}
	return nil
}

func reversed(b *builder, a arguments) error {
	k, first := a.int("k"), 1
	if b.kind == Router {
		first = 0 // routers count their ports from 0
	}
	single(b, a)
	for i, l := range b.links {
		l.Ends[0].Port, l.Ends[1].Port = new(int), new(first+k-1-i)
	}
	return nil
}

func star1(a arguments) (nodes, links float64) { return a["k"] + 1, a["k"] }

func twoHosts(arguments) float64 { return 2 }

func nEach(a arguments) float64 { return a["k"] * a["n"] }

// withHosts is the size of k nodes with n hosts each, plus more nodes.
func withHosts(more float64) func(a arguments) (nodes, links float64) {
	return func(a arguments) (nodes, links float64) {
		nodes = a["k"] * (1 + a["n"])
		return nodes + more, nodes
	}
}

func linear(b *builder, a arguments) error {
	row := b.row(a.int("k"))
	hosts := b.hostsFor(row, a.int("n"))
	for i, s := range row {
		b.attach(hosts[i], s)
		if i > 0 {
			b.link(s, row[i-1])
		}
	}
	return nil
}

func line(b *builder, a arguments) error {
	row := b.row(a.int("k"))
	if len(row) == 0 {
		b.link(b.nextHost(), b.nextHost())
	}
	for i, s := range row {
		if i == 0 {
			b.link(b.nextHost(), s)
		}
		if i == len(row)-1 {
			b.link(b.nextHost(), s)
		}
		if i > 0 {
			b.link(s, row[i-1])
		}
	}
	return nil
}

func star(b *builder, a arguments) error {
	middle, around := b.next(), b.row(a.int("k"))
	hosts := b.hostsFor(around, a.int("n"))
	for i, s := range around {
		b.attach(hosts[i], s)
		b.link(s, middle)
	}
	return nil
}

func ring(b *builder, a arguments) error {
	if err := linear(b, a); err != nil {
		return err
	}
	b.link(b.inner[0].Name, b.inner[len(b.inner)-1].Name)
	return nil
}

func mesh(b *builder, a arguments) error {
	row := b.row(a.int("k"))
	hosts := b.hostsFor(row, a.int("n"))
	for i, s := range row {
		b.attach(hosts[i], s)
	}
	for i, s := range row {
		for _, other := range row[i+1:] {
			b.link(s, other)
		}
	}
	return nil
}

func meshSize(a arguments) (nodes, links float64) {
	k := a["k"]
	return k * (1 + a["n"]), k*(k-1)/2 + k*a["n"]
}

// tree numbers switches and hosts depth first, and links a switch to each child once the child's
// branch is complete.
func tree(b *builder, a arguments) error {
	var grow func(depth int) string
	grow = func(depth int) string {
		if depth == 0 {
			return b.nextHost()
		}
		s := b.next()
		for range a.int("fanout") {
			b.link(s, grow(depth-1))
		}
		return s
	}
	grow(a.int("depth"))
	return nil
}

func treeSize(a arguments) (nodes, links float64) {
	depth, fanout := a["depth"], a["fanout"]
	if fanout == 1 {
		return depth + 1, depth
	}
	nodes = (math.Pow(fanout, depth+1) - 1) / (fanout - 1)
	return nodes, nodes - 1
}

func grid(b *builder, a arguments) error { return lattice(b, a, false) }

func torus(b *builder, a arguments) error { return lattice(b, a, true) }

// lattice names the node in row i, column j s<i>x<j> and gives it the datapath id 256·i + j, as
// Mininet's torus does; with more than 255 columns these ids would collide, and are left to be
// assigned.
func lattice(b *builder, a arguments, closed bool) error {
	x, y, n := a.int("x"), a.int("y"), a.int("n")
	at := make([]string, x*y)
	for i := range x {
		for j := range y {
			place := strconv.Itoa(i+1) + "x" + strconv.Itoa(j+1)
			s := b.node(b.prefix + place)
			at[i*y+j] = s
			if y <= 255 {
				b.inner[i*y+j].DPID = DPID(256*(i+1) + j + 1)
			}
			if (i*y+j)%a.int("every") > 0 {
				continue
			}
			for k := range n {
				name := "h" + place
				if n > 1 {
					name += "x" + strconv.Itoa(k+1)
				}
				b.link(b.host(name), s)
			}
		}
	}
	for i := range x {
		for j := range y {
			if closed || j+1 < y {
				b.link(at[i*y+j], at[i*y+(j+1)%y])
			}
			if closed || i+1 < x {
				b.link(at[i*y+j], at[(i+1)%x*y+j])
			}
		}
	}
	return nil
}

func latticeSize(a arguments) (nodes, links float64) {
	inner, hosts := a["x"]*a["y"], latticeHosts(a)
	return inner + hosts, 2*inner + hosts
}

func latticeHosts(a arguments) float64 { return math.Ceil(a["x"]*a["y"]/a["every"]) * a["n"] }

// fatTree is the network of M. Al-Fares, A. Loukissas and A. Vahdat, "A Scalable, Commodity Data
// Center Network Architecture", SIGCOMM 2008: (k/2)² core switches, and k pods of k/2 aggregation
// and k/2 edge switches. The aggregation switch at index i of each pod is linked to the k/2 cores
// from i·k/2 on.
func fatTree(b *builder, a arguments) error {
	k, n := a.int("k"), a.int("hosts-per-edge")
	half := k / 2
	layer := func(letter string, count int) []string {
		names := make([]string, count)
		for i := range names {
			names[i] = b.node(letter + strconv.Itoa(i+1))
		}
		return names
	}
	cores, aggregations, edges := layer("c", half*half), layer("a", k*half), layer("e", k*half)
	for i, e := range edges {
		for range n {
			b.link(b.nextHost(), e)
		}
		pod := i / half
		for _, up := range aggregations[pod*half : (pod+1)*half] {
			b.link(e, up)
		}
	}
	for i, s := range aggregations {
		for _, up := range cores[i%half*half : (i%half+1)*half] {
			b.link(s, up)
		}
	}
	return nil
}

func fatTreeSize(a arguments) (nodes, links float64) {
	k, edges := a["k"], a["k"]*a["k"]/2
	return k*k/4 + 2*edges + edges*a["hosts-per-edge"], edges*k + edges*a["hosts-per-edge"]
}
