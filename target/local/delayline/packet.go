package delayline

import "encoding/binary"

// Parsing of packets. Senders are not trusted: a packet that does not parse is neither marked nor
// assigned to a flow by ports.

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	ipv4Min   = 20
	ipv6Len   = 40

	ecnMask = 3 // of the second octet of IPv4's header, of the traffic class of IPv6
	ecnCE   = 3 // RFC 3168, section 5; 0: not ECN-capable
)

// network finds the network-layer packet in a frame (with the kernel's header in front), behind
// VLAN tags (802.1Q, 802.1ad).
func network(b []byte) (kind uint16, packet []byte) {
	if len(b) < vnetLen+ethernetLen {
		return 0, nil
	}
	kind, packet = binary.BigEndian.Uint16(b[vnetLen+12:]), b[vnetLen+ethernetLen:]
	for (kind == 0x8100 || kind == 0x88a8) && len(packet) >= 4 {
		kind, packet = binary.BigEndian.Uint16(packet[2:]), packet[4:]
	}
	switch {
	case kind == etherIPv4 && len(packet) >= ipv4Min && packet[0]>>4 == 4 && packet[0]&15 >= 5 &&
		len(packet) >= int(packet[0]&15)*4:
		return kind, packet
	case kind == etherIPv6 && len(packet) >= ipv6Len && packet[0]>>4 == 6:
		return kind, packet
	}
	return 0, nil
}

// ecnCapable says whether the sender of a frame's packet understands marks (RFC 3168, section 5).
func ecnCapable(b []byte) bool {
	switch kind, p := network(b); kind {
	case etherIPv4:
		return p[1]&ecnMask != 0
	case etherIPv6:
		return p[1]>>4&ecnMask != 0
	}
	return false
}

// mark sets the congestion mark (CE) in a frame's packet, which must be ecnCapable.
func mark(b []byte) {
	switch kind, p := network(b); kind {
	case etherIPv4:
		before := binary.BigEndian.Uint16(p)
		p[1] |= ecnCE
		// RFC 1624, section 3, equation 3: HC' = ~(~HC + ~m + m')
		sum := uint32(^binary.BigEndian.Uint16(p[10:])) + uint32(^before) + uint32(binary.BigEndian.Uint16(p))
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
	case etherIPv6:
		p[1] |= ecnCE << 4
	}
}

// flow hashes what identifies a packet's flow (RFC 8290, section 4.1): addresses, protocol and
// ports; for a packet that is not IP, its MAC addresses. Fragments count without ports, as only the
// first has them.
func flow(b []byte, seed uint64) uint64 {
	h := hash(seed)
	switch kind, p := network(b); kind {
	case etherIPv4:
		h.add(p[12:20])
		rest := p[int(p[0]&15)*4:]
		if binary.BigEndian.Uint16(p[6:])&0x3fff != 0 { // more fragments, or not the first
			rest = nil
		}
		h.transport(p[9], rest)
	case etherIPv6:
		h.add(p[8:40])
		protocol, rest := beyond(p[6], p[ipv6Len:])
		h.transport(protocol, rest)
	default:
		h.add(b[min(len(b), vnetLen):min(len(b), vnetLen+ethernetLen)])
	}
	return uint64(h)
}

// Extension headers of IPv6 (RFC 8200, section 4; RFC 4302).
const (
	hopByHop    = 0
	routing     = 43
	fragment    = 44
	authHeader  = 51
	destination = 60
)

// beyond finds the transport header behind extension headers; rest is nil if it is not there.
func beyond(next byte, b []byte) (protocol byte, rest []byte) {
	for {
		length := 0
		switch {
		case next == fragment:
			return next, nil
		case len(b) < 8:
			return next, b
		case next == hopByHop || next == routing || next == destination:
			length = 8 * (int(b[1]) + 1)
		case next == authHeader:
			length = 4 * (int(b[1]) + 2)
		default:
			return next, b
		}
		if length > len(b) {
			return next, nil
		}
		next, b = b[0], b[length:]
	}
}

// hash mixes octets into a number (the finaliser of splitmix64 after each 8).
type hash uint64

func (h *hash) add(b []byte) {
	var word [8]byte
	for ; len(b) > 0; b = b[min(8, len(b)):] {
		word = [8]byte{}
		copy(word[:], b)
		x := uint64(*h)*0x9e3779b97f4a7c15 + binary.LittleEndian.Uint64(word[:])
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		*h = hash(x ^ x>>31)
	}
}

// transport adds a protocol, and its ports if it has some: TCP, UDP, DCCP, SCTP, UDP-Lite.
func (h *hash) transport(protocol byte, header []byte) {
	h.add([]byte{protocol})
	switch protocol {
	case 6, 17, 33, 132, 136:
		if len(header) >= 4 {
			h.add(header[:4])
		}
	}
}
