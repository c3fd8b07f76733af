package openflow

import "fmt"

// PacketInReason is ofp_packet_in_reason (section 7.4.1).
type PacketInReason uint8

const (
	ReasonNoMatch PacketInReason = iota // of the table-miss entry
	ReasonAction                        // an output to the controller
	ReasonInvalidTTL
)

// String returns the name in the specification without its prefix OFPR_.
func (r PacketInReason) String() string {
	return nameOf([]string{"NO_MATCH", "ACTION", "INVALID_TTL"}, "reason ", r)
}

// PacketIn is PACKET_IN: a packet comes to the controller (section 7.4.1).
type PacketIn struct {
	Xid
	Buffer   uint32 // where the switch has kept the packet, or BufferNone
	TotalLen uint16 // bytes of the packet, of which Data may be the first ones
	Reason   PacketInReason
	Table    uint8
	Cookie   uint64
	Match    Match // of the packet's fields that are not in it: Match.InPort, metadata, tunnel
	Data     []byte
}

// Type returns TypePacketIn.
func (m *PacketIn) Type() Type { return TypePacketIn }

// AppendTo appends the encoded message.
func (m *PacketIn) AppendTo(b []byte) []byte {
	at := len(b)
	b, p := start(b, TypePacketIn, m.Xid, 24)
	put32(p, 8, m.Buffer)
	put16(p, 12, m.TotalLen)
	p[14], p[15] = byte(m.Reason), m.Table
	put64(p, 16, m.Cookie)
	b = m.Match.appendTo(b)
	b = append(b, 0, 0) // puts the packet's IP header at a multiple of 4
	return finish(append(b, m.Data...), at)
}

func (m *PacketIn) decode(d decoder) error {
	if err := d.need(0, 34); err != nil {
		return err
	}
	match, next, err := d.match(24, len(d.b))
	if err != nil {
		return err
	}
	if err := d.need(next, 2); err != nil {
		return err
	}
	b := d.b[:24]
	*m = PacketIn{
		Buffer: get32(b, 8), TotalLen: get16(b, 12), Reason: PacketInReason(b[14]), Table: b[15],
		Cookie: get64(b, 16), Match: match, Data: d.view(next+2, len(d.b)),
	}
	return nil
}

// String describes the message.
func (m *PacketIn) String() string {
	return fmt.Sprintf("PACKET_IN %v table=%d cookie=%#x total_len=%d buffer=%s %v %d bytes",
		m.Reason, m.Table, m.Cookie, m.TotalLen, bufferName(m.Buffer), m.Match, len(m.Data))
}

// PacketOut is PACKET_OUT: the switch shall send a packet (section 7.3.7).
type PacketOut struct {
	Xid
	Buffer  uint32 // of a packet that the switch has kept, or BufferNone
	InPort  uint32 // where it counts as having come in, or PortController
	Actions []Action
	Data    []byte // the packet, without Buffer
}

// Type returns TypePacketOut.
func (m *PacketOut) Type() Type { return TypePacketOut }

// AppendTo appends the encoded message.
func (m *PacketOut) AppendTo(b []byte) []byte {
	at := len(b)
	b, p := start(b, TypePacketOut, m.Xid, 24)
	put32(p, 8, m.Buffer)
	put32(p, 12, m.InPort)
	b = appendActions(b, m.Actions)
	put16(b, at+16, uint16(len(b)-at-24))
	return finish(append(b, m.Data...), at)
}

func (m *PacketOut) decode(d decoder) error {
	if err := d.need(0, 24); err != nil {
		return err
	}
	end := 24 + int(get16(d.b, 16))
	if end > len(d.b) {
		return d.fail(16, BadRequestBadLen, "%d bytes of actions where %d are left", end-24, len(d.b)-24)
	}
	actions, err := d.actions(m.Actions[:0], 24, end)
	if err != nil {
		return err
	}
	*m = PacketOut{Buffer: get32(d.b, 8), InPort: get32(d.b, 12), Actions: actions, Data: d.view(end, len(d.b))}
	return nil
}

// String describes the message.
func (m *PacketOut) String() string {
	return fmt.Sprintf("PACKET_OUT buffer=%s in_port=%s actions=%s %d bytes",
		bufferName(m.Buffer), PortName(m.InPort), FormatActions(m.Actions), len(m.Data))
}

func bufferName(id uint32) string {
	if id == BufferNone {
		return "none"
	}
	return fmt.Sprintf("%#x", id)
}
