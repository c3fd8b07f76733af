package routing

import (
	"net/netip"
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// Limits on the state that hosts can make a router keep.
const (
	maxNeighbors = 20_000 // per router
	maxAsking    = 512    // of these, unresolved
	maxQueue     = 256    // packets waiting for one of them
	askTries     = 4
	askTime      = 150 * time.Millisecond // doubled with each attempt

	// If a neighbour's MAC changes more often than this in that time, it is pinned for as long.
	maxMoves = 5
	moveTime = 10 * time.Second
)

// neighbor is a host, or another router, in a subnet of a router.
type neighbor struct {
	address   netip.Addr
	itf       *Interface
	mac       openflow.MAC // zero: unresolved
	installed bool
	queue     []waiting
	tries     int
	timer     *time.Timer // for the next request
	quiet     settle
	moves     int
	moved     time.Time
}

// waiting is a packet that waits for a MAC, with its TTL already decremented.
type waiting struct {
	packet  []byte
	fault   ipPacket   // the packet to report as unreachable; no data: the router's own
	arrived *Interface // on which it arrived
}

func (nb *neighbor) stop() {
	if nb.timer != nil {
		nb.timer.Stop()
	}
	nb.quiet.stop()
}

// deliver sends a packet to an address in a connected subnet, resolving its MAC first if necessary.
// mu must be held.
func (n *node) deliver(f *Interface, to netip.Addr, w waiting) {
	to = f.at(to)
	nb := n.neighbors[to]
	if nb == nil {
		if n.asking >= maxAsking || len(n.neighbors) >= maxNeighbors || isBroadcast(f, to) {
			return
		}
		nb = &neighbor{address: to, itf: f}
		n.neighbors[to] = nb
		n.asking++
		n.ask(nb)
	}
	if nb.mac == (openflow.MAC{}) {
		if len(nb.queue) < maxQueue {
			nb.queue = append(nb.queue, w)
		}
		return
	}
	n.output(nb.itf.Port, frame(nb.mac, nb.itf.MAC, etherTypeOf(w.packet), w.packet))
	if !nb.installed && w.fault.data != nil && !isLinkLocal(to) {
		n.installWhenQuiet(nb)
	}
}

// isBroadcast reports whether an address is a subnet's broadcast address or its network address.
func isBroadcast(f *Interface, a netip.Addr) bool {
	for _, p := range f.Prefixes {
		if !a.Is4() || !p.Contains(a) || p.Bits() >= 31 {
			continue
		}
		b, base := a.As4(), p.Masked().Addr().As4()
		host, ones := false, true
		for i := p.Bits(); i < 32; i++ {
			bit := b[i/8]>>(7-i%8)&1 == 1
			host, ones = host || bit, ones && bit
		}
		if ones || !host && b == base {
			return true
		}
	}
	return false
}

// ask sends a request, and repeats it until there is an answer or none can be expected.
func (n *node) ask(nb *neighbor) {
	nb.tries++
	n.sendQuestion(nb.itf, nb.address)
	nb.timer = time.AfterFunc(askTime<<(nb.tries-1), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.neighbors[nb.address] != nb || nb.mac != (openflow.MAC{}) {
			return
		}
		if nb.tries < askTries {
			n.ask(nb)
			return
		}
		n.asking--
		delete(n.neighbors, nb.address)
		for _, w := range nb.queue {
			if w.fault.data != nil {
				n.sendError(w.arrived, w.fault, hostUnreachable)
			}
		}
	})
}

// sendQuestion requests an address's MAC: by ARP (RFC 826) or a neighbour solicitation (RFC 4861,
// section 7.2.2).
func (n *node) sendQuestion(f *Interface, who netip.Addr) {
	if who.Is4() {
		own := f.address(true)
		for _, p := range f.Prefixes {
			if p.Contains(who) {
				own = p.Addr()
			}
		}
		m := arp{op: header.ARPRequest, sha: f.MAC, spa: own, tpa: who}
		n.output(f.Port, frame(broadcast, f.MAC, openflow.EthTypeARP, m.bytes()))
		return
	}
	own := linkLocal(f.MAC)
	for _, p := range f.Prefixes {
		if p.Contains(who) {
			own = p.Addr()
		}
	}
	group, mac := solicitedNode(who)
	m := ndp{kind: neighborSolicitation, target: who, mac: f.MAC, src: own, dst: group}
	n.output(f.Port, frame(mac, f.MAC, openflow.EthTypeIPv6, m.bytes()))
}

// answerARP answers requests for the interface's addresses, and learns the sender's.
func (n *node) answerARP(f *Interface, b []byte) {
	m, ok := parseARP(b)
	if !ok || m.sha[0]&1 == 1 || m.sha == f.MAC {
		return
	}
	own := n.local[m.tpa]
	_, forUs := n.local[m.tpa]
	if m.spa.IsValid() && !m.spa.IsUnspecified() && f.reaches(m.spa) {
		// Requests for other addresses only update senders that are known already (RFC 826,
		// "merge").
		n.learn(f, m.spa, m.sha, forUs)
	}
	if m.op == header.ARPRequest && forUs && (own == f || own == nil) {
		reply := arp{op: header.ARPReply, sha: f.MAC, spa: m.tpa, tha: m.sha, tpa: m.spa}
		n.output(f.Port, frame(m.sha, f.MAC, openflow.EthTypeARP, reply.bytes()))
	}
}

// answerNDP does the same for IPv6 (RFC 4861, section 7.2).
func (n *node) answerNDP(f *Interface, packet []byte) {
	m, ok := parseNDP(packet)
	if !ok || m.mac[0]&1 == 1 {
		return
	}
	hasMAC := m.mac != openflow.MAC{} && m.mac != f.MAC
	if m.kind == neighborAdvertisement {
		if hasMAC && (f.reaches(m.target) || isLinkLocal(m.target)) {
			n.learn(f, f.at(m.target), m.mac, false)
		}
		return
	}
	own, forUs := n.local[m.target]
	if !forUs || own != f && own != nil {
		return
	}
	switch {
	case !hasMAC:
	case isLinkLocal(m.src):
		n.learn(f, f.at(m.src), m.mac, false) // every host uses such an address, but packets rarely go to one
	case !m.src.IsUnspecified() && f.reaches(m.src):
		n.learn(f, m.src, m.mac, true)
	}
	reply := ndp{kind: neighborAdvertisement, target: m.target, mac: f.MAC, src: m.target, dst: m.src, solicited: true}
	to := m.mac
	if m.src.IsUnspecified() { // duplicate address detection for the router's own address
		reply.dst, reply.solicited, to = allNodes, false, openflow.MAC{0x33, 0x33, 0, 0, 0, 1}
	} else if !hasMAC {
		return
	}
	n.output(f.Port, frame(to, f.MAC, openflow.EthTypeIPv6, reply.bytes()))
}

// learn records a neighbour's MAC; an unknown neighbour is added only if create is true.
func (n *node) learn(f *Interface, a netip.Addr, mac openflow.MAC, create bool) {
	if _, own := n.local[a.WithZone("")]; own || isBroadcast(f, a) {
		return
	}
	nb := n.neighbors[a]
	if nb == nil {
		if !create || len(n.neighbors) >= maxNeighbors {
			return
		}
		nb = &neighbor{address: a, itf: f}
		n.neighbors[a] = nb
	} else if nb.mac == (openflow.MAC{}) {
		nb.timer.Stop()
		n.asking--
	}
	if nb.mac == mac && nb.itf == f {
		return
	}
	if nb.mac != (openflow.MAC{}) && !n.mayMove(nb, mac) {
		return
	}
	first := nb.mac == openflow.MAC{}
	nb.mac, nb.itf = mac, f
	queue := nb.queue
	nb.queue = nil
	transit := false
	for _, w := range queue {
		transit = transit || w.fault.data != nil
		n.output(f.Port, frame(mac, f.MAC, etherTypeOf(w.packet), w.packet))
	}
	if transit && first {
		n.installWhenQuiet(nb)
	} else {
		n.install(nb)
	}
	n.neighborsChanged()
}

// mayMove limits how often a neighbour's MAC changes: two hosts have one address, or one is lying.
func (n *node) mayMove(nb *neighbor, to openflow.MAC) bool {
	if time.Since(nb.moved) > moveTime {
		nb.moves = 0
	}
	if nb.moves >= maxMoves {
		return false
	}
	nb.moved = time.Now()
	if nb.moves++; nb.moves == maxMoves {
		n.app.c.Log().Warn("an address has several MACs; it keeps this one for a while", "router", n.Name, "interface",
			nb.itf.Name,
			"address", nb.address, "kept", nb.mac, "refused", to)
		return false
	}
	return true
}

// install installs the entry for a neighbour, unless a route to this very address takes its place:
// its prefix is longer than the subnet's.
func (n *node) install(nb *neighbor) {
	nb.quiet.stop()
	switch {
	case n.rules == nil, isLinkLocal(nb.address): // packets to link-local addresses are not forwarded
	case n.net != nil && n.net.route(n.index, nb.prefix()) != nil:
		nb.installed = true
	default:
		nb.installed = n.put(n.neighborWay(nb)) == nil
	}
}

func (nb *neighbor) prefix() netip.Prefix { return netip.PrefixFrom(nb.address, nb.address.BitLen()) }

func (n *node) neighborWay(nb *neighbor) way {
	return n.wayTo(nb.prefix(), []Hop{{Port: nb.itf.Port, src: nb.itf.MAC, dst: nb.mac}})
}

// installWhenQuiet installs the entry when no packet for the neighbour is passing through the
// controller.
func (n *node) installWhenQuiet(nb *neighbor) {
	n.passed(&nb.quiet, func() {
		if n.neighbors[nb.address] == nb && !nb.installed {
			n.install(nb)
		}
	})
}

// neighborsChanged installs routes that were waiting for a neighbour's MAC.
func (n *node) neighborsChanged() {
	if n.net == nil || n.rules == nil || len(n.net.routers[n.index].Static)+len(n.net.protocols[n.index]) == 0 {
		return
	}
	for _, r := range n.routes() {
		if r.Source != Connected && r.Source != Computed && r.asked() && n.wanted(r) {
			_ = n.put(n.routeWay(r))
			n.putParts(r.Prefix)
		}
	}
}

// asked reports whether some next hop must be resolved.
func (r *Route) asked() bool {
	return slices.ContainsFunc(r.Hops, func(h Hop) bool { return h.dst == openflow.MAC{} })
}

// forgetNeighbors forgets the neighbours behind a port that has gone down.
func (n *node) forgetNeighbors(port uint32) {
	for a, nb := range n.neighbors {
		if nb.itf.Port != port {
			continue
		}
		if nb.mac == (openflow.MAC{}) {
			n.asking--
		}
		nb.stop()
		delete(n.neighbors, a)
		if n.rules == nil || !nb.installed {
			continue
		}
		if w := n.neighborWay(nb); n.rules.Has(w.own()) { // and not a route's
			for _, m := range w.flows {
				_ = n.rules.Remove(controller.KeyOf(m))
			}
		}
	}
}

// settle waits for a pause among the packets that pass through the controller, so that the switch,
// once it has the entry, does not forward later packets before earlier ones. A stream without
// pauses of quietTime may be reordered once, after quietLimit.
type settle struct {
	timer   *time.Timer
	since   time.Time
	packets int
}

const (
	quietTime  = 400 * time.Microsecond
	quietLimit = 100 * time.Millisecond
)

// passed records that a packet has passed through the controller. done is called, with mu held,
// when none has for a while.
func (n *node) passed(s *settle, done func()) {
	s.packets++
	now := time.Now()
	switch {
	case s.timer == nil:
		s.since = now
		s.timer = time.AfterFunc(quietTime, func() { n.drain(s, done) })
	case now.Sub(s.since) < quietLimit:
		s.timer.Reset(quietTime)
	}
}

// drain first handles packets that the switch has already sent up: on a busy machine they may have
// been in transit for longer than the pause.
func (n *node) drain(s *settle, done func()) {
	n.mu.Lock()
	seen := s.packets
	n.mu.Unlock()
	n.app.barrier([]*node{n})
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.packets == seen || time.Since(s.since) >= quietLimit { // otherwise the timer runs again
		done()
	}
}

func (s *settle) stop() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}
