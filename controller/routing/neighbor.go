package routing

import (
	"net/netip"
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// Bounds of what hosts can make a router keep.
const (
	maxNeighbors = 20_000 // of a router
	maxAsking    = 512    // of them, those that have not answered
	maxQueue     = 256    // packets that wait for one of them
	askTries     = 4
	askTime      = 150 * time.Millisecond // doubled with each try

	// A neighbour's MAC may change so often in that time; then it is pinned for as long.
	maxMoves = 5
	moveTime = 10 * time.Second
)

// neighbor is a host, or another router, in a subnet of a router.
type neighbor struct {
	address   netip.Addr
	itf       *Interface
	mac       openflow.MAC // zero: has not answered
	installed bool
	queue     []waiting
	tries     int
	timer     *time.Timer // asks again
	quiet     settle
	moves     int
	moved     time.Time
}

// waiting is a packet that waits for a MAC, TTL already decremented.
type waiting struct {
	packet  []byte
	fault   ipPacket   // what to say is unreachable; no data: the router's own packet
	arrived *Interface // by which it came
}

func (nb *neighbor) stop() {
	if nb.timer != nil {
		nb.timer.Stop()
	}
	nb.quiet.stop()
}

// deliver sends a packet to an address in a connected subnet, and asks for its MAC before if need
// be. mu must be held.
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

// isBroadcast says whether an address is a subnet's broadcast address, or the subnet's own.
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

// ask sends the question, and sends it again until there is an answer or none can be expected.
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

// sendQuestion asks who has an address: by ARP (RFC 826) or a neighbour solicitation (RFC 4861,
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

// answerARP answers for the interface's addresses and learns who asks.
func (n *node) answerARP(f *Interface, b []byte) {
	m, ok := parseARP(b)
	if !ok || m.sha[0]&1 == 1 || m.sha == f.MAC {
		return
	}
	own := n.local[m.tpa]
	_, forUs := n.local[m.tpa]
	if m.spa.IsValid() && !m.spa.IsUnspecified() && f.reaches(m.spa) {
		// Of others' questions only those count whose address is known already (RFC 826, "merge").
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
		n.learn(f, f.at(m.src), m.mac, false) // every host asks by such an address, and few are spoken to
	case !m.src.IsUnspecified() && f.reaches(m.src):
		n.learn(f, m.src, m.mac, true)
	}
	reply := ndp{kind: neighborAdvertisement, target: m.target, mac: f.MAC, src: m.target, dst: m.src, solicited: true}
	to := m.mac
	if m.src.IsUnspecified() { // somebody wants our address: it is taken
		reply.dst, reply.solicited, to = allNodes, false, openflow.MAC{0x33, 0x33, 0, 0, 0, 1}
	} else if !hasMAC {
		return
	}
	n.output(f.Port, frame(to, f.MAC, openflow.EthTypeIPv6, reply.bytes()))
}

// learn takes note of a neighbour's MAC; one that is not known yet only where create is true.
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

// mayMove contains a neighbour whose MAC keeps changing: two hosts with one address, or a liar.
func (n *node) mayMove(nb *neighbor, to openflow.MAC) bool {
	if time.Since(nb.moved) > moveTime {
		nb.moves = 0
	}
	if nb.moves >= maxMoves {
		return false
	}
	nb.moved = time.Now()
	if nb.moves++; nb.moves == maxMoves {
		n.app.c.Log().Warn("an address has several MACs; it keeps this one for a while", "router", n.Name, "interface", nb.itf.Name,
			"address", nb.address, "kept", nb.mac, "refused", to)
		return false
	}
	return true
}

// install sets the entry for a neighbour, unless a route to this very address is in its place: as
// the longer prefix that one goes before the subnet.
func (n *node) install(nb *neighbor) {
	nb.quiet.stop()
	switch {
	case n.rules == nil, isLinkLocal(nb.address): // packets to these are not forwarded
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

// installWhenQuiet sets it when no packet for it is on its way through the controller.
func (n *node) installWhenQuiet(nb *neighbor) {
	n.passed(&nb.quiet, func() {
		if n.neighbors[nb.address] == nb && !nb.installed {
			n.install(nb)
		}
	})
}

// neighborsChanged installs routes that waited for a neighbour's MAC.
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

// asked says whether a next hop is found by its address.
func (r *Route) asked() bool {
	return slices.ContainsFunc(r.Hops, func(h Hop) bool { return h.dst == openflow.MAC{} })
}

// forgetNeighbors forgets those behind a port that has gone down.
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
		if w := n.neighborWay(nb); n.rules.Has(w.own()) { // and no route's
			for _, m := range w.flows {
				_ = n.rules.Remove(controller.KeyOf(m))
			}
		}
	}
}

// settle waits for a pause among the packets that go through the controller, so that none is
// overtaken by those that the switch forwards by itself once the entry is there. Packets of a
// stream without pauses of quietTime may be overtaken, once, after quietLimit.
type settle struct {
	timer   *time.Timer
	since   time.Time
	packets int
}

const (
	quietTime  = 400 * time.Microsecond
	quietLimit = 100 * time.Millisecond
)

// passed says that a packet has gone through the controller. done is called, with mu held, when it
// was the last for a while.
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

// drain has packets that the switch has sent up come first: on a busy machine they may have been on
// their way for longer than the pause.
func (n *node) drain(s *settle, done func()) {
	n.mu.Lock()
	seen := s.packets
	n.mu.Unlock()
	n.app.barrier([]*node{n})
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.packets == seen || time.Since(s.since) >= quietLimit { // else the timer runs again
		done()
	}
}

func (s *settle) stop() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}
