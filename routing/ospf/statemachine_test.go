package ospf

import (
	"fmt"
	"testing"
	"time"
)

// neighborIn returns a neighbour that has been brought into a state. adjacent says whether an
// adjacency is wanted (section 10.4): the network is broadcast, and we are DR or not.
func neighborIn(t *testing.T, state NeighborState, adjacent bool) *neighbor {
	t.Helper()
	s := newSim(t, 1)
	r := s.router("1.1.1.1")
	l := s.lan(0, at(r))
	s.run(50 * time.Second) // it is DR, alone
	w := l.ends[0].wire
	n := newNeighbor(w, 0x02020202, IDOf(l.ends[0].Address().Addr())+1)
	w.neighbors = append(w.neighbors, n)
	if !adjacent {
		w.state, w.dr, w.bdr = InterfaceDROther, n.addr+1, n.addr+2
		n.priority = 0
		// Who is DR is said by two more that are not looked at here.
		for i := range ID(2) {
			o := newNeighbor(w, 0x09090909+i, n.addr+1+i)
			o.state, o.priority, o.dr, o.bdr = NeighborTwoWay, 9-uint8(i), n.addr+1, n.addr+2
			w.neighbors = append(w.neighbors, o)
		}
	}
	n.state = state
	if state == NeighborExchange || state == NeighborLoading {
		n.domain().exchanging++
	}
	n.exchange.sent = &DatabaseDescription{}
	n.unacknowledged[w.area.db.entries[LSAKey{TypeRouter, r.id, r.id}]] = 0
	w.area.db.entries[LSAKey{TypeRouter, r.id, r.id}].waiting++
	return n
}

// The table of section 10.3: each event in each state, with and without a wish for an adjacency.
// What is not listed changes nothing. Whenever an adjacency ends, its lists are empty.
func TestNeighborStateMachine(t *testing.T) {
	names := []string{"HelloReceived", "2-WayReceived", "NegotiationDone", "ExchangeDone", "BadLSReq", "Loading Done", "AdjOK?", "SeqNumberMismatch", "1-WayReceived", "KillNbr", "InactivityTimer"}
	type row struct {
		event    neighborEvent
		from, to NeighborState
		adjacent bool
	}
	var rows []row
	add := func(e neighborEvent, adjacent bool, to NeighborState, from ...NeighborState) {
		for _, f := range from {
			rows = append(rows, row{e, f, to, adjacent})
		}
	}
	all := []NeighborState{NeighborInit, NeighborTwoWay, NeighborExStart, NeighborExchange, NeighborLoading, NeighborFull}
	for _, adjacent := range []bool{true, false} {
		add(helloReceived, adjacent, NeighborInit, NeighborDown)
		add(oneWayReceived, adjacent, NeighborInit, all[1:]...)
		add(killNbr, adjacent, NeighborDown, all...)
		add(inactivityTimer, adjacent, NeighborDown, all...)
		add(negotiationDone, adjacent, NeighborExchange, NeighborExStart)
		add(exchangeDone, adjacent, NeighborFull, NeighborExchange) // with nothing to request
		add(loadingDone, adjacent, NeighborFull, NeighborLoading)
		add(badLSReq, adjacent, NeighborExStart, all[3:]...)
		add(seqNumberMismatch, adjacent, NeighborExStart, all[3:]...)
	}
	add(twoWayReceived, true, NeighborExStart, NeighborInit)
	add(twoWayReceived, false, NeighborTwoWay, NeighborInit)
	add(adjOK, true, NeighborExStart, NeighborTwoWay)
	add(adjOK, false, NeighborTwoWay, all[2:]...)

	for e := helloReceived; e <= inactivityTimer; e++ {
		for _, from := range append([]NeighborState{NeighborDown}, all...) {
			for _, adjacent := range []bool{true, false} {
				want := from
				for _, r := range rows {
					if r.event == e && r.from == from && r.adjacent == adjacent {
						want = r.to
					}
				}
				n := neighborIn(t, from, adjacent)
				n.event(e)
				if n.state != want {
					t.Errorf("%s in %v (adjacency %v): %v, not %v", names[e], from, adjacent, n.state, want)
				}
				ended := from >= NeighborExStart && want <= NeighborExStart && want != from
				if ended && len(n.unacknowledged)+len(n.requests)+len(n.exchange.pending) > 0 {
					t.Errorf("%s in %v: the lists are not empty", names[e], from)
				}
			}
		}
	}
}

// ExchangeDone with requests left leads to Loading; the last LSA that comes leads to Full (section
// 10.3).
func TestLoading(t *testing.T) {
	n := neighborIn(t, NeighborExchange, true)
	key := LSAKey{TypeRouter, 9, 9}
	n.want(LSAHeader{LSAKey: key, Seq: 5}, true)
	n.event(exchangeDone)
	if n.state != NeighborLoading {
		t.Errorf("with a request: %v", n.state)
	}
	n.satisfied(key)
	if n.state != NeighborFull {
		t.Errorf("without: %v", n.state)
	}
}

// An LSA that is requested, and comes in the instance that we have, is BadLSReq (section 13 step
// 6).
func TestRequestedButOld(t *testing.T) {
	n := neighborIn(t, NeighborLoading, true)
	lsa := NewLSA(LSAKey{TypeRouter, 9, 9}, OptionE, 5, 1, RouterLSA{}.Encode())
	n.wire.area.db.install(lsa, false, nil)
	newer := lsa.LSAHeader
	newer.Seq++
	n.want(newer, true)
	if err := n.receiveLSA(lsa); err == nil || n.state != NeighborExStart {
		t.Errorf("%v, state %v", err, n.state)
	}
}

// Flooding looks at what a neighbour in Loading is asked for (section 13.3 step 1b): an instance
// older than that is not sent to it, the same one need not come any more, and a newer one is sent
// to it.
func TestFloodingWhileLoading(t *testing.T) {
	for _, c := range []struct {
		seq       int32
		requested bool
		sent      bool
	}{{4, true, false}, {5, false, false}, {6, false, true}} {
		n := neighborIn(t, NeighborLoading, true)
		lsa := func(seq int32) LSA {
			return NewLSA(LSAKey{TypeRouter, 9, 9}, OptionE, seq, 1, RouterLSA{}.Encode())
		}
		n.want(lsa(5).LSAHeader, true)
		e := n.wire.area.db.install(lsa(c.seq), false, nil)
		n.wire.area.db.flood(e, nil)
		if _, ok := n.requests[e.LSAKey]; ok != c.requested {
			t.Errorf("instance %d: still requested: %v", c.seq, ok)
		}
		if _, ok := n.unacknowledged[e]; ok != c.sent {
			t.Errorf("instance %d: to be sent: %v", c.seq, ok)
		}
	}
}

// In Exchange, a packet in sequence with other options than before is SeqNumberMismatch (section
// 10.6).
func TestOptionsChange(t *testing.T) {
	for _, options := range []Options{OptionE, 0} {
		n := neighborIn(t, NeighborExchange, true)
		n.exchange.seq, n.exchange.options, n.exchange.master = 7, OptionE, false
		_ = n.receiveDD(&DatabaseDescription{MTU: 1500, Options: options, Flags: FlagMaster | FlagMore, Seq: 8})
		if same := n.state == NeighborExchange; same != (options == OptionE) {
			t.Errorf("options %#x: %v", options, n.state)
		}
	}
}

// A duplicate of the master's packet is answered by the slave's last one again; a duplicate of the
// slave's is ignored by the master (section 10.6).
func TestDuplicateDescriptions(t *testing.T) {
	for _, master := range []bool{false, true} {
		n := neighborIn(t, NeighborExchange, true)
		n.exchange.seq, n.exchange.options, n.exchange.master = 7, OptionE, master
		dd := &DatabaseDescription{MTU: 1500, Options: OptionE, Flags: FlagMore, Seq: 7}
		if !master {
			dd.Flags |= FlagMaster
			dd.Seq = 8
		}
		n.exchange.pending = []LSAKey{{TypeRouter, 5, 5}, {TypeRouter, 6, 6}}
		d := n.domain()
		answers := func() int {
			before := len(d.out.Datagrams)
			if err := n.receiveDD(dd); err != nil {
				t.Error(err)
			}
			return len(d.out.Datagrams) - before
		}
		if first := answers(); first != 1 {
			t.Errorf("master %v: the first is answered by %d packets", master, first)
		}
		if again := answers(); again == 1 != !master || n.state != NeighborExchange {
			t.Errorf("master %v: a duplicate is answered by %d packets, the state is %v", master, again, n.state)
		}
	}
}

// The table of section 9.3 for interfaces: each event in each state of each type.
func TestInterfaceStateMachine(t *testing.T) {
	type row struct {
		name   string
		cfg    InterfaceConfig
		event  func(i *Interface, now time.Time)
		wait   time.Duration
		before InterfaceState
		after  InterfaceState
	}
	up := func(i *Interface, now time.Time) { i.Up(now) }
	down := func(i *Interface, now time.Time) { i.Down(now) }
	nothing := func(*Interface, time.Time) {}
	event := func(e interfaceEvent) func(*Interface, time.Time) {
		return func(i *Interface, now time.Time) {
			i.router.domain.advance(now)
			i.wire.event(e)
		}
	}
	lan := InterfaceConfig{Type: Broadcast}
	never := InterfaceConfig{Type: Broadcast, NeverDR: true}
	for _, r := range []row{
		{"InterfaceUp, point-to-point", InterfaceConfig{}, nothing, 0, InterfacePointToPoint, InterfacePointToPoint},
		{"InterfaceUp, loopback", InterfaceConfig{Type: Loopback}, nothing, 0, InterfaceLoopback, InterfaceLoopback},
		{"InterfaceUp, broadcast", lan, nothing, 0, InterfaceWaiting, InterfaceWaiting},
		{"InterfaceUp, broadcast, not eligible", never, nothing, 0, InterfaceDROther, InterfaceDROther},
		{"InterfaceUp again", lan, up, 50 * time.Second, InterfaceDR, InterfaceDR},
		{"WaitTimer", lan, event(waitTimer), 0, InterfaceWaiting, InterfaceDR},
		{"BackupSeen", lan, event(backupSeen), 0, InterfaceWaiting, InterfaceDR},
		{"NeighborChange while waiting", lan, event(neighborsChanged), 0, InterfaceWaiting, InterfaceWaiting},
		{"NeighborChange, DR", lan, event(neighborsChanged), 50 * time.Second, InterfaceDR, InterfaceDR},
		{"WaitTimer, DR", lan, event(waitTimer), 50 * time.Second, InterfaceDR, InterfaceDR},
		{"NeighborChange, not eligible", never, event(neighborsChanged), 0, InterfaceDROther, InterfaceDROther},
		{"NeighborChange, point-to-point", InterfaceConfig{}, event(neighborsChanged), 0, InterfacePointToPoint, InterfacePointToPoint},
		{"InterfaceDown, point-to-point", InterfaceConfig{}, down, 0, InterfacePointToPoint, InterfaceDown},
		{"InterfaceDown, waiting", lan, down, 0, InterfaceWaiting, InterfaceDown},
		{"InterfaceDown, DR", lan, down, 50 * time.Second, InterfaceDR, InterfaceDown},
		{"InterfaceDown, loopback", InterfaceConfig{Type: Loopback}, down, 0, InterfaceLoopback, InterfaceDown},
	} {
		s := newSim(t, 1)
		l := s.link(0, r.cfg.Type, end{s.router("1.1.1.1"), r.cfg})
		s.run(r.wait)
		i := l.ends[0]
		if i.State() != r.before {
			t.Errorf("%s: before it is %v", r.name, i.State())
		}
		r.event(i, s.now)
		s.run(0)
		if i.State() != r.after {
			t.Errorf("%s: it is %v, not %v", r.name, i.State(), r.after)
		}
		if i.wire != nil && r.after == InterfaceDown && (i.wire.hello.pos != 0 || i.wire.wait.pos != 0 || len(s.domains[0].wires) > 0) {
			t.Errorf("%s: its timers go on", r.name)
		}
	}
}

// A router that comes to a network with DR and Backup does not wait for RouterDeadInterval: it
// hears them (BackupSeen, section 9.2).
func TestBackupSeen(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(3)
	l := s.lan(0, at(r[0]), at(r[1]), at(r[2]).with(priority(9)))
	l.end(r[2]).Down(s.now)
	s.run(60 * time.Second)
	l.end(r[2]).Up(s.now)
	s.run(21 * time.Second)
	if got := l.end(r[2]).State(); got != InterfaceDROther {
		t.Errorf("after two Hellos it is %v", got)
	}
}

// Table 19 of section 13.5 by what is sent on the wire: an LSA that is new is acknowledged after a
// delay by multicast; a duplicate at once to its sender; one that we had sent ourselves is its own
// acknowledgment; one at MaxAge that nobody has is acknowledged at once, and not kept.
func TestAcknowledgments(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(3)
	l := s.lan(0, at(r[0]).with(priority(9)), at(r[1]).with(priority(8)), at(r[2]))
	s.run(100 * time.Second)
	dr, other := l.end(r[0]), l.end(r[2])
	var acks []string
	s.tap = func(g Datagram, p *Packet) {
		if a, ok := p.Body.(*LinkStateAck); ok && g.Interface == dr {
			acks = append(acks, fmt.Sprintf("%v to %v after %v", a.Headers[0].LSAKey, g.Dst, s.now.Sub(simEpoch)))
		}
	}
	send := func(lsa LSA) {
		p := Packet{RouterID: r[2].id, Body: &LinkStateUpdate{LSAs: []LSA{lsa}}}
		if err := r[0].domain.Receive(s.now, dr, other.Address().Addr(), AllDRouters, p.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name, ack string) {
		t.Helper()
		if got := fmt.Sprint(acks); got != ack {
			t.Errorf("%s: %s, not %s", name, got, ack)
		}
		acks = nil
	}
	// A new one from DR Other: the DR floods it back out, so nobody has to acknowledge it.
	lsa := NewLSA(LSAKey{TypeRouter, 9, 9}, OptionE, 5, 1, RouterLSA{}.Encode())
	s.drop = func(g Datagram) bool { return true } // what follows is between us
	send(lsa)
	s.run(2 * time.Second)
	want("new, flooded back", "[]")
	// It was flooded to the sender as well? No: the sender is not on the list, so the same again is
	// a duplicate.
	send(lsa)
	s.run(0)
	want("duplicate", "[router 0.0.0.9 of 0.0.0.9 to 10.0.1.3 after 1m42s]")
	// One that we retransmit to the sender comes back: that is its acknowledgment.
	n := dr.wire.find(r[2].id, other.addr)
	e := r[0].domain.Area(0).db.entries[lsa.LSAKey]
	n.mustAcknowledge(e)
	send(lsa)
	s.run(0)
	want("implied", "[]")
	if _, ok := n.unacknowledged[e]; ok {
		t.Error("the implied acknowledgment did not count")
	}
	send(NewLSA(LSAKey{TypeRouter, 8, 8}, OptionE, 5, MaxAge, RouterLSA{}.Encode()))
	s.run(0)
	want("MaxAge", "[router 0.0.0.8 of 0.0.0.8 to 10.0.1.3 after 1m42s]")
	if _, ok := r[0].domain.Area(0).LSA(LSAKey{TypeRouter, 8, 8}); ok {
		t.Error("the one at MaxAge is kept")
	}
	// An older instance is answered by ours (section 13 step 8).
	var sent []LSA
	s.tap = func(g Datagram, p *Packet) {
		if u, ok := p.Body.(*LinkStateUpdate); ok && g.Interface == dr && g.Dst == other.Address().Addr() {
			sent = append(sent, u.LSAs...)
		}
	}
	for range 2 { // once in MinLSArrival
		send(NewLSA(lsa.LSAKey, OptionE, 4, 1, RouterLSA{}.Encode()))
		s.run(0)
	}
	if len(sent) != 1 || sent[0].Seq != 5 {
		t.Errorf("an older instance is answered by %v", sent)
	}
}

// The Backup acknowledges what it has from the DR, and leaves the rest to it (table 19).
func TestAcknowledgmentsOfBackup(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(3)
	l := s.lan(0, at(r[0]).with(priority(9)), at(r[1]).with(priority(8)), at(r[2]))
	s.run(100 * time.Second)
	acks := 0
	s.tap = func(g Datagram, p *Packet) {
		if _, ok := p.Body.(*LinkStateAck); ok && g.Interface == l.end(r[1]) {
			acks++
		}
	}
	s.drop = func(g Datagram) bool { return true }
	for n, from := range []*Router{r[2], r[0]} {
		lsa := NewLSA(LSAKey{TypeRouter, 9, 9}, OptionE, 5+int32(n), 1, RouterLSA{}.Encode())
		p := Packet{RouterID: from.id, Body: &LinkStateUpdate{LSAs: []LSA{lsa}}}
		if err := r[1].domain.Receive(s.now, l.end(r[1]), l.end(from).Address().Addr(), AllSPFRouters, p.Encode()); err != nil {
			t.Fatal(err)
		}
		s.run(2 * time.Second)
		if acks != n {
			t.Errorf("after the LSA of router %d: %d acknowledgments", n, acks)
		}
	}
}

// On a point-to-point link a new LSA is acknowledged a little later, together with others, and
// each side's retransmission lists become empty; when acknowledgments are lost the LSA is sent
// again every RxmtInterval (sections 13.5 and 13.6).
func TestDelayedAcksAndRetransmission(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	l := s.p2p(0, at(a), at(b))
	s.run(30 * time.Second)
	unacknowledged := func() int { return l.end(a).Neighbors()[0].Unacknowledged }
	acks, updates := s.sent[TypeLinkStateAck], 0
	l.end(a).SetCost(s.now, 11)
	s.run(ackDelay / 2)
	if unacknowledged() != 1 || s.sent[TypeLinkStateAck] != acks {
		t.Errorf("at first: %d not acknowledged, %d acks", unacknowledged(), s.sent[TypeLinkStateAck]-acks)
	}
	s.run(ackDelay)
	if unacknowledged() != 0 || s.sent[TypeLinkStateAck] != acks+1 {
		t.Errorf("then: %d not acknowledged, %d acks", unacknowledged(), s.sent[TypeLinkStateAck]-acks)
	}
	s.drop = func(g Datagram) bool { return g.Payload[1] == byte(TypeLinkStateAck) }
	s.run(10 * time.Second)
	updates = s.sent[TypeLinkStateUpdate]
	l.end(a).SetCost(s.now, 12)
	s.run(18 * time.Second)
	if n := s.sent[TypeLinkStateUpdate] - updates; n != 4 { // at 0, 5, 10, 15 s
		t.Errorf("%d updates in 18 s", n)
	}
	s.drop = nil
	s.run(7 * time.Second)
	if unacknowledged() != 0 {
		t.Error("at last it is not acknowledged")
	}
}
