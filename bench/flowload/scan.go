package flowload

import (
	"encoding/binary"

	"trivet.dev/trivet/openflow"
)

// version10 is the wire version of OpenFlow 1.0, of which the codec knows only the HELLO.
const version10 = 0x01

// said is the part of a FLOW_MOD or PACKET_OUT that matters as an answer to a PACKET_IN.
type said struct {
	buffer uint32 // openflow.BufferNone: none
	inPort uint32 // 0: not said

	// Addresses that an entry matches, as mac makes numbers of them.
	src, dst       uint64
	hasSrc, hasDst bool

	outs         int    // output actions that do not lead to the controller
	out          uint32 // the port of the first of them
	toController bool   // an output leads to the controller
	frame        []byte // of a PACKET_OUT

	hasGroup bool // the packet goes to a group, the last one named
	group    uint32
}

var be = binary.BigEndian

// mac makes a number of the six bytes of an address.
func mac(b []byte) uint64 { return uint64(be.Uint16(b))<<32 | uint64(be.Uint32(b[2:])) }

// Heads of the OXM fields that tie an entry to a packet (OpenFlow 1.3.5, section 7.2.3.7): class,
// field, no mask, length.
const (
	oxmInPort = 0x80000000 | uint32(openflow.FieldInPort)<<9 | 4
	oxmEthDst = 0x80000000 | uint32(openflow.FieldEthDst)<<9 | 6
	oxmEthSrc = 0x80000000 | uint32(openflow.FieldEthSrc)<<9 | 6
)

// flowMod13 reads a FLOW_MOD of OpenFlow 1.3 (section 7.3.4.1); false when it is malformed.
func (v *said) flowMod13(m []byte) bool {
	if len(m) < 56 {
		return false
	}
	*v = said{buffer: be.Uint32(m[32:])}
	n := int(be.Uint16(m[50:])) // of the match, without its padding
	end := 48 + (n+7)&^7
	if n < 4 || end > len(m) {
		return false
	}
	for b := m[52 : 48+n]; len(b) > 0; {
		if len(b) < 4 || len(b) < 4+int(b[3]) {
			return false
		}
		switch be.Uint32(b) {
		case oxmInPort:
			v.inPort = be.Uint32(b[4:])
		case oxmEthDst:
			v.dst, v.hasDst = mac(b[4:]), true
		case oxmEthSrc:
			v.src, v.hasSrc = mac(b[4:]), true
		}
		b = b[4+int(b[3]):]
	}
	for b := m[end:]; len(b) > 0; {
		if len(b) < 8 {
			return false
		}
		size := int(be.Uint16(b[2:]))
		if size < 8 || size > len(b) {
			return false
		}
		switch openflow.InstructionType(be.Uint16(b)) {
		case openflow.InstructionApplyActions, openflow.InstructionWriteActions:
			if !v.actions13(b[8:size]) {
				return false
			}
		}
		b = b[size:]
	}
	return true
}

// actions13 takes note of the outputs among actions (section 7.2.5).
func (v *said) actions13(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 8 {
			return false
		}
		size := int(be.Uint16(b[2:]))
		if size < 8 || size > len(b) {
			return false
		}
		switch openflow.ActionType(be.Uint16(b)) {
		case openflow.ActionOutput:
			v.output(be.Uint32(b[4:]))
		case openflow.ActionGroup:
			v.group, v.hasGroup = be.Uint32(b[4:]), true
		}
		b = b[size:]
	}
	return true
}

func (v *said) output(port uint32) {
	if port == openflow.PortController {
		v.toController = true
		return
	}
	if v.outs++; v.outs == 1 {
		v.out = port
	}
}

// packetOut13 reads a PACKET_OUT of OpenFlow 1.3 (section 7.3.7).
func (v *said) packetOut13(m []byte) bool {
	if len(m) < 24 {
		return false
	}
	*v = said{buffer: be.Uint32(m[8:])}
	end := 24 + int(be.Uint16(m[16:]))
	if end > len(m) {
		return false
	}
	v.frame = m[end:]
	return v.actions13(m[24:end])
}

// Bits of a match of OpenFlow 1.0 (specification 1.0.0, section 5.2.3): set when the field is not
// compared.
const (
	wildInPort = 1 << 0
	wildDLSrc  = 1 << 2
	wildDLDst  = 1 << 3
)

// flowMod10 reads a FLOW_MOD of OpenFlow 1.0 (section 5.3.3).
func (v *said) flowMod10(m []byte) bool {
	if len(m) < 72 {
		return false
	}
	*v = said{buffer: be.Uint32(m[64:])}
	wild := be.Uint32(m[8:])
	if wild&wildInPort == 0 {
		v.inPort = port10(m[12:])
	}
	if wild&wildDLSrc == 0 {
		v.src, v.hasSrc = mac(m[14:]), true
	}
	if wild&wildDLDst == 0 {
		v.dst, v.hasDst = mac(m[20:]), true
	}
	return v.actions10(m[72:])
}

// packetOut10 reads a PACKET_OUT of OpenFlow 1.0 (section 5.3.6).
func (v *said) packetOut10(m []byte) bool {
	if len(m) < 16 {
		return false
	}
	*v = said{buffer: be.Uint32(m[8:])}
	end := 16 + int(be.Uint16(m[14:]))
	if end > len(m) {
		return false
	}
	v.frame = m[end:]
	return v.actions10(m[16:end])
}

func (v *said) actions10(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 8 {
			return false
		}
		size := int(be.Uint16(b[2:]))
		if size < 8 || size > len(b) {
			return false
		}
		if be.Uint16(b) == 0 { // OFPAT_OUTPUT
			v.output(port10(b[4:]))
		}
		b = b[size:]
	}
	return true
}

// port10 reads a port number of 16 bits; those with a meaning get the number that they have in 1.3.
func port10(b []byte) uint32 {
	p := uint32(be.Uint16(b))
	if p >= 0xff00 {
		p |= 0xffff0000
	}
	return p
}
