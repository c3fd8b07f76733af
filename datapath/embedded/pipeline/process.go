package pipeline

import (
	"encoding/binary"
	"slices"
	"time"

	"trivet.dev/trivet/openflow"
)

// Packet is a packet that comes in.
type Packet struct {
	Data []byte // the frame; it is not changed

	// A packet that a device will cut into segments counts as many, and as many bytes as they have
	// with their headers. 0: one packet, of Data.
	Segments  uint64
	WireBytes uint64

	Offload Offload
}

// Offload is what a device is left to do with a packet: virtio_net_hdr (Virtual I/O Device, section
// 5.1.6). It is for the packet as it came in; ForFrame turns it into that of one that goes out.
type Offload struct {
	Partial        bool // the checksum is that of the pseudo header, to be completed
	ChecksumStart  uint16
	ChecksumOffset uint16
	Segment        uint8 // how it is to be cut into segments; 0: not at all
	SegmentSize    uint16
	HeaderLen      uint16
}

// ForFrame returns the Offload of the packet when it goes out by a frame that is longer by so many
// bytes.
func (o Offload) ForFrame(grown int) Offload {
	if o.Partial {
		o.ChecksumStart = uint16(int(o.ChecksumStart) + grown)
	}
	if o.HeaderLen > 0 {
		o.HeaderLen = uint16(int(o.HeaderLen) + grown)
	}
	return o
}

// complete returns the frame with its checksum, for one that no device will send.
func (o Offload) complete(frame []byte) []byte {
	start := int(o.ChecksumStart)
	at := start + int(o.ChecksumOffset)
	if !o.Partial || start > len(frame) || at+2 > len(frame) {
		return frame
	}
	frame = slices.Clone(frame)
	var sum uint32
	for i, b := range frame[start:] {
		sum += uint32(b) << (8 * uint(1-i&1))
		sum = sum&0xffff + sum>>16
	}
	if binary.BigEndian.PutUint16(frame[at:], ^fold(sum)); o.ChecksumOffset == 6 && ^fold(sum) == 0 {
		binary.BigEndian.PutUint16(frame[at:], 0xffff) // of UDP
	}
	return frame
}

// Sent is a packet that goes out.
type Sent struct {
	Port  *Port
	Queue uint32
	Data  []byte
	Grown int // by how much its headers are longer than those of the packet that came in
}

// PacketIn is a message for the controllers of a switch.
type PacketIn struct {
	Switch  *Switch
	Message openflow.PacketIn
}

// Result is what a packet led to. It is valid until the Processor has the next one.
type Result struct {
	Sent      []Sent
	PacketIns []PacketIn
	Mirrored  []Sent // over virtual links that somebody looks at, with their checksums
	Loop      *Port  // where it was dropped as it had been there before; nil: nowhere
}

// A Processor carries packets through the network. It may be used by one goroutine at a time; a
// network can have many.
type Processor struct {
	t      translator
	out    Translation
	result Result
	open   []bool
	room   []byte
}

// NewProcessor returns a Processor for a network.
func NewProcessor(n *Network) *Processor { return &Processor{t: translator{net: n, dynamic: true}} }

// Receive carries a packet that comes in by a port.
func (p *Processor) Receive(port *Port, pkt *Packet, now time.Duration) *Result {
	var k Key
	p.clear()
	if !ParseKey(&k, pkt.Data, port.Number()) {
		port.CountDropped(true, 1, uint64(len(pkt.Data)), now)
		return &p.result
	}
	p.begin(pkt, &k, now, func(t *translator) { t.enter(port) })
	p.finish(pkt, now)
	return &p.result
}

// PacketOut does what a PACKET_OUT asks for. The error is a *Refusal.
func (p *Processor) PacketOut(s *Switch, m *openflow.PacketOut, now time.Duration) (*Result, error) {
	var k Key
	p.clear()
	if m.Buffer != openflow.BufferNone {
		return nil, refuse(openflow.BadRequestBufferUnknown, "packets are not buffered here")
	}
	if err := s.checkPacketOut(m); err != nil {
		return nil, err
	}
	if !ParseKey(&k, m.Data, m.InPort) {
		return nil, refuse(openflow.BadRequestBadPacket, "a packet of %d bytes", len(m.Data))
	}
	pkt := &Packet{Data: m.Data}
	p.begin(pkt, &k, now, func(t *translator) {
		t.actions(m.Actions, &scope{sw: s, cookie: ^uint64(0), tables: true})
	})
	p.finish(pkt, now)
	return &p.result, nil
}

func (s *Switch) checkPacketOut(m *openflow.PacketOut) error {
	s.net.mu.RLock()
	defer s.net.mu.RUnlock()
	// Section 7.3.7 has a port or CONTROLLER; Open vSwitch takes ANY, too, and controllers send it.
	if s.ports[m.InPort] == nil && m.InPort != openflow.PortController && m.InPort != openflow.PortLocal &&
		m.InPort != openflow.PortAny {
		return refuse(openflow.BadRequestBadPort, "there is no port %s to come in by", openflow.PortName(m.InPort))
	}
	for i := range m.Actions {
		if a := &m.Actions[i]; a.Type == openflow.ActionOutput && a.Port == openflow.PortTable {
			continue
		}
		if err := s.checkActions(m.Actions[i:i+1], nil); err != nil {
			return err
		}
	}
	return nil
}

// Apply does for a packet what a translation says that holds for it and is not slow.
func (p *Processor) Apply(o *Translation, pkt *Packet, now time.Duration) *Result {
	p.clear()
	p.deliver(o, pkt, now)
	return &p.result
}

func (p *Processor) clear() {
	clear(p.result.Sent)
	clear(p.result.PacketIns)
	clear(p.result.Mirrored)
	p.result = Result{Sent: p.result.Sent[:0], PacketIns: p.result.PacketIns[:0], Mirrored: p.result.Mirrored[:0]}
	p.room = p.room[:0]
}

func (p *Processor) begin(pkt *Packet, k *Key, now time.Duration, start func(*translator)) {
	t := &p.t
	t.net.mu.RLock()
	defer t.net.mu.RUnlock()
	t.begin(&p.out, k, now)
	t.frame, t.partial = pkt.Data, pkt.Offload.Partial
	t.packets, t.bytes = pkt.size()
	t.longest = pkt.Longest()
	start(t)
}

func (p *Processor) finish(pkt *Packet, now time.Duration) { p.deliver(&p.out, pkt, now) }

func (pkt *Packet) size() (packets, bytes uint64) {
	if pkt.Segments == 0 {
		return 1, uint64(len(pkt.Data))
	}
	return pkt.Segments, pkt.WireBytes
}

// Longest is the length of the frame or, of one that a device will cut, of its longest segment, in
// bytes.
func (pkt *Packet) Longest() int {
	if pkt.Segments < 2 {
		return len(pkt.Data)
	}
	headers := (int(pkt.WireBytes) - len(pkt.Data)) / int(pkt.Segments-1) // each has them, and the frame has them once
	return min(len(pkt.Data), headers+int(pkt.Offload.SegmentSize))
}

// deliver credits the counters and makes the packets that go out.
func (p *Processor) deliver(o *Translation, pkt *Packet, now time.Duration) {
	packets, bytes := pkt.size()
	p.open = o.Credit(p.open, packets, bytes, now)
	p.result.Loop = o.Loop
	for i := range o.Mirrors {
		if out := &o.Mirrors[i]; p.open[out.Stage] {
			frame := pkt.Offload.ForFrame(out.grown(pkt)).complete(p.frame(out, pkt))
			p.result.Mirrored = append(p.result.Mirrored, Sent{out.Port, out.Queue, frame, out.grown(pkt)})
		}
	}
	for i := range o.Outputs {
		out := &o.Outputs[i]
		if !p.open[out.Stage] {
			continue
		}
		frame := p.frame(out, pkt)
		if out.Port != nil {
			p.result.Sent = append(p.result.Sent, Sent{out.Port, out.Queue, frame, out.grown(pkt)})
			continue
		}
		frame = pkt.Offload.ForFrame(out.grown(pkt)).complete(frame)
		m := &o.Messages[out.Message]
		p.result.PacketIns = append(p.result.PacketIns, PacketIn{m.Switch, m.packetIn(frame)})
	}
}

// grown is by how much the headers before the transport header are longer than they were.
func (o *Output) grown(pkt *Packet) int {
	if o.base != nil {
		return len(o.base) - len(pkt.Data) + o.Rewrite.Grown()
	}
	return o.Rewrite.Grown()
}

// frame returns the packet as it goes out: a part of the room that grows, or what came in.
func (p *Processor) frame(out *Output, pkt *Packet) []byte {
	frame := pkt.Data
	if out.base != nil {
		frame = out.base
	}
	short := len(frame)+out.Rewrite.Grown() < minFrame && len(pkt.Data) >= minFrame
	if out.Rewrite.Nothing() && !short {
		return frame
	}
	from := len(p.room)
	p.room = out.Rewrite.apply(p.room, frame, pkt.Offload.Partial)
	for short && len(p.room)-from < minFrame { // what made it long enough is gone
		p.room = append(p.room, 0)
	}
	return p.room[from:len(p.room):len(p.room)]
}

const minFrame = 60 // bytes of an Ethernet frame without its checksum (IEEE 802.3)

const maxPacketIn = openflow.MaxLength - 128 // bytes; the rest is for the headers of the message

// packetIn makes the message. There are no buffers, so that the whole packet is in it (section
// 7.4.1).
func (m *Message) packetIn(frame []byte) openflow.PacketIn {
	fields := make([]openflow.OXM, 0, 3)
	fields = append(fields, openflow.InPort(m.InPort))
	if m.Metadata != 0 {
		fields = append(fields, openflow.Metadata(m.Metadata))
	}
	if m.TunnelID != 0 {
		fields = append(fields, openflow.TunnelID(m.TunnelID))
	}
	return openflow.PacketIn{
		Buffer: openflow.BufferNone, TotalLen: uint16(min(len(frame), 0xffff)), Reason: m.Reason, Table: m.Table,
		Cookie: m.Cookie, Match: openflow.NewMatch(fields...), Data: frame[:min(len(frame), maxPacketIn)],
	}
}
