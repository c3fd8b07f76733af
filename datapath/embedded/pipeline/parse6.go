package pipeline

import "encoding/binary"

// Bits of IPV6_EXTHDR: ofp_ipv6exthdr_flags (section 7.2.3.8).
const (
	extNoNext = 1 << iota
	extESP
	extAuth
	extDest
	extFrag
	extRouter
	extHop
	extRepeated  // one that may come once has come again
	extSequenced // they are not in the order of RFC 8200
)

// Numbers of extension headers.
const (
	protoHopByHop    = 0
	protoRouting     = 43
	protoFragment    = 44
	protoESP         = 50
	protoAuth        = 51
	protoNoNext      = 59
	protoDestination = 60
)

func (l *layout) ipv6(frame []byte, k *Key) bool {
	b := frame[l.l3:]
	if len(b) < 40 || b[0]>>4 != 6 {
		return false
	}
	l.ip6 = true
	first := binary.BigEndian.Uint32(b)
	k[wordIP] = uint64(first>>20&0xff)<<48 | uint64(b[7])<<ttlShift | uint64(first&0xfffff)<<12
	for i := range 4 {
		k[wordIPv6Src+i] = binary.BigEndian.Uint64(b[8+8*i:])
	}
	end := len(frame)
	if n := int(binary.BigEndian.Uint16(b[4:])); n > 0 { // 0: a jumbogram, or a packet that will be segmented
		end = min(end, l.l3+40+n)
	}
	proto, at, seen, noL4 := l.extensions(frame[:end], k, b[6], l.l3+40)
	k[wordIP] |= uint64(proto)<<56 | uint64(seen)
	if noL4 {
		k[wordIP] |= shapeNoL4 << shapeShift
		return true
	}
	l.transport(frame[:end], k, at, proto)
	return true
}

// extensions walks over the extension headers, and returns the protocol after them and where it
// starts.
func (l *layout) extensions(frame []byte, k *Key, proto uint8, at int) (uint8, int, uint16, bool) {
	var seen uint16
	order := 0 // how far we are in the order of RFC 8200, section 4.1
	destinations := 0
	for range maxExtended {
		bit, rank := extension(proto, seen)
		if bit == 0 {
			return proto, at, seen, false
		}
		if bit == extDest {
			destinations++
		}
		if seen&bit != 0 && (bit != extDest || destinations > 2) {
			seen |= extRepeated
		}
		if rank < order {
			seen |= extSequenced
		}
		order = max(order, rank)
		seen |= bit
		if bit == extNoNext || bit == extESP {
			return proto, at, seen, false
		}
		if len(frame) < at+8 {
			return proto, at, seen, true
		}
		n := (int(frame[at+1]) + 1) * 8
		switch bit {
		case extAuth:
			n = (int(frame[at+1]) + 2) * 4
		case extRouter:
			l.routed = l.routed || frame[at+3] > 0 // segments left
		case extFrag:
			n = 8
			where := binary.BigEndian.Uint16(frame[at+2:])
			if where&^6 != 0 { // else it is the whole packet (RFC 6946)
				k[wordIP] |= shapeFragment << shapeShift
			}
			if where&^7 != 0 {
				return frame[at], at + n, seen, true
			}
		}
		proto = frame[at]
		at += n
	}
	return proto, at, seen, true
}

// extension returns the bit of an extension header, or 0 for other protocols, and its position in
// the order.
func extension(proto uint8, seen uint16) (bit uint16, rank int) {
	switch proto {
	case protoHopByHop:
		return extHop, 1
	case protoDestination:
		if seen&(extRouter|extFrag|extAuth|extESP) == 0 {
			return extDest, 2
		}
		return extDest, 7
	case protoRouting:
		return extRouter, 3
	case protoFragment:
		return extFrag, 4
	case protoAuth:
		return extAuth, 5
	case protoESP:
		return extESP, 6
	case protoNoNext:
		return extNoNext, 8
	}
	return 0, 0
}
