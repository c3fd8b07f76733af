package learning

import (
	"bytes"
	"slices"
	"time"

	"trivet.dev/trivet/openflow"
)

const (
	// A source is learned anew every sourceHard seconds, which keeps its destination entry; that
	// expires after destinationIdle seconds without packets or renewal.
	sourceHard, destinationIdle = 300, 600

	// maxAddresses limits what a switch can be made to hold by invented addresses, and
	// maxEdgeAddresses a single edge port: packets to further addresses are flooded as unknown.
	maxAddresses     = 100_000
	maxEdgeAddresses = 25_000

	// An address that moves more than maxMoves times in movesTime seconds is pinned for pinTime
	// seconds. Meanwhile packets that it sends from elsewhere are forwarded without learning, by an
	// entry that lasts quietHard seconds; at most one is sent per second.
	maxMoves  = 5
	movesTime = 10
	pinTime   = 60
	quietHard = 10
)

// address is where an Ethernet address was learned.
type address struct {
	port   uint32
	moves  uint8
	since  uint32 // start of the count of moves, in s since 1970
	pinned uint32 // until then
	quiet  uint32 // when the last entry of that kind was sent
}

// learn records that a packet from an address arrived on a port. listened: it was sent up for its
// type, not because its source is unknown.
func (t *table) learn(src openflow.MAC, port uint32, listened bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.ports[port]
	if p == nil || p.phase != open || p.role.hasPaths() || t.sw == nil {
		return
	}
	old, known := t.addresses[src]
	switch {
	case !known:
		if full := len(t.addresses) >= maxAddresses; full || p.role == edge && p.addresses >= maxEdgeAddresses {
			t.tellFull(p, port, full)
			return
		}
		p.addresses++
		t.addresses[src] = address{port: port}
	case old.port != port:
		if !t.move(src, old, port) {
			return
		}
	case listened:
		return
	}
	t.entries.fill(src, port)
	_ = t.sw.Send(&t.entries)
}

// tellFull logs, once, that no more addresses are learned at a port; all: at any port of the
// switch.
func (t *table) tellFull(p *port, number uint32, all bool) {
	const then = "packets to further ones are flooded until known ones have been silent for long"
	switch {
	case all && !t.full:
		t.full = true
		t.app.log.Warn("the limit on learned addresses of the switch is reached: "+then, "switch", t.sw.Name(),
			"addresses", maxAddresses)
	case !all && !p.full:
		p.full = true
		t.app.log.Warn("the limit on learned addresses of the port is reached: "+then, "switch", t.sw.Name(), "port",
			number, "addresses", maxEdgeAddresses)
	}
}

// move moves an address to another port, and reports whether it did; one that has moved too often
// stays.
func (t *table) move(src openflow.MAC, x address, port uint32) bool {
	now := uint32(time.Now().Unix())
	if now-x.since > movesTime {
		x.since, x.moves = now, 0
	}
	if x.moves++; x.moves > maxMoves && x.pinned <= now {
		x.pinned, x.moves = now+pinTime, 0
		t.app.log.Warn("address flaps between two ports; it is held at the first", "switch", t.sw.Name(), "address",
			src,
			"first", x.port, "second", port, "for", pinTime*time.Second)
	}
	if x.pinned > now {
		if x.quiet != now {
			x.quiet = now
			quiet := sourceEntry(src, port)
			quiet.HardTimeout = quietHard
			_ = t.sw.Send(quiet)
		}
		t.addresses[src] = x
		return false
	}
	if old := t.ports[x.port]; old != nil {
		old.addresses--
	}
	t.ports[port].addresses++
	gone := sourceEntry(src, x.port) // otherwise its return would not be noticed
	gone.Command, gone.CookieMask = openflow.FlowDeleteStrict, frameMask
	_ = t.sw.Send(gone)
	x.port = port
	t.addresses[src] = x
	return true
}

// unlearn forgets an address.
func (t *table) unlearn(x openflow.MAC) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.addresses[x]; ok {
		if p := t.ports[a.port]; p != nil {
			p.addresses--
		}
		delete(t.addresses, x)
	}
}

func sourceEntry(src openflow.MAC, port uint32) *openflow.FlowMod {
	m := flow(openflow.FlowAdd, sourceTable, 2, openflow.NewMatch(openflow.InPort(port), openflow.EthSrc(src)),
		openflow.GotoTable(destinationTable))
	m.Cookie, m.HardTimeout = addressCookie, sourceHard
	return m
}

func destinationEntry(dst openflow.MAC, port uint32) *openflow.FlowMod {
	m := flow(openflow.FlowAdd, destinationTable, 1, openflow.NewMatch(openflow.EthDst(dst)),
		openflow.ApplyActions(openflow.Output(port)))
	m.Cookie, m.IdleTimeout, m.Flags = addressCookie, destinationIdle, openflow.FlowSendFlowRem
	return m
}

// entries are the two FLOW_MODs of an address, encoded once; only address and port are then filled
// in. No message is sent more often by the controller.
type entries struct {
	openflow.FlowMod // for the methods of a message
	bytes            []byte
}

// Offsets of address and port in the encoded messages.
var (
	template    []byte
	addressesAt []int
	portsAt     []int
)

func init() {
	mac, port := openflow.MAC{0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6}, uint32(0x18273645)
	template = sourceEntry(mac, port).AppendTo(destinationEntry(mac, port).AppendTo(nil))
	find := func(what []byte) (at []int) {
		for i := range template {
			if bytes.HasPrefix(template[i:], what) {
				at = append(at, i)
			}
		}
		return at
	}
	addressesAt, portsAt = find(mac[:]), find([]byte{0x18, 0x27, 0x36, 0x45})
}

func newEntries() entries { return entries{bytes: slices.Clone(template)} }

func (e *entries) fill(mac openflow.MAC, port uint32) {
	for _, at := range addressesAt {
		copy(e.bytes[at:], mac[:])
	}
	for _, at := range portsAt {
		copy(e.bytes[at:], []byte{byte(port >> 24), byte(port >> 16), byte(port >> 8), byte(port)})
	}
}

// AppendTo appends both messages.
func (e *entries) AppendTo(b []byte) []byte { return append(b, e.bytes...) }
