package ospf

import (
	"cmp"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/routing"
	engine "trivet.dev/trivet/routing/ospf"
)

// Throttles of LSAs and calculations. While there is no external neighbour, a new LSA may follow
// the previous one at once. Otherwise it follows sooner than after the 5 s of RFC 2328
// (MinLSInterval), but not so soon that a neighbour would reject it (MinLSArrival, 1 s).
var (
	lsaAlone    = engine.Throttle{Hold: 10 * time.Millisecond, Max: 10 * time.Millisecond}
	lsaThrottle = engine.Throttle{Hold: 1200 * time.Millisecond, Max: 1200 * time.Millisecond}
	spfThrottle = engine.Throttle{Hold: 50 * time.Millisecond, Max: time.Second}
)

// settleTime is how long a router that has connected waits until it is known what all of its ports
// lead to.
const settleTime = 5 * time.Second

// network is the engine with its routers, and what joins them. It has no goroutines and no locks.
type network struct {
	log     *slog.Logger
	domain  *engine.Domain
	areas   map[engine.ID]engine.AreaConfig
	routers map[uint64]*router // by datapath id
	byID    map[engine.ID]*router
	names   map[engine.ID]string // of other routers
	sorted  []*router            // by name, as configured
	away    map[uint64]*datapath // of routers that are being re-created
	edges   map[uint64]bool      // layer-2 switches that had hosts when they were last connected
	begun   time.Time
	started bool // all routers' ports have been classified once

	shared bool            // in a cluster: other members have routers, too
	taken  map[uint64]bool // while they are added: routers that another member had before

	unsettled int // routers whose ports are not classified yet

	outside   int // external neighbours with which packets are exchanged
	tables    map[engine.ID][]routing.Learned
	held      int            // routes in tables
	networks  []netip.Prefix // in the databases; nil: not computed yet
	cause     string
	runs      []Run
	used      usedRoutes                 // of routers that redistribute
	gaveWay   map[netip.Prefix]time.Time // when a router stopped announcing a network because OSPF has a route to it
	captured  capture
	fragments fragments
	unknown   uint64 // packets on ports without OSPF
	told      map[string]bool
	logged    map[string]time.Time // mismatches
}

// router is a configured router.
type router struct {
	Router
	*datapath
	engine    *engine.Router
	ports     []*port
	virtual   []*port
	externals []engine.External
	took      time.Duration // to compute its last shortest-path tree
}

// datapath is the state of a router's switch.
type datapath struct {
	connected bool
	since     time.Time
	works     map[uint32]bool // ports that are up
	ready     bool            // its ports have been classified once
}

// port is one of its interfaces.
type port struct {
	Interface
	router  *router
	engine  *engine.Interface
	segment *segment // nil: neighbours exchange packets
	counts  counters
}

// segment is a network whose routers are all in this engine.
type segment struct {
	engine  *engine.Segment
	members []*port
}

func newNetwork(log *slog.Logger, now time.Time) *network {
	return &network{log: log, begun: now, away: map[uint64]*datapath{}, edges: map[uint64]bool{},
		told: map[string]bool{},
		used: usedRoutes{}, gaveWay: map[netip.Prefix]time.Time{},
		logged: map[string]time.Time{}}
}

func (n *network) order() {
	n.sorted = slices.SortedFunc(maps.Values(n.routers), func(a, b *router) int { return cmp.Compare(a.ID, b.ID) })
}

func (p *port) up() bool { return p.engine.State() != engine.InterfaceDown }

// speaks reports whether the interface can have neighbours.
func (p *port) speaks() bool { return !p.Settings.Passive && p.Settings.Type != engine.Loopback }

// blame records the cause of the next change of routes.
func (n *network) blame(what string) {
	if n.cause == "" {
		n.cause = what
	}
}

// portIs records that a port is up or down; the latter takes effect at once.
func (n *network) portIs(now time.Time, dpid uint64, number uint32, works bool) {
	r := n.routers[dpid]
	if r == nil || r.works[number] == works {
		return
	}
	r.works[number] = works
	for _, p := range r.ports {
		if p.Port != number || p.Settings.Type == engine.Loopback {
			continue
		}
		if n.blame(p.Name + " of " + r.Name + " went " + map[bool]string{true: "up", false: "down"}[works]); !works {
			p.engine.Down(now)
		}
	}
}

// joined is what discovery knows, and whatever else determines which ports are joined.
type joined struct {
	only      map[place]bool // the routers' ports that it covers; nil: all
	ports     []discovery.Port
	links     []discovery.Link
	connected func(dpid uint64) bool
	router    func(dpid uint64) bool // a routing node, whether or not it speaks OSPF
}

// around is what is known of a layer-2 segment.
type around struct {
	undecided bool // some port is not classified yet
	others    bool // something else there may speak OSPF
}

// view is joined, indexed for lookups.
type view struct {
	*routing.Segments
	kinds  map[place]discovery.Kind
	around map[routing.Segment]*around
}

type place struct {
	dpid uint64
	port uint32
}

func (n *network) look(now time.Time, j joined) *view {
	v := &view{routing.NewSegments(j.links, j.router), map[place]discovery.Kind{}, map[routing.Segment]*around{}}
	edges := map[uint64]bool{}
	for _, p := range j.ports {
		if n.shared && !j.connected(p.Switch) { // another member knows what its ports lead to
			if j.router(p.Switch) || p.Kind == discovery.Open {
				v.at(p.Switch, p.Number).others = true
			}
			continue
		}
		v.kinds[place{p.Switch, p.Number}] = p.Kind
		s := v.at(p.Switch, p.Number)
		// A restarting router does not wait: its neighbours are the previous ones, and no others
		// are announced.
		open := p.Kind == discovery.Open
		s.undecided = s.undecided || open && !n.restarts(p.Switch)
		s.others = s.others || p.Kind == discovery.Edge || open && n.restarts(p.Switch)
		if p.Kind == discovery.Edge && !j.router(p.Switch) {
			edges[p.Switch] = true
		}
	}
	for dpid := range n.edges { // discovery has forgotten the hosts of a disconnected switch
		if j.only != nil || !j.connected(dpid) {
			edges[dpid] = true
			v.at(dpid, 0).others = true
		}
	}
	n.edges = edges
	for _, l := range j.links {
		if l.Indirect { // foreign switches are in between, and perhaps more
			v.at(l.From, l.FromPort).others = true
		}
	}
	if j.only == nil {
		n.unsettled = 0
		for _, r := range n.routers {
			n.settle(now, r, v)
		}
	}
	return v
}

func (v *view) at(dpid uint64, number uint32) *around {
	s := v.Of(dpid, number)
	if v.around[s] == nil {
		v.around[s] = &around{}
	}
	return v.around[s]
}

// settle determines when a router's ports have been classified for the first time. Until then no
// others are joined to it: it would have to originate LSA after LSA.
func (n *network) settle(now time.Time, r *router, v *view) {
	if !r.ready && r.connected {
		r.ready = true
		for number, works := range r.works {
			if works && v.kinds[place{r.DPID, number}] == discovery.Open && now.Sub(r.since) < settleTime {
				r.ready = false
			}
		}
	}
	if r.ready {
		return
	}
	n.unsettled++
	if n.restarts(r.DPID) {
		return
	}
	for _, p := range r.ports {
		if p.speaks() {
			v.at(r.DPID, p.Port).undecided = true
		}
	}
}

// join updates interfaces and segments to what joins the routers, and reports whether it could: at
// the start it waits until all routers' ports are classified.
func (n *network) join(now time.Time, j joined) bool {
	if j.only != nil && n.unsettled > 0 {
		return false // routers have been added meanwhile
	}
	v := n.look(now, j)
	if !n.started {
		for _, r := range n.routers {
			if !r.ready && (now.Sub(n.begun) < settleTime || r.connected && now.Sub(r.since) < settleTime) {
				return false
			}
		}
		n.started = true
	}
	groups := map[group][]*port{}
	for p := range n.portsAt(j.only) {
		r := p.router
		switch {
		case !p.speaks():
			n.stub(now, p)
		case !r.works[p.Port] || !r.connected || v.at(r.DPID, p.Port).undecided,
			v.kinds[place{r.DPID, p.Port}] == discovery.Open && !n.restarts(r.DPID):
			// Nothing changes.
		default:
			g := group{v.Of(r.DPID, p.Port), p.Settings.Address.Masked()}
			groups[g] = append(groups[g], p)
		}
	}
	n.attach(now, groups, v)
	return true
}

// portsAt iterates over the interfaces at places, or over all if nil, in the order of router ids.
func (n *network) portsAt(only map[place]bool) iter.Seq[*port] {
	routers := n.sorted
	if only != nil {
		routers = nil
		seen := map[*router]bool{}
		for at := range only {
			if r := n.routers[at.dpid]; r != nil && !seen[r] {
				seen[r] = true
				routers = append(routers, r)
			}
		}
		slices.SortFunc(routers, func(a, b *router) int { return cmp.Compare(a.ID, b.ID) })
	}
	return func(yield func(*port) bool) {
		for _, r := range routers {
			for _, p := range r.ports {
				if (only == nil || only[place{r.DPID, p.Port}]) && !yield(p) {
					return
				}
			}
		}
	}
}

// stub sets the state of an interface without neighbours from its port.
func (n *network) stub(now time.Time, p *port) {
	if (p.router.ready || n.restarts(p.router.DPID)) && (p.Settings.Type == engine.Loopback || p.router.works[p.Port]) {
		p.engine.Up(now)
	}
}

// group is a set of interfaces that may be neighbours: one subnet in one layer-2 segment.
type group struct {
	segment routing.Segment
	network netip.Prefix
}

// attach makes segments of groups that are entirely in this engine and compatible; all others
// exchange packets.
func (n *network) attach(now time.Time, groups map[group][]*port, v *view) {
	var wires []*port
	var fresh [][]*port
	for g, members := range groups {
		switch {
		case v.around[g.segment] != nil && v.around[g.segment].others, !alike(members):
			wires = append(wires, members...)
		case !n.same(members, groups, v):
			fresh = append(fresh, members)
		}
	}
	for _, p := range wires {
		n.dissolve(now, p.segment)
	}
	for _, members := range fresh {
		for _, p := range members {
			n.dissolve(now, p.segment)
			p.engine.Down(now)
		}
	}
	for _, members := range fresh {
		n.connect(members)
	}
	for _, members := range groups {
		for _, p := range members {
			if !p.up() {
				n.blame(p.Name + " of " + p.router.Name + " was found to lead to others")
			}
			p.engine.Up(now)
		}
	}
}

// same reports whether the members are in one segment already, which has no members that belong
// elsewhere.
func (n *network) same(members []*port, groups map[group][]*port, v *view) bool {
	s := members[0].segment
	if s == nil || slices.ContainsFunc(members, func(p *port) bool { return p.segment != s }) {
		return false
	}
	for _, p := range s.members {
		if slices.Contains(members, p) {
			continue
		}
		g := group{v.Of(p.router.DPID, p.Port), p.Settings.Address.Masked()}
		if slices.Contains(groups[g], p) {
			return false
		}
	}
	return true
}

// alike reports whether interfaces can be neighbours of each other; if not, they exchange packets
// and find out as routers do.
func alike(members []*port) bool {
	first := members[0].Settings
	seen := map[*router]bool{}
	for _, p := range members {
		c := p.Settings
		sameTimes := c.HelloInterval == first.HelloInterval && c.DeadInterval == first.DeadInterval
		compatible := c.Area == first.Area && c.Type == first.Type && sameTimes && reflect.DeepEqual(c.Auth, first.Auth)
		if seen[p.router] || !compatible {
			return false
		}
		seen[p.router] = true
	}
	return len(members) > 1 && (first.Type == engine.Broadcast || len(members) == 2)
}

// connect makes a segment.
func (n *network) connect(members []*port) {
	list := make([]*engine.Interface, len(members))
	for i, p := range members {
		list[i] = p.engine
	}
	s, err := n.domain.Connect(list...)
	if err != nil {
		n.warn("routers of one segment exchange packets, although all are the controller's", err)
		return
	}
	made := &segment{s, members}
	for _, p := range members {
		p.segment = made
	}
}

// dissolve ends a segment. Interfaces in a segment exchange no packets, so they are re-created.
func (n *network) dissolve(now time.Time, s *segment) {
	if s == nil {
		return
	}
	n.domain.Disconnect(s.engine)
	for _, p := range s.members {
		if p.segment != s {
			continue
		}
		p.segment = nil
		p.engine.Remove(now)
		e, err := p.router.engine.AddInterface(p.Settings)
		if err != nil { // it was valid before
			n.warn("an interface is lost", err)
			continue
		}
		p.engine = e
	}
	s.members = nil
}

// graceTime is how long a router that another member takes over counts as adjacent at most (RFC
// 3623): some Hellos, and an exchange of databases.
const graceTime = 2 * time.Minute

// restarts reports whether a router continues after another member had it.
func (n *network) restarts(dpid uint64) (is bool) {
	if r := n.routers[dpid]; r != nil {
		_, is = r.engine.Restarting()
	}
	return is
}

// separate ends a segment some of whose routers another member is about to take over: the others
// will exchange packets with them.
func (n *network) separate(now time.Time, s *segment, gone map[engine.ID]bool) {
	if s == nil {
		return
	}
	ports := map[*engine.Interface]*port{}
	for _, p := range s.members {
		if p.segment == s {
			ports[p.engine], p.segment = p, nil
		}
	}
	n.domain.Separate(now, s.engine, graceTime, func(i *engine.Interface) (c engine.InterfaceConfig, stays bool) {
		if p := ports[i]; p != nil && !gone[p.router.ID] {
			return p.Settings, true
		}
		return c, false
	})
	s.members = nil
}

// leave removes an interface from its segment, which ends.
func (n *network) leave(now time.Time, p *port) { n.dissolve(now, p.segment) }

// warn logs a warning once.
func (n *network) warn(text string, err error) {
	if line := text + err.Error(); !n.told[line] && len(n.told) < 1000 {
		n.told[line] = true
		n.log.Warn("ospf: "+text, "reason", err)
	}
}
