package ospf

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// NeighborState is the state of a neighbour (section 10.1). Attempt, of networks without multicast,
// is left out.
type NeighborState uint8

const (
	NeighborDown NeighborState = iota
	NeighborInit
	NeighborTwoWay
	NeighborExStart
	NeighborExchange
	NeighborLoading
	NeighborFull
)

// String returns the name in the RFC.
func (s NeighborState) String() string {
	return []string{"Down", "Init", "2-Way", "ExStart", "Exchange", "Loading", "Full"}[s]
}

// neighborEvent is an event of a neighbour (section 10.2). Start is left out with Attempt.
type neighborEvent uint8

const (
	helloReceived neighborEvent = iota
	twoWayReceived
	negotiationDone
	exchangeDone
	badLSReq
	loadingDone
	adjOK
	seqNumberMismatch
	oneWayReceived
	killNbr
	inactivityTimer
)

// neighbor is a router on the other side of a wire (section 10).
type neighbor struct {
	wire     *wire
	id, addr ID
	state    NeighborState
	priority uint8
	dr, bdr  ID
	sequence uint32 // of cryptographic authentication: the last one
	brought  share  // LSAs received from it
	reason   string // why it was dropped
	helped   *help  // while it restarts

	inactivity, dd, request, retransmit, grace timer

	exchange       exchange
	requests       map[LSAKey]request
	order          []LSAKey           // of the requests, with some that are satisfied
	asked          int                // requests that have been sent
	unacknowledged map[*entry]instant // the Link state retransmission list: when each was sent
	acks           []LSAHeader        // to send directly
}

func newNeighbor(w *wire, id, addr ID) *neighbor {
	n := &neighbor{wire: w, id: id, addr: addr, requests: map[LSAKey]request{}, unacknowledged: map[*entry]instant{}}
	n.inactivity = timer{what: timerInactivity, of: n}
	n.dd = timer{what: timerDD, of: n}
	n.request = timer{what: timerRequest, of: n}
	n.retransmit = timer{what: timerRetransmit, of: n}
	n.grace = timer{what: timerGrace, of: n}
	return n
}

func (n *neighbor) domain() *Domain { return n.wire.router.domain }

// expire is called when one of the neighbour's timers is due.
func (n *neighbor) expire(what timerKind) {
	switch what {
	case timerInactivity:
		n.event(inactivityTimer)
	case timerDD:
		n.expireDD()
	case timerRequest:
		n.repeatRequest()
	case timerRetransmit:
		n.retransmitDue()
	case timerGrace:
		n.abandon("its grace period is over") // RFC 3623, section 3.2 (2)
	}
}

// event implements the table of section 10.3; the cases are in its order. Events that the table
// does not list for a state are ignored.
func (n *neighbor) event(e neighborEvent) {
	switch {
	case e == helloReceived:
		n.domain().agenda.set(&n.inactivity, n.domain().now+n.wire.cfg.DeadInterval)
		if n.state == NeighborDown {
			n.setState(NeighborInit)
		}
	case e == twoWayReceived && n.state == NeighborInit && n.wantsAdjacency():
		n.startExchange()
	case e == twoWayReceived && n.state == NeighborInit:
		n.setState(NeighborTwoWay)
	case e == negotiationDone && n.state == NeighborExStart:
		n.setState(NeighborExchange)
		n.summarize()
	case e == exchangeDone && n.state == NeighborExchange && len(n.requests) > 0:
		n.setState(NeighborLoading)
	case e == exchangeDone && n.state == NeighborExchange:
		n.setState(NeighborFull)
	case e == loadingDone && n.state == NeighborLoading:
		n.setState(NeighborFull)
	case e == adjOK && n.state == NeighborTwoWay && n.wantsAdjacency():
		n.startExchange()
	case e == adjOK && n.state >= NeighborExStart && !n.wantsAdjacency():
		n.reset(NeighborTwoWay)
	case (e == seqNumberMismatch || e == badLSReq) && n.state >= NeighborExchange:
		n.startExchange()
	case e == oneWayReceived && n.state >= NeighborTwoWay:
		n.reset(NeighborInit)
	case e == inactivityTimer && n.helped != nil:
		// It may be silent while it restarts.
	case e == killNbr || e == inactivityTimer:
		n.gone()
	}
}

// wantsAdjacency is section 10.4: on broadcast networks, one of the two is DR or Backup.
func (n *neighbor) wantsAdjacency() bool {
	w := n.wire
	return w.typ != Broadcast || w.state == InterfaceDR || w.state == InterfaceBackup || n.addr == w.dr ||
		n.addr == w.bdr
}

// setState changes the state and updates what depends on it: LSAs when an adjacency becomes or
// ceases to be Full, and the election when communication becomes or ceases to be bidirectional.
func (n *neighbor) setState(s NeighborState) {
	was, d := n.state, n.domain()
	if s == was {
		return
	}
	n.state = s
	exchanging := func(s NeighborState) bool { return s == NeighborExchange || s == NeighborLoading }
	if exchanging(was) {
		d.exchanging--
	}
	if exchanging(s) {
		d.exchanging++
	}
	d.out.Neighbors = append(d.out.Neighbors, NeighborChange{n.wire.Interface, n.id, was, s, n.reason})
	if was == NeighborFull || s == NeighborFull {
		n.wire.router.touch()
	}
	if (was >= NeighborTwoWay) != (s >= NeighborTwoWay) {
		n.wire.event(neighborsChanged)
	}
	if s == NeighborFull && n.helped != nil && !n.helped.asked {
		n.abandon("it is adjacent")
	}
}

// reset falls back to a state without an exchange: the lists are cleared.
func (n *neighbor) reset(s NeighborState) {
	n.clear()
	n.setState(s)
}

// clear empties the lists of section 10 that belong to an exchange.
func (n *neighbor) clear() {
	for _, t := range []*timer{&n.dd, &n.request, &n.retransmit} {
		n.domain().agenda.stop(t)
	}
	for e := range n.unacknowledged {
		e.waiting--
	}
	clear(n.unacknowledged)
	clear(n.requests)
	n.order, n.asked, n.acks = nil, 0, nil
	n.exchange.fresh = 0
	n.exchange.pending, n.exchange.sent, n.exchange.received = nil, nil, nil
}

// gone removes the neighbour.
func (n *neighbor) gone() {
	n.domain().agenda.stop(&n.inactivity)
	wasHelped := n.helped != nil
	if wasHelped {
		n.unhelped("it is gone")
	}
	n.wire.remember(n)
	n.wire.neighbors = slices.DeleteFunc(n.wire.neighbors, func(o *neighbor) bool { return o == n })
	n.reset(NeighborDown)
	if wasHelped {
		n.wire.event(neighborsChanged) // it had a vote in any state
	}
}

// receive takes a packet other than Hello.
func (n *neighbor) receive(b Body) error {
	if dd, ok := b.(*DatabaseDescription); ok {
		return n.receiveDD(dd)
	}
	if n.state < NeighborExchange {
		return fmt.Errorf("a %v packet in state %v", b.packetType(), n.state)
	}
	switch b := b.(type) {
	case *LinkStateRequest:
		return n.receiveRequest(b)
	case *LinkStateUpdate:
		return n.receiveUpdate(b)
	case *LinkStateAck:
		n.receiveAck(b)
	}
	return nil
}

// NeighborInfo is what is known of a neighbour.
type NeighborInfo struct {
	ID       ID
	Addr     netip.Addr // not valid behind an unnumbered segment
	State    NeighborState
	Priority uint8
	// Requests and Unacknowledged are the lengths of the Link state request and retransmission
	// lists.
	Requests, Unacknowledged int
	// Dead is how long the neighbour may be silent before it is taken for lost; 0 on a Segment.
	Dead time.Duration
	// Helped is for how long the neighbour, which restarts, may still be helped; 0: it is not.
	Helped time.Duration
}

// Neighbors lists the neighbours of an interface. Those of the same domain on a Segment are Full;
// the other members of a broadcast segment are not listed.
func (i *Interface) Neighbors() []NeighborInfo {
	var list []NeighborInfo
	if i.wire == nil {
		for _, p := range i.peers() {
			list = append(list, NeighborInfo{ID: p.id, Addr: p.addr.Addr(), State: NeighborFull})
		}
		return list
	}
	for _, n := range i.wire.neighbors {
		x := NeighborInfo{ID: n.id, Addr: n.addr.Addr(), State: n.state, Priority: n.priority,
			Requests:       len(n.requests),
			Unacknowledged: len(n.unacknowledged), Dead: n.inactivity.at - n.domain().now}
		if n.helped != nil {
			x.Helped = n.grace.at - n.domain().now
		}
		list = append(list, x)
	}
	return list
}
