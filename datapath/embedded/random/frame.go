package random

import (
	"encoding/binary"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/openflow"
)

// Frame returns a random packet.
func (g Gen) Frame() []byte {
	src, dst := g.MAC(), g.MAC()
	eth := &layers.Ethernet{SrcMAC: src[:], DstMAC: dst[:]}
	stack := []gopacket.SerializableLayer{eth}
	next := &eth.EthernetType
	for g.Intn(3) == 0 && len(stack) < 5 {
		*next = Pick(g, layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ)
		tag := &layers.Dot1Q{Priority: uint8(g.Intn(3)), VLANIdentifier: g.VLAN()}
		stack, next = append(stack, tag), &tag.Type
	}
	if g.Intn(8) == 0 {
		*next = layers.EthernetTypeMPLSUnicast
		for label := uint32(0); ; label++ {
			bottom := g.Intn(2) == 0 || label == 2
			stack = append(stack, &layers.MPLS{Label: label, StackBottom: bottom, TTL: uint8(g.Intn(4))})
			if bottom {
				break
			}
		}
		next = new(layers.EthernetType)
	}
	switch g.Intn(5) {
	case 0:
		*next = layers.EthernetTypeARP
		stack = append(stack, g.arp())
	case 1, 2:
		*next = layers.EthernetTypeIPv6
		stack = append(stack, g.ipv6()...)
	case 3:
		*next = layers.EthernetTypeIPv4
		stack = append(stack, g.ipv4()...)
	default:
		*next = Pick(g, layers.EthernetTypeIPv4, layers.EthernetType(0x9999), layers.EthernetType(openflow.EthTypePBB))
		stack = append(stack, gopacket.Payload("what is none of these"))
	}
	buf := gopacket.NewSerializeBuffer()
	must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...))
	b := buf.Bytes()
	if !g.Whole && g.Intn(16) == 0 {
		b = b[:14+g.Intn(len(b)-13)]
	}
	return b
}

func (g Gen) arp() gopacket.SerializableLayer {
	src, dst := g.MAC(), g.MAC()
	return &layers.ARP{
		AddrType: 1, Protocol: 0x800, HwAddressSize: 6, ProtAddressSize: 4, Operation: uint16(1 + g.Intn(2)),
		SourceHwAddress: src[:], DstHwAddress: dst[:], SourceProtAddress: g.IP4().AsSlice(),
		DstProtAddress: g.IP4().AsSlice(),
	}
}

func (g Gen) ipv4() []gopacket.SerializableLayer {
	ip := &layers.IPv4{
		Version: 4, TOS: uint8(g.Intn(12)), TTL: uint8(g.Intn(5)), Protocol: layers.IPProtocol(g.Proto()),
		SrcIP: g.IP4().AsSlice(), DstIP: g.IP4().AsSlice(),
	}
	if g.Intn(8) == 0 {
		ip.Flags, ip.FragOffset = layers.IPv4MoreFragments, uint16(g.Intn(2))
	}
	return append([]gopacket.SerializableLayer{ip}, g.l4(ip.Protocol, ip)...)
}

func (g Gen) ipv6() []gopacket.SerializableLayer {
	proto := layers.IPProtocol(g.Proto())
	ip := &layers.IPv6{
		Version: 6, TrafficClass: uint8(g.Intn(12)), FlowLabel: uint32(g.Intn(3)), HopLimit: uint8(g.Intn(5)),
		NextHeader: proto, SrcIP: g.IP6().AsSlice(), DstIP: g.IP6().AsSlice(),
	}
	stack := []gopacket.SerializableLayer{ip}
	if g.Intn(5) == 0 {
		header := make([]byte, 8)
		header[0] = byte(proto)
		ip.NextHeader = Pick(g, layers.IPProtocolIPv6HopByHop, layers.IPProtocolIPv6Fragment,
			layers.IPProtocolIPv6Destination)
		if ip.NextHeader == layers.IPProtocolIPv6Fragment {
			binary.BigEndian.PutUint16(header[2:], uint16(g.Intn(2))<<3|1)
		} else {
			header[2], header[3] = 1, 4 // PadN
		}
		stack = append(stack, gopacket.Payload(header))
	}
	return append(stack, g.l4(proto, ip)...)
}

func (g Gen) l4(proto layers.IPProtocol, ip gopacket.NetworkLayer) []gopacket.SerializableLayer {
	data := gopacket.Payload("payload!"[:g.Intn(9)])
	switch proto {
	case layers.IPProtocolTCP:
		l := &layers.TCP{SrcPort: layers.TCPPort(g.L4()), DstPort: layers.TCPPort(g.L4()), SYN: true}
		must(l.SetNetworkLayerForChecksum(ip))
		return []gopacket.SerializableLayer{l, data}
	case layers.IPProtocolUDP:
		l := &layers.UDP{SrcPort: layers.UDPPort(g.L4()), DstPort: layers.UDPPort(g.L4())}
		must(l.SetNetworkLayerForChecksum(ip))
		return []gopacket.SerializableLayer{l, data}
	case layers.IPProtocolSCTP:
		return []gopacket.SerializableLayer{&layers.SCTP{SrcPort: layers.SCTPPort(g.L4()),
			DstPort: layers.SCTPPort(g.L4())}, data}
	case layers.IPProtocolICMPv4:
		return []gopacket.SerializableLayer{&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(Pick[uint8](g, 0, 8),
			0)}, data}
	case layers.IPProtocolICMPv6:
		l := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(Pick[uint8](g, 135, 136), 0)}
		must(l.SetNetworkLayerForChecksum(ip))
		mac := g.MAC()
		option := layers.ICMPv6Option{Type: Pick(g, layers.ICMPv6OptSourceAddress, layers.ICMPv6OptTargetAddress),
			Data: mac[:]}
		if l.TypeCode.Type() == 135 {
			return []gopacket.SerializableLayer{l,
				&layers.ICMPv6NeighborSolicitation{TargetAddress: g.IP6().AsSlice(),
					Options: layers.ICMPv6Options{option}}}
		}
		return []gopacket.SerializableLayer{l, &layers.ICMPv6NeighborAdvertisement{TargetAddress: g.IP6().AsSlice(),
			Options: layers.ICMPv6Options{option}}}
	}
	return []gopacket.SerializableLayer{data}
}

// must is for what can only fail by a mistake of this package.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
