package packets

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// frameLen is the length of a flow's packets without the frame check sequence.
const frameLen = 14 + 20 + 8 + HeaderLen

// putFrame writes an Ethernet frame with a UDP packet over IPv4 (RFC 791, RFC 768). It has no UDP checksum, which IPv4 allows: a stamp
// does not make it reckon one.
func putFrame(b *[frameLen]byte, from sender, next net.HardwareAddr, to netip.AddrPort, h header) {
	copy(b[0:], next)
	copy(b[6:], from.hardware[:])
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	ip := b[14:34]
	ip[0], ip[1] = 0x45, 0
	binary.BigEndian.PutUint16(ip[2:], frameLen-14)
	binary.BigEndian.PutUint16(ip[4:], uint16(h.number))
	binary.BigEndian.PutUint16(ip[6:], 0x4000) // not to be fragmented
	ip[8], ip[9] = 64, 17
	binary.BigEndian.PutUint16(ip[10:], 0)
	copy(ip[12:], from.address[:])
	destination := to.Addr().As4()
	copy(ip[16:], destination[:])
	binary.BigEndian.PutUint16(ip[10:], headerChecksum(ip))
	udp := b[34:42]
	binary.BigEndian.PutUint16(udp[0:], from.port)
	binary.BigEndian.PutUint16(udp[2:], to.Port())
	binary.BigEndian.PutUint16(udp[4:], 8+HeaderLen)
	binary.BigEndian.PutUint16(udp[6:], 0)
	h.put(b[42:])
}

// headerChecksum is IPv4's (RFC 1071), of a header whose own is 0.
func headerChecksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
