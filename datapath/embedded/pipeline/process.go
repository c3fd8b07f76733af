package pipeline

import (
	"encoding/binary"
	"slices"
	"time"

	"trivet.dev/trivet/openflow"
)

// Packet is a received packet.
type Packet struct {
	Data []byte // the frame; it is not modified

	// A packet that a device will segment counts as that many packets, and as many bytes as these
	// have with their headers. 0: one packet, the size of Data.
	Segments  uint64
	WireBytes uint64

	Offload Offload
}

// Offload is what is left to a device to do with a packet: virtio_net_hdr (Virtual I/O Device,
// section 5.1.6). It applies to the packet as received; ForFrame converts it for one to be sent.
type Offload struct {
	Partial        bool // the checksum is that of the pseudo header, to be completed
	ChecksumStart  uint16
	ChecksumOffset uint16
	Segment        uint8 // how it is to be cut into segments; 0: not at all
	SegmentSize    uint16
	HeaderLen      uint16
}

// ForFrame returns the Offload of the packet for a frame to be sent that is longer by this many
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

// complete returns the frame with its checksum filled in, for frames that no device will send.
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

// Sent is a packet to be sent.
type Sent struct {
	Port  *Port
	Queue uint32
	Data  []byte
	Grown int // by how much its headers are longer than on arrival
}

// PacketIn is a message for the controllers of a switch.
type PacketIn struct {
	Switch  *Switch
	Message openflow.PacketIn
}

// Result is what a packet led to. It is valid until the Processor handles the next one.
type Result struct {
	Sent      []Sent
	PacketIns []PacketIn
	Mirrored  []Sent // over virtual links with captures, with checksums filled in
	Loop      *Port  // at which it was dropped as it had been there before, or nil
}

// A Processor moves packets through the network. It may be used by one goroutine at a time; a
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

// Receive processes a packet that arrives at a port.
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

// PacketOut executes a PACKET_OUT. The error is a *Refusal.
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

// Apply applies a translation to a packet for which it holds; it must not be slow.
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

// Longest returns the length in bytes of the frame or, if a device will segment it, of its longest
// segment.
func (pkt *Packet) Longest() int {
	if pkt.Segments < 2 {
		return len(pkt.Data)
	}
	headers := (int(pkt.WireBytes) - len(pkt.Data)) / int(pkt.Segments-1) // of each segment
	return min(len(pkt.Data), headers+int(pkt.Offload.SegmentSize))
}

// deliver credits the counters and makes the packets to be sent.
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

// grown returns by how much the headers before the transport header have grown.
func (o *Output) grown(pkt *Packet) int {
	if o.base != nil {
		return len(o.base) - len(pkt.Data) + o.Rewrite.Grown()
	}
	return o.Rewrite.Grown()
}

// frame returns the packet to be sent: a part of the growing room, or the received frame.
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
	for short && len(p.room)-from < minFrame { // a header that made it long enough was removed
		p.room = append(p.room, 0)
	}
	return p.room[from:len(p.room):len(p.room)]
}

const minFrame = 60 // bytes of an Ethernet frame without its checksum (IEEE 802.3)

const maxPacketIn = openflow.MaxLength - 128 // bytes; the rest is for the headers of the message

// packetIn makes the message. There are no buffers, so it contains the whole packet (section
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
