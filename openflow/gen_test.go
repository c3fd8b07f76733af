package openflow

import (
	"net/netip"
	"strings"

	"pgregory.net/rapid"
)

// Generators of random messages, valid ones of every type.

func pick[E any](t *rapid.T, choices ...E) E { return rapid.SampledFrom(choices).Draw(t, "choice") }

func num[E ~uint8 | ~uint16 | ~uint32 | ~uint64](t *rapid.T) E {
	return E(rapid.Uint64().Draw(t, "number"))
}

func upTo[E ~uint8 | ~uint16 | ~uint32 | ~uint64](t *rapid.T, most E) E {
	return E(rapid.Uint64Range(0, uint64(most)).Draw(t, "number"))
}

func several[E any](t *rapid.T, most int, one func(*rapid.T) E) []E {
	n := rapid.IntRange(0, most).Draw(t, "count")
	if n == 0 {
		return nil
	}
	list := make([]E, n)
	for i := range list {
		list[i] = one(t)
	}
	return list
}

func genBytes(t *rapid.T) []byte {
	if b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes"); len(b) > 0 {
		return b
	}
	return nil
}

// genText draws a text without zeros.
func genText(t *rapid.T, most int) string {
	return rapid.StringOfN(rapid.RuneFrom([]rune("abcXYZ 0-9_%é")), 0, most/2, most).Draw(t, "text")
}

// genData8 draws the bytes that follow an experimenter's id.
func genData8(t *rapid.T) string {
	return strings.Repeat("\x01", 8*rapid.IntRange(0, 3).Draw(t, "words"))
}

func genMAC(t *rapid.T) MAC { return macOf(Value{Lo: num[uint64](t)}) }

func genDuration(t *rapid.T) Duration { return Duration{num[uint32](t), upTo[uint32](t, 999_999_999)} }

// genField draws any value of the field, with a mask in some cases.
func genField(t *rapid.T, f Field, masks bool) OXM {
	o := OXM{Class: ClassBasic, Field: f, Value: Value{num[uint64](t), num[uint64](t)}.And(f.exact())}
	if masks && f.Maskable() && rapid.Bool().Draw(t, "masked") {
		if rapid.Bool().Draw(t, "prefix") {
			return o.WithPrefix(rapid.IntRange(1, f.Bits()).Draw(t, "length"))
		}
		o = o.WithMask(Value{num[uint64](t), num[uint64](t) | 1})
	}
	return o
}

// genMatch draws a match that has the prerequisites of its fields.
func genMatch(t *rapid.T) Match {
	var list []OXM
	some := func(fields ...Field) {
		for _, f := range fields {
			if rapid.Bool().Draw(t, "wanted") {
				list = append(list, genField(t, f, true))
			}
		}
	}
	if rapid.Bool().Draw(t, "port") {
		list = append(list, InPort(num[uint32](t)))
		some(FieldInPhyPort)
	}
	some(FieldMetadata, FieldEthDst, FieldEthSrc, FieldTunnelID)
	if rapid.Bool().Draw(t, "vlan") {
		list = append(list, pick(t, VLANVID(upTo[uint16](t, 4095)), VLANAny()))
		some(FieldVLANPCP)
	}
	switch pick(t, "none", "ip", "ipv6", "arp", "mpls", "pbb", "other") {
	case "ip":
		list = append(list, EthType(EthTypeIPv4))
		some(FieldIPv4Src, FieldIPv4Dst, FieldIPDSCP, FieldIPECN)
		genTransport(t, &list, some, IPProtoICMPv4)
	case "ipv6":
		list = append(list, EthType(EthTypeIPv6))
		some(FieldIPv6Src, FieldIPv6Dst, FieldIPDSCP, FieldIPECN, FieldIPv6Flabel, FieldIPv6Exthdr)
		genTransport(t, &list, some, IPProtoICMPv6)
	case "arp":
		list = append(list, EthType(EthTypeARP))
		some(FieldARPOp, FieldARPSPA, FieldARPTPA, FieldARPSHA, FieldARPTHA)
	case "mpls":
		list = append(list, EthType(EthTypeMPLS))
		some(FieldMPLSLabel, FieldMPLSTC, FieldMPLSBOS)
	case "pbb":
		list = append(list, EthType(EthTypePBB))
		some(FieldPBBISID)
	case "other":
		list = append(list, EthType(num[uint16](t)))
	}
	if rapid.Bool().Draw(t, "experimenter") {
		list = append(list, OXM{Class: ClassExperimenter, Field: 42, Payload: "ONF\x00\x02\x03"})
	}
	if rapid.Bool().Draw(t, "nxm") {
		list = append(list, OXM{Class: ClassNXM1, Field: 3, Payload: "\x00\x00\x00\x05"})
	}
	return NewMatch(rapid.Permutation(list).Draw(t, "order")...)
}

func genTransport(t *rapid.T, list *[]OXM, some func(...Field), icmp uint8) {
	proto := pick[uint8](t, 0, IPProtoTCP, IPProtoUDP, IPProtoSCTP, icmp, 99)
	if proto == 0 {
		return
	}
	*list = append(*list, IPProto(proto))
	switch proto {
	case IPProtoTCP:
		some(FieldTCPSrc, FieldTCPDst)
	case IPProtoUDP:
		some(FieldUDPSrc, FieldUDPDst)
	case IPProtoSCTP:
		some(FieldSCTPSrc, FieldSCTPDst)
	case IPProtoICMPv4:
		some(FieldICMPv4Type, FieldICMPv4Code)
	case IPProtoICMPv6:
		kind := pick[uint8](t, 128, icmpv6Solicitation, icmpv6Advertisement)
		*list = append(*list, ICMPv6Type(kind))
		switch kind {
		case icmpv6Solicitation:
			some(FieldIPv6NDTarget, FieldIPv6NDSLL)
		case icmpv6Advertisement:
			some(FieldIPv6NDTarget, FieldIPv6NDTLL)
		}
	}
}

func genAction(t *rapid.T) Action {
	return pick(t,
		Output(num[uint32](t)), OutputController(num[uint16](t)), Group(num[uint32](t)), SetQueue(num[uint32](t)),
		SetField(genField(t, upTo(t, NumFields-1), false)), SetMPLSTTL(num[uint8](t)), DecMPLSTTL(),
		SetNwTTL(num[uint8](t)), DecNwTTL(), CopyTTLOut(), CopyTTLIn(), PushVLAN(EthTypeVLAN), PopVLAN(),
		PushMPLS(EthTypeMPLS), PopMPLS(num[uint16](t)), PushPBB(EthTypePBB), PopPBB(),
		ExperimenterAction(num[uint32](t), genData8(t)+"abcd"))
}

func genActions(t *rapid.T) []Action { return several(t, 4, genAction) }

func genInstruction(t *rapid.T) Instruction {
	return pick(t,
		GotoTable(num[uint8](t)), WriteMetadata(num[uint64](t), num[uint64](t)), WriteActions(genActions(t)...),
		ApplyActions(genActions(t)...), ClearActions(), Meter(num[uint32](t)),
		ExperimenterInstruction(num[uint32](t), genData8(t)))
}

func genInstructions(t *rapid.T) []Instruction { return several(t, 3, genInstruction) }

func genBucket(t *rapid.T) Bucket {
	return Bucket{num[uint16](t), num[uint32](t), num[uint32](t), genActions(t)}
}

func genGroupDesc(t *rapid.T) GroupDesc {
	return GroupDesc{upTo(t, GroupTypeFF), num[uint32](t), several(t, 3, genBucket)}
}

func genMeterConfig(t *rapid.T) MeterConfig {
	return MeterConfig{MeterFlags(num[uint16](t)), num[uint32](t), several(t, 3, func(t *rapid.T) MeterBand {
		rate, burst := num[uint32](t), num[uint32](t)
		return pick(t,
			MeterBand{Type: BandDrop, Rate: rate, Burst: burst},
			MeterBand{Type: BandDSCPRemark, Rate: rate, Burst: burst, PrecLevel: num[uint8](t)},
			MeterBand{Type: BandExperimenter, Rate: rate, Burst: burst, Experimenter: num[uint32](t), Data: genData8(t)})
	})}
}

func genPort(t *rapid.T) Port {
	feature := func() PortFeatures { return PortFeatures(num[uint32](t)) }
	return Port{
		num[uint32](t), genMAC(t), genText(t, 15), PortConfig(num[uint32](t)), PortState(num[uint32](t)),
		feature(), feature(), feature(), feature(), num[uint32](t), num[uint32](t),
	}
}

func genQueue(t *rapid.T) PacketQueue {
	return PacketQueue{num[uint32](t), num[uint32](t), several(t, 3, func(t *rapid.T) QueueProperty {
		return pick(t,
			QueueProperty{Type: QueueMinRate, Rate: num[uint16](t)}, QueueProperty{Type: QueueMaxRate, Rate: num[uint16](t)},
			QueueProperty{Type: QueueExperimenter, Experimenter: num[uint32](t), Data: genData8(t)})
	})}
}

func genTableProperty(t *rapid.T) TableProperty {
	p := TableProperty{Type: pick(t, TableInstructions, TableInstructionsMiss, TableNextTables, TableWriteActions,
		TableApplyActionsMiss, TableMatch, TableWildcards, TableWriteSetField, TableApplySetFieldMiss, TableExperimenter, TableExperimenterMiss)}
	switch p.Type {
	case TableInstructions, TableInstructionsMiss:
		p.Instructions = several(t, 4, func(t *rapid.T) InstructionID {
			return pick(t, InstructionID{InstructionGotoTable, 0}, InstructionID{InstructionExperimenter, num[uint32](t)})
		})
	case TableNextTables:
		p.NextTables = genBytes(t)
	case TableWriteActions, TableApplyActionsMiss:
		p.Actions = several(t, 4, func(t *rapid.T) ActionID {
			return pick(t, ActionID{ActionOutput, 0}, ActionID{ActionExperimenter, num[uint32](t)})
		})
	case TableExperimenter, TableExperimenterMiss:
		p.Experimenter, p.ExpType, p.Data = num[uint32](t), num[uint32](t), genBytes(t)
	default:
		p.Fields = several(t, 4, func(t *rapid.T) FieldID {
			return pick(t, BasicFieldID(upTo(t, NumFields-1), rapid.Bool().Draw(t, "masked")),
				FieldID{ClassExperimenter, 42, false, 6, num[uint32](t)})
		})
	}
	return p
}

func genFlowStatsRequest(t *rapid.T) FlowStatsRequest {
	return FlowStatsRequest{num[uint8](t), num[uint32](t), num[uint32](t), num[uint64](t), num[uint64](t), genMatch(t)}
}

func genCounter(t *rapid.T) Counter { return Counter{num[uint64](t), num[uint64](t)} }

func genTableFeatures(t *rapid.T) MultipartBody {
	return TableFeaturesList(several(t, 2, func(t *rapid.T) TableFeatures {
		return TableFeatures{num[uint8](t), genText(t, 31), num[uint64](t), num[uint64](t), num[uint32](t), num[uint32](t), several(t, 4, genTableProperty)}
	}))
}

func genExperimenterMultipart(t *rapid.T) MultipartBody {
	return ExperimenterMultipart{num[uint32](t), num[uint32](t), genBytes(t)}
}

// requestBodies and replyBodies hold a generator for each multipart type.
var requestBodies = map[MultipartType]func(*rapid.T) MultipartBody{
	MultipartDesc:          func(*rapid.T) MultipartBody { return NoBody(MultipartDesc) },
	MultipartFlow:          func(t *rapid.T) MultipartBody { return genFlowStatsRequest(t) },
	MultipartAggregate:     func(t *rapid.T) MultipartBody { return AggregateStatsRequest(genFlowStatsRequest(t)) },
	MultipartTable:         func(*rapid.T) MultipartBody { return NoBody(MultipartTable) },
	MultipartPortStats:     func(t *rapid.T) MultipartBody { return PortStatsRequest{num[uint32](t)} },
	MultipartQueue:         func(t *rapid.T) MultipartBody { return QueueStatsRequest{num[uint32](t), num[uint32](t)} },
	MultipartGroup:         func(t *rapid.T) MultipartBody { return GroupStatsRequest{num[uint32](t)} },
	MultipartGroupDesc:     func(*rapid.T) MultipartBody { return NoBody(MultipartGroupDesc) },
	MultipartGroupFeatures: func(*rapid.T) MultipartBody { return NoBody(MultipartGroupFeatures) },
	MultipartMeter:         func(t *rapid.T) MultipartBody { return MeterStatsRequest{num[uint32](t)} },
	MultipartMeterConfig:   func(t *rapid.T) MultipartBody { return MeterConfigRequest{num[uint32](t)} },
	MultipartMeterFeatures: func(*rapid.T) MultipartBody { return NoBody(MultipartMeterFeatures) },
	MultipartTableFeatures: genTableFeatures,
	MultipartPortDesc:      func(*rapid.T) MultipartBody { return NoBody(MultipartPortDesc) },
	MultipartExperimenter:  genExperimenterMultipart,
}

var replyBodies = map[MultipartType]func(*rapid.T) MultipartBody{
	MultipartDesc: func(t *rapid.T) MultipartBody {
		return Desc{genText(t, 255), genText(t, 255), genText(t, 255), genText(t, 31), genText(t, 255)}
	},
	MultipartFlow: func(t *rapid.T) MultipartBody {
		return FlowStatsList(several(t, 3, func(t *rapid.T) FlowStats {
			return FlowStats{
				num[uint8](t), genDuration(t), num[uint16](t), num[uint16](t), num[uint16](t), FlowModFlags(num[uint16](t)),
				num[uint64](t), num[uint64](t), num[uint64](t), genMatch(t), genInstructions(t),
			}
		}))
	},
	MultipartAggregate: func(t *rapid.T) MultipartBody { return AggregateStats{num[uint64](t), num[uint64](t), num[uint32](t)} },
	MultipartTable: func(t *rapid.T) MultipartBody {
		return TableStatsList(several(t, 3, func(t *rapid.T) TableStats {
			return TableStats{num[uint8](t), num[uint32](t), num[uint64](t), num[uint64](t)}
		}))
	},
	MultipartPortStats: func(t *rapid.T) MultipartBody {
		return PortStatsList(several(t, 3, func(t *rapid.T) PortStats {
			s := PortStats{Port: num[uint32](t), Duration: genDuration(t)}
			for _, c := range s.counters() {
				*c = num[uint64](t)
			}
			return s
		}))
	},
	MultipartQueue: func(t *rapid.T) MultipartBody {
		return QueueStatsList(several(t, 3, func(t *rapid.T) QueueStats {
			return QueueStats{num[uint32](t), num[uint32](t), num[uint64](t), num[uint64](t), num[uint64](t), genDuration(t)}
		}))
	},
	MultipartGroup: func(t *rapid.T) MultipartBody {
		return GroupStatsList(several(t, 3, func(t *rapid.T) GroupStats {
			return GroupStats{num[uint32](t), num[uint32](t), num[uint64](t), num[uint64](t), genDuration(t), several(t, 3, genCounter)}
		}))
	},
	MultipartGroupDesc: func(t *rapid.T) MultipartBody { return GroupDescList(several(t, 3, genGroupDesc)) },
	MultipartGroupFeatures: func(t *rapid.T) MultipartBody {
		four := func() [4]uint32 { return [4]uint32{num[uint32](t), num[uint32](t), num[uint32](t), num[uint32](t)} }
		return GroupFeatures{num[uint32](t), GroupCapabilities(num[uint32](t)), four(), four()}
	},
	MultipartMeter: func(t *rapid.T) MultipartBody {
		return MeterStatsList(several(t, 3, func(t *rapid.T) MeterStats {
			return MeterStats{num[uint32](t), num[uint32](t), num[uint64](t), num[uint64](t), genDuration(t), several(t, 3, genCounter)}
		}))
	},
	MultipartMeterConfig: func(t *rapid.T) MultipartBody { return MeterConfigList(several(t, 3, genMeterConfig)) },
	MultipartMeterFeatures: func(t *rapid.T) MultipartBody {
		return MeterFeatures{num[uint32](t), num[uint32](t), num[uint32](t), num[uint8](t), num[uint8](t)}
	},
	MultipartTableFeatures: genTableFeatures,
	MultipartPortDesc:      func(t *rapid.T) MultipartBody { return PortDescList(several(t, 3, genPort)) },
	MultipartExperimenter:  genExperimenterMultipart,
}

var multipartTypes = []MultipartType{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, MultipartExperimenter}

// genMessage draws a message of the type.
func genMessage(t *rapid.T, kind Type) Message {
	x := Xid(num[uint32](t))
	config := SwitchConfig{ConfigFlags(num[uint16](t)), num[uint16](t)}
	role := ControllerRole{upTo(t, RoleSlave), num[uint64](t)}
	pair := func() [2]uint32 { return [2]uint32{num[uint32](t), num[uint32](t)} }
	masks := AsyncMasks{pair(), pair(), pair()}
	switch kind {
	case TypeHello:
		return &Hello{x, 1 + upTo[uint8](t, 5), VersionBitmap(num[uint32](t))}
	case TypeError:
		e := &Error{Xid: x, Code: ErrorCode(num[uint32](t)), Data: genBytes(t)}
		if rapid.Bool().Draw(t, "experimenter") {
			e.Code, e.Experimenter = MakeErrorCode(ErrorExperimenter, num[uint16](t)), num[uint32](t)
		}
		return e
	case TypeEchoRequest:
		return &EchoRequest{x, genBytes(t)}
	case TypeEchoReply:
		return &EchoReply{x, genBytes(t)}
	case TypeExperimenter:
		return &Experimenter{x, num[uint32](t), num[uint32](t), genBytes(t)}
	case TypeFeaturesRequest:
		return &FeaturesRequest{x}
	case TypeFeaturesReply:
		return &FeaturesReply{x, num[uint64](t), num[uint32](t), num[uint8](t), num[uint8](t), Capabilities(num[uint32](t)), num[uint32](t)}
	case TypeGetConfigRequest:
		return &GetConfigRequest{x}
	case TypeGetConfigReply:
		return &GetConfigReply{x, config}
	case TypeSetConfig:
		return &SetConfig{x, config}
	case TypePacketIn:
		return &PacketIn{x, num[uint32](t), num[uint16](t), PacketInReason(num[uint8](t)), num[uint8](t), num[uint64](t), genMatch(t), genBytes(t)}
	case TypeFlowRemoved:
		return &FlowRemoved{
			x, num[uint64](t), num[uint16](t), FlowRemovedReason(num[uint8](t)), num[uint8](t), genDuration(t),
			num[uint16](t), num[uint16](t), num[uint64](t), num[uint64](t), genMatch(t),
		}
	case TypePortStatus:
		return &PortStatus{x, PortReason(num[uint8](t)), genPort(t)}
	case TypePacketOut:
		return &PacketOut{x, num[uint32](t), num[uint32](t), genActions(t), genBytes(t)}
	case TypeFlowMod:
		return &FlowMod{
			x, num[uint64](t), num[uint64](t), num[uint8](t), upTo(t, FlowDeleteStrict), num[uint16](t), num[uint16](t),
			num[uint16](t), num[uint32](t), num[uint32](t), num[uint32](t), FlowModFlags(num[uint16](t)), genMatch(t), genInstructions(t),
		}
	case TypeGroupMod:
		return &GroupMod{x, GroupModCommand(upTo[uint16](t, 2)), genGroupDesc(t)}
	case TypePortMod:
		return &PortMod{x, num[uint32](t), genMAC(t), PortConfig(num[uint32](t)), PortConfig(num[uint32](t)), PortFeatures(num[uint32](t))}
	case TypeTableMod:
		return &TableMod{x, num[uint8](t), num[uint32](t)}
	case TypeMultipartRequest:
		return &MultipartRequest{x, upTo(t, MultipartMore), requestBodies[pick(t, multipartTypes...)](t)}
	case TypeMultipartReply:
		return &MultipartReply{x, upTo(t, MultipartMore), replyBodies[pick(t, multipartTypes...)](t)}
	case TypeBarrierRequest:
		return &BarrierRequest{x}
	case TypeBarrierReply:
		return &BarrierReply{x}
	case TypeQueueGetConfigRequest:
		return &QueueGetConfigRequest{x, num[uint32](t)}
	case TypeQueueGetConfigReply:
		return &QueueGetConfigReply{x, num[uint32](t), several(t, 3, genQueue)}
	case TypeRoleRequest:
		return &RoleRequest{x, role}
	case TypeRoleReply:
		return &RoleReply{x, role}
	case TypeGetAsyncRequest:
		return &GetAsyncRequest{x}
	case TypeGetAsyncReply:
		return &GetAsyncReply{x, masks}
	case TypeSetAsync:
		return &SetAsync{x, masks}
	case TypeMeterMod:
		return &MeterMod{x, MeterModCommand(upTo[uint16](t, 2)), genMeterConfig(t)}
	}
	panic(kind)
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
