package packets

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
)

// The length of a flow's packets without the frame check sequence.
const (
	frameLen  = 14 + 20 + 8 + HeaderLen
	frameLen6 = 14 + 40 + 8 + HeaderLen
)

// putFrame writes an Ethernet frame with a UDP packet and returns it: over IPv4 (RFC 791, RFC 768),
// where it has no UDP checksum, which IPv4 allows, so that a stamp does not make it reckon one; or
// over IPv6 (RFC 8200), which wants one.
func putFrame(b *[frameLen6]byte, from sender, next net.HardwareAddr, to netip.AddrPort, h header) []byte {
	copy(b[0:], next)
	copy(b[6:], from.hardware[:])
	if to.Addr().Is6() {
		binary.BigEndian.PutUint16(b[12:], 0x86dd)
		ip, udp := b[14:54], b[54:]
		copy(ip, []byte{0x60, 0, 0, 0, 0, 0, protocolUDP, 64}) // no traffic class, no flow label; 64 hops
		binary.BigEndian.PutUint16(ip[4:], uint16(len(udp)))
		copy(ip[8:], from.address.AsSlice())
		copy(ip[24:], to.Addr().AsSlice())
		putUDP(udp, from.port, to.Port(), h)
		pseudo := [8]byte{7: protocolUDP} // section 8.1
		binary.BigEndian.PutUint32(pseudo[:], uint32(len(udp)))
		sum := checksum(ip[8:40], pseudo[:], udp)
		if sum == 0 { // which would be that there is none
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(udp[6:], sum)
		return b[:]
	}
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	ip := b[14:34]
	copy(ip, []byte{0x45, 0, 0, frameLen - 14, 0, 0, 0x40, 0, 64, protocolUDP, 0, 0}) // not to be fragmented; 64 hops
	binary.BigEndian.PutUint16(ip[4:], uint16(h.number))
	copy(ip[12:], from.address.AsSlice())
	copy(ip[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	putUDP(b[34:frameLen], from.port, to.Port(), h)
	return b[:frameLen]
}

const protocolUDP = 17

func putUDP(udp []byte, from, to uint16, h header) {
	binary.BigEndian.PutUint16(udp[0:], from)
	binary.BigEndian.PutUint16(udp[2:], to)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], 0)
	h.put(udp[8:])
}

// checksum is the Internet's (RFC 1071), of parts of even lengths, in which the checksum itself is
// 0.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, part := range parts {
		for two := range slices.Chunk(part, 2) {
			sum += uint32(binary.BigEndian.Uint16(two))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
