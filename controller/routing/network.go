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
	Static                  // from the configuration or a user
	Balanced                // off busy links, see App.Steer
	Spoken                  // found by a routing protocol, see App.Speak
	Computed                // the shortest path over the discovered topology
	Fallback                // given as fallback, where there is no path
	Program                 // given by a user's program, see App.SetProgram
)

var sourceNames = [...]string{"connected", "static", "balanced", "protocol", "shortest path", "fallback", "program"}

func (s Source) String() string { return sourceNames[s] }

// Origin is a route's source, with the name of the program or protocol; without a name it means all
// of them.
type Origin struct {
	Source
	Name string
}

// distances are the default distances of sources. Each protocol has its own.
var distances = [...]rib.Distance{Connected: rib.Connected, Static: rib.Static, Balanced: rib.Balanced,
	Computed: rib.ShortestPath, Fallback: rib.Computed, Program: rib.Program}

// given returns the distance that a router sets for an origin, if it does.
func (r *Router) given(o Origin) (d rib.Distance, is bool) {
	if d, is = r.Distances[o]; !is && o.Name != "" {
		d, is = r.Distances[Origin{Source: o.Source}]
	}
	return d, is
}

// distance returns a router's distance for routes of a source.
func (r *Router) distance(s Source) rib.Distance {
	if d, ok := r.given(Origin{Source: s}); ok {
		return d
	}
	return distances[s]
}

// rank sets a route's distance at a router: the router's for its origin, unless the route is static
// with its own; otherwise the origin's default.
func (r *Router) rank(x *Route) {
	switch d, ok := r.given(Origin{x.Source, x.Name}); {
	case ok && (x.Distance == 0 || x.Source == Program):
		x.Distance = d
	case x.Distance == 0:
		x.Distance = cmp.Or(x.usual, distances[x.Source])
	}
}

// Route is a router's route to a prefix.
type Route struct {
	Prefix   netip.Prefix
	Source   Source
	Name     string // of the program or protocol that it is from
	Distance rib.Distance
	Drop     bool   // matching packets are dropped; it has no hops
	Metric   uint32 // sum of interface costs on the path, including the last one's
	Tag      uint32
	Hops     []Hop // of equal cost; of a connected subnet: the interface

	usual rib.Distance // default of its protocol
}

// Rank is the route's preference.
func (r *Route) Rank() rib.Rank { return rib.Rank{Distance: r.Distance, Metric: r.Metric} }

// Hop is a next hop.
type Hop struct {
	Port      uint32
	Interface string
	Via       netip.Addr // the neighbour; for a connected subnet: none
	For       netip.Addr // the configured next hop that this leads to, if that is no neighbour
	Router    string     // the neighbour's name, if it is a routing node

	src, dst openflow.MAC // dst is zero if it must be resolved
	router   int          // index, or -1
}

// network is a snapshot of the routers and what joins them, from which routes follow. It is
// immutable; its tables are computed on first use.
type network struct {
	*addresses
	routers []*Router
	up      []map[uint32]bool // of each router: interfaces that are up; not changed
	links   []discovery.Link
	graph   *spf.Graph // nil if it is not needed, see addresses
	hops    []hop      // by edge of the graph
	inner   []map[int32]*Interface

	protocols  [][]*protocol              // by router
	balanced   map[Traffic]map[int]Hop    // steered ways, by router
	divided    map[netip.Prefix][]Traffic // prefixes whose traffic is divided
	leadsParts map[int]bool               // routers at which parts are steered

	balance topology.BalanceBy // how packets are spread over equal paths

	onDemand bool       // routes are computed one at a time, see demand.go
	back     *spf.Graph // the graph with reversed edges
	members  [][]owner  // of each segment
	lengths  [2]lengths // of all prefixes except those of protocols

	directing sync.Once
	direct    map[place]bool // ports that lead to one other router's port only

	paths   bool      // joined at creation, because routes need it
	joining sync.Once // otherwise joined on first use

	mu     sync.Mutex
	tables []*table
	tree   spf.Tree
	far    map[netip.Prefix][]uint32 // each router's distance to a prefix

	// By router, see recursion; only where routes are computed one at a time.
	indirect map[int]map[netip.Prefix][]*indirect
}

// owner is a router that has an interface in a subnet.
type owner struct {
	router int
	itf    *Interface // nil: a loopback
}

// hop is what an edge out of a segment leads to.
type hop struct {
	segment int32
	owner
}

// table is the routes of one router.
type table struct {
	*Router
	routes  map[netip.Prefix]*Route
	home    map[netip.Prefix]*Route // of balanced prefixes: the route without balancing
	lengths [2][]int                // prefix lengths that occur, descending: IPv4, IPv6

	all *[]Candidate // collects every route offered; nil: only the best are needed
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

// lookup returns the longest-prefix match for an address, or nil.
func (t *table) lookup(a netip.Addr) *Route {
	for _, bits := range t.lengths[family(a)] {
		p, _ := a.Prefix(bits)
		if r := t.routes[p]; r != nil {
			return r
		}
	}
	return nil
}

// newNetwork makes the snapshot. up holds the ports that are up, links is what discovery knows.
func newNetwork(c *Config, up []map[uint32]bool, links []discovery.Link, protocols []*protocol) (*network, error) {
	return newAddresses(c).network(c, up, links, protocols)
}

// network makes the snapshot of routers that have these addresses.
func (a *addresses) network(c *Config, up []map[uint32]bool, links []discovery.Link,
	protocols []*protocol) (*network, error) {
	n := &network{addresses: a, balance: c.Balance, up: up, links: links, tables: make([]*table, len(c.Routers)),
		far:      map[netip.Prefix][]uint32{},
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

// isJoined makes the graph if it does not exist yet, and reports whether there is one.
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

// needsPaths reports whether some routes are shortest paths or balanced, for which a graph is
// needed.
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

// isDirect reports whether a port leads to exactly one other port, of a router.
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

// isUp reports whether an owner's interface is up.
func (n *network) isUp(o owner) bool { return o.itf == nil || n.up[o.router][o.itf.Port] }

// has reports whether a router currently has a subnet.
func (n *network) has(router int, p netip.Prefix) bool {
	return slices.ContainsFunc(n.owners[p], func(o owner) bool { return o.router == router && n.isUp(o) })
}

// join makes the graph of routers and segments. A segment is the set of router ports joined by
// links and layer-2 switches.
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

// size is the approximate number of routes of all routers together.
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

// findLengths finds which prefix lengths occur.
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

// fill offers all routes of its router to a table.
func (n *network) fill(t *table, router int) {
	n.connected(t, router, netip.Prefix{})
	n.learned(t, router, netip.Prefix{})
	n.computed(t, router)
	n.static(t, router, netip.Prefix{})
	n.addBalanced(t, router)
}

// offer takes a route unless there is a better one. Static routes of equal rank are merged into one
// with several next hops; so are those of one program.
func (t *table) offer(r *Route) {
	t.rank(r)
	old := t.routes[r.Prefix]
	if old != nil && old.Source == r.Source && old.Name == r.Name && old.Rank() == r.Rank() && r.Source != Connected &&
		!old.Drop && !r.Drop {
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

// chosen reports whether a prefix is the wanted one; if that is not valid, all are.
func chosen(only, p netip.Prefix) bool { return !only.IsValid() || only == p }

func (n *network) connected(t *table, router int, only netip.Prefix) {
	r := n.routers[router]
	for j := range r.Interfaces {
		f := &r.Interfaces[j]
		for _, p := range f.Prefixes {
			if n.up[router][f.Port] && chosen(only, p.Masked()) {
				t.offer(&Route{Prefix: p.Masked(), Source: Connected,
					Hops: []Hop{{Port: f.Port, Interface: f.Name, src: f.MAC, router: -1}}})
			}
		}
	}
}

// computed adds the shortest paths, unless protocols find them.
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
		if to.itf == nil || out == nil ||
			slices.ContainsFunc(hops, func(h Hop) bool { return h.Port == out.Port && h.dst == to.itf.MAC }) {
			continue
		}
		hops = append(hops, Hop{Port: out.Port, Interface: out.Name, Via: shared(out, to.itf, p.Addr().Is4()),
			Router: n.routers[to.router].Name,
			src:    out.MAC, dst: to.itf.MAC, router: to.router})
	}
	return hops
}

// shared returns the neighbour's address in a subnet common to both interfaces, or else any address
// of that family.
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

// portOf returns an interface if it is up, or nil.
func (n *network) portOf(router int, port uint32) *Interface {
	r := n.routers[router]
	for j := range r.Interfaces {
		if f := &r.Interfaces[j]; f.Port == port && n.up[router][port] {
			return f
		}
	}
	return nil
}

// hopVia returns the next hop to a neighbour, with its MAC if it is a routing node.
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

// linkLocalAt returns the router that owns a link-local address on an interface's segment. Of
// several interfaces of a router in one segment only one is considered; the others resolve it by
// asking.
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

// interfaceTo returns the interface whose subnet contains an address, or nil.
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
