package openflow

import (
	"fmt"
	"strings"
)

// valueKind is how the value of a field is written.
type valueKind uint8

const (
	kindDecimal valueKind = iota
	kindHex
	kindPort
	kindMAC
	kindIPv4
	kindIPv6
)

// textNames holds for each field its name in a match, its name in set_field, and further
// names that are understood, beside that of the specification: those of ovs-ofctl(8) and
// ovs-fields(7). Some stand for several fields; the protocol of the flow tells which one is meant.
var textNames = [NumFields]string{
	FieldInPort:       "in_port in_port",
	FieldInPhyPort:    "in_phy_port in_phy_port",
	FieldMetadata:     "metadata metadata",
	FieldEthDst:       "dl_dst eth_dst",
	FieldEthSrc:       "dl_src eth_src",
	FieldEthType:      "dl_type eth_type",
	FieldVLANVID:      "vlan_vid vlan_vid",
	FieldVLANPCP:      "dl_vlan_pcp vlan_pcp",
	FieldIPDSCP:       "ip_dscp ip_dscp",
	FieldIPECN:        "nw_ecn nw_ecn ip_ecn",
	FieldIPProto:      "nw_proto ip_proto",
	FieldIPv4Src:      "nw_src ip_src",
	FieldIPv4Dst:      "nw_dst ip_dst",
	FieldTCPSrc:       "tp_src tcp_src",
	FieldTCPDst:       "tp_dst tcp_dst",
	FieldUDPSrc:       "tp_src udp_src",
	FieldUDPDst:       "tp_dst udp_dst",
	FieldSCTPSrc:      "tp_src sctp_src",
	FieldSCTPDst:      "tp_dst sctp_dst",
	FieldICMPv4Type:   "icmp_type icmp_type",
	FieldICMPv4Code:   "icmp_code icmp_code",
	FieldARPOp:        "arp_op arp_op nw_proto",
	FieldARPSPA:       "arp_spa arp_spa nw_src",
	FieldARPTPA:       "arp_tpa arp_tpa nw_dst",
	FieldARPSHA:       "arp_sha arp_sha",
	FieldARPTHA:       "arp_tha arp_tha",
	FieldIPv6Src:      "ipv6_src ipv6_src",
	FieldIPv6Dst:      "ipv6_dst ipv6_dst",
	FieldIPv6Flabel:   "ipv6_label ipv6_label",
	FieldICMPv6Type:   "icmp_type icmpv6_type",
	FieldICMPv6Code:   "icmp_code icmpv6_code",
	FieldIPv6NDTarget: "nd_target nd_target",
	FieldIPv6NDSLL:    "nd_sll nd_sll",
	FieldIPv6NDTLL:    "nd_tll nd_tll",
	FieldMPLSLabel:    "mpls_label mpls_label",
	FieldMPLSTC:       "mpls_tc mpls_tc",
	FieldMPLSBOS:      "mpls_bos mpls_bos",
	FieldPBBISID:      "pbb_isid pbb_isid",
	FieldTunnelID:     "tun_id tun_id",
	FieldIPv6Exthdr:   "ipv6_exthdr ipv6_exthdr",
}

// protocols are the words that stand for an Ethernet type, or for that and an IP protocol.
var protocols = []struct {
	word    string
	ethType uint16
	ipProto uint8 // 0: any
}{
	{"ip", EthTypeIPv4, 0},
	{"icmp", EthTypeIPv4, IPProtoICMPv4},
	{"tcp", EthTypeIPv4, IPProtoTCP},
	{"udp", EthTypeIPv4, IPProtoUDP},
	{"sctp", EthTypeIPv4, IPProtoSCTP},
	{"ipv6", EthTypeIPv6, 0},
	{"icmp6", EthTypeIPv6, IPProtoICMPv6},
	{"tcp6", EthTypeIPv6, IPProtoTCP},
	{"udp6", EthTypeIPv6, IPProtoUDP},
	{"sctp6", EthTypeIPv6, IPProtoSCTP},
	{"arp", EthTypeARP, 0},
	{"rarp", 0x8035, 0},
	{"mpls", EthTypeMPLS, 0},
	{"mplsm", ethTypeMPLSMulticast, 0},
}

// fieldsByName holds the fields that a name may stand for.
var fieldsByName = func() map[string][]Field {
	byName := make(map[string][]Field)
	add := func(name string, f Field) {
		for _, known := range byName[name] {
			if known == f {
				return
			}
		}
		byName[name] = append(byName[name], f)
	}
	for f := range NumFields {
		add(fields[f].name, f)
		for _, name := range strings.Fields(textNames[f]) {
			add(name, f)
		}
	}
	return byName
}()

// nameToSet returns the name of the field in set_field.
func (f Field) nameToSet() string { return strings.Fields(textNames[f])[1] }

// name returns the name of the field for a reader.
func (o OXM) name() string {
	if o.opaque() {
		return fmt.Sprintf("oxm_%#04x_%d", uint16(o.Class), o.Field)
	}
	return o.Field.String()
}

// valueText writes a value of the field.
func (f Field) valueText(v Value) string {
	switch fields[f].kind {
	case kindPort:
		return PortName(uint32(v.Lo))
	case kindMAC:
		return macOf(v).String()
	case kindIPv4, kindIPv6:
		return addrOf(v, f.Bits()).String()
	case kindHex:
		return fmt.Sprintf("%#x", v.Lo)
	}
	return fmt.Sprint(v.Lo)
}

// text writes value and mask.
func (o OXM) text() string {
	if o.opaque() {
		return fmt.Sprintf("%#x", o.Payload)
	}
	s := o.Field.valueText(o.Value)
	if !o.Masked {
		return s
	}
	switch kind := fields[o.Field].kind; kind {
	case kindIPv4, kindIPv6:
		if n, ok := o.Mask.prefixLen(o.Field.Bits()); ok {
			return fmt.Sprintf("%s/%d", s, n)
		}
	case kindDecimal: // bits of a port
		return fmt.Sprintf("%#x/%#x", o.Value.Lo, o.Mask.Lo)
	}
	return s + "/" + o.Field.valueText(o.Mask)
}

// String writes the field as in a match: nw_src=10.0.0.0/8.
func (o OXM) String() string {
	if o.opaque() {
		return o.name() + "=" + o.text()
	}
	if o.Field == FieldVLANVID {
		switch {
		case !o.Masked && o.Value.Lo == 0:
			return "vlan_tci=0x0000/0x1fff"
		case o == VLANAny():
			return "vlan_tci=0x1000/0x1000"
		case !o.Masked && o.Value.Lo&VLANPresent != 0:
			return fmt.Sprintf("dl_vlan=%d", o.Value.Lo&^VLANPresent)
		}
	}
	name, _, _ := strings.Cut(textNames[o.Field], " ")
	return name + "=" + o.text()
}

// String writes the match in the manner of ovs-ofctl: tcp,in_port=2,nw_src=10.0.0.0/8,tp_dst=80.
// The empty match is the empty string.
func (m Match) String() string {
	ethType, typed := m.Get(FieldEthType)
	proto, withProto := m.Get(FieldIPProto)
	var parts []string
	best := -1 // of protocols; the ones with an IP protocol come after those without
	for i, p := range protocols {
		if typed && ethType.Value.Lo == uint64(p.ethType) &&
			(p.ipProto == 0 || withProto && proto.Value.Lo == uint64(p.ipProto)) {
			best = i
		}
	}
	if best >= 0 {
		parts = append(parts, protocols[best].word)
	}
	for o := range m.All() {
		if o.Class == ClassBasic && best >= 0 {
			if o.Field == FieldEthType || o.Field == FieldIPProto && protocols[best].ipProto != 0 {
				continue
			}
		}
		parts = append(parts, o.String())
	}
	return strings.Join(parts, ",")
}

// withPriority writes a priority and a match.
func withPriority(priority uint16, m Match) string {
	s := fmt.Sprintf("priority=%d", priority)
	if text := m.String(); text != "" {
		s += "," + text
	}
	return s
}

// String writes the action in the manner of ovs-ofctl: set_field:02:00:00:00:00:01->eth_dst.
func (a Action) String() string {
	switch a.Type {
	case ActionOutput:
		if name, ok := portNames[a.Port]; ok {
			if a.Port == PortController {
				return fmt.Sprintf("%s:%d", name, a.MaxLen)
			}
			return name
		}
		return fmt.Sprintf("output:%d", a.Port)
	case ActionGroup:
		return fmt.Sprintf("group:%d", a.Group)
	case ActionSetQueue:
		return fmt.Sprintf("set_queue:%d", a.Queue)
	case ActionSetField:
		name := a.Field.name()
		if !a.Field.opaque() {
			name = a.Field.Field.nameToSet()
		}
		return "set_field:" + a.Field.text() + "->" + name
	case ActionSetMPLSTTL:
		return fmt.Sprintf("set_mpls_ttl(%d)", a.TTL)
	case ActionSetNwTTL:
		return fmt.Sprintf("mod_nw_ttl:%d", a.TTL)
	case ActionDecNwTTL:
		return "dec_ttl"
	case ActionPushVLAN, ActionPushMPLS, ActionPopMPLS, ActionPushPBB:
		return fmt.Sprintf("%s:0x%04x", strings.ToLower(a.Type.String()), a.EtherType)
	case ActionExperimenter:
		if bytes, bit, is := a.AsCheckPacketLarger(); is {
			return fmt.Sprintf("check_pkt_larger(%d)->OXM_OF_METADATA[%d]", bytes, bit)
		}
		return fmt.Sprintf("experimenter:%#08x:%x", a.Experimenter, a.Data)
	}
	return strings.ToLower(a.Type.String())
}

// FormatActions writes actions in the manner of ovs-ofctl: output:2,output:3. None are "drop".
func FormatActions(actions []Action) string {
	if len(actions) == 0 {
		return "drop"
	}
	return actionList(actions)
}

func actionList(actions []Action) string {
	parts := make([]string, len(actions))
	for i, a := range actions {
		parts[i] = a.String()
	}
	return strings.Join(parts, ",")
}

// String writes the instruction in the manner of ovs-ofctl: goto_table:1.
func (i Instruction) String() string {
	switch i.Type {
	case InstructionGotoTable:
		return fmt.Sprintf("goto_table:%d", i.Table)
	case InstructionWriteMetadata:
		return fmt.Sprintf("write_metadata:%#x/%#x", i.Metadata, i.MetadataMask)
	case InstructionWriteActions:
		return "write_actions(" + actionList(i.Actions) + ")"
	case InstructionApplyActions:
		return actionList(i.Actions)
	case InstructionMeter:
		return "meter:" + meterName(i.Meter)
	case InstructionExperimenter:
		return fmt.Sprintf("experimenter_instruction:%#08x:%x", i.Experimenter, i.Data)
	}
	return strings.ToLower(i.Type.String())
}

// FormatInstructions writes instructions as ovs-ofctl writes actions. None are "drop".
func FormatInstructions(instructions []Instruction) string {
	var parts []string
	for _, i := range instructions {
		if s := i.String(); s != "" {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		return "drop"
	}
	return strings.Join(parts, ",")
}

// FormatFlow writes a flow in the manner of ovs-ofctl, leaving out what has its usual value:
// table=1,priority=1,in_port=2,actions=output:3. ParseFlow reads it.
func FormatFlow(m *FlowMod) string {
	var parts []string
	add := func(wanted bool, format string, args ...any) {
		if wanted {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(m.Table != 0, "table=%s", tableName(m.Table))
	add(m.Cookie != 0 || m.CookieMask != 0, "cookie=%#x", m.Cookie)
	if m.CookieMask != 0 {
		parts[len(parts)-1] += fmt.Sprintf("/%#x", m.CookieMask)
	}
	add(m.IdleTimeout != 0, "idle_timeout=%d", m.IdleTimeout)
	add(m.HardTimeout != 0, "hard_timeout=%d", m.HardTimeout)
	add(m.Flags != 0, "%s", strings.ReplaceAll(m.Flags.String(), " ", ","))
	add(m.OutPort != PortAny, "out_port=%s", PortName(m.OutPort))
	add(m.OutGroup != GroupAny, "out_group=%s", groupName(m.OutGroup))
	add(true, "%s", withPriority(m.Priority, m.Match))
	add(true, "actions=%s", FormatInstructions(m.Instructions))
	return strings.Join(parts, ",")
}

// String writes the entry as ovs-ofctl dump-flows does.
func (s *FlowStats) String() string {
	text := fmt.Sprintf("cookie=%#x, duration=%v, table=%d, n_packets=%d, n_bytes=%d, ", s.Cookie, s.Duration, s.Table,
		s.Packets, s.Bytes)
	if s.IdleTimeout != 0 {
		text += fmt.Sprintf("idle_timeout=%d, ", s.IdleTimeout)
	}
	if s.HardTimeout != 0 {
		text += fmt.Sprintf("hard_timeout=%d, ", s.HardTimeout)
	}
	if s.Flags != 0 {
		text += s.Flags.String() + " "
	}
	return text + withPriority(s.Priority, s.Match) + " actions=" + FormatInstructions(s.Instructions)
}
