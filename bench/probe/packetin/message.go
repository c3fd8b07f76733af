package packetin

import (
	"encoding/binary"

	"trivet.dev/trivet/openflow"
)

// Versions of OpenFlow on the wire, and the greatest type of a message in any (TABLE_STATUS and
// later ones of 1.5).
const (
	version10, version11, version12, version15 = 1, 2, 3, 6

	lastType = 35
)

// frameOf returns the packet in a PACKET_IN of any version, as far as the switch has sent it
// (OpenFlow 1.0.0, section 5.4.1; 1.1.0, A.4.1; 1.2, A.4.1; 1.3.5 and later, 7.4.1).
func frameOf(m []byte) (frame []byte, ok bool) {
	match, at := 0, 0
	switch v := m[0]; {
	case v == version10:
		at = 18
	case v == version11:
		at = 24
	case v == version12:
		match = 16
	default:
		match = 24
	}
	if match > 0 {
		if len(m) < match+4 {
			return nil, false
		}
		length := int(binary.BigEndian.Uint16(m[match+2:]))
		at = match + (length+7)/8*8 + 2
	}
	if len(m) < at {
		return nil, false
	}
	return m[at:], true
}

// plausible says whether there may be a message: of a version, 0 is any; HELLO may have a later one
// than was agreed on.
func plausible(h openflow.Header, version uint8) bool {
	if h.Version < version10 || h.Version > version15 || h.Type > lastType || h.Length < openflow.HeaderLen {
		return false
	}
	return h.Type == openflow.TypeHello || version == 0 || h.Version == version
}

// enough messages one after another are no coincidence.
const enough = 8

// begins says whether messages begin at the start of b: they must follow one another to its end.
// sure: something else says that this may be the beginning of one, so a single message that b does
// not hold to its end is enough.
func begins(b []byte, version uint8, sure bool) bool {
	for n := 0; n < enough; n++ {
		if len(b) < openflow.HeaderLen {
			return n > 0 && (len(b) == 0 || n > 1 || sure)
		}
		h := openflow.ParseHeader(b)
		if !plausible(h, version) {
			return false
		}
		if h.Type != openflow.TypeHello {
			version = h.Version
		}
		if int(h.Length) > len(b) {
			return n > 1 || sure
		}
		b = b[h.Length:]
	}
	return true
}

// resync returns where in b messages begin, which starts where a segment does; -1: nowhere.
func resync(b []byte, version uint8) int {
	for i := 0; i+openflow.HeaderLen <= len(b); i++ {
		if begins(b[i:], version, i == 0) {
			return i
		}
	}
	return -1
}
