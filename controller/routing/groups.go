package routing

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"trivet.dev/trivet/openflow"
)

// Multicast groups of every router besides the solicited-node ones (RFC 1112, section 4; RFC 4291,
// section 2.8): all nodes and all routers.
var (
	groups4 = []netip.Addr{netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("224.0.0.2")}
	groups6 = []netip.Addr{allNodes, netip.MustParseAddr("ff02::2")}
)

const (
	routerSolicitation  = 133
	routerAdvertisement = 134

	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// groupFrame returns the entries that send packets to these groups to the controller: pings, and
// router solicitations.
func (n *node) groupFrame() (out []*openflow.FlowMod) {
	// Including two more groups each, whose packets are dropped.
	some4, some6 := netip.PrefixFrom(groups4[0], 30).Masked(), netip.PrefixFrom(allNodes, 126).Masked()
	out = append(out, entry(admissionTable, prioritySpecial,
		matchDst(some4).With(openflow.IPProto(openflow.IPProtoICMPv4)).With(openflow.ICMPv4Type(echoRequest4)),
		toController()))
	if !n.v6 {
		return out
	}
	out = append(out, entry(admissionTable, prioritySpecial,
		matchDst(some6).With(openflow.IPProto(openflow.IPProtoICMPv6)).With(openflow.ICMPv6Type(echoRequest6)),
		toController()))
	m := openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv6), openflow.IPProto(openflow.IPProtoICMPv6),
		openflow.ICMPv6Type(routerSolicitation))
	return append(out, entry(admissionTable, prioritySpecial, m, toController()))
}

// answerOnLink answers what only a neighbour can ask: a ping to a group or between link-local
// addresses, and a router solicitation. No route leads back, so the answer goes to the MAC and
// interface from which the packet came. It returns false for anything else.
func (n *node) answerOnLink(f *Interface, from openflow.MAC, p ipPacket) bool {
	if from[0]&1 == 1 {
		return false
	}
	onLink := slices.Contains(groups4, p.dst) || slices.Contains(groups6, p.dst) ||
		p.dst.IsLinkLocalUnicast() && p.src.IsLinkLocalUnicast() && n.local[p.dst] == f
	if !onLink || p.v4 && p.proto != openflow.IPProtoICMPv4 || !p.v4 && p.proto != openflow.IPProtoICMPv6 ||
		p.isFragment() {
		return false
	}
	at := header.IPv6MinimumSize
	if p.v4 {
		at = int(header.IPv4(p.data).HeaderLength())
	}
	message := p.data[at:]
	switch {
	case len(message) < 8 || message[1] != 0:
	case !p.v4 && icmp6Checksum(p.data[:40], message) != 0, p.v4 && checksum.Checksum(message, 0) != 0xffff:
	case !p.v4 && message[0] == routerSolicitation:
		n.advertise(f, from, p, message)
	case p.v4 && message[0] == echoRequest4, !p.v4 && message[0] == echoRequest6:
		n.echo(f, from, p, message)
	default:
		return false
	}
	return true
}

// isFragment reports whether a packet is a fragment.
func (p ipPacket) isFragment() bool {
	return p.v4 && (header.IPv4(p.data).More() || header.IPv4(p.data).FragmentOffset() != 0)
}

// destinationPort returns the destination port of a UDP or TCP packet; fragments have none.
func (p ipPacket) destinationPort() (port uint16, is bool) {
	at := 40
	if p.v4 {
		at = int(header.IPv4(p.data).HeaderLength())
	}
	if p.proto != openflow.IPProtoTCP && p.proto != openflow.IPProtoUDP || p.isFragment() || len(p.data) < at+4 {
		return 0, false
	}
	return binary.BigEndian.Uint16(p.data[at+2:]), true
}

// echo answers a ping from an address of the interface on which it arrived.
func (n *node) echo(f *Interface, from openflow.MAC, p ipPacket, message []byte) {
	src := f.address(p.v4)
	if p.src.IsLinkLocalUnicast() && !p.v4 {
		src = linkLocal(f.MAC)
	} else if !f.reaches(p.src) {
		return
	}
	if _, own := n.local[p.src]; own || !src.IsValid() {
		return
	}
	reply := append([]byte{echoReply6}, message[1:]...)
	if !p.v4 {
		n.output(f.Port, frame(from, f.MAC, openflow.EthTypeIPv6, ip6(src, p.src, openflow.IPProtoICMPv6, 64, reply)))
		return
	}
	reply[0] = echoReply4
	binary.BigEndian.PutUint16(reply[2:], 0)
	binary.BigEndian.PutUint16(reply[2:], ^checksum.Checksum(reply, 0))
	n.output(f.Port, frame(from, f.MAC, openflow.EthTypeIPv4, ip4(src, p.src, openflow.IPProtoICMPv4, 64, reply)))
}
