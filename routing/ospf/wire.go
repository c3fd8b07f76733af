package ospf

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// wire is the part of an interface that exchanges packets: timers, neighbours, and output queues.
type wire struct {
	*Interface
	cfg       InterfaceConfig
	virtual   *virtualLink // the virtual link, if it is one
	neighbors []*neighbor
	shunned   map[ID]instant   // routers that are not accepted as neighbours, until when; keys as in find
	strangers map[ID]*stranger // routers heard with mismatches, by address; see mismatch.go

	hello, wait, ack timer
	announce         int // grace-LSAs still to be sent before the first Hello

	sequence uint32      // of cryptographic authentication
	heard    map[ID]last // of former neighbours, by Router ID; see replay.go
	busy     bool        // there is something to flush
	updates  []*entry    // to flood
	link     *database   // LSAs of this link alone; nil: none yet
	delayed  []LSAHeader // to acknowledge; section 13.5
}

// maxNeighbors limits the memory that forged Hellos can take on one interface.
const maxNeighbors = 1024

// maxDatagram is the maximum size of an IP packet, before fragmentation.
const maxDatagram = 65535

// ackDelay is how long acknowledgments are collected; it must be less than RxmtInterval (section
// 13.5). It is short because a neighbour does not help a restarting router that has not
// acknowledged all changes (RFC 3623, section 3.1 (2)), even if its process only had no time to do
// so.
const ackDelay = 100 * time.Millisecond

func newWire(i *Interface, cfg InterfaceConfig) *wire {
	w := &wire{Interface: i, cfg: cfg}
	w.hello = timer{what: timerHello, of: w}
	w.wait = timer{what: timerWait, of: w}
	w.ack = timer{what: timerAck, of: w}
	return w
}

func (w *wire) domain() *Domain { return w.router.domain }

// up starts the timers of section 9.3's event InterfaceUp.
func (w *wire) up() {
	d := w.domain()
	d.wires = append(d.wires, w)
	w.area.wires = append(w.area.wires, w)
	d.agenda.set(&w.hello, d.now)
	if w.announce = 0; w.router.restarting() {
		w.announce = graceCopies
	}
	if w.state == InterfaceWaiting {
		d.agenda.set(&w.wait, d.now+w.cfg.DeadInterval)
	}
}

// down resets everything, with KillNbr for all neighbours (section 9.3).
func (w *wire) down() {
	d := w.domain()
	for _, n := range w.list() {
		n.event(killNbr)
	}
	for _, t := range []*timer{&w.hello, &w.wait, &w.ack} {
		d.agenda.stop(t)
	}
	is := func(o *wire) bool { return o == w }
	d.wires = slices.DeleteFunc(d.wires, is)
	w.area.wires = slices.DeleteFunc(w.area.wires, is)
	if w.link != nil {
		w.link.discard()
	}
	w.updates, w.delayed, w.heard, w.strangers = nil, nil, nil, nil
}

// list returns a copy of the neighbours, for loops in which some may be removed.
func (w *wire) list() []*neighbor { return slices.Clone(w.neighbors) }

// expire is called when one of the wire's timers is due.
func (w *wire) expire(what timerKind) {
	switch what {
	case timerHello:
		if w.announce > 0 && w.router.restarting() {
			w.announce--
			w.sendGrace()
			w.domain().agenda.set(&w.hello, w.domain().now+graceSpacing)
			return
		}
		w.sendHello()
		w.domain().agenda.set(&w.hello, w.domain().now+w.cfg.HelloInterval)
	case timerWait:
		w.event(waitTimer)
	case timerAck:
		w.sendDelayedAcks()
	}
}

// interfaceEvent is an event of section 9.2 that a wire can receive while it is up.
type interfaceEvent uint8

const (
	waitTimer interfaceEvent = iota
	backupSeen
	neighborsChanged // NeighborChange
)

// event implements the table of section 9.3 for networks that elect a Designated Router.
func (w *wire) event(e interfaceEvent) {
	switch {
	case w.state == InterfaceWaiting && (e == waitTimer || e == backupSeen):
		w.domain().agenda.stop(&w.wait)
		w.setState(InterfaceDROther)
		w.elect()
	case w.state >= InterfaceDROther && e == neighborsChanged:
		w.elect()
	}
}

// peers lists the Full neighbours, and those being helped.
func (w *wire) peers() []peer {
	var list []peer
	for _, n := range w.neighbors {
		if n.state == NeighborFull || n.helped != nil {
			list = append(list, peer{n.id, n.addr})
		}
	}
	return list
}

// room returns the octets that fit into a packet after the OSPF header.
func (w *wire) room() int {
	return int(w.cfg.MTU) - ipLen - headerLen - w.cfg.Auth.overhead()
}

// fits reports whether an LSA can be sent at all, in fragments if need be (section A.1). A
// router-LSA with more than 5,000 links cannot.
func (w *wire) fits(e *entry) bool {
	return 4+lsaHeaderLen+len(e.Body) <= maxDatagram-ipLen-headerLen-w.cfg.Auth.overhead()
}

// send sends a packet (section 8.1).
func (w *wire) send(dst netip.Addr, body Body) {
	d := w.domain()
	p := Packet{RouterID: w.router.id, AreaID: w.area.id, Body: body}
	w.sequence = max(w.sequence, uint32(d.clock().Unix()))
	out := Datagram{Interface: w.Interface, Dst: dst, TTL: 1,
		Payload: w.cfg.Auth.Sign(p.encode(), w.sequence, d.clock())}
	if w.addr != 0 {
		out.Src = w.addr.Addr()
	}
	if w.typ == Virtual {
		out.TTL = 64
	}
	d.out.Datagrams = append(d.out.Datagrams, out)
}

// sendTo sends to one neighbour: on point-to-point links to AllSPFRouters (section 8.1).
func (w *wire) sendTo(n *neighbor, body Body) {
	if w.typ == PointToPoint {
		w.send(AllSPFRouters, body)
		return
	}
	w.send(n.addr.Addr(), body)
}

// sendAll sends to all adjacent neighbours: DR and Backup to AllSPFRouters, others to AllDRouters
// (sections 13.3 and 13.5).
func (w *wire) sendAll(body Body) {
	switch {
	case w.typ == Virtual:
		for _, n := range w.neighbors {
			w.send(n.addr.Addr(), body)
		}
	case w.typ == Broadcast && w.state != InterfaceDR && w.state != InterfaceBackup:
		w.send(AllDRouters, body)
	default:
		w.send(AllSPFRouters, body)
	}
}

// Receive handles an OSPF packet that has arrived on an interface of the domain (section 8.2): src
// and dst are from its IP header, b is what follows that header. An error says why the packet was
// rejected; it does not mean a fault of the domain. b may be reused after the call.
func (d *Domain) Receive(now time.Time, in *Interface, src, dst netip.Addr, b []byte) error {
	d.advance(now)
	if err := d.receive(in, src, dst, b); err != nil {
		return fmt.Errorf("ospf: packet from %v on %v: %w", src, in, err)
	}
	return nil
}

func (d *Domain) receive(in *Interface, src, dst netip.Addr, b []byte) error {
	if !in.isUp() {
		return fmt.Errorf("the interface is down")
	}
	src, dst = src.Unmap(), dst.Unmap()
	if !src.Is4() || !dst.Is4() {
		return fmt.Errorf("source and destination are not both IPv4 addresses")
	}
	p, err := Decode(b)
	if err != nil {
		return err
	}
	if p.RouterID == 0 {
		return fmt.Errorf("its Router ID is 0.0.0.0")
	}
	w, err := in.wireOf(p, IDOf(src))
	if err == nil {
		err = w.take(p, src, dst, b)
	} else {
		w = in.wire
	}
	w.refused(p.RouterID, IDOf(src), err)
	return err
}

// take handles a packet for the wire's area.
func (w *wire) take(p *Packet, src, dst netip.Addr, b []byte) error {
	d := w.domain()
	if err := w.checkAddresses(src, dst); err != nil {
		return err
	}
	if id := p.RouterID; id == w.router.id {
		return disagree(SameRouterID, id.String(), id.String(), "its Router ID %v is our own", id)
	}
	sequence, err := w.cfg.Auth.Verify(b, d.clock())
	if err != nil {
		return err
	}
	n := w.find(p.RouterID, IDOf(src))
	if n != nil && n.id == p.RouterID && w.cfg.Auth.Type == AuthCryptographic {
		if sequence < n.sequence {
			return fmt.Errorf("its sequence number %d has been used before: the last was %d", sequence, n.sequence)
		}
		n.sequence = sequence
	}
	if hello, ok := p.Body.(*Hello); ok {
		return w.receiveHello(hello, p.RouterID, IDOf(src), sequence)
	}
	if n == nil {
		return fmt.Errorf("a %v packet from a router that is not a neighbour", p.Body.packetType())
	}
	if n.id != p.RouterID { // only a Hello may announce that another router has taken the address
		return fmt.Errorf("a %v packet of router %v by the address of router %v", p.Body.packetType(), p.RouterID, n.id)
	}
	return n.receive(p.Body)
}

// checkAddresses checks the IP header as section 8.2 requires: the packet is not one of our own,
// and is addressed to this interface. On a virtual link any address of the router will do: the
// other end takes it from our router-LSA, and routes may lead to another interface. An unnumbered
// interface borrows one of the others' addresses.
func (w *wire) checkAddresses(src, dst netip.Addr) error {
	own := func(a netip.Addr) bool {
		i := w.domain().addresses[IDOf(a)]
		return i != nil && i.router == w.router
	}
	switch {
	case own(src):
		return fmt.Errorf("its source is our own address")
	case src.IsMulticast() || src.IsUnspecified() || src == limitedBroadcast:
		return fmt.Errorf("its source is not a router's address")
	case dst == AllDRouters && w.state != InterfaceDR && w.state != InterfaceBackup:
		return fmt.Errorf("it is for the Designated Router, which we are not")
	case w.typ != Virtual && (dst == AllSPFRouters || dst == AllDRouters):
		return nil
	case IDOf(dst) == w.addr && w.typ != Virtual, own(dst) && (w.typ == Virtual || w.addr == 0):
		return nil
	}
	return fmt.Errorf("it is for %v, not for this interface", dst)
}

var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// wireOf finds the interface for a packet by its area: the receiving one, or a virtual link with
// that one's area as transit area (section 8.2).
func (i *Interface) wireOf(p *Packet, src ID) (*wire, error) {
	switch {
	case p.AreaID == i.area.id && i.wire != nil:
		if i.typ == Broadcast && (src^i.addr)&i.mask != 0 {
			network := i.Address().Masked()
			return nil, disagree(DifferSubnet, src.String(), network.String(), "its source is not in the network %v",
				network)
		}
		return i.wire, nil
	case p.AreaID == Backbone && i.area.id != Backbone:
		for _, v := range i.router.virtual {
			if v.transit == i.area && v.peer == p.RouterID && v.iface.isUp() {
				return v.iface.wire, nil
			}
		}
		return nil, disagree(DifferArea, p.AreaID.String(), i.area.id.String(),
			"it is of the backbone, and there is no virtual link to %v through area %v", p.RouterID, i.area.id)
	case p.AreaID == i.area.id:
		return nil, fmt.Errorf("the interface exchanges no packets")
	}
	return nil, disagree(DifferArea, p.AreaID.String(), i.area.id.String(), "its area is %v, ours is %v", p.AreaID,
		i.area.id)
}

// find returns the neighbour that sent a packet: by Router ID on point-to-point and virtual links,
// by address on broadcast networks (section 8.2); nil: none.
func (w *wire) find(id, addr ID) *neighbor {
	for _, n := range w.neighbors {
		if w.typ == Broadcast && n.addr == addr || w.typ != Broadcast && n.id == id {
			return n
		}
	}
	return nil
}
