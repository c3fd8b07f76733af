package ospf

import (
	"fmt"
	"slices"
	"time"
)

// receiveUpdate implements section 13: each LSA of a Link State Update is accepted or not,
// acknowledged, and flooded.
func (n *neighbor) receiveUpdate(u *LinkStateUpdate) error {
	var errs error
	for _, lsa := range u.LSAs {
		if err := n.receiveLSA(lsa); err != nil && errs == nil {
			errs = err
		}
		if n.state < NeighborExchange {
			break // BadLSReq: the rest of the packet is not processed
		}
	}
	return errs
}

// receiveLSA implements section 13 for one LSA; comments give the numbers of its steps.
func (n *neighbor) receiveLSA(lsa LSA) error {
	d, w := n.domain(), n.wire
	if err := lsa.Validate(); err != nil { // 1, 2
		return err
	}
	db := w.database(lsa.Type)
	if !db.floodsOn(w) { // 3
		return fmt.Errorf("LSA %v: not flooded into stub areas or over virtual links", lsa.LSAKey)
	}
	e := db.entries[lsa.LSAKey]
	if lsa.Age >= MaxAge && e == nil && d.exchanging == 0 { // 4
		n.ack(lsa.LSAHeader)
		return nil
	}
	order := 1
	if e != nil {
		order = lsa.Compare(e.header())
	}
	switch {
	case order > 0: // 5
		// An LSA that is being flushed is always accepted: if it were put off, its live copy could
		// spread again where it has been removed, and the two would chase each other around the
		// network.
		if e != nil && e.arrived && lsa.Age < MaxAge && d.now-e.installed < d.cfg.MinLSArrival {
			return fmt.Errorf("LSA %v: it arrived sooner than MinLSArrival after the previous instance", lsa.LSAKey)
		}
		if e == nil {
			if err := n.admit(); err != nil {
				return fmt.Errorf("LSA %v: %w", lsa.LSAKey, err)
			}
		}
		return n.install(db, lsa)
	case n.requests[lsa.LSAKey] != (request{}): // 6
		n.event(badLSReq)
		return fmt.Errorf("LSA %v: this is not the more recent instance that was described", lsa.LSAKey)
	case order == 0: // 7
		n.duplicate(e, lsa)
	default: // 8
		n.outdated(e)
	}
	return nil
}

// install implements step 5: the new instance is installed and flooded out of the other interfaces.
// MinLSArrival does not apply to an instance that was requested, so that it does not delay the next
// one, which often follows as soon as the adjacency is full.
func (n *neighbor) install(db *database, lsa LSA) error {
	_, asked := n.requests[lsa.LSAKey]
	lsa.Body = slices.Clone(lsa.Body)
	e := db.install(lsa, !asked, n)
	back := db.flood(e, n)
	if !back && (n.wire.state != InterfaceBackup || n.addr == n.wire.dr) {
		n.wire.delayAck(lsa.LSAHeader)
	}
	if n.domain().isOwn(lsa.LSAKey) {
		db.selfOriginated(e)
		return nil
	}
	if lsa.IsGrace() {
		return n.wire.takeGrace(e, asked)
	}
	return nil
}

// duplicate implements step 7: the neighbour has what we have. If we had sent it to them, this is
// an implied acknowledgment (table 19 in section 13.5).
func (n *neighbor) duplicate(e *entry, lsa LSA) {
	if _, ok := n.unacknowledged[e]; !ok {
		n.ack(lsa.LSAHeader)
		return
	}
	n.acknowledged(e)
	if n.wire.state == InterfaceBackup && n.addr == n.wire.dr {
		n.wire.delayAck(lsa.LSAHeader)
	}
}

// outdated implements step 8: the neighbour is sent our instance, at most once per MinLSArrival,
// and not while one with the last sequence number is being flushed.
func (n *neighbor) outdated(e *entry) {
	d := n.domain()
	if e.maxAged() && e.Seq == MaxSequence {
		return
	}
	if e.returned && d.now-e.sentBack < d.cfg.MinLSArrival {
		return
	}
	e.returned, e.sentBack = true, d.now
	n.wire.sendUpdates([]*entry{e}, func(u *LinkStateUpdate) { n.wire.sendTo(n, u) })
}

// flood implements section 13.3: the LSA is sent out of all interfaces in its scope, of all routers
// of the domain, as if it had been flooded from one to the other. from is the neighbour it came
// from, or nil. back reports whether it goes back out of the receiving interface.
func (db *database) flood(e *entry, from *neighbor) (back bool) {
	for _, w := range slices.Clone(db.wires()) {
		if !db.floodsOn(w) || !w.floods(e, from) {
			continue
		}
		w.queue(e)
		back = back || from != nil && w == from.wire
	}
	return back
}

// floods puts the LSA on the retransmission lists of the wire's neighbours, and reports whether it
// must be sent (section 13.3 steps 1 to 4).
func (w *wire) floods(e *entry, from *neighbor) bool {
	if !w.fits(e) {
		w.domain().out.Errors = append(w.domain().out.Errors,
			fmt.Errorf("ospf: LSA %v is larger than an IP packet can be: neighbours on %v do not get it", e.LSAKey,
				w.Interface))
		return false
	}
	added := false
	for _, n := range w.list() {
		if n.state < NeighborExchange || !n.takes(e.Type) {
			continue
		}
		if r, ok := n.requests[e.LSAKey]; ok && n.state < NeighborFull {
			order := e.header().Compare(r.header)
			if order < 0 {
				continue
			}
			n.satisfied(e.LSAKey)
			if order == 0 {
				continue
			}
		}
		if n != from {
			n.mustAcknowledge(e)
			added = true
		}
	}
	if !added {
		return false
	}
	if from != nil && from.wire == w && (from.addr == w.dr || from.addr == w.bdr || w.state == InterfaceBackup) &&
		w.typ == Broadcast {
		return false // the DR has flooded it already, or will
	}
	return true
}

// queue queues an LSA for flooding; flush sends all LSAs of one instant together.
func (w *wire) queue(e *entry) {
	w.updates = append(w.updates, e)
	w.mark()
}

// ack queues a direct acknowledgment (section 13.5).
func (n *neighbor) ack(h LSAHeader) {
	n.acks = append(n.acks, h)
	n.wire.mark()
}

// mark makes Poll flush the wire.
func (w *wire) mark() {
	if !w.busy {
		w.busy = true
		w.domain().busy = append(w.domain().busy, w)
	}
}

// flush sends what is queued: updates, each LSA once, and direct acknowledgments.
func (w *wire) flush() {
	w.busy = false
	updates := take(&w.updates)
	if len(updates) > 1 {
		seen := make(map[*entry]bool, len(updates))
		updates = slices.DeleteFunc(updates, func(e *entry) bool {
			double := seen[e]
			seen[e] = true
			return double
		})
	}
	w.sendUpdates(updates, func(u *LinkStateUpdate) { w.sendAll(u) })
	for _, n := range w.neighbors {
		w.sendAcks(take(&n.acks), func(a *LinkStateAck) { w.sendTo(n, a) })
	}
	if len(w.delayed) >= w.room()/lsaHeaderLen {
		w.sendDelayedAcks()
	}
}

// sendUpdates packs LSAs into as few packets as the MTU allows; one that is larger goes alone, in
// fragments. Their ages grow by InfTransDelay: one hop, however many routers of the domain lie
// between.
func (w *wire) sendUpdates(entries []*entry, send func(*LinkStateUpdate)) {
	u, size := &LinkStateUpdate{}, 4
	for _, e := range entries {
		lsa := LSA{e.header(), e.Body}
		lsa.Age = min(MaxAge, lsa.Age+uint16(w.cfg.TransmitDelay/time.Second))
		if len(u.LSAs) > 0 && size+int(lsa.Length) > w.room() {
			send(u)
			u, size = &LinkStateUpdate{}, 4
		}
		u.LSAs = append(u.LSAs, lsa)
		size += int(lsa.Length)
	}
	if len(u.LSAs) > 0 {
		send(u)
	}
}
