package pipeline

import (
	"encoding/binary"
	"hash/crc32"

	"trivet.dev/trivet/openflow"
)

// A patch changes bytes of a packet and updates its checksums by the difference (RFC 1624): so a
// wrong checksum stays wrong, and a fragment's stays right.
type patch struct {
	frame   []byte
	l       *layout
	proto   uint8
	partial bool // the transport checksum is that of the pseudo header, to be completed by a device
}

// cover says which checksums cover a change.
type cover uint8

const (
	noSum     cover = 0
	ipSum     cover = 1 << iota // the checksum of the IPv4 header
	pseudoSum                   // the transport checksum, by the pseudo header
	l4Sum                       // the transport checksum, by the payload
)

// write puts b at offset at.
func (p *patch) write(at int, b []byte, covered cover) {
	old := p.frame[at : at+len(b)]
	if covered != noSum {
		delta := difference(old, b, at-p.l.l3)
		if covered&ipSum != 0 && !p.l.ip6 {
			adjust(p.frame[p.l.l3+10:], delta, false)
		}
		if covered&(pseudoSum|l4Sum) != 0 {
			p.transport(delta, covered)
		}
	}
	copy(old, b)
}

// transport updates the checksum of the transport header.
func (p *patch) transport(delta uint32, covered cover) {
	if p.l.l4 == 0 {
		return
	}
	at, needed := 0, false
	switch p.proto {
	case openflow.IPProtoTCP:
		at = p.l.l4 + 16
	case openflow.IPProtoUDP:
		at, needed = p.l.l4+6, true
	case openflow.IPProtoICMPv4:
		if covered&l4Sum == 0 {
			return // it has no pseudo header
		}
		at = p.l.l4 + 2
	case openflow.IPProtoICMPv6:
		at = p.l.l4 + 2
	default:
		return
	}
	field := p.frame[at:]
	switch {
	case p.partial && covered&pseudoSum != 0: // not yet complemented
		binary.BigEndian.PutUint16(field, fold(uint32(binary.BigEndian.Uint16(field))+uint32(fold(delta))))
	case p.partial:
	case needed && binary.BigEndian.Uint16(field) == 0: // none (RFC 768)
	default:
		adjust(field, delta, needed)
	}
}

// sctp returns the correct checksum of an SCTP packet (RFC 9260, appendix A); false if the packet
// is not SCTP, or not complete.
func (p *patch) sctp() (sum uint32, ok bool) {
	if p.proto != openflow.IPProtoSCTP || p.l.l4 == 0 || p.partial {
		return 0, false
	}
	b := p.segment()
	sum = crc32.Update(0, castagnoli, b[:8])
	sum = crc32.Update(sum, castagnoli, []byte{0, 0, 0, 0})
	return crc32.Update(sum, castagnoli, b[12:]), true
}

// adjustSCTP changes the checksum by as much as the correct one has changed: a CRC is linear, so a
// wrong one stays wrong.
func (p *patch) adjustSCTP(before uint32) {
	after, _ := p.sctp()
	field := p.frame[p.l.l4+8:]
	binary.LittleEndian.PutUint32(field, binary.LittleEndian.Uint32(field)^before^after)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segment returns the transport header and what follows it, without padding of the frame.
func (p *patch) segment() []byte {
	b := p.frame[p.l.l3:]
	end := int(binary.BigEndian.Uint16(b[2:]))
	if p.l.ip6 {
		end = 40 + int(binary.BigEndian.Uint16(b[4:]))
	}
	from := p.l.l4 - p.l.l3
	if end < from+12 || end > len(b) {
		end = len(b)
	}
	return b[from:end]
}

// difference returns what the one's complement sum grows by when old becomes new; at is the offset
// of both from an even place.
func difference(old, new []byte, at int) (delta uint32) {
	for i := range old {
		shift := 8 * uint(1-(at+i)&1)
		delta += uint32(new[i])<<shift + uint32(^uint16(uint16(old[i])<<shift))
	}
	return delta
}

// adjust changes a checksum by a difference of the sum.
func adjust(field []byte, delta uint32, zeroIsNone bool) {
	sum := ^fold(uint32(^binary.BigEndian.Uint16(field)) + uint32(fold(delta)))
	if sum == 0 && zeroIsNone {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(field, sum)
}

func fold(sum uint32) uint16 {
	sum = sum&0xffff + sum>>16
	return uint16(sum + sum>>16)
}
