package discovery

import (
	"encoding/binary"
	"net/netip"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// address returns the address that a packet's sender claims as its own. Only packets that the owner
// of an address sends, and only on the link, count: ARP (RFC 826), by its sender pair, and
// neighbour and router discovery (RFC 4861) with a link-layer address option. The source address of
// other packets is ignored, because routers forward packets of others.
func address(p *controller.Packet) (netip.Addr, bool) {
	switch p.EtherType {
	case openflow.EthTypeARP:
		return arpSender(p)
	case openflow.EthTypeIPv6:
		return ndSender(p)
	}
	return netip.Addr{}, false
}

// payload returns what follows the Ethernet header and its VLAN tags.
func payload(p *controller.Packet) []byte {
	for b := p.Data[12:]; len(b) >= 4; b = b[4:] {
		if binary.BigEndian.Uint16(b) == p.EtherType {
			return b[2:]
		}
	}
	return nil
}

// arpSender reads requests, replies and announcements; a probe (RFC 5227) has the sender 0.0.0.0.
func arpSender(p *controller.Packet) (netip.Addr, bool) {
	b := payload(p)
	if len(b) < 28 || [6]byte(b[:6]) != [6]byte{0, 1, 8, 0, 6, 4} || openflow.MAC(b[8:14]) != p.Src {
		return netip.Addr{}, false
	}
	return ownable(netip.AddrFrom4([4]byte(b[14:18])))
}

// Types and options of ICMPv6 (RFC 4861, section 4).
const (
	routerSolicitation    = 133
	routerAdvertisement   = 134
	neighborSolicitation  = 135
	neighborAdvertisement = 136

	sourceOption, targetOption = 1, 2
)

func ndSender(p *controller.Packet) (netip.Addr, bool) {
	b := payload(p)
	// No extension headers; the hop limit shows that no router has forwarded it.
	if len(b) < 48 || b[0]>>4 != 6 || b[6] != openflow.IPProtoICMPv6 || b[7] != 255 {
		return netip.Addr{}, false
	}
	whose, icmp := b[8:24], b[40:]
	want, at := byte(sourceOption), 0
	switch icmp[0] {
	case routerSolicitation:
		at = 8
	case routerAdvertisement:
		at = 16
	case neighborSolicitation:
		at = 24
	case neighborAdvertisement:
		if at, want = 24, targetOption; len(icmp) >= at {
			whose = icmp[8:24]
		}
	default:
		return netip.Addr{}, false
	}
	for at+8 <= len(icmp) && icmp[at+1] > 0 {
		if icmp[at] == want && openflow.MAC(icmp[at+2:at+8]) == p.Src {
			return ownable(netip.AddrFrom16([16]byte(whose)))
		}
		at += 8 * int(icmp[at+1])
	}
	return netip.Addr{}, false
}

// ownable reports whether an address can belong to one host.
func ownable(a netip.Addr) (netip.Addr, bool) {
	if a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Is4In6() || a == netip.AddrFrom4([4]byte{255, 255,
		255, 255}) {
		return netip.Addr{}, false
	}
	return a, true
}
