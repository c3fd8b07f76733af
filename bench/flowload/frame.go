package flowload

import "trivet.dev/trivet/openflow"

// Hosts are numbered from 0 on each switch. A host's address tells its switch and its
// number, and its number tells its port, so that any answer can be checked without a table.

const macPrefix = 0x02 // locally administered

// hostMAC is the address of a host as a number of 48 bits.
func hostMAC(sw int, host uint32) uint64 {
	return macPrefix<<40 | uint64(sw&0xffff)<<24 | uint64(host&0xffffff)
}

// hostOf returns the number of the host of a switch that has an address.
func hostOf(sw int, address uint64) (host uint32, ok bool) {
	return uint32(address & 0xffffff), address>>24 == macPrefix<<16|uint64(sw&0xffff)
}

// portOf is where a host lives.
func portOf(host uint32, ports int) uint32 { return 1 + host%uint32(ports) }

func putMAC(b []byte, address uint64) {
	be.PutUint16(b, uint16(address>>32))
	be.PutUint32(b[2:], uint32(address))
}

// frameLen is the length of an Ethernet frame of the least size, without its checksum; a tag comes
// on top.
const frameLen = 60

// newFrame is a UDP packet in an Ethernet frame, with a VLAN tag where vlan is not 0. patchFrame
// fills in what differs from packet to packet.
func newFrame(vlan uint16) []byte {
	var b []byte
	b = append(b, make([]byte, 12)...)
	if vlan != 0 {
		b = be.AppendUint16(be.AppendUint16(b, openflow.EthTypeVLAN), vlan)
	}
	b = be.AppendUint16(b, openflow.EthTypeIPv4)
	ip := len(b)
	b = append(b, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, openflow.IPProtoUDP, 0, 0, 10, 1, 0, 0, 10, 1, 0, 0)
	b = append(b, 0x13, 0x88, 0x13, 0x88, 0, 26, 0, 0) // port 5000 to 5000, no checksum
	b = append(b, make([]byte, 18)...)
	// The identification is the complement of what patchFrame writes into the addresses, so
	// that the header's checksum (RFC 791, section 3.1) holds for all: here both are zero.
	be.PutUint16(b[ip+4:], 0xffff)
	be.PutUint16(b[ip+10:], ^onesSum(b[ip:ip+20]))
	return b
}

// patchFrame gives a frame of newFrame its addresses and its number.
func patchFrame(b []byte, dst, src uint64, sequence uint32) {
	putMAC(b, dst)
	putMAC(b[6:], src)
	ip := len(b) - 46
	sum := uint32(uint16(src)) + uint32(uint16(dst))
	be.PutUint16(b[ip+4:], ^uint16(sum&0xffff+sum>>16))
	be.PutUint16(b[ip+14:], uint16(src))
	be.PutUint16(b[ip+18:], uint16(dst))
	be.PutUint32(b[len(b)-18:], sequence)
}

// sequenceOf reads the number of a frame that came back whole. Controllers may
// have taken its tag off; the number is counted from the end.
func sequenceOf(frame []byte) (sequence uint32, ok bool) {
	if len(frame) != frameLen && len(frame) != frameLen+4 {
		return 0, false
	}
	return be.Uint32(frame[len(frame)-18:]), true
}

func onesSum(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(be.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}
