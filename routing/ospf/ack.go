package ospf

import (
	"slices"
)

// mustAcknowledge puts an LSA on the neighbour's Link state retransmission list (section 13.3).
func (n *neighbor) mustAcknowledge(e *entry) {
	if _, ok := n.unacknowledged[e]; !ok {
		e.waiting++
	}
	d := n.domain()
	n.unacknowledged[e] = d.now
	if n.retransmit.pos == 0 {
		d.agenda.set(&n.retransmit, d.now+n.wire.cfg.RxmtInterval)
	}
}

// acknowledged removes an LSA from the retransmission list.
func (n *neighbor) acknowledged(e *entry) {
	if _, ok := n.unacknowledged[e]; !ok {
		return
	}
	delete(n.unacknowledged, e)
	e.waiting--
	if len(n.unacknowledged) == 0 {
		n.domain().agenda.stop(&n.retransmit)
	}
}

// burst limits the LSAs retransmitted at a time (section 13.6).
const burst = 500

// retransmitDue sends again what has not been acknowledged for RxmtInterval (section 13.6).
func (n *neighbor) retransmitDue() {
	d := n.domain()
	var due []*entry
	for e, sent := range n.unacknowledged {
		if d.now-sent >= n.wire.cfg.RxmtInterval {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *entry) int { return a.LSAKey.compare(b.LSAKey) })
	due = due[:min(len(due), burst)]
	for _, e := range due {
		n.unacknowledged[e] = d.now
	}
	n.wire.sendUpdates(due, func(u *LinkStateUpdate) { n.wire.sendTo(n, u) })
	next := d.now + n.wire.cfg.RxmtInterval
	for _, sent := range n.unacknowledged {
		next = min(next, sent+n.wire.cfg.RxmtInterval)
	}
	d.agenda.set(&n.retransmit, max(next, d.now+n.wire.cfg.RxmtInterval/10))
}

// receiveAck is section 13.7: only the instance that was sent is acknowledged.
func (n *neighbor) receiveAck(ack *LinkStateAck) {
	for _, h := range ack.Headers {
		e := n.entry(h.LSAKey)
		if e != nil && h.Compare(e.header()) == 0 {
			n.acknowledged(e)
		}
	}
}

// delayAck notes an LSA to be acknowledged together with others (section 13.5).
func (w *wire) delayAck(h LSAHeader) {
	w.delayed = append(w.delayed, h)
	w.mark()
	if d := w.domain(); w.ack.pos == 0 {
		d.agenda.set(&w.ack, d.now+min(ackDelay, w.cfg.RxmtInterval/2))
	}
}

// sendDelayedAcks sends the delayed acknowledgments, by multicast to all who may wait for them.
func (w *wire) sendDelayedAcks() {
	w.domain().agenda.stop(&w.ack)
	w.sendAcks(take(&w.delayed), func(a *LinkStateAck) { w.sendAll(a) })
}

// sendAcks packs acknowledgments into as few packets as the MTU allows.
func (w *wire) sendAcks(headers []LSAHeader, send func(*LinkStateAck)) {
	for chunk := range slices.Chunk(headers, w.room()/lsaHeaderLen) {
		send(&LinkStateAck{Headers: chunk})
	}
}
