package routing

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/routing/rib"
	"trivet.dev/trivet/topology"
)

// Protocol is a routing protocol that an app speaks for routers, see App.Speak. A router may speak
// several; each is a source of routes of its own.
type Protocol struct {
	Name     string       // as in commands and files
	Distance rib.Distance // of its routes, unless a router sets another; 1 to 254
	Wants    []Wanted     // packets to be passed to it from routers that speak it

	// Paths reports whether the protocol finds all paths, for IPv4 and IPv6: routers that speak it
	// get no shortest paths from this app.
	Paths [2]bool

	// Restarting, if not nil, reports whether a router must keep its installed routes, because the
	// protocol does not know yet what they should be. Refresh announces that it does. It is called
	// like the methods of Speaker.
	Restarting func(dpid uint64) bool

	Speaker
}

// Speaker is implemented by the protocol's app. The methods are called while routes are computed or
// a packet is handled: they must be quick, and must not call this app.
type Speaker interface {
	// Routes returns the protocol's current routes for a router, sorted by prefix.
	Routes(dpid uint64) []Learned

	// RouteTo returns the route to exactly a prefix.
	RouteTo(dpid uint64, p netip.Prefix) (Learned, bool)

	// Networks returns the prefixes that any router may have a route to, sorted.
	Networks() []netip.Prefix

	// Settled reports whether the routes reflect what is known of the network. At the start the app
	// waits for it, up to some seconds.
	Settled() bool

	// Receive takes a packet in Wants, with its IP header, that has arrived on a port.
	Receive(dpid uint64, port uint32, packet []byte)
}

// Wanted selects packets for a protocol: of an IP protocol, addressed to the router, also by a
// link-local address of IPv6, or to the groups. The router's sockets do not receive them.
type Wanted struct {
	Protocol uint8
	Groups   []netip.Prefix
	Port     uint16 // destination port of UDP or TCP; 0: any
}

// Learned is a route found by a protocol.
type Learned struct {
	Prefix netip.Prefix
	Metric uint32
	Tag    uint32
	Hops   []LearnedHop // of equal cost
	Drop   bool         // packets are dropped: an aggregate without next hops
}

// LearnedHop is a next hop of a Learned route: the address of a neighbour, which may be a
// link-local one of IPv6 (without a zone, as the port is given), or invalid if the prefix is the
// port's own.
type LearnedHop struct {
	Port uint32
	Via  netip.Addr
}

// protocol is a protocol and the routers that speak it; it is immutable.
type protocol struct {
	Protocol
	by map[uint64]bool
}

var taken = []string{"connected", "static", "program", "protocol", "balanced", "shortest-path", "fallback", "default",
	"deny"}

// Speak registers a routing protocol, which no router speaks yet: see SetSpeakers. It fails if the
// name is taken or invalid (letters, digits and hyphens).
func (a *App) Speak(p Protocol) error {
	switch {
	case !topology.ProgramName.MatchString(p.Name), slices.Contains(taken, p.Name):
		return fmt.Errorf("%q cannot be the name of a protocol; write at most 32 lower-case letters, digits and hyphens, and no name of another source", p.Name)
	case p.Distance == rib.Connected || p.Distance == rib.Never:
		return fmt.Errorf("the protocol %s has a distance of %d; write 1 to 254", p.Name, p.Distance)
	case p.Speaker == nil:
		return errors.New("the protocol " + p.Name + " has no Speaker")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.known()
	if slices.ContainsFunc(all, func(s *protocol) bool { return s.Name == p.Name }) {
		return fmt.Errorf("there are two protocols called %s", p.Name)
	}
	all = append(slices.Clone(all), &protocol{Protocol: p, by: map[uint64]bool{}})
	slices.SortFunc(all, func(x, y *protocol) int { return strings.Compare(x.Name, y.Name) })
	a.protocols.Store(&all)
	return nil
}

// SetSpeakers sets which routers speak a protocol, by datapath id: they get its routes, and it gets
// their packets that it wants. IDs of datapaths that are not routers yet are kept and take effect
// later. It panics if the protocol is not registered.
func (a *App) SetSpeakers(name string, routers []uint64) {
	a.mu.Lock()
	all := slices.Clone(a.known())
	i := slices.IndexFunc(all, func(s *protocol) bool { return s.Name == name })
	if i < 0 {
		a.mu.Unlock()
		panic("routing: Speak was not called for the protocol " + name)
	}
	old, now := all[i], &protocol{Protocol: all[i].Protocol, by: make(map[uint64]bool, len(routers))}
	for _, r := range routers {
		now.by[r] = true
	}
	if maps.Equal(old.by, now.by) {
		a.mu.Unlock()
		return
	}
	all[i] = now
	a.protocols.Store(&all)
	for dpid, n := range *a.nodes.Load() {
		if old.by[dpid] == now.by[dpid] {
			continue
		}
		n.mu.Lock()
		if n.settled = false; n.rules != nil {
			n.reframe()
		}
		n.mu.Unlock()
	}
	a.mu.Unlock()
	a.poke("routers that speak "+name+" were changed", time.Now())
}

// known returns all protocols by name; they must not be changed.
func (a *App) known() []*protocol {
	if all := a.protocols.Load(); all != nil {
		return *all
	}
	return nil
}

// Speaks lists the protocols that a router speaks, by name.
func (a *App) Speaks(dpid uint64) (out []string) {
	for _, s := range a.known() {
		if s.by[dpid] {
			out = append(out, s.Name)
		}
	}
	return out
}

// spokenBy lists those that a router speaks.
func spokenBy(all []*protocol, dpid uint64) []*protocol {
	return lists.Filter(all, func(s *protocol) bool { return s.by[dpid] })
}

// wantedBy returns the protocol, spoken by the router, that wants a packet, or nil.
func (n *node) wantedBy(p ipPacket) *protocol {
	for _, s := range n.app.known() {
		if s.by[n.DPID] && slices.ContainsFunc(s.Wants, func(w Wanted) bool { return n.isWanted(w, p) }) {
			return s
		}
	}
	return nil
}

func (n *node) isWanted(w Wanted, p ipPacket) bool {
	if w.Protocol != p.proto {
		return false
	}
	if w.Port != 0 {
		if port, ok := p.destinationPort(); !ok || port != w.Port {
			return false
		}
	}
	_, own := n.local[p.dst]
	return own || slices.ContainsFunc(w.Groups, func(g netip.Prefix) bool { return g.Contains(p.dst) })
}

// Restarts reports whether a protocol is restarting at a router, which then uses its installed
// routes instead of those known here.
func (a *App) Restarts(dpid uint64) bool {
	return slices.ContainsFunc(a.known(),
		func(s *protocol) bool { return s.by[dpid] && s.Restarting != nil && s.Restarting(dpid) })
}

// restarting lists the routers at which a protocol is restarting.
func restarting(all []*protocol) map[uint64]bool {
	out := map[uint64]bool{}
	for _, s := range all {
		for dpid := range s.by {
			if s.Restarting != nil && s.Restarting(dpid) {
				out[dpid] = true
			}
		}
	}
	return out
}

// protocolFrame returns the entries for the multicast groups of the router's protocols.
func (n *node) protocolFrame() (out []*openflow.FlowMod) {
	for _, s := range spokenBy(n.app.known(), n.DPID) {
		for _, w := range s.Wants {
			for _, group := range w.Groups {
				if group.Addr().Is4() || n.v6 {
					out = append(out, entry(admissionTable, prioritySpecial,
						matchDst(group).With(openflow.IPProto(w.Protocol)), toController()))
				}
			}
		}
	}
	return out
}

// findsPaths reports for which IP versions the router's protocols find its paths, so that it has no
// shortest paths.
func (n *network) findsPaths(router int) (by [2]bool) {
	for _, s := range n.protocols[router] {
		by[0], by[1] = by[0] || s.Paths[0], by[1] || s.Paths[1]
	}
	return by
}

// learned adds the protocols' routes, to one prefix or to all.
func (n *network) learned(t *table, router int, only netip.Prefix) {
	for _, s := range n.protocols[router] {
		for _, l := range s.routes(n.routers[router].DPID, only) {
			r := &Route{Prefix: l.Prefix, Source: Spoken, Name: s.Name, usual: s.Distance, Metric: l.Metric, Tag: l.Tag,
				Drop: l.Drop}
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
}

func (s *protocol) routes(dpid uint64, only netip.Prefix) []Learned {
	if !only.IsValid() {
		return s.Routes(dpid)
	}
	if l, ok := s.RouteTo(dpid, only); ok {
		return []Learned{l}
	}
	return nil
}
