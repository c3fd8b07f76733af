package routing

import (
	"net/netip"

	"trivet.dev/trivet/openflow"
)

// receive handles a packet that the switch has sent to the controller: from is its source MAC;
// expired means that its TTL has expired here. mu must be held, as in what follows.
func (n *node) receive(f *Interface, from openflow.MAC, etherType uint16, b []byte, expired bool) {
	if etherType == openflow.EthTypeARP {
		n.answerARP(f, b)
		return
	}
	p, ok := parseIP(etherType, b)
	if !ok {
		return
	}
	onLink := !p.v4 && p.proto == openflow.IPProtoICMPv6 && p.ttl == 255 && len(p.data) > 40
	if onLink && (p.data[40] == neighborSolicitation || p.data[40] == neighborAdvertisement) {
		n.answerNDP(f, p.data)
		return
	}
	if s := n.wantedBy(p); s != nil {
		if !p.isCut() {
			s.Receive(n.DPID, f.Port, p.data)
		}
		return
	}
	if n.answerOnLink(f, from, p) {
		return
	}
	if p.dst.IsMulticast() || !p.v4 && (p.src.IsLinkLocalUnicast() || p.dst.IsLinkLocalUnicast()) &&
		n.local[p.dst] == nil {
		return
	}
	if at, own := n.local[p.dst]; own {
		if !p.isCut() && (at == f || !isLinkLocal(p.dst)) {
			n.toHost(f, p)
		}
		return
	}
	if expired || p.ttl <= 1 {
		n.sendError(f, p, timeExceeded)
		return
	}
	n.forward(f, p)
}

// forward forwards a packet, and makes the switch do so with the next ones.
func (n *node) forward(f *Interface, p ipPacket) {
	if n.net == nil {
		return
	}
	r := n.net.lookup(n.index, p.dst)
	if r == nil {
		n.sendError(f, p, networkUnreachable)
		return
	}
	if mtu := n.mtuOf(r); p.length > mtu {
		n.tooLarge(f, p, r, mtu)
		return
	}
	w := waiting{p.decrement(), p, f}
	if n.reactive {
		r = n.net.narrowed(n.index, p.dst, r)
	}
	if n.reactive && r.Source != Connected && n.rules != nil && n.rules.Flow(routeKey(r.Prefix)) == nil {
		n.prepare(r, w)
		return
	}
	n.send(r, w)
}

// originate sends a packet of the router itself.
func (n *node) originate(packet []byte) {
	p, ok := parseIP(etherTypeOf(packet), packet)
	if !ok || n.net == nil {
		return
	}
	if r := n.net.lookup(n.index, p.dst); r != nil {
		n.send(r, waiting{packet: packet})
	}
}

// send sends a packet by a route, as the switch would.
func (n *node) send(r *Route, w waiting) {
	p, ok := parseIP(etherTypeOf(w.packet), w.packet)
	if !ok {
		return
	}
	if r.Drop {
		return
	}
	h := r.Hops[p.flowHash()%uint32(len(r.Hops))]
	switch {
	case r.Source == Connected:
		n.deliver(n.itf[h.Port], p.dst, w)
	case h.dst == (openflow.MAC{}):
		n.deliver(n.itf[h.Port], h.Via, w)
	default:
		n.output(h.Port, frame(h.dst, h.src, etherTypeOf(w.packet), w.packet))
	}
}

// output sends a frame out of a port.
func (n *node) output(port uint32, frame []byte) {
	if n.sw == nil {
		return
	}
	_ = n.sw.Send(&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: openflow.PortController,
		Actions: []openflow.Action{openflow.Output(port)}, Data: frame})
}

// setup is a reactive route that is being installed: first in the routers beyond, while packets
// wait; then, after those packets, in this one.
type setup struct {
	queue []waiting
	ready bool // the routers beyond have it
	quiet settle
}

func (s *setup) stop() { s.quiet.stop() }

const maxWaiting = 1024 // packets, for one route that is being installed

// prepare installs a route because of a packet.
func (n *node) prepare(r *Route, w waiting) {
	s := n.setups[r.Prefix]
	switch {
	case s == nil:
		s = &setup{queue: []waiting{w}}
		n.setups[r.Prefix] = s
		net := n.net // read while mu is held
		n.app.done.Go(func() { n.app.setUp(n, net, r, w.fault.dst, s) })
	case !s.ready:
		if len(s.queue) < maxWaiting {
			s.queue = append(s.queue, w)
		}
	default:
		n.send(r, w)
		n.finish(r.Prefix, s)
	}
}

// setUp installs a route in all routers beyond n that it may lead through.
func (a *App) setUp(n *node, net *network, r *Route, to netip.Addr, s *setup) {
	seen, todo := map[int]bool{n.index: true}, []*Route{r}
	var touched []*node
	for ; len(todo) > 0; todo = todo[1:] {
		for _, h := range todo[0].Hops {
			if h.router < 0 || seen[h.router] {
				continue
			}
			seen[h.router] = true
			m := a.node(net.routers[h.router].DPID) // nil: a later configuration has no such router
			next := net.towards(h.router, to)
			if m == nil || next == nil || next.Source == Connected {
				continue
			}
			todo = append(todo, next)
			m.mu.Lock()
			if m.rules != nil && m.net == net && m.setups[next.Prefix] == nil &&
				m.rules.Flow(routeKey(next.Prefix)) == nil {
				_ = m.put(m.routeWay(next))
				m.putParts(next.Prefix)
				touched = append(touched, m)
			}
			m.mu.Unlock()
		}
	}
	a.barrier(touched)
	n.mu.Lock()
	defer n.mu.Unlock()
	s.ready = true
	for _, w := range s.queue {
		if now := n.net.lookup(n.index, w.fault.dst); now != nil {
			n.send(now, w)
		}
	}
	s.queue = nil
	n.finish(r.Prefix, s)
}

// finish installs the route here once no packet is passing through the controller.
func (n *node) finish(p netip.Prefix, s *setup) {
	n.passed(&s.quiet, func() {
		if n.setups[p] != s {
			return
		}
		delete(n.setups, p)
		if now := n.net.installed(n.index, p); now != nil && n.rules != nil {
			_ = n.put(n.routeWay(now))
			n.putParts(p)
		}
	})
}
