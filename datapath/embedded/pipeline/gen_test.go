package pipeline

import (
	"encoding/binary"
	"math/rand"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/openflow"
)

// gen makes random flows and packets out of few values, so that they meet.
type gen struct {
	*rand.Rand
	t     testing.TB
	whole bool // no packets that are cut off
}

func pick[T any](g gen, of ...T) T { return of[g.Intn(len(of))] }

func (g gen) mac() openflow.MAC {
	return openflow.MAC{pick[byte](g, 2, 2, 2, 3), 0, 0, 0, 0, byte(g.Intn(4))}
}

func (g gen) ip4() netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(g.Intn(2)), byte(g.Intn(3)), byte(g.Intn(4))})
}

func (g gen) ip6() netip.Addr {
	return netip.AddrFrom16([16]byte{0xfd, 15: byte(g.Intn(4)), 5: byte(g.Intn(2))})
}

func (g gen) port() uint16  { return pick[uint16](g, 80, 443, 1000, 1001) }
func (g gen) vlan() uint16  { return pick[uint16](g, 0, 1, 2, 0xfff) }
func (g gen) proto() uint8  { return pick[uint8](g, 1, 6, 17, 132, 58, 99) }
func (g gen) ports() uint32 { return uint32(1 + g.Intn(4)) }

// match returns a match with its prerequisites.
func (g gen) match() openflow.Match {
	var m []openflow.OXM
	add := func(odds int, o openflow.OXM) {
		if g.Intn(odds) == 0 {
			m = append(m, o)
		}
	}
	add(4, openflow.InPort(g.ports()))
	add(6, openflow.EthDst(g.mac()))
	add(6, openflow.EthSrc(g.mac()).WithMask64(0xff0000000003))
	add(8, openflow.Metadata(uint64(g.Intn(3))).WithMask64(3))
	switch g.Intn(8) {
	case 0:
		m = append(m, openflow.VLANNone())
	case 1:
		m = append(m, openflow.VLANAny())
		add(2, openflow.VLANPCP(uint8(g.Intn(3))))
	case 2:
		m = append(m, openflow.VLANVID(g.vlan()))
		add(2, openflow.VLANPCP(uint8(g.Intn(3))))
	}
	switch g.Intn(7) {
	case 0, 1:
		m = append(m, openflow.EthType(openflow.EthTypeIPv4))
		add(2, openflow.IPv4Src(g.ip4()).WithPrefix(pick(g, 8, 16, 24, 30, 32)))
		add(2, openflow.IPv4Dst(g.ip4()).WithPrefix(pick(g, 8, 16, 24, 30, 32)))
		add(6, openflow.IPDSCP(uint8(g.Intn(3))))
		m = append(m, g.transport(false)...)
	case 2, 3:
		m = append(m, openflow.EthType(openflow.EthTypeIPv6))
		add(2, openflow.IPv6Src(g.ip6()).WithPrefix(pick(g, 8, 48, 64, 128)))
		add(2, openflow.IPv6Dst(g.ip6()).WithPrefix(pick(g, 8, 48, 64, 128)))
		add(6, openflow.IPECN(uint8(g.Intn(3))))
		add(6, openflow.IPv6Exthdr(extFrag).WithMask64(uint64(pick(g, extFrag, extHop|extFrag))))
		m = append(m, g.transport(true)...)
	case 4:
		m = append(m, openflow.EthType(openflow.EthTypeARP))
		add(2, openflow.ARPOp(uint16(1+g.Intn(2))))
		add(2, openflow.ARPTPA(g.ip4()).WithPrefix(pick(g, 8, 24, 32)))
		add(4, openflow.ARPSHA(g.mac()))
	case 5:
		m = append(m, openflow.EthType(openflow.EthTypeMPLS))
		add(2, openflow.MPLSLabel(uint32(g.Intn(3))))
		add(4, openflow.MPLSBOS(uint8(g.Intn(2))))
	}
	return openflow.NewMatch(m...)
}

func (g gen) transport(v6 bool) (m []openflow.OXM) {
	switch proto := g.proto(); {
	case g.Intn(2) == 0:
	case proto == 6:
		m = append(m, openflow.IPProto(6), openflow.TCPDst(g.port()))
	case proto == 17:
		m = append(m, openflow.IPProto(17), openflow.UDPSrc(g.port()))
	case proto == 58 && v6:
		m = append(m, openflow.IPProto(58), openflow.ICMPv6Type(135))
		if g.Intn(2) == 0 {
			m = append(m, openflow.IPv6NDTarget(g.ip6()))
		}
	case proto == 1 && !v6:
		m = append(m, openflow.IPProto(1), openflow.ICMPv4Type(uint8(pick(g, 0, 8))))
	default:
		m = append(m, openflow.IPProto(proto))
	}
	return m
}

// action returns an action; what a packet does not have is left alone by it.
func (g gen) action(groups int) openflow.Action {
	switch g.Intn(17) {
	case 0, 1, 2, 3, 4:
		return openflow.Output(pick(g, g.ports(), g.ports(), g.ports(), openflow.PortInPort, openflow.PortAll, openflow.PortFlood, openflow.PortNormal))
	case 5:
		return openflow.OutputController(0xffff)
	case 6:
		return openflow.PushVLAN(pick[uint16](g, openflow.EthTypeVLAN, openflow.EthTypeQinQ))
	case 7:
		return openflow.PopVLAN()
	case 8, 9:
		return openflow.DecNwTTL()
	case 10:
		return pick(g, openflow.SetNwTTL(uint8(g.Intn(3))), openflow.SetQueue(uint32(g.Intn(3))), openflow.DecMPLSTTL(), openflow.SetMPLSTTL(9))
	case 11:
		if groups > 0 {
			return openflow.Group(uint32(g.Intn(groups)))
		}
	case 12:
		if g.Intn(4) == 0 {
			return pick(g, openflow.PopMPLS(openflow.EthTypeIPv4), openflow.PushMPLS(openflow.EthTypeMPLS), openflow.CopyTTLIn(),
				openflow.CopyTTLOut(), openflow.PushPBB(openflow.EthTypePBB), openflow.PopPBB())
		}
	}
	return openflow.SetField(g.settable())
}

func (g gen) settable() openflow.OXM {
	return pick(g,
		openflow.EthDst(g.mac()), openflow.EthSrc(g.mac()), openflow.VLANVID(g.vlan()), openflow.VLANPCP(uint8(g.Intn(3))),
		openflow.IPDSCP(uint8(g.Intn(3))), openflow.IPECN(uint8(g.Intn(3))),
		openflow.IPv4Src(g.ip4()), openflow.IPv4Dst(g.ip4()), openflow.IPv6Src(g.ip6()), openflow.IPv6Dst(g.ip6()),
		openflow.IPv6Flabel(uint32(g.Intn(4))), openflow.TCPSrc(g.port()), openflow.TCPDst(g.port()), openflow.UDPSrc(g.port()),
		openflow.UDPDst(g.port()), openflow.SCTPDst(g.port()), openflow.ICMPv4Code(3), openflow.ARPOp(2), openflow.ARPSPA(g.ip4()),
		openflow.ARPTHA(g.mac()), openflow.MPLSLabel(uint32(g.Intn(3))), openflow.MPLSTC(1), openflow.TunnelID(5),
		openflow.IPv6NDTarget(g.ip6()), openflow.IPv6NDSLL(g.mac()), openflow.IPv6NDTLL(g.mac()),
	)
}

func (g gen) actions(groups int) (list []openflow.Action) {
	for range 1 + g.Intn(5) {
		list = append(list, g.action(groups))
	}
	return list
}

// instructions returns those of an entry in a table that tables follow.
func (g gen) instructions(table, tables, groups int, meters int) (list []openflow.Instruction) {
	if meters > 0 && g.Intn(8) == 0 {
		list = append(list, openflow.Meter(uint32(1+g.Intn(meters))))
	}
	if g.Intn(3) > 0 {
		list = append(list, openflow.ApplyActions(g.actions(groups)...))
	}
	if g.Intn(8) == 0 {
		list = append(list, openflow.ClearActions())
	}
	if g.Intn(3) == 0 {
		list = append(list, openflow.WriteActions(g.actions(groups)...))
	}
	if g.Intn(4) == 0 {
		list = append(list, openflow.WriteMetadata(uint64(g.Intn(4)), 3))
	}
	if table+1 < tables && g.Intn(2) == 0 {
		list = append(list, openflow.GotoTable(uint8(table+1+g.Intn(tables-table-1))))
	}
	return list
}

// network returns a network of switches with random tables and ports 1 to 4, of which some are joined.
func (g gen) network(switches, flows int) (*Network, []*Switch) {
	const tables, groups, meters = 4, 3, 2
	n := NewNetwork()
	var list []*Switch
	for i := range switches {
		s, err := n.Add(Config{DatapathID: uint64(i + 1), Name: string(rune('a' + i)), Tables: tables})
		g.must(err)
		list = append(list, s)
		for p := range uint32(4) {
			_, err := s.AddPort(openflow.Port{Number: p + 1}, 0)
			g.must(err)
		}
		for id := range uint32(groups) {
			kind := openflow.GroupType(g.Intn(4))
			buckets := []openflow.Bucket{g.bucket(int(id), kind)}
			for kind != openflow.GroupTypeIndirect && g.Intn(2) == 0 {
				buckets = append(buckets, g.bucket(int(id), kind))
			}
			g.must(s.GroupMod(&openflow.GroupMod{GroupDesc: openflow.GroupDesc{Kind: kind, Group: id, Buckets: buckets}}, 0))
		}
		for id := range uint32(meters) {
			band := openflow.MeterBand{Type: openflow.BandDrop, Rate: 1000}
			if id == 1 {
				band = openflow.MeterBand{Type: openflow.BandDSCPRemark, Rate: 1, PrecLevel: 1}
			}
			g.must(s.MeterMod(&openflow.MeterMod{MeterConfig: openflow.MeterConfig{
				Flags: openflow.MeterFlagPktps, Meter: id + 1, Bands: []openflow.MeterBand{band}}}, 0))
		}
		for range flows {
			g.flow(s, tables, groups, meters)
		}
	}
	for range switches {
		a, b := list[g.Intn(switches)], list[g.Intn(switches)]
		_ = n.Join(a, g.ports(), b, g.ports()) // where they are free
	}
	return n, list
}

func (g gen) bucket(groups int, kind openflow.GroupType) openflow.Bucket {
	b := openflow.NewBucket(g.actions(groups)...)
	if kind == openflow.GroupTypeSelect {
		b.Weight = uint16(1 + g.Intn(3))
	}
	if kind == openflow.GroupTypeFF {
		b.WatchPort = g.ports()
	}
	return b
}

// flow adds an entry; one that makes no sense is refused, and another one tried.
func (g gen) flow(s *Switch, tables, groups, meters int) *openflow.FlowMod {
	for {
		table := g.Intn(tables)
		m := openflow.NewFlowMod(openflow.FlowAdd, uint16(g.Intn(6)), g.match(), g.instructions(table, tables, groups, meters)...)
		m.Table = uint8(table)
		if s.FlowMod(m, 0) == nil {
			return m
		}
	}
}

func (g gen) must(err error) {
	if err != nil {
		g.t.Helper()
		g.t.Fatal(err)
	}
}

// frame returns a random packet.
func (g gen) frame() []byte {
	src, dst := g.mac(), g.mac()
	eth := &layers.Ethernet{SrcMAC: src[:], DstMAC: dst[:]}
	stack := []gopacket.SerializableLayer{eth}
	next := &eth.EthernetType
	for g.Intn(3) == 0 && len(stack) < 5 {
		*next = pick(g, layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ)
		tag := &layers.Dot1Q{Priority: uint8(g.Intn(3)), VLANIdentifier: g.vlan()}
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
		*next = pick(g, layers.EthernetTypeIPv4, layers.EthernetType(0x9999), layers.EthernetType(openflow.EthTypePBB))
		stack = append(stack, gopacket.Payload("what is none of these"))
	}
	buf := gopacket.NewSerializeBuffer()
	g.must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...))
	b := buf.Bytes()
	if !g.whole && g.Intn(16) == 0 {
		b = b[:14+g.Intn(len(b)-13)]
	}
	return b
}

func (g gen) arp() gopacket.SerializableLayer {
	src, dst := g.mac(), g.mac()
	return &layers.ARP{
		AddrType: 1, Protocol: 0x800, HwAddressSize: 6, ProtAddressSize: 4, Operation: uint16(1 + g.Intn(2)),
		SourceHwAddress: src[:], DstHwAddress: dst[:], SourceProtAddress: g.ip4().AsSlice(), DstProtAddress: g.ip4().AsSlice(),
	}
}

func (g gen) ipv4() []gopacket.SerializableLayer {
	ip := &layers.IPv4{
		Version: 4, TOS: uint8(g.Intn(12)), TTL: uint8(g.Intn(5)), Protocol: layers.IPProtocol(g.proto()),
		SrcIP: g.ip4().AsSlice(), DstIP: g.ip4().AsSlice(),
	}
	if g.Intn(8) == 0 {
		ip.Flags, ip.FragOffset = layers.IPv4MoreFragments, uint16(g.Intn(2))
	}
	return append([]gopacket.SerializableLayer{ip}, g.l4(ip.Protocol, ip)...)
}

func (g gen) ipv6() []gopacket.SerializableLayer {
	proto := layers.IPProtocol(g.proto())
	ip := &layers.IPv6{
		Version: 6, TrafficClass: uint8(g.Intn(12)), FlowLabel: uint32(g.Intn(3)), HopLimit: uint8(g.Intn(5)), NextHeader: proto,
		SrcIP: g.ip6().AsSlice(), DstIP: g.ip6().AsSlice(),
	}
	stack := []gopacket.SerializableLayer{ip}
	if g.Intn(5) == 0 {
		header := make([]byte, 8)
		header[0] = byte(proto)
		ip.NextHeader = pick(g, layers.IPProtocolIPv6HopByHop, layers.IPProtocolIPv6Fragment, layers.IPProtocolIPv6Destination)
		if ip.NextHeader == layers.IPProtocolIPv6Fragment {
			binary.BigEndian.PutUint16(header[2:], uint16(g.Intn(2))<<3|1)
		} else {
			header[2], header[3] = 1, 4 // PadN
		}
		stack = append(stack, gopacket.Payload(header))
	}
	return append(stack, g.l4(proto, ip)...)
}

func (g gen) l4(proto layers.IPProtocol, ip gopacket.NetworkLayer) []gopacket.SerializableLayer {
	data := gopacket.Payload("payload!"[:g.Intn(9)])
	switch proto {
	case layers.IPProtocolTCP:
		l := &layers.TCP{SrcPort: layers.TCPPort(g.port()), DstPort: layers.TCPPort(g.port()), SYN: true}
		g.must(l.SetNetworkLayerForChecksum(ip))
		return []gopacket.SerializableLayer{l, data}
	case layers.IPProtocolUDP:
		l := &layers.UDP{SrcPort: layers.UDPPort(g.port()), DstPort: layers.UDPPort(g.port())}
		g.must(l.SetNetworkLayerForChecksum(ip))
		return []gopacket.SerializableLayer{l, data}
	case layers.IPProtocolSCTP:
		return []gopacket.SerializableLayer{&layers.SCTP{SrcPort: layers.SCTPPort(g.port()), DstPort: layers.SCTPPort(g.port())}, data}
	case layers.IPProtocolICMPv4:
		return []gopacket.SerializableLayer{&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(pick[uint8](g, 0, 8), 0)}, data}
	case layers.IPProtocolICMPv6:
		l := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(pick[uint8](g, 135, 136), 0)}
		g.must(l.SetNetworkLayerForChecksum(ip))
		mac := g.mac()
		option := layers.ICMPv6Option{Type: pick(g, layers.ICMPv6OptSourceAddress, layers.ICMPv6OptTargetAddress), Data: mac[:]}
		if l.TypeCode.Type() == 135 {
			return []gopacket.SerializableLayer{l, &layers.ICMPv6NeighborSolicitation{TargetAddress: g.ip6().AsSlice(), Options: layers.ICMPv6Options{option}}}
		}
		return []gopacket.SerializableLayer{l, &layers.ICMPv6NeighborAdvertisement{TargetAddress: g.ip6().AsSlice(), Options: layers.ICMPv6Options{option}}}
	}
	return []gopacket.SerializableLayer{data}
}
