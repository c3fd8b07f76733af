package flowload

import "trivet.dev/trivet/openflow"

// sender is an entry that sends packets to the controller.
type sender struct {
	table    uint8
	priority uint16
	cookie   uint64
	reason   openflow.PacketInReason
	match    []openflow.OXM
}

func newSender(f *openflow.FlowMod) *sender {
	s := &sender{table: f.Table, priority: f.Priority, cookie: f.Cookie, reason: openflow.ReasonAction}
	for o := range f.Match.All() {
		s.match = append(s.match, o)
	}
	if f.Priority == 0 && len(s.match) == 0 { // the table-miss entry (section 5.4)
		s.reason = openflow.ReasonNoMatch
	}
	return s
}

// packet is what of a frame an entry is compared with. A field that is not here matches no entry.
type packet struct {
	inPort    uint32
	dst, src  uint64
	etherType uint16
	vlan      uint16 // with openflow.VLANPresent; 0: no tag
}

// readPacket reads the head of a frame; false when it has none.
func readPacket(inPort uint32, frame []byte) (p packet, ok bool) {
	if len(frame) < 14 {
		return p, false
	}
	p = packet{inPort: inPort, dst: mac(frame), src: mac(frame[6:]), etherType: be.Uint16(frame[12:])}
	if p.etherType == openflow.EthTypeVLAN {
		if len(frame) < 18 {
			return p, false
		}
		p.vlan = openflow.VLANPresent | be.Uint16(frame[14:])&0xfff
		p.etherType = be.Uint16(frame[16:])
	}
	return p, true
}

func (p *packet) field(f openflow.Field) (value uint64, ok bool) {
	switch f {
	case openflow.FieldInPort, openflow.FieldInPhyPort:
		return uint64(p.inPort), true
	case openflow.FieldEthDst:
		return p.dst, true
	case openflow.FieldEthSrc:
		return p.src, true
	case openflow.FieldEthType:
		return uint64(p.etherType), true
	case openflow.FieldVLANVID:
		return uint64(p.vlan), true
	}
	return 0, false
}

func (s *sender) matches(p *packet) bool {
	for _, o := range s.match {
		value, ok := p.field(o.Field)
		if !ok || o.Class != openflow.ClassBasic ||
			!o.Value.Xor(openflow.Value{Lo: value}).And(o.EffectiveMask()).IsZero() {
			return false
		}
	}
	return true
}

// sends returns the entry that sends a packet to the controller, nil when none does. Entries
// that would keep it from getting there do not count: a benchmark asks again what was
// answered before.
func sends(list []*sender, p *packet) *sender {
	for _, s := range list {
		if s.matches(p) {
			return s
		}
	}
	return nil
}
