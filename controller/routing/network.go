package routing

import (
	"cmp"
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
	Spoken                  // found by a routing protocol, see App.Speak
	Computed                // the shortest path over the discovered topology
	Fallback                // given, for where there is no path
	Program                 // given by a program of the user's, see App.SetProgram
)

var sourceNames = [...]string{"connected", "static", "balanced", "protocol", "shortest path", "fallback", "program"}

func (s Source) String() string { return sourceNames[s] }

// Origin is where a route comes from, with the name of the program or protocol; without one it is
// all of them.
type Origin struct {
	Source
	Name string
}

// distances are those of the sources where a router gives no others. A protocol has its own.
var distances = [...]rib.Distance{rib.Connected, rib.Static, rib.Balanced, rib.OSPF, rib.ShortestPath, rib.Computed, rib.Program}

// given is the distance that a router gives to an origin, if it does.
func (r *Router) given(o Origin) (d rib.Distance, is bool) {
	if d, is = r.Distances[o]; !is && o.Name != "" {
		d, is = r.Distances[Origin{Source: o.Source}]
	}
	return d, is
}

// distance is that of routes which a router has from a source.
func (r *Router) distance(s Source) rib.Distance {
	if d, ok := r.given(Origin{Source: s}); ok {
		return d
	}
	return distances[s]
}

// rank gives a route the distance that it has at a router: what the router says of its origin, but
// that a static route which has its own keeps it; else what its origin says.
func (r *Router) rank(x *Route) {
	switch d, ok := r.given(Origin{x.Source, x.Name}); {
	case ok && (x.Distance == 0 || x.Source == Program):
		x.Distance = d
	case x.Distance == 0:
		x.Distance = cmp.Or(x.usual, distances[x.Source])
	}
}

// Route is a router's way to a prefix.
type Route struct {
	Prefix   netip.Prefix
	Source   Source
	Name     string // of the program that has given it, or of the protocol that has found it
	Distance rib.Distance
	Drop     bool   // what follows it is dropped; it has no hops
	Metric   uint32 // the costs of the interfaces on the way, the last one's included
	Tag      uint32
	Hops     []Hop // of equal cost; of a connected subnet: the interface

	usual rib.Distance // of its protocol
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

	protocols  [][]*protocol              // that each router speaks
	balanced   map[Traffic]map[int]Hop    // steered ways, by router
	divided    map[netip.Prefix][]Traffic // prefixes to which packets are led in parts
	leadsParts map[int]bool               // routers by which parts are steered

	balance topology.BalanceBy // what packets are spread by

	onDemand bool       // routes are computed one by one, see demand.go
	back     *spf.Graph // the graph with its edges turned round
	members  [][]owner  // of each segment
	lengths  [2]lengths // of all prefixes but those that protocols know

	directing sync.Once
	direct    map[place]bool // ports that lead to another router's, and to nothing else

	paths   bool      // it was joined from the beginning, as routes need that
	joining sync.Once // else when somebody asks what joins routers

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
func newNetwork(c *Config, up []map[uint32]bool, links []discovery.Link, protocols []*protocol) (*network, error) {
	return newAddresses(c).network(c, up, links, protocols)
}

// network makes the picture of routers that have these addresses.
func (a *addresses) network(c *Config, up []map[uint32]bool, links []discovery.Link, protocols []*protocol) (*network, error) {
	n := &network{addresses: a, balance: c.Balance, up: up, links: links, tables: make([]*table, len(c.Routers)), far: map[netip.Prefix][]uint32{},
		indirect: map[int]map[netip.Prefix][]*indirect{}}
	for i := range c.Routers {
		n.routers = append(n.routers, &c.Routers[i])
		n.protocols = append(n.protocols, spokenBy(protocols, c.Routers[i].DPID))
	}
	n.onDemand = c.Reactive || n.size() > MaxRoutes
	if n.onDemand {
		n.findLengths()
	}
	if n.paths = n.needsPaths(); !n.paths {
		return n, nil
	}
	return n, n.join(links)
}

// isJoined makes the graph where routes do without it, and says whether there is one.
func (n *network) isJoined() bool {
	if !n.paths {
		n.joining.Do(func() {
			if n.join(n.links) != nil {
				n.inner = nil
			}
		})
	}
	return n.inner != nil
}

// needsPaths says whether some routes are shortest paths, or are balanced: these need a graph.
func (n *network) needsPaths() bool {
	if n.balance == topology.BalanceLoad {
		return true
	}
	for i := range n.routers {
		if finds := n.findsPaths(i); !finds[0] || n.v6 && !finds[1] {
			return true
		}
	}
	return false
}

// isDirect says whether a port leads to another router's, and to nothing else.
func (n *network) isDirect(p place) bool {
	n.directing.Do(func() {
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
	isRouter := func(dpid uint64) bool { _, ok := n.index[dpid]; return ok }
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
			s, ok := segments[root]
			if !ok {
				s = int32(len(n.routers) + len(segments))
				segments[root] = s
			}
			if other := n.inner[i][s]; other == nil || f.Cost < other.Cost {
				n.inner[i][s] = f
			}
			edges = append(edges, spf.Edge{From: int32(i), To: s, Cost: f.Cost}, spf.Edge{From: s, To: int32(i)})
			n.hops = append(n.hops, hop{}, hop{s, owner{i, f}})
			if !ok {
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
	t.findLengths()
	if !n.onDemand {
		n.mu.Lock()
		n.tables[router] = t
		n.mu.Unlock()
	}
	return t
}

// findLengths finds which lengths routes have.
func (t *table) findLengths() {
	for p := range t.routes {
		f := family(p.Addr())
		if !slices.Contains(t.lengths[f], p.Bits()) {
			t.lengths[f] = append(t.lengths[f], p.Bits())
		}
	}
	for f := range t.lengths {
		slices.SortFunc(t.lengths[f], func(a, b int) int { return b - a })
	}
}

// fill offers a table all routes of its router.
func (n *network) fill(t *table, router int) {
	n.connected(t, router, netip.Prefix{})
	n.learned(t, router, netip.Prefix{})
	n.computed(t, router)
	n.static(t, router, netip.Prefix{})
	n.addBalanced(t, router)
}

// offer takes a route where there is no better one. Static routes that are as good as each other
// are one, with several next hops; so are those of one program.
func (t *table) offer(r *Route) {
	t.rank(r)
	old := t.routes[r.Prefix]
	if old != nil && old.Source == r.Source && old.Name == r.Name && old.Rank() == r.Rank() && r.Source != Connected && !old.Drop && !r.Drop {
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

// computed adds the shortest paths where no protocol finds them.
func (n *network) computed(t *table, router int) {
	found := n.findsPaths(router)
	if found[0] && (found[1] || !n.v6) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.graph.Tree(int32(router), &n.tree)
	for p, owners := range n.owners {
		if found[family(p.Addr())] {
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
	o, ok := n.known[via]
	if isLinkLocal(via) {
		o, ok = n.linkLocalAt(router, out, via)
	}
	if ok && o.itf != nil && o.router != router {
		h.dst, h.router, h.Router = o.itf.MAC, o.router, n.routers[o.router].Name
	}
	return h
}

// linkLocalAt returns the router that has a link-local address where an interface leads to. Of two
// interfaces of a router in one segment only one is looked at: the others ask.
func (n *network) linkLocalAt(router int, out *Interface, via netip.Addr) (o owner, is bool) {
	if !n.paths {
		return o, false
	}
	for segment, f := range n.inner[router] {
		if f.Port != out.Port {
			continue
		}
		list := n.members[int(segment)-len(n.routers)]
		if i := slices.IndexFunc(list, func(o owner) bool { return linkLocal(o.itf.MAC) == via }); i >= 0 {
			return list[i], true
		}
	}
	return o, false
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
