// Package random generates flow entries and packets for tests of switches, from few values, so that
// they match often.
package random

import (
	"math/rand"
	"net/netip"
	"slices"

	"trivet.dev/trivet/openflow"
)

// Bits of OXM_OF_IPV6_EXTHDR (section 7.2.3.8).
const fragment, hopByHop = 1 << 4, 1 << 6

// Gen generates the same values for the same seed.
type Gen struct {
	*rand.Rand
	Whole bool // no truncated packets
}

// New returns a generator.
func New(seed int64) Gen { return Gen{Rand: rand.New(rand.NewSource(seed))} }

// Pick returns one of several things.
func Pick[T any](g Gen, of ...T) T { return of[g.Intn(len(of))] }

func (g Gen) MAC() openflow.MAC {
	return openflow.MAC{Pick[byte](g, 2, 2, 2, 3), 0, 0, 0, 0, byte(g.Intn(4))}
}

func (g Gen) IP4() netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(g.Intn(2)), byte(g.Intn(3)), byte(g.Intn(4))})
}

func (g Gen) IP6() netip.Addr {
	return netip.AddrFrom16([16]byte{0xfd, 15: byte(g.Intn(4)), 5: byte(g.Intn(2))})
}

func (g Gen) L4() uint16   { return Pick[uint16](g, 80, 443, 1000, 1001) }
func (g Gen) VLAN() uint16 { return Pick[uint16](g, 0, 1, 2, 0xfff) }
func (g Gen) Proto() uint8 { return Pick[uint8](g, 1, 6, 17, 132, 58, 99) }
func (g Gen) Port() uint32 { return uint32(1 + g.Intn(4)) }

// Match returns a match with its prerequisites.
func (g Gen) Match() openflow.Match {
	var m []openflow.OXM
	add := func(odds int, o openflow.OXM) {
		if g.Intn(odds) == 0 {
			m = append(m, o)
		}
	}
	add(4, openflow.InPort(g.Port()))
	add(6, openflow.EthDst(g.MAC()))
	add(6, openflow.EthSrc(g.MAC()).WithMask64(0xff0000000003))
	add(8, openflow.Metadata(uint64(g.Intn(3))).WithMask64(3))
	switch g.Intn(8) {
	case 0:
		m = append(m, openflow.VLANNone())
	case 1:
		m = append(m, openflow.VLANAny())
		add(2, openflow.VLANPCP(uint8(g.Intn(3))))
	case 2:
		m = append(m, openflow.VLANVID(g.VLAN()))
		add(2, openflow.VLANPCP(uint8(g.Intn(3))))
	}
	switch g.Intn(7) {
	case 0, 1:
		m = append(m, openflow.EthType(openflow.EthTypeIPv4))
		add(2, openflow.IPv4Src(g.IP4()).WithPrefix(Pick(g, 8, 16, 24, 30, 32)))
		add(2, openflow.IPv4Dst(g.IP4()).WithPrefix(Pick(g, 8, 16, 24, 30, 32)))
		add(6, openflow.IPDSCP(uint8(g.Intn(3))))
		m = append(m, g.transport(false)...)
	case 2, 3:
		m = append(m, openflow.EthType(openflow.EthTypeIPv6))
		add(2, openflow.IPv6Src(g.IP6()).WithPrefix(Pick(g, 8, 48, 64, 128)))
		add(2, openflow.IPv6Dst(g.IP6()).WithPrefix(Pick(g, 8, 48, 64, 128)))
		add(6, openflow.IPECN(uint8(g.Intn(3))))
		add(6, openflow.IPv6Exthdr(fragment).WithMask64(uint64(Pick(g, fragment, hopByHop|fragment))))
		m = append(m, g.transport(true)...)
	case 4:
		m = append(m, openflow.EthType(openflow.EthTypeARP))
		add(2, openflow.ARPOp(uint16(1+g.Intn(2))))
		add(2, openflow.ARPTPA(g.IP4()).WithPrefix(Pick(g, 8, 24, 32)))
		add(4, openflow.ARPSHA(g.MAC()))
	case 5:
		m = append(m, openflow.EthType(openflow.EthTypeMPLS))
		add(2, openflow.MPLSLabel(uint32(g.Intn(3))))
		add(4, openflow.MPLSBOS(uint8(g.Intn(2))))
	}
	return openflow.NewMatch(m...)
}

func (g Gen) transport(v6 bool) (m []openflow.OXM) {
	switch proto := g.Proto(); {
	case g.Intn(2) == 0:
	case proto == 6:
		m = append(m, openflow.IPProto(6), openflow.TCPDst(g.L4()))
	case proto == 17:
		m = append(m, openflow.IPProto(17), openflow.UDPSrc(g.L4()))
	case proto == 58 && v6:
		m = append(m, openflow.IPProto(58), openflow.ICMPv6Type(135))
		if g.Intn(2) == 0 {
			m = append(m, openflow.IPv6NDTarget(g.IP6()))
		}
	case proto == 1 && !v6:
		m = append(m, openflow.IPProto(1), openflow.ICMPv4Type(uint8(Pick(g, 0, 8))))
	default:
		m = append(m, openflow.IPProto(proto))
	}
	return m
}

// Action returns an action; what a packet does not have is left alone by it.
func (g Gen) Action(groups int) openflow.Action {
	switch g.Intn(17) {
	case 0, 1, 2, 3, 4:
		return openflow.Output(Pick(g, g.Port(), g.Port(), g.Port(), openflow.PortInPort, openflow.PortAll,
			openflow.PortFlood, openflow.PortNormal))
	case 5:
		return openflow.OutputController(0xffff)
	case 6:
		return openflow.PushVLAN(Pick[uint16](g, openflow.EthTypeVLAN, openflow.EthTypeQinQ))
	case 7:
		return openflow.PopVLAN()
	case 8, 9:
		return openflow.DecNwTTL()
	case 10:
		return Pick(g, openflow.SetNwTTL(uint8(g.Intn(3))), openflow.SetQueue(uint32(g.Intn(3))), openflow.DecMPLSTTL(),
			openflow.SetMPLSTTL(9))
	case 11:
		if groups > 0 {
			return openflow.Group(uint32(g.Intn(groups)))
		}
	case 12:
		if g.Intn(4) == 0 {
			return Pick(g, openflow.PopMPLS(openflow.EthTypeIPv4), openflow.PushMPLS(openflow.EthTypeMPLS),
				openflow.CopyTTLIn(),
				openflow.CopyTTLOut(), openflow.PushPBB(openflow.EthTypePBB), openflow.PopPBB())
		}
	}
	return openflow.SetField(g.Settable())
}

func (g Gen) Settable() openflow.OXM {
	return Pick(g,
		openflow.EthDst(g.MAC()), openflow.EthSrc(g.MAC()), openflow.VLANVID(g.VLAN()),
		openflow.VLANPCP(uint8(g.Intn(3))), openflow.IPDSCP(uint8(g.Intn(3))), openflow.IPECN(uint8(g.Intn(3))),
		openflow.IPv4Src(g.IP4()), openflow.IPv4Dst(g.IP4()), openflow.IPv6Src(g.IP6()), openflow.IPv6Dst(g.IP6()),
		openflow.IPv6Flabel(uint32(g.Intn(4))), openflow.TCPSrc(g.L4()), openflow.TCPDst(g.L4()),
		openflow.UDPSrc(g.L4()), openflow.UDPDst(g.L4()), openflow.SCTPDst(g.L4()), openflow.ICMPv4Code(3),
		openflow.ARPOp(2), openflow.ARPSPA(g.IP4()), openflow.ARPTHA(g.MAC()), openflow.MPLSLabel(uint32(g.Intn(3))),
		openflow.MPLSTC(1), openflow.TunnelID(5), openflow.IPv6NDTarget(g.IP6()), openflow.IPv6NDSLL(g.MAC()),
		openflow.IPv6NDTLL(g.MAC()),
	)
}

func (g Gen) Actions(groups int) (list []openflow.Action) {
	for range 1 + g.Intn(5) {
		list = append(list, g.Action(groups))
	}
	return list
}

// Instructions returns those of an entry in a table that tables follow.
func (g Gen) Instructions(table, tables, groups int, meters int) (list []openflow.Instruction) {
	if meters > 0 && g.Intn(8) == 0 {
		list = append(list, openflow.Meter(uint32(1+g.Intn(meters))))
	}
	if g.Intn(3) > 0 {
		actions := g.Actions(groups)
		if g.Intn(4) == 0 {
			limit := Pick[uint16](g, 59, 60, 70, 90, 120)
			actions = slices.Insert(actions, g.Intn(len(actions)+1),
				openflow.CheckPacketLarger(limit, uint8(g.Intn(2))))
		}
		list = append(list, openflow.ApplyActions(actions...))
	}
	if g.Intn(8) == 0 {
		list = append(list, openflow.ClearActions())
	}
	if g.Intn(3) == 0 {
		list = append(list, openflow.WriteActions(g.Actions(groups)...))
	}
	if g.Intn(4) == 0 {
		list = append(list, openflow.WriteMetadata(uint64(g.Intn(4)), 3))
	}
	if table+1 < tables && g.Intn(2) == 0 {
		list = append(list, openflow.GotoTable(uint8(table+1+g.Intn(tables-table-1))))
	}
	return list
}

func (g Gen) Bucket(groups int, kind openflow.GroupType) openflow.Bucket {
	b := openflow.NewBucket(g.Actions(groups)...)
	if kind == openflow.GroupTypeSelect {
		b.Weight = uint16(1 + g.Intn(3))
	}
	if kind == openflow.GroupTypeFF {
		b.WatchPort = g.Port()
	}
	return b
}
