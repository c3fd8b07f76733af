package packets

import (
	"encoding/binary"
	"math/bits"
	"net"

	"golang.org/x/sys/unix"
)

// sighted is a packet as a tap saw it.
type sighted struct {
	number  uint64
	at      int64 // nanoseconds since 1970
	macs    [12]byte
	damaged bool // by what is in it
	sum     bool // the checksum of UDP is there, and wrong
}

// readFrame reads a frame that has a stream's mark where one over IPv4 or IPv6 has it.
func readFrame(b []byte, a ancillary) (p sighted, stream uint16, ok bool) {
	start, kind := payload4, uint16(unix.ETH_P_IP)
	if len(b) < payload4+2 || binary.BigEndian.Uint16(b[payload4:]) != mark {
		start, kind = payload6, unix.ETH_P_IPV6
	}
	if len(b) < start {
		return p, 0, false
	}
	h, ok := readHeader(b[start:])
	if !ok {
		return p, 0, false
	}
	p = sighted{number: h.number, at: a.received, macs: [12]byte(b)}
	_, whole := parseHeader(b[start:])
	ip, udp := b[14:start-8], b[start-8:]
	p.damaged = !whole || binary.BigEndian.Uint16(b[12:]) != kind || !agree(ip, udp)
	p.sum = !a.unsummed && !sound(ip, udp)
	return p, h.stream, true
}

// agree says whether the header of IP is one that goes before this one of UDP. What IPv6 has no
// checksum for, and nobody reads here (traffic class, flow label, hop limit), does not matter.
func agree(ip, udp []byte) bool {
	length := int(binary.BigEndian.Uint16(udp[4:]))
	if len(ip) == 40 {
		return ip[0]>>4 == 6 && ip[6] == protocolUDP && int(binary.BigEndian.Uint16(ip[4:])) == length
	}
	fragment := binary.BigEndian.Uint16(ip[6:])&0x3fff != 0
	return ip[0] == 0x45 && checksum(ip) == 0 && (fragment || int(binary.BigEndian.Uint16(ip[2:])) == 20+length)
}

// sound says whether a packet's checksum of UDP (RFC 768) is right, as far as it has one and is
// here as a whole.
func sound(ip, udp []byte) bool {
	length := int(binary.BigEndian.Uint16(udp[4:]))
	if binary.BigEndian.Uint16(udp[6:]) == 0 || length > len(udp) || length < 8 {
		return true
	}
	addresses := ip[len(ip)-8:]
	if len(ip) == 40 {
		addresses = ip[8:]
	}
	pseudo := [4]byte{1: protocolUDP, 2: udp[4], 3: udp[5]}
	if udp = udp[:length]; length%2 == 1 {
		udp = append(append([]byte{}, udp...), 0)
	}
	return checksum(addresses, pseudo[:], udp) == 0
}

// sort tells whole packets from damaged ones. Of two hardware addresses that differ by a bit, the
// one that hardly any packet has is the other, damaged; and where hardly any packet has the
// checksum of UDP that it should, it is not filled in there.
func (s *sights) sort() (out Sight) {
	macs, unsound := map[[12]byte]int{}, 0
	for _, p := range s.packets {
		macs[p.macs]++
		if p.sum {
			unsound++
		}
	}
	var usual [12]byte
	for m, n := range macs {
		if n > macs[usual] {
			usual = m
		}
	}
	if len(s.packets) > 0 {
		out.To = net.HardwareAddr(usual[:6]).String()
	}
	seen := map[uint64]bool{}
	for _, p := range s.packets {
		rare := p.macs != usual && apartBy(p.macs, usual) == 1 && macs[p.macs] <= 2+len(s.packets)/100
		switch {
		case p.damaged, rare, p.sum && 2*unsound < len(s.packets):
			out.Damaged = append(out.Damaged, p.number)
		case seen[p.number]:
			out.Again = append(out.Again, p.number)
		default:
			seen[p.number] = true
			out.Numbers, out.At = append(out.Numbers, p.number), append(out.At, p.at)
		}
	}
	return out
}

// apartBy is how many bits two pairs of addresses differ by.
func apartBy(a, b [12]byte) (n int) {
	for i := range a {
		n += bits.OnesCount8(a[i] ^ b[i])
	}
	return n
}
