package ospf

import "fmt"

// exchange is what a neighbour keeps while databases are compared (section 10: Master/Slave, DD
// sequence number, database summary list, last received packet).
type exchange struct {
	master   bool // this router is the master
	seq      uint32
	began    bool
	inits    int     // initial Database Descriptions received with a smaller MTU
	options  Options // of the neighbour
	fresh    int     // number of requested LSAs of which we have no instance
	pending  []LSAKey
	sent     *DatabaseDescription
	received *DatabaseDescription // without its headers
}

// startExchange enters ExStart: both routers claim to be master, until the one with the lower
// Router ID gives way.
func (n *neighbor) startExchange() {
	n.clear()
	n.setState(NeighborExStart)
	x := &n.exchange
	if !x.began {
		x.seq, x.began = uint32(n.domain().clock().Unix()), true
	}
	x.seq++
	x.master, x.inits = true, 0
	n.sendDD(FlagInit | FlagMore | FlagMaster)
}

// sendDD sends the next Database Description, with as many headers as fit (section 10.8).
func (n *neighbor) sendDD(flags DDFlags) {
	w, x := n.wire, &n.exchange
	dd := &DatabaseDescription{Options: w.area.options() | OptionO, Flags: flags, Seq: x.seq}
	if w.typ != Virtual {
		dd.MTU = w.cfg.MTU
	}
	if flags&FlagInit == 0 {
		dd.Headers = n.nextHeaders((w.room() - 8) / lsaHeaderLen)
		if len(x.pending) > 0 {
			dd.Flags |= FlagMore
		}
	}
	x.sent = dd
	n.repeatDD()
}

// repeatDD sends the last Database Description again. Only the master does so on its own
// initiative, and in ExStart both (section 10.8).
func (n *neighbor) repeatDD() {
	n.wire.sendTo(n, n.exchange.sent)
	if n.state == NeighborExStart || n.state == NeighborExchange && n.exchange.master {
		n.domain().agenda.set(&n.dd, n.domain().now+n.wire.cfg.RxmtInterval)
	}
}

// expireDD repeats a packet that was not answered. A slave whose exchange is complete has kept its
// last packet for RouterDeadInterval, and frees it now (section 10.8).
func (n *neighbor) expireDD() {
	if n.state == NeighborExStart || n.state == NeighborExchange {
		n.repeatDD()
		return
	}
	n.exchange.sent, n.exchange.received = nil, nil
}

// nextHeaders takes up to room LSAs from the database summary list.
func (n *neighbor) nextHeaders(room int) []LSAHeader {
	var headers []LSAHeader
	pending := n.exchange.pending
	for len(pending) > 0 && len(headers) < room {
		if e := n.entry(pending[0]); e != nil {
			headers = append(headers, e.header())
		}
		pending = pending[1:]
	}
	n.exchange.pending = pending
	return headers
}

// databases lists the databases exchanged with the neighbour: the area's, the link's, and the AS's,
// except into stub areas and over virtual links (section 10.3, NegotiationDone).
func (n *neighbor) databases() []*database {
	all := []*database{n.wire.area.db}
	if n.wire.link != nil {
		all = append(all, n.wire.link)
	}
	if ext := n.domain().external; ext.floodsOn(n.wire) {
		all = append(all, ext)
	}
	return all
}

// takes reports whether LSAs of a type are sent to the neighbour: opaque ones only if it has
// announced the capability (RFC 5250, section 3.1).
func (n *neighbor) takes(t LSType) bool { return !t.opaque() || n.exchange.options&OptionO != 0 }

// entry returns the database copy of an LSA that the neighbour may see; nil: there is none.
func (n *neighbor) entry(key LSAKey) *entry {
	for _, db := range n.databases() {
		if e := db.entries[key]; e != nil {
			return e
		}
	}
	return nil
}

// summarize fills the database summary list. LSAs at MaxAge are flooded instead (section 10.3).
func (n *neighbor) summarize() {
	n.exchange.pending = nil
	for _, db := range n.databases() {
		for _, entries := range db.typed {
			for _, e := range entries {
				if !n.wire.fits(e) || !n.takes(e.Type) {
					continue
				}
				if e.maxAged() {
					n.mustAcknowledge(e)
					n.wire.queue(e)
				} else {
					n.exchange.pending = append(n.exchange.pending, e.LSAKey)
				}
			}
		}
	}
}

// receiveDD is section 10.6.
func (n *neighbor) receiveDD(dd *DatabaseDescription) error {
	w, x := n.wire, &n.exchange
	if w.typ != Virtual && dd.MTU > w.cfg.MTU && !w.cfg.MTUIgnore {
		return disagree(DifferMTU, fmt.Sprint(dd.MTU), fmt.Sprint(w.cfg.MTU), "its MTU is %d octets, ours is %d",
			dd.MTU, w.cfg.MTU)
	}
	if n.state == NeighborInit {
		n.event(twoWayReceived)
	}
	n.compareMTU(dd)
	switch n.state {
	case NeighborExStart:
		return n.negotiate(dd)
	case NeighborExchange, NeighborLoading, NeighborFull:
	default:
		return fmt.Errorf("a Database Description packet in state %v", n.state)
	}
	if last := x.received; last != nil && dd.Flags == last.Flags && dd.Options == last.Options && dd.Seq == last.Seq {
		if !x.master {
			n.repeatDD()
		}
		return nil
	}
	want := x.seq
	if !x.master {
		want++
	}
	var err error
	switch {
	case (dd.Flags&FlagMaster != 0) == x.master:
		err = fmt.Errorf("both are master, or both are slave")
	case dd.Flags&FlagInit != 0:
		err = fmt.Errorf("it begins the exchange of databases anew")
	case dd.Options != x.options:
		err = fmt.Errorf("its options have become %#x from %#x", dd.Options, x.options)
	case dd.Seq != want:
		err = fmt.Errorf("its DD sequence number is %d, not %d", dd.Seq, want)
	case n.state != NeighborExchange:
		err = fmt.Errorf("a new Database Description packet in state %v", n.state)
	}
	if err != nil {
		n.event(seqNumberMismatch)
		return err
	}
	return n.accept(dd)
}

// negotiate is section 10.6 in ExStart: it determines the master.
func (n *neighbor) negotiate(dd *DatabaseDescription) error {
	x := &n.exchange
	const all = FlagInit | FlagMore | FlagMaster
	switch {
	case dd.Flags&all == all && len(dd.Headers) == 0 && n.id > n.wire.router.id:
		x.master, x.seq = false, dd.Seq-1 // the packet is the next in sequence
		n.domain().agenda.stop(&n.dd)
	case dd.Flags&(FlagInit|FlagMaster) == 0 && dd.Seq == x.seq && n.id < n.wire.router.id:
		x.master = true
	default:
		return nil // the other router gives way when it has our packet
	}
	x.options = dd.Options
	n.event(negotiationDone)
	return n.accept(dd)
}

// accept handles a packet that is next in sequence (section 10.6): it requests LSAs that are more
// recent than ours, and sends the next packet.
func (n *neighbor) accept(dd *DatabaseDescription) error {
	x := &n.exchange
	if dd.Flags&FlagInit == 0 { // it has accepted one of ours
		n.wire.agrees(n.addr, func(what Disagreement) bool { return what == DifferMTU })
	}
	x.received = &DatabaseDescription{Options: dd.Options, Flags: dd.Flags, Seq: dd.Seq}
	for _, h := range dd.Headers {
		if !h.Type.known() || h.Type.wide() && n.wire.area.cfg.Stub {
			n.event(seqNumberMismatch)
			return fmt.Errorf("it describes an LSA of %v, which area %v does not have", h.Type, n.wire.area.id)
		}
		if h.Type.wide() && n.wire.typ == Virtual {
			continue
		}
		e := n.entry(h.LSAKey)
		if e == nil || h.Compare(e.header()) > 0 {
			n.want(h, e == nil)
		}
		if most := n.wire.cfg.MaxLSAs; n.brought.all()+x.fresh > most {
			n.shun(fmt.Sprintf("it has described more than %d LSAs that we do not have", most))
			return fmt.Errorf("it describes more than %d LSAs that we do not have: it is not taken as a neighbour for %v", most, shunTime)
		}
	}
	theirsDone := dd.Flags&FlagMore == 0
	if x.master {
		if theirsDone && x.sent.Flags&FlagMore == 0 {
			n.domain().agenda.stop(&n.dd)
			n.event(exchangeDone)
		} else {
			x.seq++
			n.sendDD(FlagMaster)
		}
	} else {
		x.seq = dd.Seq
		n.sendDD(0)
		if theirsDone && x.sent.Flags&FlagMore == 0 {
			n.event(exchangeDone)
			n.domain().agenda.set(&n.dd, n.domain().now+n.wire.cfg.DeadInterval)
		}
	}
	n.askNext()
	return nil
}
