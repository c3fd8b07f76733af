package pipeline

import (
	"encoding/binary"
	"slices"

	"trivet.dev/trivet/openflow"
)

// Rewrite says how a packet is changed for an output, in this order: some of its own tags are
// popped, then fields are set, then tags are pushed. It applies to the packet as received or, if a
// Slow translation has changed its headers, to the bytes in Output.Base.
type Rewrite struct {
	PopVLAN uint8 // of the packet's own tags, from the outside

	SetTTL bool  // to TTL; else it is decremented by DecTTL
	TTL    uint8 // of IPv4 or IPv6
	DecTTL uint8

	SetMPLSTTL bool
	MPLSTTL    uint8

	Sets []Set // by field
	Push []Tag // from the inside to the outside
}

// Set is a field and its new value. VLAN fields are those of the outermost remaining tag of the
// packet's own.
type Set struct {
	Field openflow.Field
	Value openflow.Value
}

// Tag is a VLAN tag to push.
type Tag struct {
	EthType uint16
	TCI     uint16 // PCP 3, DEI 1, VLAN 12
}

func (r *Rewrite) equal(o *Rewrite) bool {
	return r.PopVLAN == o.PopVLAN && r.SetTTL == o.SetTTL && r.TTL == o.TTL && r.DecTTL == o.DecTTL &&
		r.SetMPLSTTL == o.SetMPLSTTL && r.MPLSTTL == o.MPLSTTL && slices.Equal(r.Sets, o.Sets) && slices.Equal(r.Push,
		o.Push)
}

// Nothing reports whether the packet is sent unchanged.
func (r *Rewrite) Nothing() bool {
	return r.PopVLAN == 0 && !r.SetTTL && r.DecTTL == 0 && !r.SetMPLSTTL && len(r.Sets) == 0 && len(r.Push) == 0
}

// Grown returns by how many bytes the packet becomes longer.
func (r *Rewrite) Grown() int { return 4*len(r.Push) - 4*int(r.PopVLAN) }

// apply appends the rewritten frame to room.
func (r *Rewrite) apply(room, frame []byte, partial bool) []byte {
	pop := 4 * int(r.PopVLAN)
	if len(frame) < ethHeader+pop {
		return append(room, frame...)
	}
	at := len(room)
	room = append(room, frame[:12]...)
	for i := len(r.Push) - 1; i >= 0; i-- {
		room = binary.BigEndian.AppendUint16(room, r.Push[i].EthType)
		room = binary.BigEndian.AppendUint16(room, r.Push[i].TCI)
	}
	room = append(room, frame[12+pop:]...)
	if r.SetTTL || r.DecTTL != 0 || r.SetMPLSTTL || len(r.Sets) > 0 {
		r.fields(room[at:], 4*len(r.Push), partial)
	}
	return room
}

// fields sets fields of a frame behind pushed bytes of new tags.
func (r *Rewrite) fields(frame []byte, pushed int, partial bool) {
	var k Key
	l, ok := parse(frame, &k)
	if !ok {
		return
	}
	p := patch{frame: frame, l: &l, proto: k.ipProto(), partial: partial}
	sctp, isSCTP := p.sctp()
	for _, s := range r.Sets {
		p.set(s.Field, s.Value, &k, 12+pushed)
	}
	switch hasIP := k.EthType() == openflow.EthTypeIPv4 || k.EthType() == openflow.EthTypeIPv6; {
	case !hasIP || k.shape()&shapeNoL3 != 0:
	case r.SetTTL:
		p.ttl(r.TTL)
	case r.DecTTL != 0:
		p.ttl(k.TTL() - r.DecTTL)
	}
	if r.SetMPLSTTL && l.mpls != 0 {
		frame[l.mpls+3] = r.MPLSTTL
	}
	if isSCTP {
		p.adjustSCTP(sctp)
	}
}

func (p *patch) ttl(ttl uint8) {
	if p.l.ip6 {
		p.frame[p.l.l3+7] = ttl
		return
	}
	p.write(p.l.l3+8, []byte{ttl}, ipSum)
}

// set writes a field if the packet has it; tag is the offset of the packet's outermost own VLAN
// tag, if any.
func (p *patch) set(f openflow.Field, v openflow.Value, k *Key, tag int) {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], v.Hi)
	binary.BigEndian.PutUint64(b[8:], v.Lo)
	switch f {
	case openflow.FieldEthDst:
		copy(p.frame, b[10:])
	case openflow.FieldEthSrc:
		copy(p.frame[6:], b[10:])
	case openflow.FieldEthType:
		copy(p.frame[p.l.typeAt:], b[14:])
	case openflow.FieldVLANVID:
		if p.tagAt(tag) {
			p.frame[tag+2] = p.frame[tag+2]&0xf0 | b[14]&0x0f
			p.frame[tag+3] = b[15]
		}
	case openflow.FieldVLANPCP:
		if p.tagAt(tag) {
			p.frame[tag+2] = p.frame[tag+2]&0x1f | b[15]<<5
		}
	case openflow.FieldMPLSLabel, openflow.FieldMPLSTC, openflow.FieldMPLSBOS:
		if at := p.l.mpls; at != 0 {
			k.SetField(f, v)
			word := uint32(k[wordTags])&^0xff | uint32(p.frame[at+3])
			binary.BigEndian.PutUint32(p.frame[at:], word)
		}
	case openflow.FieldPBBISID:
		if at := p.l.pbb; at != 0 {
			copy(p.frame[at+1:], b[13:])
		}
	default:
		if k.shape()&shapeNoL3 == 0 {
			p.setL3(f, b[:], k)
		}
	}
}

func (p *patch) tagAt(at int) bool {
	return len(p.frame) >= at+6 && isTag(binary.BigEndian.Uint16(p.frame[at:]))
}

// setL3 writes a field of ARP, IP or what it carries; b is the value, in 16 bytes.
func (p *patch) setL3(f openflow.Field, b []byte, k *Key) {
	ip := p.l.l3
	switch ethType := k.EthType(); {
	case ethType == openflow.EthTypeARP:
		p.setARP(f, b)
	case ethType == openflow.EthTypeIPv4 && f == openflow.FieldIPv4Src:
		p.write(ip+12, b[12:], ipSum|pseudoSum)
	case ethType == openflow.EthTypeIPv4 && f == openflow.FieldIPv4Dst:
		p.write(ip+16, b[12:], ipSum|pseudoSum)
	case ethType == openflow.EthTypeIPv4 && f == openflow.FieldIPProto:
		p.write(ip+9, b[15:], ipSum|pseudoSum)
	case ethType == openflow.EthTypeIPv4 && f == openflow.FieldIPDSCP:
		p.write(ip+1, []byte{p.frame[ip+1]&3 | b[15]<<2}, ipSum)
	case ethType == openflow.EthTypeIPv4 && f == openflow.FieldIPECN:
		p.write(ip+1, []byte{p.frame[ip+1]&^3 | b[15]&3}, ipSum)
	case ethType == openflow.EthTypeIPv6 && f <= openflow.FieldIPProto,
		p.l.ip6 && f >= openflow.FieldIPv6Src && f <= openflow.FieldIPv6Flabel:
		p.setIPv6(f, b, k)
	case p.l.l4 != 0:
		p.setL4(f, b, k)
	}
}

func (p *patch) setARP(f openflow.Field, b []byte) {
	at := p.l.l3
	switch f {
	case openflow.FieldARPOp:
		copy(p.frame[at+6:], b[14:])
	case openflow.FieldARPSHA:
		copy(p.frame[at+8:], b[10:])
	case openflow.FieldARPSPA:
		copy(p.frame[at+14:], b[12:])
	case openflow.FieldARPTHA:
		copy(p.frame[at+18:], b[10:])
	case openflow.FieldARPTPA:
		copy(p.frame[at+24:], b[12:])
	}
}

func (p *patch) setIPv6(f openflow.Field, b []byte, k *Key) {
	at := p.l.l3
	first := binary.BigEndian.Uint32(p.frame[at:])
	value := binary.BigEndian.Uint32(b[12:])
	switch f {
	case openflow.FieldIPv6Src:
		p.write(at+8, b, pseudoSum)
	case openflow.FieldIPv6Dst:
		covered := pseudoSum
		if p.l.routed { // the last address of the routing header counts (RFC 8200, section 8.1)
			covered = noSum
		}
		p.write(at+24, b, covered)
	case openflow.FieldIPv6Flabel:
		binary.BigEndian.PutUint32(p.frame[at:], first&^0xfffff|value&0xfffff)
	case openflow.FieldIPDSCP:
		binary.BigEndian.PutUint32(p.frame[at:], first&^0x0fc00000|value<<22)
	case openflow.FieldIPECN:
		binary.BigEndian.PutUint32(p.frame[at:], first&^0x00300000|value&3<<20)
	case openflow.FieldIPProto:
		// The pseudo header contains the protocol as a 32-bit number (RFC 8200, section 8.1).
		old, now := []byte{0, k.ipProto()}, []byte{0, b[15]}
		p.transport(difference(old, now, 0), pseudoSum)
		p.frame[p.protoAt()] = b[15]
	}
}

// protoAt returns the offset of the field with the protocol after the last IPv6 extension header.
func (p *patch) protoAt() int {
	where, proto, at := p.l.l3+6, p.frame[p.l.l3+6], p.l.l3+40
	for range maxExtended {
		bit, _ := extension(proto, 0)
		if bit == 0 || bit == extNoNext || bit == extESP || len(p.frame) < at+8 {
			break
		}
		n := (int(p.frame[at+1]) + 1) * 8
		switch bit {
		case extAuth:
			n = (int(p.frame[at+1]) + 2) * 4
		case extFrag:
			n = 8
		}
		where, proto = at, p.frame[at]
		if bit == extFrag && binary.BigEndian.Uint16(p.frame[at+2:])&^7 != 0 {
			break
		}
		at += n
	}
	return where
}

// setL4 writes a field of the transport header, which exists.
func (p *patch) setL4(f openflow.Field, b []byte, k *Key) {
	at, proto := p.l.l4, k.ipProto()
	neighbour := proto == openflow.IPProtoICMPv6 && k[wordTarget]|k[wordTarget+1] != 0
	switch {
	case f == openflow.FieldTCPSrc && proto == openflow.IPProtoTCP,
		f == openflow.FieldUDPSrc && proto == openflow.IPProtoUDP,
		f == openflow.FieldSCTPSrc && proto == openflow.IPProtoSCTP:
		p.write(at, b[14:], l4Sum)
	case f == openflow.FieldTCPDst && proto == openflow.IPProtoTCP,
		f == openflow.FieldUDPDst && proto == openflow.IPProtoUDP,
		f == openflow.FieldSCTPDst && proto == openflow.IPProtoSCTP:
		p.write(at+2, b[14:], l4Sum)
	case f == openflow.FieldICMPv4Type && proto == openflow.IPProtoICMPv4,
		f == openflow.FieldICMPv6Type && proto == openflow.IPProtoICMPv6:
		p.write(at, b[15:], l4Sum)
	case f == openflow.FieldICMPv4Code && proto == openflow.IPProtoICMPv4,
		f == openflow.FieldICMPv6Code && proto == openflow.IPProtoICMPv6:
		p.write(at+1, b[15:], l4Sum)
	case f == openflow.FieldIPv6NDTarget && neighbour:
		p.write(at+8, b, l4Sum)
	case f == openflow.FieldIPv6NDSLL && p.l.sll != 0:
		p.write(p.l.sll, b[10:], l4Sum)
	case f == openflow.FieldIPv6NDTLL && p.l.tll != 0:
		p.write(p.l.tll, b[10:], l4Sum)
	}
}
