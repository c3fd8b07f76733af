package routing

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/internal/radvert"
	"trivet.dev/trivet/openflow"
)

// node is the app's state of a router.
type node struct {
	*Router
	app   *App
	index int                   // in the configuration
	itf   map[uint32]*Interface // by port
	local map[netip.Addr]*Interface
	v6    bool   // see hasIPv6
	mtus  [2]int // the smallest of its interfaces, and the largest

	mu        sync.Mutex         // guards what follows
	sw        *controller.Switch // nil: not connected
	rules     *controller.Rules
	up        map[uint32]bool // ports that are up, also while disconnected; replaced, never changed: networks share it
	settled   bool            // the switch needs no change unless something of the router itself changes, see isSettled
	net       *network
	reactive  bool
	flows     map[Traffic]time.Time   // that have an entry because they have passed: since when
	full      bool                    // no room for further flows
	paused    bool                    // headers are not copied for a while
	vain      limiter                 // packets copied for nothing
	setups    map[netip.Prefix]*setup // reactive routes that are being installed
	groups    map[string]uint32       // ids, by content
	neighbors map[netip.Addr]*neighbor
	asking    int // neighbours being resolved
	host      *host
	gone      bool    // replaced by a later configuration, or the app has stopped
	errors    limiter // ICMP errors
	cuts      limiter // packets fragmented

	advertised map[uint32]time.Time // by port: time of the last router advertisement to all nodes
	adverts    adverts
}

func newNode(a *App, index int, r *Router) *node {
	n := &node{Router: r, app: a, index: index, itf: map[uint32]*Interface{}, local: map[netip.Addr]*Interface{},
		v6: r.hasIPv6(), up: map[uint32]bool{},
		setups: map[netip.Prefix]*setup{}, flows: map[Traffic]time.Time{}, groups: map[string]uint32{},
		neighbors: map[netip.Addr]*neighbor{}, advertised: map[uint32]time.Time{},
		adverts: adverts{at: map[uint32]*radvert.Schedule{}}}
	for i := range r.Interfaces {
		f := &r.Interfaces[i]
		n.itf[f.Port] = f
		if n.mtus[1] = max(n.mtus[1], f.MTU); n.mtus[0] == 0 || f.MTU < n.mtus[0] {
			n.mtus[0] = f.MTU
		}
		for _, p := range f.Prefixes {
			n.local[p.Addr()] = f
		}
	}
	for _, p := range r.Loopback {
		n.local[p.Addr()] = nil
	}
	if n.v6 {
		for _, f := range n.itf {
			n.local[linkLocal(f.MAC)] = f
		}
	}
	return n
}

// connect reads the router's entries, adds its frame and records its ports. Routes are left as they
// are until the app knows the network. mu must be held.
func (n *node) connect(s *controller.Switch) {
	n.sw = s
	n.rules = s.Rules(Cookie, apps.CookieMask, func(id uint32) bool { return firstGroup <= id && id <= lastGroup })
	clear(n.groups)
	clear(n.flows)
	for _, g := range n.rules.GroupDescs() {
		n.groups[bucketsKey(g.Buckets)] = g.Group
	}
	n.reframe()
	n.see(s)
}

// see records the state of the router's ports.
func (n *node) see(s *controller.Switch) {
	n.settled, n.up = false, make(map[uint32]bool, len(n.itf))
	for _, p := range s.Ports() {
		if n.itf[p.Number] != nil {
			n.up[p.Number] = p.Works()
		}
	}
	n.advertiseUp()
}

// succeed takes over from the node of an earlier configuration: the switch, and all entries that
// are still right.
func (n *node) succeed(old *node) {
	old.mu.Lock()
	defer old.mu.Unlock()
	n.sw, n.rules, n.groups, n.flows = old.sw, old.rules, old.groups, old.flows
	old.sw, old.rules = nil, nil
	for port, up := range old.up {
		if n.itf[port] != nil {
			n.up[port] = up
		}
	}
	if n.sw != nil {
		for _, p := range n.sw.Ports() {
			if n.itf[p.Number] != nil {
				n.up[p.Number] = p.Works()
			}
		}
		n.reframe()
	}
	n.adverts.takeFrom(&old.adverts, old, n)
	for a, nb := range old.neighbors {
		nb.stop()
		if f := n.itf[nb.itf.Port]; f != nil && f.MAC == nb.itf.MAC && nb.mac != (openflow.MAC{}) &&
			(nb.installed && f.reaches(a) || isLinkLocal(a) && f.at(a) == a) {
			n.neighbors[a] = &neighbor{address: a, itf: f, mac: nb.mac, installed: nb.installed}
		}
	}
	old.gone = true
	if n.host, old.host = old.host, nil; n.host != nil {
		n.mu.Lock() // from now on sockets find this node
		defer n.mu.Unlock()
		n.host.serve(n)
	}
}

// reframe brings the frame's entries up to date with the configuration.
func (n *node) reframe() {
	keep := map[controller.RuleKey]bool{}
	for _, m := range n.frame() {
		keep[controller.KeyOf(m)] = true
		_ = n.rules.Set(m)
	}
	for _, m := range n.rules.Flows() {
		k := controller.KeyOf(m)
		if !isRoute(k) && !keep[k] {
			_ = n.rules.Remove(k)
		}
	}
}

func entry(table uint8, priority uint16, m openflow.Match, i ...openflow.Instruction) *openflow.FlowMod {
	f := openflow.NewFlowMod(openflow.FlowAdd, priority, m, i...)
	f.Table, f.Cookie = table, Cookie
	return f
}

func toController() openflow.Instruction {
	return openflow.ApplyActions(openflow.OutputController(openflow.MaxLenNoBuffer))
}

// frame returns the entries that do not depend on routes.
func (n *node) frame() (out []*openflow.FlowMod) {
	out = append(out, entry(admissionTable, prioritySpecial, openflow.NewMatch(openflow.EthType(openflow.EthTypeARP)),
		toController()))
	versions := []uint16{openflow.EthTypeIPv4}
	if n.v6 {
		versions = append(versions, openflow.EthTypeIPv6)
		for _, kind := range []uint8{neighborSolicitation, neighborAdvertisement} {
			out = append(out, entry(admissionTable, prioritySpecial,
				openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv6),
					openflow.IPProto(openflow.IPProtoICMPv6), openflow.ICMPv6Type(kind)), toController()))
		}
	}
	for _, f := range n.itf {
		for _, t := range versions {
			m := openflow.NewMatch(openflow.InPort(f.Port), openflow.EthDst(f.MAC), openflow.EthType(t))
			out = append(out, entry(admissionTable, priorityOwn, m, openflow.GotoTable(routeTable)))
		}
	}
	out = append(out, n.protocolFrame()...)
	out = append(out, n.groupFrame()...)
	for a := range n.local {
		out = append(out, entry(routeTable, priorityLocal, matchDst(netip.PrefixFrom(a, a.BitLen())), toController()))
	}
	out = append(out, n.sizeFrame()...)
	return append(out, entry(routeTable, 0, openflow.Match{}, toController()))
}

func matchDst(p netip.Prefix) openflow.Match {
	if p.Addr().Is4() {
		if p.Bits() == 0 {
			return openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv4))
		}
		return openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv4),
			openflow.IPv4Dst(p.Addr()).WithPrefix(p.Bits()))
	}
	if p.Bits() == 0 {
		return openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv6))
	}
	return openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv6), openflow.IPv6Dst(p.Addr()).WithPrefix(p.Bits()))
}

// routeKey is the key of a prefix's entry.
func routeKey(p netip.Prefix) controller.RuleKey {
	return controller.RuleKey{Table: routeTable, Priority: priorityRoute + priorityStep*uint16(p.Bits()),
		Match: matchDst(p)}
}

func hopActions(h Hop) []openflow.Action {
	return []openflow.Action{openflow.SetField(openflow.EthSrc(h.src)), openflow.SetField(openflow.EthDst(h.dst)),
		openflow.Output(h.Port)}
}

// way is the group and entries by which a router forwards to a prefix.
type way struct {
	hops  []Hop
	flows []*openflow.FlowMod // the prefix's own entry is the last
}

func (w way) own() *openflow.FlowMod { return w.flows[len(w.flows)-1] }

// wayTo returns the way to a prefix by these hops.
func (n *node) wayTo(p netip.Prefix, hops []Hop) way { return n.wayAt(routeKey(p), hops) }

// wayAt returns the way by these hops, for packets that match this key.
func (n *node) wayAt(k controller.RuleKey, hops []Hop) way {
	m := n.entryOf(k, hops)
	return way{hops, append(n.hairpins(m, hops), m)}
}

// routeWay returns the way of a route. A reactive router's has a timeout, unless it has hairpins or
// parts, by which all its packets may go.
func (n *node) routeWay(r *Route) way {
	var w way
	if k := routeKey(r.Prefix); r.Drop {
		// Without instructions, packets are dropped.
		w = way{nil, []*openflow.FlowMod{entry(k.Table, k.Priority, k.Match)}}
	} else {
		w = n.wayTo(r.Prefix, n.resolved(r))
	}
	if m := w.own(); n.reactive && r.Source != Connected && len(w.flows) == 1 && len(n.net.divided[r.Prefix]) == 0 {
		m.IdleTimeout, m.Flags = reactiveIdle, openflow.FlowSendFlowRem
	}
	return w
}

// entryOf returns the entry with a key. If no next hop's MAC is known, the first packet makes the
// controller resolve it.
func (n *node) entryOf(k controller.RuleKey, hops []Hop) *openflow.FlowMod {
	switch {
	case len(hops) == 0:
		return entry(k.Table, k.Priority, k.Match, toController())
	case len(hops) == 1:
		actions := append([]openflow.Action{openflow.DecNwTTL()}, hopActions(hops[0])...)
		return entry(k.Table, k.Priority, k.Match, n.ifItFits(hops, actions...)...)
	}
	id := n.groupID(buckets(hops))
	return entry(k.Table, k.Priority, k.Match, n.ifItFits(hops, openflow.DecNwTTL(), openflow.Group(id))...)
}

// resolved returns the route's hops whose MACs are known.
func (n *node) resolved(r *Route) []Hop {
	if r.Source == Connected {
		return nil
	}
	hops := make([]Hop, 0, len(r.Hops))
	for _, h := range r.Hops {
		if h.dst == (openflow.MAC{}) {
			nb := n.neighbors[n.itf[h.Port].at(h.Via)]
			if nb == nil || nb.mac == (openflow.MAC{}) {
				continue
			}
			h.dst = nb.mac
		}
		hops = append(hops, h)
	}
	return hops
}

func buckets(hops []Hop) []openflow.Bucket {
	out := make([]openflow.Bucket, len(hops))
	for i, h := range hops {
		out[i] = openflow.NewBucket(hopActions(h)...)
		out[i].Weight = 1
	}
	return out
}

func bucketsKey(list []openflow.Bucket) string {
	return string((&openflow.GroupMod{GroupDesc: openflow.GroupDesc{Kind: openflow.GroupTypeSelect,
		Buckets: list}}).AppendTo(nil))
}

// groupID returns the id of the group with these buckets. It is derived from them, so that a group
// never changes, and is found again after a restart.
func (n *node) groupID(list []openflow.Bucket) uint32 {
	key := bucketsKey(list)
	if id, ok := n.groups[key]; ok {
		return id
	}
	taken := map[uint32]bool{}
	for _, id := range n.groups {
		taken[id] = true
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	id := firstGroup | h.Sum32()&0x0fff_ffff
	for taken[id] {
		id = firstGroup | (id+1)&0x0fff_ffff
	}
	n.groups[key] = id
	return id
}

// put installs a way, its group before its entries.
func (n *node) put(w way) error {
	n.settled = false
	if len(w.hops) > 1 {
		list := buckets(w.hops)
		g := &openflow.GroupDesc{Kind: openflow.GroupTypeSelect, Group: n.groupID(list), Buckets: list}
		if err := n.rules.SetGroup(g); err != nil {
			return err
		}
	}
	for _, m := range w.flows {
		if err := n.rules.Set(m); err != nil {
			return err
		}
	}
	return nil
}

// dropGroups deletes groups that no entry uses.
func (n *node) dropGroups() {
	used := map[uint32]bool{}
	for _, m := range n.rules.Flows() {
		for _, i := range m.Instructions {
			for _, a := range i.Actions {
				if a.Type == openflow.ActionGroup {
					used[a.Group] = true
				}
			}
		}
	}
	for key, id := range n.groups {
		if !used[id] {
			_ = n.rules.RemoveGroup(id)
			delete(n.groups, key)
		}
	}
}

// wanted reports whether a route's entry belongs in the switch now. For a reactive router these are
// the routes requested by packets that have not timed out.
func (n *node) wanted(r *Route) bool {
	if !n.reactive || r.Source == Connected {
		return true
	}
	return n.rules.Flow(routeKey(r.Prefix)) != nil
}

// routes returns the routes that may belong in the switch. For a reactive router these are
// connected routes and those installed: others need not be computed before a packet needs them.
func (n *node) routes() map[netip.Prefix]*Route {
	if !n.reactive {
		return n.net.table(n.index).routes
	}
	own := n.net.newTable(n.index)
	n.net.connected(own, n.index, netip.Prefix{})
	for _, m := range n.rules.Flows() {
		p, ok := routePrefix(m)
		if !ok || isPart(m) || own.routes[p] != nil || n.neighbors[p.Addr()] != nil && p.IsSingleIP() {
			continue
		}
		if r := n.net.installed(n.index, p); r != nil {
			own.routes[p] = r
		}
	}
	return own.routes
}

// routePrefix returns the prefix of a route's entry; false: it is of no route.
func routePrefix(m *openflow.FlowMod) (p netip.Prefix, is bool) {
	if !isRoute(controller.KeyOf(m)) {
		return p, false
	}
	for _, f := range []openflow.Field{openflow.FieldIPv4Dst, openflow.FieldIPv6Dst} {
		if field, has := m.Match.Get(f); has {
			return field.Prefix()
		}
	}
	if t, has := m.Match.Get(openflow.FieldEthType); has && t.Value == openflow.EthType(openflow.EthTypeIPv4).Value {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0), true
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0), true
}

// isRoute reports whether an entry belongs to a route or a neighbour.
func isRoute(k controller.RuleKey) bool {
	return k.Table == routeTable && k.Priority >= priorityRoute && k.Priority < priorityLocal
}

// compare returns the differences between routes and switch: ways to install, and entries to
// remove.
func (n *node) compare() (changes []change, gone []controller.RuleKey) {
	keep := map[controller.RuleKey]bool{}
	differs := func(t Traffic, r *Route, w way, fresh bool) {
		if slices.ContainsFunc(w.flows, func(m *openflow.FlowMod) bool { return !n.rules.Has(m) }) {
			changes = append(changes, change{n, t, r, w, fresh})
		}
	}
	want := func(t Traffic, r *Route, w way, fresh bool) {
		for _, m := range w.flows {
			keep[controller.KeyOf(m)] = true
		}
		differs(t, r, w, fresh)
	}
	n.settled = true
	routes, entries := n.routes(), n.rules.Flows()
	for _, m := range entries { // before routes: these neighbours include their next hops
		if isRoute(controller.KeyOf(m)) && !isPart(m) {
			n.adopt(m, routes)
		}
	}
	for _, r := range routes {
		n.settled = n.settled && r.Source == Connected
		if n.wanted(r) {
			w := n.routeWay(r)
			want(Traffic{To: r.Prefix}, r, w, n.rules.Flow(controller.KeyOf(w.own())) == nil)
		}
	}
	n.compareParts(routes, entries, // until a part has an entry it uses the prefix's, so it is never fresh
		func(t Traffic, r *Route, w way) { want(t, r, w, false) },
		func(t Traffic, r *Route, w way) { differs(t, r, w, false) })
	for _, nb := range n.neighbors {
		if p := nb.prefix(); nb.installed && !keep[routeKey(p)] { // otherwise a route to this very address replaces it
			want(Traffic{To: p}, &Route{Prefix: p, Source: Connected}, n.neighborWay(nb), false)
		}
	}
	for _, m := range entries {
		if k := controller.KeyOf(m); isRoute(k) && !keep[k] {
			gone = append(gone, k)
		}
	}
	n.settled = n.settled && len(changes)+len(gone) == 0
	return changes, gone
}

// adopt takes over a neighbour's entry that an earlier controller has installed, if it is in one of
// the router's subnets and no route leads to this very address.
func (n *node) adopt(m *openflow.FlowMod, routes map[netip.Prefix]*Route) {
	field, found := m.Match.Get(openflow.FieldIPv4Dst)
	if !found {
		if field, found = m.Match.Get(openflow.FieldIPv6Dst); !found {
			return
		}
	}
	p, ok := field.Prefix()
	if !ok || !p.IsSingleIP() || n.neighbors[p.Addr()] != nil {
		return
	}
	if r := routes[p]; r != nil && n.wanted(r) {
		return
	}
	var mac openflow.MAC
	var port uint32
	for _, i := range m.Instructions {
		for _, a := range i.Actions {
			switch f := a.Field; {
			case a.Type == openflow.ActionOutput:
				port = a.Port
			case a.Type == openflow.ActionSetField && f.Field == openflow.FieldEthDst:
				mac = f.MAC()
			}
		}
	}
	f := n.itf[port]
	if f == nil || !f.reaches(p.Addr()) || !n.up[port] {
		return
	}
	n.neighbors[p.Addr()] = &neighbor{address: p.Addr(), itf: f, mac: mac, installed: true}
}

func (n *node) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone = true; n.host != nil {
		n.host.close()
		n.host = nil
	}
	for _, nb := range n.neighbors {
		nb.stop()
	}
	for _, s := range n.setups {
		s.stop()
	}
	if n.adverts.timer != nil {
		n.adverts.timer.Stop()
	}
}
