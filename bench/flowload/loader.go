package flowload

import (
	"sync/atomic"

	"trivet.dev/trivet/openflow"
)

// The phases of all loaders, in order.
const (
	phaseWait     = iota // for entries that send packets to the controller
	phaseAnnounce        // every host sends one packet
	phaseAsk
	phaseEnd // outstanding answers may still arrive
)

// broadcast is the destination of announcements.
const broadcast = 0xffff_ffff_ffff

// nobody is the destination of an announcement.
const nobody = ^uint32(0)

// loader asks for one switch's hosts. It belongs to the run's loop.
//
// The first hosts are servers, the others ask for them: so an address in an answer is that of the
// asking host or of the one asked for, never both.
type loader struct {
	n        *node
	servers  int
	slots    []question // of each host that may wait; with Fresh, hosts share those of who asks
	heard    []bool     // servers whose announcement has been answered
	waiting  int
	sequence uint32
	next     uint32 // host to ask
	server   uint32 // to ask for
	toHear   uint32 // the next host to announce
	unheard  int
	silent   atomic.Bool // all announcements are answered or lost
	ready    atomic.Bool // every port has a prepared message

	messages [][]byte // PACKET_IN of each port, to be patched
	frameAt  int      // where the frame begins in them

	answers, wrong, lost uint64
	times                histogram
}

// question is a packet waiting for its answer.
type question struct {
	waits    bool
	host     uint32
	dst      uint32 // a server, or nobody
	sequence uint32
	sent     int64 // ns
}

func newLoader(n *node) *loader {
	servers := n.run.servers()
	return &loader{n: n, servers: servers, slots: make([]question, n.run.Hosts), heard: make([]bool, servers),
		next: uint32(servers)}
}

// slot is where the question of a host is kept.
func (l *loader) slot(host uint32) int {
	if host < uint32(l.servers) {
		return int(host)
	}
	return l.servers + int(host-uint32(l.servers))%(len(l.slots)-l.servers)
}

// prepare rebuilds the PACKET_INs of all ports: the entries that send them have changed.
func (l *loader) prepare() {
	senders := l.n.store.senders
	frame := newFrame(l.n.run.VLAN)
	l.messages = l.messages[:0]
	for port := uint32(1); port <= uint32(l.n.run.Ports); port++ {
		host := uint32(l.servers) // one that lives there, and asks
		for portOf(host, l.n.run.Ports) != port {
			host++
		}
		patchFrame(frame, hostMAC(l.n.index, 0), hostMAC(l.n.index, host), 0)
		p, _ := readPacket(port, frame)
		s := sends(senders, &p)
		if s == nil && !l.n.run.assume.Load() {
			l.messages = nil
			l.ready.Store(false)
			return
		}
		m := l.n.packetIn(port, s, frame)
		l.frameAt = len(m) - len(frame)
		l.messages = append(l.messages, m)
	}
	l.ready.Store(true)
}

// packetIn makes the PACKET_IN caused by an entry; without one it is as for a table miss, which
// OpenFlow 1.0 sends to the controller.
func (n *node) packetIn(port uint32, s *sender, frame []byte) []byte {
	if n.run.Version == version10 {
		return packetIn10(port, openflow.ReasonNoMatch, frame)
	}
	m := openflow.PacketIn{Buffer: openflow.BufferNone, TotalLen: uint16(len(frame)), Cookie: ^uint64(0),
		Match: openflow.NewMatch(openflow.InPort(port)), Data: frame}
	if s != nil {
		m.Reason, m.Table, m.Cookie = s.reason, s.table, s.cookie
	}
	return m.AppendTo(nil)
}

// fill sends as many questions as the window has room for.
func (l *loader) fill() {
	if l.messages == nil {
		if l.n.run.assume.Load() {
			l.prepare()
		}
		return
	}
	switch l.n.run.phase.Load() {
	case phaseAnnounce:
		l.announce()
	case phaseAsk:
		if !l.silent.Swap(true) {
			l.hushed()
		}
		// Answers are replaced at once, even single ones: the packets carry the TCP acknowledgement
		// for which a controller that sends small messages one by one may wait (RFC 896).
		for l.waiting < l.n.run.Window {
			l.ask()
		}
	}
}

// announce lets the hosts be heard, one after the other.
func (l *loader) announce() {
	last := l.announced()
	for l.waiting < l.n.run.Window && l.toHear < uint32(last) {
		l.send(l.toHear, nobody)
		l.toHear++
	}
	if l.waiting == 0 && l.toHear == uint32(last) {
		l.silent.Store(true)
	}
}

// hushed ends announcements without an answer: nobody waits for them any more.
func (l *loader) hushed() {
	for i := range l.slots {
		if q := &l.slots[i]; q.waits {
			q.waits = false
			l.waiting--
			l.unheard++
		}
	}
	l.unheard += l.announced() - int(l.toHear)
}

// announced is how many hosts announce themselves: with Fresh only the servers.
func (l *loader) announced() int {
	if l.n.run.Fresh {
		return l.servers
	}
	return len(l.slots)
}

// ask sends the packet of the next host that has no other under way, to the next server that lives
// elsewhere.
func (l *loader) ask() {
	for l.slots[l.slot(l.next)].waits {
		l.advance()
	}
	if portOf(l.server, l.n.run.Ports) == portOf(l.next, l.n.run.Ports) {
		l.server = (l.server + 1) % uint32(l.servers)
	}
	l.send(l.next, l.server)
	l.server = (l.server + 1) % uint32(l.servers)
	l.advance()
}

func (l *loader) advance() {
	l.next++
	if !l.n.run.Fresh && l.next == uint32(len(l.slots)) || l.next > 0xffffff {
		l.next = uint32(l.servers)
	}
}

// send queues a host's packet.
func (l *loader) send(host, dst uint32) {
	i := l.slot(host)
	l.sequence++
	l.slots[i] = question{waits: true, host: host, dst: dst, sequence: l.sequence, sent: l.n.now}
	l.waiting++
	to := uint64(broadcast)
	if dst != nobody {
		to = hostMAC(l.n.index, dst)
	}
	port := portOf(host, l.n.run.Ports)
	l.n.received[port]++
	at := len(l.n.tx)
	l.n.tx = append(l.n.tx, l.messages[port-1]...)
	m := l.n.tx[at:]
	be.PutUint32(m[4:], l.sequence)
	if !l.n.run.NoBuffers {
		be.PutUint32(m[8:], l.sequence<<16|uint32(i))
	}
	patchFrame(m[l.frameAt:], to, hostMAC(l.n.index, host), l.sequence)
}

// answer checks an answer and counts it.
func (l *loader) answer(v *said) {
	q := l.find(v)
	if q == nil || v.outs == 0 {
		return
	}
	q.waits = false
	l.waiting--
	if q.dst == nobody && q.host < uint32(l.servers) {
		l.heard[q.host] = true
	}
	if !l.n.run.measures(l.n.now) {
		return
	}
	l.answers++
	l.times.add(l.n.now - q.sent)
	if !l.right(q, v) {
		l.wrong++
	}
}

// find returns the question that a message answers; nil: none, or one that has its answer.
func (l *loader) find(v *said) *question {
	var q *question
	switch {
	case v.buffer != openflow.BufferNone:
		i := int(v.buffer & 0xffff)
		if i >= len(l.slots) || uint16(l.slots[i].sequence) != uint16(v.buffer>>16) {
			return nil
		}
		q = &l.slots[i]
	case len(v.frame) > 0:
		sequence, ok := sequenceOf(v.frame)
		if !ok {
			return nil
		}
		if q = l.bySource(mac(v.frame[6:])); q == nil || q.sequence != sequence {
			return nil
		}
	case v.hasSrc:
		if q = l.bySource(v.src); q == nil || v.hasDst && !l.isFor(q, v.dst) {
			return nil
		}
	case v.hasDst: // an entry for who asked, or for whom it asked for
		if host, ok := hostOf(l.n.index, v.dst); ok && host < uint32(l.servers) && l.heardFor(host) {
			q = l.oldestFor(host)
		} else {
			q = l.bySource(v.dst)
		}
	}
	if q == nil || !q.waits {
		return nil
	}
	return q
}

// heardFor reports whether an entry for a server's address answers a host that asked for it: the
// server's own announcement has been answered.
func (l *loader) heardFor(server uint32) bool { return !l.slots[server].waits }

func (l *loader) isFor(q *question, address uint64) bool {
	return q.dst == nobody && address == broadcast || q.dst != nobody && address == hostMAC(l.n.index, q.dst)
}

func (l *loader) bySource(address uint64) *question {
	host, ok := hostOf(l.n.index, address)
	if !ok || !l.n.run.Fresh && host >= uint32(len(l.slots)) {
		return nil
	}
	if q := &l.slots[l.slot(host)]; q.host == host {
		return q
	}
	return nil
}

func (l *loader) oldestFor(server uint32) (oldest *question) {
	for i := range l.slots {
		if q := &l.slots[i]; q.waits && q.dst == server && (oldest == nil || q.sent < oldest.sent) {
			oldest = q
		}
	}
	return oldest
}

// right reports whether an answer leads to the port of its host. For a host never seen before, any
// port is right.
func (l *loader) right(q *question, v *said) bool {
	if v.inPort != 0 && v.inPort != portOf(q.host, l.n.run.Ports) {
		return false
	}
	to := q.dst
	switch {
	case v.hasDst && v.dst == hostMAC(l.n.index, q.host):
		to = q.host
	case v.hasDst && !l.isFor(q, v.dst):
		return false
	}
	if to == nobody {
		return true
	}
	if v.outs == 1 && v.out == portOf(to, l.n.run.Ports) {
		return true
	}
	unheard := to < uint32(l.servers) && !l.heard[to]
	return unheard && (v.outs > 1 || v.out == openflow.PortFlood || v.out == openflow.PortAll)
}

// late counts packets that have waited too long as lost.
func (l *loader) late() {
	old := l.n.now - int64(l.n.run.Timeout)
	for i := range l.slots {
		q := &l.slots[i]
		if !q.waits || q.sent > old {
			continue
		}
		q.waits = false
		l.waiting--
		if q.dst == nobody {
			l.unheard++
		} else if l.n.run.measures(q.sent) {
			l.lost++
		}
	}
}
