package pipeline

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	"trivet.dev/trivet/openflow"
)

const (
	ethTypeMPLSMulticast = 0x8848
	ethTypeSTag          = 0x88a8
	ethTypeLLC           = 0x05ff // of a frame with a length and no SNAP header, as in Open vSwitch

	ethHeader   = 14
	maxTags     = 8 // VLAN tags that are read
	maxExtended = 16
)

// layout holds the offsets of a packet's headers; 0: it has no such header.
type layout struct {
	tags   int // VLAN tags
	typeAt int // of the Ethernet type after the VLAN tags
	l3     int // the header that follows it
	l4     int
	mpls   int
	pbb    int
	ip6    bool
	routed bool // an IPv6 routing header: the checksum is over another destination
	sll    int  // the address in a neighbour discovery option
	tll    int
}

// parse reads the fields of a frame into k, which it clears; the caller sets the fields of the
// port. It refuses frames shorter than an Ethernet header.
func parse(frame []byte, k *Key) (l layout, ok bool) {
	*k = Key{}
	if len(frame) < ethHeader {
		return l, false
	}
	k[wordDst] = uint64(binary.BigEndian.Uint32(frame))<<32 | uint64(binary.BigEndian.Uint16(frame[4:]))<<16
	k[wordSrc] = uint64(binary.BigEndian.Uint32(frame[6:]))<<32 | uint64(binary.BigEndian.Uint16(frame[10:]))<<16
	at := 12
	ethType := binary.BigEndian.Uint16(frame[at:])
	for isTag(ethType) && len(frame) >= at+6 && l.tags < maxTags {
		tci := binary.BigEndian.Uint16(frame[at+2:]) | tagPresent
		switch l.tags {
		case 0:
			k[wordSrc] |= uint64(tci)
		case 1:
			k[wordTags] |= uint64(tci) << tagsShift
		}
		l.tags++
		at += 4
		ethType = binary.BigEndian.Uint16(frame[at:])
	}
	l.typeAt, l.l3 = at, at+2
	if ethType < 0x600 {
		ethType = l.snap(frame)
	}
	k[wordDst] |= uint64(ethType)
	l.payload(frame, k, ethType)
	return l, true
}

func isTag(ethType uint16) bool { return ethType == openflow.EthTypeVLAN || ethType == ethTypeSTag }

// snap reads the type of an IEEE 802.3 frame with a SNAP header (section 7.2.3.8).
func (l *layout) snap(frame []byte) uint16 {
	b := frame[l.l3:]
	if len(b) < 8 || b[0] != 0xaa || b[1] != 0xaa || b[2] != 3 || b[3]|b[4]|b[5] != 0 {
		return ethTypeLLC
	}
	ethType := binary.BigEndian.Uint16(b[6:])
	if ethType < 0x600 {
		return ethTypeLLC
	}
	l.typeAt, l.l3 = l.l3+6, l.l3+8
	return ethType
}

// payload reads what follows the Ethernet type.
func (l *layout) payload(frame []byte, k *Key, ethType uint16) {
	b := frame[l.l3:]
	valid := true
	switch ethType {
	case openflow.EthTypeIPv4:
		valid = l.ipv4(frame, k)
	case openflow.EthTypeIPv6:
		valid = l.ipv6(frame, k)
	case openflow.EthTypeARP:
		valid = l.arp(b, k)
	case openflow.EthTypeMPLS, ethTypeMPLSMulticast:
		if valid = len(b) >= 4; valid {
			k[wordTags] |= uint64(binary.BigEndian.Uint32(b))
			l.mpls = l.l3
		}
	case openflow.EthTypePBB:
		if valid = len(b) >= 16; valid {
			k[wordIPv4] = uint64(binary.BigEndian.Uint32(b) & 0xffffff)
			l.pbb = l.l3
		}
	}
	if !valid {
		k[wordIP] |= shapeNoL3 << shapeShift
	}
}

func (l *layout) arp(b []byte, k *Key) bool {
	// Ethernet and IPv4 only (RFC 826).
	if len(b) < 28 || binary.BigEndian.Uint64(b)>>16 != 0x000108000604 {
		return false
	}
	k[wordPorts] = uint64(binary.BigEndian.Uint16(b[6:])) << 48
	k[wordSHA] = mac(b[8:])
	k[wordIPv4] = uint64(binary.BigEndian.Uint32(b[14:]))<<32 | uint64(binary.BigEndian.Uint32(b[24:]))
	k[wordTHA] = mac(b[18:])
	return true
}

func mac(b []byte) uint64 {
	return uint64(binary.BigEndian.Uint16(b))<<32 | uint64(binary.BigEndian.Uint32(b[2:]))
}

func (l *layout) ipv4(frame []byte, k *Key) bool {
	b := frame[l.l3:]
	if len(b) < 20 || b[0]>>4 != 4 {
		return false
	}
	header := int(b[0]&15) * 4
	if header < 20 || len(b) < header {
		return false
	}
	k[wordIPv4] = binary.BigEndian.Uint64(b[12:])
	k[wordIP] = uint64(b[9])<<56 | uint64(b[1])<<48 | uint64(b[8])<<ttlShift
	if checksum.Checksum(b[:header], 0) != 0xffff {
		k[wordIP] |= shapeBadSum << shapeShift
	}
	fragment := binary.BigEndian.Uint16(b[6:])
	if fragment&0x3fff != 0 {
		k[wordIP] |= shapeFragment << shapeShift
	}
	if fragment&0x1fff != 0 {
		k[wordIP] |= shapeNoL4 << shapeShift
		return true
	}
	end := len(frame)
	if n := int(binary.BigEndian.Uint16(b[2:])); n > 0 { // 0: a packet that will be segmented
		end = min(end, l.l3+max(n, header))
	}
	l.transport(frame[:end], k, l.l3+header, b[9])
	return true
}

// transport reads the transport header at offset at of a frame that is cut where IP says.
func (l *layout) transport(frame []byte, k *Key, at int, proto uint8) {
	need := 0
	switch proto {
	case openflow.IPProtoTCP:
		need = 20
	case openflow.IPProtoUDP, openflow.IPProtoICMPv4:
		need = 8
	case openflow.IPProtoSCTP:
		need = 12
	case openflow.IPProtoICMPv6:
		need = 4
	default:
		return
	}
	if proto == openflow.IPProtoICMPv4 && l.ip6 || proto == openflow.IPProtoICMPv6 && !l.ip6 {
		return
	}
	if len(frame) < at+need {
		k[wordIP] |= shapeNoL4 << shapeShift
		return
	}
	l.l4 = at
	b := frame[at:]
	switch proto {
	case openflow.IPProtoICMPv4:
		k[wordPorts] = uint64(b[0])<<48 | uint64(b[1])<<32
	case openflow.IPProtoICMPv6:
		k[wordPorts] = uint64(b[0])<<48 | uint64(b[1])<<32
		l.neighbour(frame, k)
	default:
		k[wordPorts] = uint64(binary.BigEndian.Uint32(b)) << 32
	}
}

// neighbour reads a neighbour solicitation or advertisement (RFC 4861, section 4.3 and 4.4).
func (l *layout) neighbour(frame []byte, k *Key) {
	b := frame[l.l4:]
	if b[0] != 135 && b[0] != 136 || b[1] != 0 || len(b) < 24 {
		return
	}
	k[wordTarget], k[wordTarget+1] = binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
	for at := 24; at+8 <= len(b); {
		n := int(b[at+1]) * 8
		if n == 0 || at+n > len(b) {
			return
		}
		switch {
		case b[at] == 1 && n == 8 && b[0] == 135 && l.sll == 0:
			l.sll = l.l4 + at + 2
			k[wordSHA] = mac(frame[l.sll:])
		case b[at] == 2 && n == 8 && b[0] == 136 && l.tll == 0:
			l.tll = l.l4 + at + 2
			k[wordTHA] = mac(frame[l.tll:])
		}
		at += n
	}
}
