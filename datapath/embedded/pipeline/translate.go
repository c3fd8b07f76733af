package pipeline

import (
	"fmt"
	"time"

	"trivet.dev/trivet/openflow"
)

const (
	maxPath = 1024  // switches on one way of a packet
	maxHops = 65536 // switches on all ways of a packet and its copies
)

// A Translator makes translations. It reuses its memory, so that translating does not allocate; it
// may be used by one goroutine at a time.
type Translator struct{ t translator }

// NewTranslator returns a Translator for a network.
func NewTranslator(n *Network) *Translator { return &Translator{translator{net: n}} }

// Translate finds out what happens to packets that arrive at a port with the fields in k, whose
// port is ignored. It changes nothing.
func (tr *Translator) Translate(o *Translation, p *Port, k *Key, now time.Duration) {
	t := &tr.t
	t.net.mu.RLock()
	defer t.net.mu.RUnlock()
	t.begin(o, k, now)
	t.dynamic = false
	t.enter(p)
	if o.Slow != "" {
		*o = Translation{Mask: o.Mask, TTLMin: o.TTLMin, TTLMax: o.TTLMax, Largest: o.Largest, Slow: o.Slow,
			Hops:   o.Hops,
			Stages: o.Stages[:1], Outputs: o.Outputs[:0], Mirrors: o.Mirrors[:0], Messages: o.Messages[:0],
			Credits: o.Credits[:0], Reads: o.Reads}
	}
}

// ParseKey reads the fields of a frame that arrives at that port; false if it is too short.
func ParseKey(k *Key, frame []byte, inPort uint32) bool {
	_, ok := parse(frame, k)
	k.setPort(inPort)
	return ok
}

type translator struct {
	net *Network
	out *Translation
	now time.Duration
	st  state

	// Set by a Processor, which has one packet at hand.
	dynamic        bool
	frame          []byte
	partial        bool
	packets, bytes uint64
	longest        int // bytes of the frame, or of the longest of its segments

	stage   int
	path    int            // number of switches on this way
	visited map[visit]bool // true: on the way that led here
	looked  Mask
}

// A visit is a packet, with its changes so far, at a port.
type visit struct {
	port  *Port
	state uint64
}

// scope is the context in which actions are executed.
type scope struct {
	sw     *Switch
	table  uint8
	cookie uint64
	miss   bool // by the table-miss entry
	depth  int  // of groups
	tables bool // PACKET_OUT: an output to TABLE is allowed
}

func (t *translator) begin(o *Translation, k *Key, now time.Duration) {
	o.reset()
	t.out, t.now, t.stage, t.path = o, now, 0, 0
	t.st = state{key: *k}
	t.st.key[wordMeta], t.st.key[wordTunnel] = 0, 0
	t.st.known[wordMeta], t.st.known[wordTunnel] = ^uint64(0), ^uint64(0)
	if len(t.visited) > 1024 {
		t.visited = nil // a large flood is an exception: free its memory
	}
	clear(t.visited)
}

// slow ends a translation that does not hold for other packets.
func (t *translator) slow(why string) { t.out.Slow = why }

func (t *translator) stopped() bool { return t.out.Slow != "" && !t.dynamic }

func (t *translator) credit(c *Counter) {
	t.out.Credits = append(t.out.Credits, Credit{c, t.stage, t.st.length()})
}

// read records that a part of a switch has been read. It remembers only the last few, as recording
// one twice does no harm.
func (t *translator) read(s *Switch, what int) {
	reads := t.out.Reads
	for i := len(reads) - 1; i >= max(len(reads)-4, 0); i-- {
		if reads[i].Switch == s && reads[i].What == what {
			return
		}
	}
	t.out.Reads = append(reads, Read{s, what, s.version(what)})
}

// enter handles a packet that arrives at a port.
func (t *translator) enter(p *Port) {
	s := p.owner
	t.out.Hops++
	if t.read(s, ReadPorts); p.gone {
		return
	}
	t.st.key.setPort(p.desc.Number)
	t.look(wordPort, ^uint64(0)) // a translation is for one port
	if p.desc.Config&(openflow.PortConfigDown|openflow.PortConfigNoRecv) != 0 || !p.live() {
		t.credit(&p.rxDropped)
		return
	}
	t.credit(&p.rx)
	v, looped := t.visit(p)
	if looped {
		t.credit(&p.looped)
		if t.out.Loops++; t.out.Loop == nil {
			t.out.Loop = p
		}
		return
	}
	if p.vlans != nil && !t.classify(p.vlans) {
		t.credit(&p.rxDropped)
		t.visited[v] = false
		return
	}
	if t.read(s, ReadFlags); s.frag != openflow.FragDrop || !t.lacks(shapeFragment) {
		t.path++
		if s.standalone {
			t.normal(s)
		} else {
			t.pipeline(s)
		}
		t.path--
	}
	t.visited[v] = false
}

// hop sends a packet over a virtual link, and continues with the state that it had before.
func (t *translator) hop(p *Port) {
	before := t.st
	st := &t.st
	st.known[wordPort] = ^uint64(0)
	st.key[wordMeta], st.key[wordTunnel], st.queue = 0, 0, 0
	t.enter(p)
	t.st = before
}

// visit records that the packet, with its changes so far, is at the port, and says whether it
// loops: it has been there on its way, or has come too far. Copies may reach a port on several
// ways; once one loops, each port takes a copy only once, so that a flood in a mesh ends. Only bits
// that are the same for all packets that reach this point are compared, so that the result holds
// for all of them.
func (t *translator) visit(p *Port) (v visit, looped bool) {
	if t.path >= maxPath || t.out.Hops > maxHops {
		return v, true
	}
	st := &t.st
	h := mix(seed, st.set<<16|uint64(st.popped)<<12|uint64(st.pushed)<<8|uint64(st.ttlDec))
	for i := 1; i < Words; i++ { // without the port
		if known := st.known[i]; known != 0 {
			h = mix(mix(h, known+uint64(i)), st.key[i]&known)
		}
	}
	for _, tag := range st.push[:st.pushed] {
		h = mix(h, uint64(tag.EthType)<<16|uint64(tag.TCI))
	}
	if st.ttlSet {
		h = mix(h, uint64(st.key.TTL())|1<<8)
	}
	if st.base != nil {
		h = mix(h, uint64(len(st.base)))
	}
	if t.visited == nil {
		t.visited = map[visit]bool{}
	}
	v = visit{p, h}
	onWay, before := t.visited[v]
	if onWay || before && t.out.Loop != nil {
		return v, true
	}
	t.visited[v] = true
	return v, false
}

// pipeline processes the packet in the tables of a switch (section 5.1).
func (t *translator) pipeline(s *Switch) {
	var set actionSet
	stage := t.stage
	c := scope{sw: s}
	if t.throughTables(s, &c, &set) {
		set.execute(t, &c)
	}
	t.stage = stage // what comes after this switch does not depend on its meters
}

// throughTables reports whether the action set is to be executed.
func (t *translator) throughTables(s *Switch, c *scope, set *actionSet) bool {
	for id := 0; id >= 0; {
		tab := s.tables[id]
		t.read(s, id)
		t.credit(&tab.lookups)
		t.looked = Mask{}
		f := tab.lookup(&t.st.key, &t.looked)
		for w, bits := range &t.looked {
			if bits != 0 {
				t.look(w, bits)
			}
		}
		if f == nil {
			t.credit(&tab.misses)
			return false
		}
		t.credit(&f.Counter)
		p := f.program
		c.table, c.cookie, c.miss = uint8(id), f.Cookie, f.tableMiss()
		if p.meter != 0 && !t.meter(s, p.meter) {
			return false
		}
		if !t.actions(p.apply, c) {
			return false
		}
		if p.clear {
			set.n = 0
		}
		for i := range p.write {
			set.add(&p.write[i])
		}
		if p.mask != 0 {
			t.st.key[wordMeta] = t.st.key[wordMeta]&^p.mask | p.metadata&p.mask
		}
		id = p.next
	}
	return true
}

// meter applies a meter, and says whether the packet passes.
func (t *translator) meter(s *Switch, id uint32) bool {
	t.read(s, ReadMeters)
	m := s.meters[id]
	switch {
	case m == nil:
		return true
	case !t.dynamic && m.remarks:
		t.slow("a meter changes packets")
		return false
	case !t.dynamic:
		t.out.Stages = append(t.out.Stages, Stage{t.stage, m, t.st.length()})
		t.stage = len(t.out.Stages) - 1
		return true
	}
	size := uint64(max(int64(t.bytes)+int64(t.st.length())*int64(t.packets), 0))
	drop, remark := m.pass(t.packets, size, t.now)
	if remark > 0 && t.ip() {
		dscp := t.st.key.Field(openflow.FieldIPDSCP).Lo
		if now := remarked(dscp, remark); now != dscp {
			t.write(openflow.FieldIPDSCP, openflow.Value{Lo: now})
		}
	}
	return !drop
}

// controller sends the packet to controllers. A port's configuration can prevent that, but only for
// packets of the table-miss entry (section 7.2.1).
func (t *translator) controller(c *scope, why openflow.PacketInReason, maxLen uint16) {
	k := &t.st.key
	if why == openflow.ReasonNoMatch {
		t.read(c.sw, ReadPorts)
		if p := c.sw.ports[k.inPort()]; p != nil && p.desc.Config&openflow.PortConfigNoPacketIn != 0 {
			return
		}
	}
	o := t.out
	o.Messages = append(o.Messages, Message{
		Switch: c.sw, Reason: why, Table: c.table, Cookie: c.cookie, MaxLen: maxLen,
		InPort: k.inPort(), Metadata: k[wordMeta], TunnelID: k[wordTunnel],
	})
	o.Outputs = append(o.Outputs, Output{Stage: t.stage, Message: len(o.Messages) - 1, Rewrite: t.rewrite(),
		base: t.st.base})
}

// transmit sends the packet out through a port, or over its virtual link.
func (t *translator) transmit(p *Port) {
	if p.vlans != nil {
		before := t.st
		if t.declassify(p.vlans) {
			t.leave(p)
		}
		t.st = before
		return
	}
	t.leave(p)
}

func (t *translator) leave(p *Port) {
	if p.desc.Config&(openflow.PortConfigDown|openflow.PortConfigNoFwd) != 0 || !p.live() {
		t.credit(&p.txDropped)
		return
	}
	t.credit(&p.tx)
	if p.peer != nil {
		if p.mirror {
			t.out.Mirrors = append(t.out.Mirrors, Output{Stage: t.stage, Port: p, Rewrite: t.rewrite(),
				base: t.st.base})
		}
		t.hop(p.peer)
		return
	}
	t.out.Outputs = append(t.out.Outputs, Output{Stage: t.stage, Port: p, Queue: t.st.queue, Rewrite: t.rewrite(),
		base: t.st.base})
}

// Trace describes in words what happens to a frame that arrives at a port.
func (n *Network) Trace(p *Port, frame []byte, now time.Duration) string {
	var o Translation
	var k Key
	if !ParseKey(&k, frame, p.Number()) {
		return "too short for an Ethernet frame: dropped"
	}
	NewTranslator(n).Translate(&o, p, &k, now)
	if o.Slow != "" {
		return "one by one: " + o.Slow
	}
	text := fmt.Sprintf("%d hops, looked at %s", o.Hops, &o.Mask)
	for _, out := range o.Outputs {
		if out.Port == nil {
			text += fmt.Sprintf("; to the controllers of %s", o.Messages[out.Message].Switch.Name())
		} else {
			text += fmt.Sprintf("; out by %s of %s", out.Port.Name(), out.Port.owner.Name())
		}
	}
	if o.Loop != nil {
		text += fmt.Sprintf("; loop at %s port %d", o.Loop.owner.Name(), o.Loop.Number())
	}
	return text
}
