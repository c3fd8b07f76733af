// Package routing forwards IP for routing nodes: routers that are OpenFlow datapaths. It finds
// paths over the links that discovery knows, installs them as flow entries, and answers for the
// routers' addresses.
//
//	table 0  what a router accepts
//	         priority 110  ARP, neighbour discovery, protocols' groups → controller
//	                       pings to all nodes or all routers → controller
//	         priority 100  in_port, its own MAC, IPv4 or IPv6 → table 1
//	                       (no entry)                         → drop
//	table 1  where it is sent; priority is 1000 + six times the prefix's length, one more with in_port (see hairpins)
//	         2000  an address of the router                   → controller
//	         host  a neighbour's address                      → TTL, MACs, output
//	         net   a subnet of an interface                   → controller, which asks who has the address
//	         net   a route                                    → TTL, MACs, output; several next hops: a select group
//	         net+2 a part of that traffic (see Traffic)       → the same; if steered by flow: also headers to the controller
//	         net+4 a flow of that traffic                     → the same
//	         net   an aggregate of which no part is known     → drop
//	         0     nothing                                    → controller, which says "unreachable"
//	         If packets may arrive that exceed the MTU of a next hop, an entry writes its actions instead of applying them,
//	         records in the metadata whether the packet is too large (check_pkt_larger), and goes to table 2.
//	table 2  priority 1, the packet is too large              → controller, which fragments it or says "too big"
//	         0                                                → actions written by table 1
//
// Packets whose TTL expires are sent to the controller (OpenFlow 1.3.5, section 7.4.1,
// INVALID_TTL).
//
// When links change, a router takes its new next hop only after that one has taken its own: routes
// to a prefix change in the order of their distance to it, with a barrier after each step, so that
// two routers never send a packet to each other; see rounds.go for several members of a cluster.
package routing

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
)

// Cookie is that of the app's entries.
const Cookie = 0x7472_0003 << 32

const (
	admissionTable, routeTable, sizeTable = 0, 1, 2

	prioritySpecial, priorityOwn = 110, 100 // in table 0
	priorityLocal, priorityRoute = 2000, 1000
	firstGroup, lastGroup        = 0x1000_0000, 0x1fff_ffff
	// For changes in quick succession, which are handled as one.
	coalesce            = 10 * time.Millisecond
	settleTime          = 5 * time.Second // for routers and links to appear after the start
	reactiveIdle uint16 = 60              // seconds without a packet, after which a reactive route is removed
)

// App is the app routing. Make it with New.
type App struct {
	controller.Base
	c         *controller.Controller
	discovery *discovery.App
	ctx       context.Context
	cancel    context.CancelFunc
	done      sync.WaitGroup
	changed   chan struct{}
	started   time.Time
	// Used by run only.
	complete bool                   // all routers and links expected after the start have appeared
	led      map[Traffic]steer.Ways // the steered ways that are installed
	others   *others                // members of the cluster; nil: no cluster

	net   atomic.Pointer[network]
	nodes atomic.Pointer[map[uint64]*node] // by datapath id

	protocols atomic.Pointer[[]*protocol] // by name; replaced, with mu held, not changed

	mu        sync.Mutex // guards what follows
	config    Config
	addresses *addresses                          // those of the configuration
	digest    string                              // of the configuration with what follows; "": not computed yet
	static    map[uint64][]StaticRoute            // by router, replacing those of the configuration
	programs  map[string]map[uint64][]StaticRoute // by name and router; replaced, not changed
	steered   map[Traffic]steer.Ways
	cause     cause
	pending   bool // a change is not installed yet
	following bool // it is being installed
	watchers  []func(Rerouted)
	feeds     []*Feed // replaced, not changed
}

// cause is what triggered a change of routes, and when.
type cause struct {
	what string
	at   time.Time
}

// Rerouted reports that the routes have followed a change.
type Rerouted struct {
	Cause string    `json:"cause"`
	At    time.Time `json:"at"`
	// From the event to the last switch's barrier; afterwards no traffic follows a stale route.
	Took    time.Duration `json:"took"`
	Changed int           `json:"changed"` // entries
}

// New returns the app, which needs discovery, started before it.
func New(d *discovery.App, c Config) (*App, error) {
	a := &App{discovery: d, changed: make(chan struct{}, 1)}
	a.nodes.Store(&map[uint64]*node{})
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a, a.Configure(c)
}

// Configure replaces the set of routers and their addresses. A datapath that is no longer a router
// keeps its entries.
func (a *App) Configure(c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old, nodes := *a.nodes.Load(), map[uint64]*node{}
	for i := range c.Routers {
		r := &c.Routers[i]
		n := newNode(a, i, r)
		if before := old[r.DPID]; before != nil {
			n.succeed(before)
		}
		nodes[r.DPID] = n
	}
	for dpid, n := range old {
		if nodes[dpid] == nil {
			n.close()
		}
	}
	a.config, a.addresses, a.static, a.digest = c, newAddresses(&c), nil, ""
	a.nodes.Store(&nodes)
	for _, n := range nodes {
		n.mu.Lock()
		n.advertiseUp()
		n.mu.Unlock()
	}
	a.pending, a.cause = true, cause{"the configuration was changed", time.Now()}
	a.again()
	return nil
}

// Name is "routing".
func (a *App) Name() string { return "routing" }

// Routes reports whether a datapath is one of the app's routers.
func (a *App) Routes(dpid uint64) bool { return a.node(dpid) != nil }

// Answers returns the number of addresses that a router answers for, including those that are at no
// interface.
func (a *App) Answers(dpid uint64) int {
	if n := a.node(dpid); n != nil {
		return len(n.local)
	}
	return 0
}

// MAC returns the Ethernet address of a router's interface; false: there is no such interface.
func (a *App) MAC(dpid uint64, port uint32) (openflow.MAC, bool) {
	if n := a.node(dpid); n != nil && n.itf[port] != nil {
		return n.itf[port].MAC, true
	}
	return openflow.MAC{}, false
}

func (a *App) node(dpid uint64) *node { return (*a.nodes.Load())[dpid] }

// Start starts following discovery.
func (a *App) Start(c *controller.Controller) error {
	a.c, a.started = c, time.Now()
	if a.others != nil {
		if err := a.others.board.Start(a.ctx, &a.done); err != nil {
			return fmt.Errorf("what members say of their routes: %w", err)
		}
	}
	a.discovery.Watch(func(discovery.Change) { a.poke("links have changed", time.Now()) })
	a.done.Go(a.run)
	return nil
}

// Refresh makes the app query the protocols for their routes again.
func (a *App) Refresh(why string) { a.poke(why, time.Now()) }

// SendIP sends a packet, with its IP header, from a router out of a port: to a multicast address,
// or to a neighbour in the port's subnet, whose MAC is resolved first.
func (a *App) SendIP(dpid uint64, port uint32, packet []byte) {
	n := a.node(dpid)
	if n == nil || len(packet) < 20 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.itf[port]; f != nil {
		n.sendOnLink(f, packet)
	} else {
		n.originate(packet) // no port: sent by the routing table, as on a virtual link
	}
}

// sendOnLink sends a packet of the router itself to a multicast group or a neighbour at an
// interface. mu must be held.
func (n *node) sendOnLink(f *Interface, packet []byte) {
	switch p, ok := parseIP(etherTypeOf(packet), packet); {
	case !ok:
	case p.dst.IsMulticast():
		n.output(f.Port, frame(multicastMAC(p.dst), f.MAC, etherTypeOf(packet), packet))
	default:
		n.deliver(f, p.dst, waiting{packet: packet})
	}
}

// Stop stops the app. Installed entries stay.
func (a *App) Stop() {
	a.cancel()
	for _, n := range *a.nodes.Load() {
		n.close()
	}
	a.done.Wait()
}

// Watch calls f after each change of routes.
func (a *App) Watch(f func(Rerouted)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = append(a.watchers, f)
}

// poke requests an update of the routes. Requests are merged.
func (a *App) poke(what string, at time.Time) {
	a.mu.Lock()
	if !a.pending || a.cause.what == "" {
		a.cause = cause{what, at}
	}
	a.pending = true
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// run updates the routes. A single change is applied at once; changes that arrive during an update
// are applied together.
func (a *App) run() {
	for {
		select {
		case <-a.changed:
		case <-a.ctx.Done():
			return
		}
		if a.settling() {
			select {
			case <-time.After(coalesce):
				a.again()
				continue
			case <-a.ctx.Done():
				return
			}
		}
		a.follow()
	}
}

func (a *App) again() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// settling reports whether routers or their links may still appear, shortly after the start. Until
// then, what a previous controller installed must stay, as it knew more than this one does yet.
func (a *App) settling() bool {
	if a.complete || time.Since(a.started) > settleTime {
		return false
	}
	for _, n := range *a.nodes.Load() {
		n.mu.Lock()
		sw := n.sw
		n.mu.Unlock()
		if sw == nil && a.c.Seen(n.DPID) != nil {
			continue // another member's
		}
		if sw == nil {
			return true
		}
		for _, p := range sw.Ports() {
			if n.itf[p.Number] != nil && p.Works() && a.discovery.Kind(n.DPID, p.Number) == discovery.Open {
				return true
			}
		}
	}
	return slices.ContainsFunc(a.known(), func(p *protocol) bool { return !p.Settled() })
}

// SwitchUp reads the router's entries, and adds what is missing.
func (a *App) SwitchUp(s *controller.Switch) {
	n := a.node(s.DPID())
	if n == nil {
		return
	}
	async := openflow.DefaultAsync()
	async.PacketIn[0] |= 1 << openflow.ReasonInvalidTTL
	_ = s.Send(&openflow.SetAsync{AsyncMasks: async})
	n.mu.Lock()
	n.connect(s)
	n.mu.Unlock()
	a.poke(fmt.Sprintf("router %s is connected", n.Name), time.Now())
}

// SwitchDown leaves the router's entries in place; its links last as long as discovery says so.
func (a *App) SwitchDown(s *controller.Switch) {
	if n := a.node(s.DPID()); n != nil {
		n.mu.Lock()
		if n.sw == s {
			n.sw, n.rules = nil, nil
		}
		n.mu.Unlock()
	}
}

// SwitchSeen records the port states of another member's router: routes may lead over it.
func (a *App) SwitchSeen(s *controller.Switch) {
	if n := a.node(s.DPID()); n != nil {
		n.mu.Lock()
		n.see(s)
		n.mu.Unlock()
		a.poke(fmt.Sprintf("router %s is seen", n.Name), time.Now())
	}
}

// SwitchCeased leaves the router with its entries to another member.
func (a *App) SwitchCeased(s *controller.Switch) { a.SwitchDown(s) }

// PortChanged reacts to a port's state at once.
func (a *App) PortChanged(s *controller.Switch, reason openflow.PortReason, p openflow.Port) {
	n := a.node(s.DPID())
	if n == nil || n.itf[p.Number] == nil {
		return
	}
	up := reason != openflow.PortDelete && p.Works()
	n.mu.Lock()
	changed := n.up[p.Number] != up
	if changed {
		n.settled, n.up = false, maps.Clone(n.up)
		n.up[p.Number] = up
	}
	if changed && !up {
		n.forgetNeighbors(p.Number)
	}
	if changed {
		n.advertiseUp()
	}
	n.mu.Unlock()
	if changed {
		a.poke(fmt.Sprintf("%s of %s went %s", n.itf[p.Number].Name, n.Name,
			map[bool]string{true: "up", false: "down"}[up]), time.Now())
	}
}

// PacketIn answers for the router's addresses, resolves neighbours, and forwards what the switch
// could not.
func (a *App) PacketIn(s *controller.Switch, p *controller.Packet) bool {
	n := a.node(s.DPID())
	if n == nil || p.Cookie&apps.CookieMask != Cookie {
		return false
	}
	f := n.itf[p.InPort]
	if f == nil || len(p.Data) < 14 || uint16(p.Data[12])<<8|uint16(p.Data[13]) != p.EtherType {
		return true // not addressed to the router, or tagged
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sw != s {
		return true
	}
	if p.Cookie == listenCookie && p.Reason == openflow.ReasonAction {
		n.heard(p.EtherType, p.Data[14:])
		return true
	}
	n.receive(f, openflow.MAC(p.Data[6:12]), p.EtherType, p.Data[14:], p.Reason == openflow.ReasonInvalidTTL)
	return true
}

// FlowRemoved handles the timeout of a reactive route.
func (a *App) FlowRemoved(s *controller.Switch, m *openflow.FlowRemoved) {
	n := a.node(s.DPID())
	if n == nil || m.Cookie&apps.CookieMask != Cookie || m.Reason != openflow.RemovedIdleTimeout {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sw == s && n.rules != nil {
		k := controller.RuleKey{Table: m.Table, Priority: m.Priority, Match: m.Match}
		if now := n.rules.Flow(k); now != nil && now.IdleTimeout == 0 {
			return // the previous entry; the present one has no timeout
		}
		_ = n.rules.Remove(k) // in case it was installed again meanwhile
		n.ended(k)
	}
}

// RoutesOf returns a router's routes by prefix; nil: there is no such router.
func (a *App) RoutesOf(dpid uint64) []*Route {
	net, i, ok := a.picture(dpid)
	if !ok {
		return nil
	}
	t := net.table(i)
	out := make([]*Route, 0, len(t.routes))
	out = slices.AppendSeq(out, maps.Values(t.routes))
	sortRoutes(out)
	return out
}

// Size returns the approximate number of routes of all routers together.
func (a *App) Size() int {
	if net := a.net.Load(); net != nil {
		return net.size()
	}
	return 0
}

// Lookup returns the route that a router takes to an address; nil: there is none.
func (a *App) Lookup(dpid uint64, to netip.Addr) *Route {
	net, i, ok := a.picture(dpid)
	if !ok {
		return nil
	}
	return net.lookup(i, to)
}

// picture returns the latest network and a router's index in it, which may differ from its index in
// a configuration that has just been applied.
func (a *App) picture(dpid uint64) (net *network, router int, is bool) {
	if net = a.net.Load(); net == nil {
		return nil, 0, false
	}
	router, is = net.index[dpid]
	return net, router, is
}

// Missing lists what is not ready yet: routers that are not connected, routes that are not
// installed.
func (a *App) Missing() (out []string) {
	for _, n := range *a.nodes.Load() {
		n.mu.Lock()
		if n.sw == nil && (a.c == nil || a.c.Seen(n.DPID) == nil) {
			out = append(out, "router "+n.Name)
		}
		n.mu.Unlock()
	}
	if !a.Quiet() && len(*a.nodes.Load()) > 0 {
		out = append(out, "routes")
	}
	return out
}

// SetStatic replaces a router's static routes; false: there is no such router.
func (a *App) SetStatic(dpid uint64, routes []StaticRoute) bool {
	n := a.node(dpid)
	if n == nil {
		return false
	}
	a.mu.Lock()
	if a.static == nil {
		a.static = map[uint64][]StaticRoute{}
	}
	a.static[dpid], a.digest = slices.Clone(routes), ""
	a.mu.Unlock()
	a.poke("static routes of "+n.Name+" were changed", time.Now())
	return true
}

// StaticOf returns a router's static routes.
func (a *App) StaticOf(dpid uint64) []StaticRoute {
	n := a.node(dpid)
	if n == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if routes, ok := a.static[dpid]; ok {
		return routes
	}
	return n.Static
}
