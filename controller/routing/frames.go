package routing

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"trivet.dev/trivet/openflow"
)

var (
	broadcast = openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = netip.MustParseAddr("ff02::1")
)

// ICMPv6 types of neighbour discovery (RFC 4861, section 4).
const (
	neighborSolicitation  = 135
	neighborAdvertisement = 136
)

// linkLocal returns the link-local address derived from a MAC (RFC 4291, appendix A).
func linkLocal(m openflow.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

// frame puts an Ethernet header before a packet.
func frame(dst, src openflow.MAC, etherType uint16, packet []byte) []byte {
	b := make([]byte, 0, 14+len(packet))
	b = append(append(b, dst[:]...), src[:]...)
	b = binary.BigEndian.AppendUint16(b, etherType)
	return append(b, packet...)
}

// etherTypeOf returns the EtherType for an IP packet.
func etherTypeOf(packet []byte) uint16 {
	if packet[0]>>4 == 4 {
		return openflow.EthTypeIPv4
	}
	return openflow.EthTypeIPv6
}

// arp is an ARP message (RFC 826).
type arp struct {
	op       header.ARPOp
	sha, tha openflow.MAC
	spa, tpa netip.Addr
}

func parseARP(b []byte) (m arp, ok bool) {
	h := header.ARP(b)
	if !h.IsValid() {
		return m, false
	}
	m.op = h.Op()
	copy(m.sha[:], h.HardwareAddressSender())
	copy(m.tha[:], h.HardwareAddressTarget())
	m.spa = netip.AddrFrom4([4]byte(h.ProtocolAddressSender()))
	m.tpa = netip.AddrFrom4([4]byte(h.ProtocolAddressTarget()))
	return m, true
}

func (m arp) bytes() []byte {
	h := header.ARP(make([]byte, header.ARPSize))
	h.SetIPv4OverEthernet()
	h.SetOp(m.op)
	copy(h.HardwareAddressSender(), m.sha[:])
	copy(h.HardwareAddressTarget(), m.tha[:])
	spa, tpa := m.spa.As4(), m.tpa.As4()
	copy(h.ProtocolAddressSender(), spa[:])
	copy(h.ProtocolAddressTarget(), tpa[:])
	return h
}

// ndp is a neighbour solicitation or advertisement (RFC 4861).
type ndp struct {
	kind      uint8
	target    netip.Addr
	mac       openflow.MAC // option: the source's of a solicitation, the target's of an advertisement
	solicited bool
	src, dst  netip.Addr
}

// parseNDP reads a neighbour solicitation or advertisement from an IPv6 packet, validated as RFC
// 4861, section 7.1, requires.
func parseNDP(packet []byte) (m ndp, ok bool) {
	h := header.IPv6(packet)
	if len(packet) < 40+24 || h.HopLimit() != 255 || h.NextHeader() != openflow.IPProtoICMPv6 ||
		int(h.PayloadLength()) > len(packet)-40 {
		return m, false
	}
	b := packet[40 : 40+int(h.PayloadLength())]
	if len(b) < 24 || b[1] != 0 || icmp6Checksum(packet[:40], b) != 0 {
		return m, false
	}
	m.kind, m.src, m.dst = b[0], address(packet[8:24]), address(packet[24:40])
	m.target, _ = netip.AddrFromSlice(b[8:24])
	m.solicited = b[4]&0x40 != 0
	if m.target.IsMulticast() {
		return m, false
	}
	for options := b[24:]; len(options) >= 8; {
		n := 8 * int(options[1])
		if n == 0 || n > len(options) {
			return m, false
		}
		if kind := options[0]; n == 8 &&
			(kind == 1 && m.kind == neighborSolicitation || kind == 2 && m.kind == neighborAdvertisement) {
			copy(m.mac[:], options[2:8])
		}
		options = options[n:]
	}
	return m, true
}

func (m ndp) bytes() []byte {
	b := make([]byte, 32)
	b[0] = m.kind
	option := byte(1)
	if m.kind == neighborAdvertisement {
		option = 2
		b[4] = 0xa0 // a router; overrides
		if m.solicited {
			b[4] |= 0x40
		}
	}
	target := m.target.As16()
	copy(b[8:], target[:])
	b[24], b[25] = option, 1
	copy(b[26:], m.mac[:])
	return ip6(m.src, m.dst, openflow.IPProtoICMPv6, 255, b)
}

// solicitedNode returns the solicited-node multicast address of an address, and its MAC (RFC 4291,
// section 2.7.1; RFC 2464, section 7).
func solicitedNode(a netip.Addr) (netip.Addr, openflow.MAC) {
	b := a.As16()
	ip := [16]byte{0xff, 2, 11: 1, 12: 0xff, b[13], b[14], b[15]}
	return netip.AddrFrom16(ip), openflow.MAC{0x33, 0x33, 0xff, b[13], b[14], b[15]}
}

// multicastMAC returns the Ethernet address for a multicast group (RFC 1112, section 6.4; RFC 2464,
// section 7).
func multicastMAC(a netip.Addr) openflow.MAC {
	b := a.AsSlice()
	if a.Is4() {
		return openflow.MAC{0x01, 0x00, 0x5e, b[1] & 0x7f, b[2], b[3]}
	}
	return openflow.MAC{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// ip6 makes an IPv6 packet, and fills in the checksum of ICMPv6.
func ip6(src, dst netip.Addr, proto, hops uint8, payload []byte) []byte {
	b := make([]byte, 40, 40+len(payload))
	header.IPv6(b).Encode(&header.IPv6Fields{PayloadLength: uint16(len(payload)),
		TransportProtocol: tcpip.TransportProtocolNumber(proto),
		HopLimit:          hops, SrcAddr: tcpip.AddrFrom16(src.As16()), DstAddr: tcpip.AddrFrom16(dst.As16())})
	if proto == openflow.IPProtoICMPv6 {
		binary.BigEndian.PutUint16(payload[2:], 0)
		binary.BigEndian.PutUint16(payload[2:], icmp6Checksum(b, payload))
	}
	return append(b, payload...)
}

// icmp6Checksum returns the checksum of a message; 0 for a message whose checksum is correct.
func icmp6Checksum(ip, message []byte) uint16 {
	h := header.IPv6(ip)
	sum := header.PseudoHeaderChecksum(openflow.IPProtoICMPv6, h.SourceAddress(), h.DestinationAddress(),
		uint16(len(message)))
	return ^checksum.Checksum(message, sum)
}

// ip4 makes an IPv4 packet without options.
func ip4(src, dst netip.Addr, proto, ttl uint8, payload []byte) []byte {
	b := make([]byte, 20, 20+len(payload))
	h := header.IPv4(b)
	h.Encode(&header.IPv4Fields{TotalLength: uint16(20 + len(payload)), TTL: ttl, Protocol: proto,
		SrcAddr: tcpip.AddrFrom4(src.As4()), DstAddr: tcpip.AddrFrom4(dst.As4())})
	h.SetChecksum(^h.CalculateChecksum())
	return append(b, payload...)
}

// ipPacket is the part of a packet that a router examines.
type ipPacket struct {
	data     []byte // what has arrived of it
	length   int    // of the whole packet, in bytes; more than arrived if the switch has cut it
	v4       bool
	src, dst netip.Addr
	proto    uint8
	ttl      uint8
}

// leastCut is the minimum number of bytes that arrive of a packet that is too long for a PACKET_IN.
const leastCut = 32 << 10

// isCut reports whether only a part of the packet has arrived.
func (p ipPacket) isCut() bool { return p.length > len(p.data) }

// parseIP reads an IP packet's header and removes Ethernet padding.
func parseIP(etherType uint16, b []byte) (p ipPacket, ok bool) {
	switch {
	case etherType == openflow.EthTypeIPv4 && len(b) >= 20 && b[0]>>4 == 4:
		h := header.IPv4(b)
		if h.HeaderLength() < 20 || int(h.HeaderLength()) > len(b) || !h.IsChecksumValid() { // RFC 1812, section 5.2.2
			return p, false
		}
		n := int(h.TotalLength())
		if n > len(b) && len(b) < leastCut || n < int(h.HeaderLength()) {
			return p, false
		}
		return ipPacket{b[:min(n, len(b))], n, true, address(b[12:16]), address(b[16:20]), b[9], b[8]}, true
	case etherType == openflow.EthTypeIPv6 && len(b) >= 40 && b[0]>>4 == 6:
		n := 40 + int(header.IPv6(b).PayloadLength())
		if n > len(b) && len(b) < leastCut {
			return p, false
		}
		return ipPacket{b[:min(n, len(b))], n, false, address(b[8:24]), address(b[24:40]), b[6], b[7]}, true
	}
	return p, false
}

// decrement returns a copy of the packet with its TTL decremented.
func (p ipPacket) decrement() []byte {
	b := append([]byte(nil), p.data...)
	if !p.v4 {
		b[7]--
		return b
	}
	b[8]-- // the checksum grows by one in the byte above (RFC 1624)
	sum := uint32(binary.BigEndian.Uint16(b[10:])) + 0x100
	binary.BigEndian.PutUint16(b[10:], uint16(sum+sum>>16))
	return b
}

// isError reports whether a packet is an ICMP error, to which no error may be sent (RFC 1122,
// section 3.2.2; RFC 4443, section 2.4).
func (p ipPacket) isError() bool {
	if p.v4 {
		at := int(header.IPv4(p.data).HeaderLength())
		if header.IPv4(p.data).FragmentOffset() != 0 {
			return true
		}
		return p.proto == openflow.IPProtoICMPv4 &&
			(len(p.data) <= at || !(p.data[at] == 0 || p.data[at] == 8 || p.data[at] >= 13))
	}
	return p.proto == openflow.IPProtoICMPv6 && (len(p.data) <= 40 || p.data[40] < 128)
}

// flowHash is the same for all packets of a flow, to spread flows over next hops.
func (p ipPacket) flowHash() uint32 {
	h := uint32(2166136261)
	mix := func(b []byte) {
		for _, c := range b {
			h = (h ^ uint32(c)) * 16777619
		}
	}
	at := 40
	if p.v4 {
		mix(p.data[12:20])
		at = int(header.IPv4(p.data).HeaderLength())
	} else {
		mix(p.data[8:40])
	}
	mix([]byte{p.proto})
	if (p.proto == openflow.IPProtoTCP || p.proto == openflow.IPProtoUDP) && len(p.data) >= at+4 && !p.isFragment() {
		mix(p.data[at : at+4])
	}
	return h
}
