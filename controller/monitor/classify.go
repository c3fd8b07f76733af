package monitor

import "encoding/binary"

// Protocol is what a packet at the controller is counted as.
type Protocol uint8

// The protocols. IPv4 and IPv6 stand for those over them that are not listed.
const (
	ARP  Protocol = iota
	ICMP          // of IPv4
	IGMP
	TCP // over IPv4; so are the next ones
	UDP
	OSPF
	IPv4
	NDP // neighbours and routers of IPv6: ICMPv6 types 133 to 137 (RFC 4861)
	MLD // multicast listeners of IPv6: ICMPv6 types 130 to 132 and 143 (RFC 2710, RFC 3810)
	IPv6
	LLDP // discovery's probes, and others'
	BDDP // discovery's probes to the broadcast address
	Other

	NumProtocols
)

var protocolNames = [NumProtocols]string{"arp", "icmp", "igmp", "tcp", "udp", "ospf", "ipv4", "ndp", "mld", "ipv6",
	"lldp", "bddp", "other"}

// String is the name in the database and in Prometheus' labels.
func (p Protocol) String() string {
	if p < NumProtocols {
		return protocolNames[p]
	}
	return "other"
}

// ProtocolNames are those of all, each at the index of its protocol.
func ProtocolNames() []string { return protocolNames[:] }

// Family is arp, ipv4, ipv6, lldp (with BDDP) or other.
func (p Protocol) Family() string {
	switch {
	case p == ARP:
		return "arp"
	case p <= IPv4:
		return "ipv4"
	case p <= IPv6:
		return "ipv6"
	case p <= BDDP:
		return "lldp"
	}
	return "other"
}

const (
	etherTypeARP  = 0x0806
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	etherTypeLLDP = 0x88cc
	etherTypeBDDP = 0x8942
	etherTypeVLAN = 0x8100
	etherTypeQinQ = 0x88a8
)

// Classify returns the protocol of an Ethernet frame, behind any VLAN tags. A truncated frame is
// classified as far as possible.
func Classify(frame []byte) Protocol {
	etherType, after := cutEthernet(frame)
	switch etherType {
	case etherTypeARP:
		return ARP
	case etherTypeIPv4:
		return classifyIPv4(after)
	case etherTypeIPv6:
		return classifyIPv6(after)
	case etherTypeLLDP:
		return LLDP
	case etherTypeBDDP:
		return BDDP
	}
	return Other
}

// cutEthernet returns the type of a frame, and what follows the header and its VLAN tags.
func cutEthernet(b []byte) (etherType uint16, after []byte) {
	for at := 12; at+2 <= len(b); at += 4 {
		if t := binary.BigEndian.Uint16(b[at:]); t != etherTypeVLAN && t != etherTypeQinQ {
			return t, b[at+2:]
		}
	}
	return 0, nil
}

func classifyIPv4(b []byte) Protocol {
	if len(b) < 10 {
		return IPv4
	}
	switch b[9] { // IANA's protocol numbers; RFC 791, section 3.1
	case 1:
		return ICMP
	case 2:
		return IGMP
	case 6:
		return TCP
	case 17:
		return UDP
	case 89:
		return OSPF
	}
	return IPv4
}

// classifyIPv6 skips extension headers, up to a few (RFC 8200, section 4).
func classifyIPv6(b []byte) Protocol {
	if len(b) < 40 {
		return IPv6
	}
	next, b := b[6], b[40:]
	for range 4 {
		if next != 0 && next != 43 && next != 60 { // hop-by-hop, routing, destination options
			break
		}
		if len(b) < 2 || len(b) < 8+8*int(b[1]) {
			return IPv6
		}
		next, b = b[0], b[8+8*int(b[1]):]
	}
	if next != 58 || len(b) == 0 { // ICMPv6
		return IPv6
	}
	switch t := b[0]; {
	case t >= 133 && t <= 137:
		return NDP
	case t >= 130 && t <= 132 || t == 143:
		return MLD
	}
	return IPv6
}
