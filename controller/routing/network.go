package routing

import (
	"net/netip"
	"slices"
	"sync"

	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/routing/rib"
	"trivet.dev/trivet/routing/spf"
	"trivet.dev/trivet/topology"
)

// Source is where a route comes from.
type Source uint8

const (
	Connected Source = iota // a subnet of an interface
	Static                  // given by the configuration or a user
	Balanced                // off busy links, see App.Steer
	Protocol                // found by a routing protocol, see Speaker
	Computed                // the shortest path over the discovered topology
	Fallback                // given, for where there is no path
	Program                 // given by a program of the user's, see App.SetProgram
)

var sourceNames = [...]string{"connected", "static", "balanced", "protocol", "shortest path", "fallback", "program"}

func (s Source) String() string { return sourceNames[s] }

// distances are those of the sources where a router gives no others. The protocol is OSPF.
var distances = [...]rib.Distance{rib.Connected, rib.Static, rib.Balanced, rib.OSPF, rib.ShortestPath, rib.Computed, rib.Program}

// distance is that of routes which a router has from a source.
func (r *Router) distance(s Source) rib.Distance {
	if d, is := r.Distances[s]; is {
		return d
	}
	return distances[s]
}

// Route is a router's way to a prefix.
type Route struct {
	Prefix   netip.Prefix
	Source   Source
	Program  string // its name, of a route that a program has given
	Distance rib.Distance
	Drop     bool   // what follows it is dropped; it has no hops
	Metric   uint32 // the costs of the interfaces on the way, the last one's included
	Tag      uint32
	Hops     []Hop // of equal cost; of a connected subnet: the interface
}

// Rank is what the route is chosen by.
func (r *Route) Rank() rib.Rank { return rib.Rank{Distance: r.Distance, Metric: r.Metric} }

// Hop is a next hop.
type Hop struct {
	Port      uint32
	Interface string
	Via       netip.Addr // the neighbour; of a connected subnet: none
	For       netip.Addr // the address that this is the way to, of a static route whose next hop is no neighbour
	Router    string     // the neighbour's name, if it is a routing node

	src, dst openflow.MAC // dst is zero where it has to be asked for
	router   int          // index, or -1
}

// network is a picture of the routers and what joins them, from which routes follow. It does
// not change; its tables are made when somebody asks for them.
type network struct {
	*addresses
	routers []*Router
	up      []map[uint32]bool // of each router: interfaces that can send; not changed
	links   []discovery.Link
	graph   *spf.Graph // where it is of use, see addresses
	hops    []hop      // of each edge of the graph
	inner   []map[int32]*Interface

	speakers map[string]Speaker
	balanced map[netip.Prefix]map[int]Hop // steered ways, by router

	balance topology.BalanceBy // what packets are spread by

	onDemand bool       // routes are computed one by one, see demand.go
	back     *spf.Graph // the graph with its edges turned round
	members  [][]owner  // of each segment
	lengths  [2]lengths // of all prefixes but those that protocols know

	joining sync.Once
	direct  map[place]bool // ports that lead to another router's, and to nothing else

	mu     sync.Mutex
	tables []*table
	tree   spf.Tree
	far    map[netip.Prefix][]uint32 // how far each router is from a prefix

	indirect map[int]map[netip.Prefix][]*indirect // by router: see recursive; where routes are computed one by one
}

// owner is a router that has an interface in a subnet.
type owner struct {
	router int
	itf    *Interface // nil: a loopback
}

// hop is what an edge from a segment leads to.
type hop struct {
	segment int32
	owner
}

// table is the routes of one router.
type table struct {
	*Router
	routes  map[netip.Prefix]*Route
	home    map[netip.Prefix]*Route // of what is balanced: the route without that
	lengths [2][]int                // that routes have, descending: IPv4, IPv6

	all *[]Candidate // where every route goes that is offered; nil: only the chosen ones are of interest
}

func (n *network) newTable(router int) *table {
	return &table{Router: n.routers[router], routes: map[netip.Prefix]*Route{}}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// lookup returns the route with the longest prefix that contains an address, or nil.
func (t *table) lookup(a netip.Addr) *Route {
	for _, bits := range t.lengths[family(a)] {
		p, _ := a.Prefix(bits)
		if r := t.routes[p]; r != nil {
			return r
		}
	}
	return nil
}

// newNetwork makes the picture. up has the ports that can send, links is what discovery knows.
func newNetwork(c *Config, up []map[uint32]bool, links []discovery.Link, speakers map[string]Speaker) (*network, error) {
	return newAddresses(c).network(c, up, links, speakers)
}

// network makes the picture of routers that have these addresses.
func (a *addresses) network(c *Config, up []map[uint32]bool, links []discovery.Link, speakers map[string]Speaker) (*network, error) {
	n := &network{addresses: a, speakers: speakers, balance: c.Balance, up: up, links: links, tables: make([]*table, len(c.Routers)), far: map[netip.Prefix][]uint32{},
		indirect: map[int]map[netip.Prefix][]*indirect{}}
	for i := range c.Routers {
		n.routers = append(n.routers, &c.Routers[i])
	}
	n.onDemand = c.Reactive || n.size() > MaxRoutes
	if n.onDemand {
		n.findLengths()
	}
	if !a.paths {
		return n, nil
	}
	return n, n.join(links)
}

// isDirect says whether a port leads to another router's, and to nothing else.
func (n *network) isDirect(p place) bool {
	n.joining.Do(func() {
		n.direct = make(map[place]bool, len(n.links))
		for _, l := range n.links {
			_, from := n.index[l.From]
			if _, to := n.index[l.To]; from && to {
				n.direct[place{l.From, l.FromPort}], n.direct[place{l.To, l.ToPort}] = true, true
			}
		}
	})
	return n.direct[p]
}

// isUp says whether an owner has its subnet now.
func (n *network) isUp(o owner) bool { return o.itf == nil || n.up[o.router][o.itf.Port] }

// has says whether a router has a subnet now.
func (n *network) has(router int, p netip.Prefix) bool {
	return slices.ContainsFunc(n.owners[p], func(o owner) bool { return o.router == router && n.isUp(o) })
}

// join makes the graph: routers, and between them segments, which are the ports of routers that
// links and layer-2 switches join.
func (n *network) join(links []discovery.Link) error {
	isRouter := func(dpid uint64) bool { _, is := n.index[dpid]; return is }
	joined := NewSegments(links, isRouter)
	segments := map[Segment]int32{}
	n.inner = make([]map[int32]*Interface, len(n.routers))
	var edges []spf.Edge
	for i, r := range n.routers {
		n.inner[i] = map[int32]*Interface{}
		for j := range r.Interfaces {
			f := &r.Interfaces[j]
			if !n.up[i][f.Port] {
				continue
			}
			root := joined.Of(r.DPID, f.Port)
			s, is := segments[root]
			if !is {
				s = int32(len(n.routers) + len(segments))
				segments[root] = s
			}
			if other := n.inner[i][s]; other == nil || f.Cost < other.Cost {
				n.inner[i][s] = f
			}
			edges = append(edges, spf.Edge{From: int32(i), To: s, Cost: f.Cost}, spf.Edge{From: s, To: int32(i)})
			n.hops = append(n.hops, hop{}, hop{s, owner{i, f}})
			if !is {
				n.members = append(n.members, nil)
			}
			at := int(s) - len(n.routers)
			n.members[at] = append(n.members[at], owner{i, f})
		}
	}
	transparent := make([]bool, len(n.routers)+len(segments))
	for i := range segments {
		transparent[segments[i]] = true
	}
	var err error
	if n.graph, err = spf.New(len(transparent), edges, transparent); err == nil && n.onDemand {
		err = n.turn(edges, transparent)
	}
	return err
}

// size is the number of routes that all routers have together, about.
func (n *network) size() int { return len(n.routers) * len(n.owners) }

// table returns the routes of a router.
func (n *network) table(router int) *table {
	n.mu.Lock()
	t := n.tables[router]
	n.mu.Unlock()
	if t != nil {
		return t
	}
	t = n.newTable(router)
	n.fill(t, router)
	for p := range t.routes {
		f := family(p.Addr())
		if !slices.Contains(t.lengths[f], p.Bits()) {
			t.lengths[f] = append(t.lengths[f], p.Bits())
		}
	}
	for f := range t.lengths {
		slices.SortFunc(t.lengths[f], func(a, b int) int { return b - a })
	}
	if !n.onDemand {
		n.mu.Lock()
		n.tables[router] = t
		n.mu.Unlock()
	}
	return t
}

// fill offers a table all routes of its router.
func (n *network) fill(t *table, router int) {
	n.connected(t, router, netip.Prefix{})
	n.learned(t, router, netip.Prefix{})
	n.computed(t, router)
	n.static(t, router, netip.Prefix{})
	for p := range n.balanced {
		n.offerBalanced(t, router, p)
	}
}

// offer takes a route where there is no better one. Static routes that are as good as each other
// are one, with several next hops; so are those of one program.
func (t *table) offer(r *Route) {
	if r.Distance == 0 {
		r.Distance = t.distance(r.Source)
	}
	old := t.routes[r.Prefix]
	if old != nil && old.Source == r.Source && old.Program == r.Program && old.Rank() == r.Rank() && r.Source != Connected && !old.Drop && !r.Drop {
		old.Hops = append(old.Hops, r.Hops...)
		return
	}
	if t.all != nil {
		*t.all = append(*t.all, Candidate{Route: r})
	}
	if r.Distance != rib.Never && (old == nil || r.Rank().Compare(old.Rank()) < 0) {
		t.routes[r.Prefix] = r
	}
}

// chosen says whether a prefix is the one that is wanted; of none all are.
func chosen(only, p netip.Prefix) bool { return !only.IsValid() || only == p }

func (n *network) connected(t *table, router int, only netip.Prefix) {
	r := n.routers[router]
	for j := range r.Interfaces {
		f := &r.Interfaces[j]
		for _, p := range f.Prefixes {
			if n.up[router][f.Port] && chosen(only, p.Masked()) {
				t.offer(&Route{Prefix: p.Masked(), Source: Connected, Hops: []Hop{{Port: f.Port, Interface: f.Name, src: f.MAC, router: -1}}})
			}
		}
	}
}

// computed adds the shortest paths, those of IPv4 where no protocol finds them.
func (n *network) computed(t *table, router int) {
	protocol := n.routers[router].Protocol != ""
	if protocol && !n.v6 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.graph.Tree(int32(router), &n.tree)
	for p, owners := range n.owners {
		if p.Addr().Is4() && protocol {
			continue
		}
		best := spf.Unreachable
		var hops []Hop
		if n.has(router, p) {
			continue
		}
		for _, o := range owners {
			if !n.isUp(o) {
				continue
			}
			d := n.tree.Dist(int32(o.router))
			if d == spf.Unreachable {
				continue
			}
			if o.itf != nil {
				d += o.itf.Cost
			}
			if d < best {
				best, hops = d, nil
			}
			if d == best {
				hops = n.addHops(hops, router, n.tree.FirstHops(int32(o.router)), p)
			}
		}
		if len(hops) > 0 {
			t.offer(&Route{Prefix: p, Source: Computed, Metric: best, Hops: n.spread(hops, p)})
		}
	}
}

// addHops adds next hops that are not among hops yet.
func (n *network) addHops(hops []Hop, router int, edges []int32, p netip.Prefix) []Hop {
	for _, e := range edges {
		to := n.hops[e]
		out := n.inner[router][to.segment]
		if to.itf == nil || out == nil || slices.ContainsFunc(hops, func(h Hop) bool { return h.Port == out.Port && h.dst == to.itf.MAC }) {
			continue
		}
		hops = append(hops, Hop{Port: out.Port, Interface: out.Name, Via: shared(out, to.itf, p.Addr().Is4()), Router: n.routers[to.router].Name,
			src: out.MAC, dst: to.itf.MAC, router: to.router})
	}
	return hops
}

// shared returns the neighbour's address in a subnet that both interfaces have, or any of its
// family.
func shared(own, neighbour *Interface, v4 bool) (any netip.Addr) {
	for _, p := range neighbour.Prefixes {
		if p.Addr().Is4() != v4 {
			continue
		}
		if slices.ContainsFunc(own.Prefixes, func(q netip.Prefix) bool { return q.Masked() == p.Masked() }) {
			return p.Addr()
		}
		any = p.Addr()
	}
	return any
}

// learned adds what a protocol has found.
func (n *network) learned(t *table, router int, only netip.Prefix) {
	for _, l := range n.spoken(router, only) {
		r := &Route{Prefix: l.Prefix, Source: Protocol, Metric: l.Metric, Tag: l.Tag, Drop: l.Drop}
		for _, h := range l.Hops {
			if out := n.portOf(router, h.Port); out != nil && h.Via.IsValid() {
				r.Hops = append(r.Hops, n.hopVia(router, out, h.Via))
			}
		}
		if len(r.Hops) > 0 || r.Drop {
			r.Hops = n.spread(r.Hops, r.Prefix)
			t.offer(r)
		}
	}
}

// portOf returns an interface that is up, or nil.
func (n *network) portOf(router int, port uint32) *Interface {
	r := n.routers[router]
	for j := range r.Interfaces {
		if f := &r.Interfaces[j]; f.Port == port && n.up[router][port] {
			return f
		}
	}
	return nil
}

// hopVia is the way to a neighbour, with its MAC where it is a routing node.
func (n *network) hopVia(router int, out *Interface, via netip.Addr) Hop {
	h := Hop{Port: out.Port, Interface: out.Name, Via: via, src: out.MAC, router: -1}
	if o, is := n.known[via]; is && o.itf != nil && o.router != router {
		h.dst, h.router, h.Router = o.itf.MAC, o.router, n.routers[o.router].Name
	}
	return h
}

// interfaceTo returns the interface in whose subnet an address is, or nil.
func (n *network) interfaceTo(router int, a netip.Addr) *Interface {
	r := n.routers[router]
	for j := range r.Interfaces {
		f := &r.Interfaces[j]
		if n.up[router][f.Port] && f.reaches(a) {
			return f
		}
	}
	return nil
}

func (f *Interface) reaches(a netip.Addr) bool {
	return slices.ContainsFunc(f.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// address returns an address of the interface in a family, if it has one.
func (f *Interface) address(v4 bool) netip.Addr {
	for _, p := range f.Prefixes {
		if p.Addr().Is4() == v4 {
			return p.Addr()
		}
	}
	return netip.Addr{}
}
