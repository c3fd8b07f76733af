package pipeline

import (
	"slices"

	"trivet.dev/trivet/openflow"
)

// A program is the instructions of flow entries in executable form. Entries with the same
// instructions share one: a switch with 100,000 routes has as many programs as neighbours.
type program struct {
	key          string // the encoded instructions
	entries      int    // how many entries have it
	instructions []openflow.Instruction

	meter    uint32 // 0: none
	apply    []openflow.Action
	clear    bool
	write    []openflow.Action
	metadata uint64
	mask     uint64 // of the metadata to write
	next     int    // table; -1: none
}

// programFor returns the program of checked instructions, and counts one more entry of it.
func (s *Switch) programFor(instructions []openflow.Instruction) *program {
	s.room = (&openflow.FlowMod{Instructions: instructions}).AppendTo(s.room[:0])
	const fixed = 56 // bytes of a FLOW_MOD with an empty match
	if p := s.programs[string(s.room[fixed:])]; p != nil {
		p.entries++
		return p
	}
	p := &program{key: string(s.room[fixed:]), entries: 1, next: -1,
		instructions: make([]openflow.Instruction, 0, len(instructions))}
	for _, i := range instructions {
		i.Actions = append([]openflow.Action(nil), i.Actions...)
		p.instructions = append(p.instructions, i)
		switch i.Type {
		case openflow.InstructionMeter:
			p.meter = i.Meter
		case openflow.InstructionApplyActions:
			p.apply = i.Actions
		case openflow.InstructionClearActions:
			p.clear = true
		case openflow.InstructionWriteActions:
			p.write = i.Actions
		case openflow.InstructionWriteMetadata:
			p.metadata, p.mask = i.Metadata, i.MetadataMask
		case openflow.InstructionGotoTable:
			p.next = int(i.Table)
			s.table(p.next) // packets may reach it from now on
		}
	}
	s.programs[p.key] = p
	return p
}

func (s *Switch) dropProgram(p *program) {
	if p.entries--; p.entries == 0 {
		delete(s.programs, p.key)
	}
}

// outputsTo reports whether the program outputs to the port and to the group; PortAny and GroupAny
// match everything.
func (p *program) outputsTo(port, group uint32) bool {
	return (port == openflow.PortAny ||
		p.has(func(a *openflow.Action) bool { return a.Type == openflow.ActionOutput && a.Port == port })) &&
		(group == openflow.GroupAny ||
			p.has(func(a *openflow.Action) bool { return a.Type == openflow.ActionGroup && a.Group == group }))
}

func (p *program) has(is func(*openflow.Action) bool) bool {
	for _, list := range [...][]openflow.Action{p.apply, p.write} {
		for i := range list {
			if is(&list[i]) {
				return true
			}
		}
	}
	return false
}

// checkInstructions refuses instructions that an entry of that table cannot have.
func (s *Switch) checkInstructions(instructions []openflow.Instruction, id uint8, value *Key, mask *Mask) error {
	var seen uint64
	for i := range instructions {
		in := &instructions[i]
		if in.Type >= 64 {
			return refuse(openflow.BadInstructionBadExperimenter, "an instruction of experimenter %#x", in.Experimenter)
		}
		if seen>>in.Type&1 == 1 {
			return refuse(openflow.BadInstructionUnsupInst, "%v twice", in.Type)
		}
		seen |= 1 << in.Type
		var err error
		switch in.Type {
		case openflow.InstructionGotoTable:
			if in.Table <= id || int(in.Table) >= len(s.tables) {
				err = refuse(openflow.BadInstructionBadTableID, "table %d cannot be reached from table %d", in.Table,
					id)
			}
		case openflow.InstructionMeter:
			if s.meters[in.Meter] == nil {
				err = refuse(openflow.MeterModFailedUnknownMeter, "there is no meter %d", in.Meter)
			}
		case openflow.InstructionApplyActions:
			err = s.checkActions(in.Actions, knownFrom(value, mask))
		case openflow.InstructionWriteActions:
			err = s.checkSet(in.Actions)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// known is what a match implies about the packets that reach an action.
type known struct {
	ethType  uint16 // 0: unknown
	ipProto  uint8  // 0: unknown
	untagged bool   // there is no VLAN tag
}

func knownFrom(value *Key, mask *Mask) *known {
	k := &known{}
	if mask[wordDst]&ethTypeMask != 0 {
		k.ethType = value.EthType()
	}
	if mask[wordIP]&ipProtoMask != 0 {
		k.ipProto = value.ipProto()
	}
	k.untagged = mask[wordSrc]&tagPresent != 0 && value[wordSrc]&tagPresent == 0
	return k
}

// checkActions refuses actions that cannot apply to any packet. k is what is known of the packets,
// or nil.
func (s *Switch) checkActions(actions []openflow.Action, k *known) error {
	for i := range actions {
		if err := s.checkAction(&actions[i], k); err != nil {
			return err
		}
		if k != nil {
			k.after(&actions[i])
		}
	}
	return nil
}

// checkSet refuses actions that are not allowed in an action set or a bucket. These act on the
// final packet, about which nothing is known.
func (s *Switch) checkSet(actions []openflow.Action) error {
	for i := range actions {
		if actions[i].Type == openflow.ActionExperimenter {
			return refuse(openflow.BadActionBadExperimenter, "an action of experimenter %#x in a set",
				actions[i].Experimenter)
		}
	}
	return s.checkActions(actions, nil)
}

func (s *Switch) checkAction(a *openflow.Action, k *known) error {
	switch a.Type {
	case openflow.ActionOutput:
		if a.Port == 0 || a.Port > openflow.PortMax &&
			(a.Port < openflow.PortInPort || a.Port == openflow.PortAny || a.Port == openflow.PortTable) {
			return refuse(openflow.BadActionBadOutPort, "no packet can go out by port %s", openflow.PortName(a.Port))
		}
	case openflow.ActionGroup:
		if s.groups[a.Group] == nil {
			return refuse(openflow.BadActionBadOutGroup, "there is no group %d", a.Group)
		}
	case openflow.ActionPushVLAN:
		if !isTag(a.EtherType) {
			return refuse(openflow.BadActionBadArgument, "%#04x is not a VLAN EtherType", a.EtherType)
		}
	case openflow.ActionPushMPLS:
		if a.EtherType != openflow.EthTypeMPLS && a.EtherType != ethTypeMPLSMulticast {
			return refuse(openflow.BadActionBadArgument, "%#04x is not an MPLS EtherType", a.EtherType)
		}
	case openflow.ActionPushPBB:
		if a.EtherType != openflow.EthTypePBB {
			return refuse(openflow.BadActionBadArgument, "%#04x is not a PBB EtherType", a.EtherType)
		}
	case openflow.ActionSetField:
		if err := checkSetField(a.Field); err != nil {
			return err
		}
	case openflow.ActionExperimenter:
		if _, _, ok := a.AsCheckPacketLarger(); ok {
			break
		}
		return refuse(openflow.BadActionBadExperimenter, "an action of experimenter %#x", a.Experimenter)
	}
	if k != nil && !k.allows(a) {
		return refuse(openflow.BadActionMatchInconsistent, "no packet that matches has what %v acts on", a.Type)
	}
	return nil
}

func checkSetField(o openflow.OXM) error {
	switch {
	case o.Class != openflow.ClassBasic || o.Field >= openflow.NumFields:
		return refuse(openflow.BadActionBadSetType, "a field of class %#x", uint16(o.Class))
	case o.Field == openflow.FieldInPort, o.Field == openflow.FieldInPhyPort, o.Field == openflow.FieldMetadata,
		o.Field == openflow.FieldIPv6Exthdr:
		return refuse(openflow.BadActionBadSetType, "%v cannot be set", o.Field)
	case o.Masked:
		return refuse(openflow.BadActionBadSetType, "%v to set has a mask", o.Field)
	case o.Field == openflow.FieldVLANVID && o.Value.Lo&openflow.VLANPresent == 0:
		return refuse(openflow.BadActionBadSetArgument, "a VLAN without the bit OFPVID_PRESENT; POP_VLAN removes a tag")
	}
	return nil
}

// allows reports whether some of the packets have what the action acts on.
func (k *known) allows(a *openflow.Action) bool {
	ip := k.ethType == 0 || k.ethType == openflow.EthTypeIPv4 || k.ethType == openflow.EthTypeIPv6
	label := k.ethType == 0 || k.ethType == openflow.EthTypeMPLS || k.ethType == ethTypeMPLSMulticast
	switch a.Type {
	case openflow.ActionPopVLAN:
		return !k.untagged
	case openflow.ActionPopMPLS, openflow.ActionSetMPLSTTL, openflow.ActionDecMPLSTTL:
		return label
	case openflow.ActionPopPBB:
		return k.ethType == 0 || k.ethType == openflow.EthTypePBB
	case openflow.ActionSetNwTTL, openflow.ActionDecNwTTL:
		return ip
	case openflow.ActionSetField:
		return k.hasField(a.Field.Field)
	}
	return true
}

func (k *known) hasField(f openflow.Field) bool {
	if f == openflow.FieldVLANPCP || f == openflow.FieldVLANVID {
		return !k.untagged
	}
	need := needs[f]
	if k.ethType != 0 && len(need.ethTypes) > 0 && !slices.Contains(need.ethTypes, k.ethType) {
		return false
	}
	return k.ipProto == 0 || need.ipProto == 0 || k.ipProto == need.ipProto
}

// after updates what is known to the state after an action.
func (k *known) after(a *openflow.Action) {
	switch a.Type {
	case openflow.ActionPushVLAN:
		k.untagged = false
	case openflow.ActionPushMPLS, openflow.ActionPushPBB, openflow.ActionPopMPLS:
		k.ethType, k.ipProto = a.EtherType, 0
		k.untagged = k.untagged && a.Type != openflow.ActionPushPBB
	case openflow.ActionPopPBB:
		*k = known{}
	case openflow.ActionSetField:
		switch a.Field.Field {
		case openflow.FieldEthType:
			k.ethType, k.ipProto = uint16(a.Field.Value.Lo), 0
		case openflow.FieldIPProto:
			k.ipProto = uint8(a.Field.Value.Lo)
		}
	}
}

// needs says which packets have a field: its prerequisites (section 7.2.3.7).
var needs = func() (n [openflow.NumFields]struct {
	ethTypes []uint16
	ipProto  uint8
	icmpType uint8 // 135 or 136 of the neighbour discovery; 1: both
}) {
	v4, v6, arp := []uint16{openflow.EthTypeIPv4}, []uint16{openflow.EthTypeIPv6}, []uint16{openflow.EthTypeARP}
	ip := []uint16{openflow.EthTypeIPv4, openflow.EthTypeIPv6}
	set := func(ethTypes []uint16, ipProto uint8, fields ...openflow.Field) {
		for _, f := range fields {
			n[f].ethTypes, n[f].ipProto = ethTypes, ipProto
		}
	}
	set(ip, 0, openflow.FieldIPDSCP, openflow.FieldIPECN, openflow.FieldIPProto)
	set(v4, 0, openflow.FieldIPv4Src, openflow.FieldIPv4Dst)
	set(v6, 0, openflow.FieldIPv6Src, openflow.FieldIPv6Dst, openflow.FieldIPv6Flabel)
	set(arp, 0, openflow.FieldARPOp, openflow.FieldARPSPA, openflow.FieldARPTPA, openflow.FieldARPSHA,
		openflow.FieldARPTHA)
	set(ip, openflow.IPProtoTCP, openflow.FieldTCPSrc, openflow.FieldTCPDst)
	set(ip, openflow.IPProtoUDP, openflow.FieldUDPSrc, openflow.FieldUDPDst)
	set(ip, openflow.IPProtoSCTP, openflow.FieldSCTPSrc, openflow.FieldSCTPDst)
	set(v4, openflow.IPProtoICMPv4, openflow.FieldICMPv4Type, openflow.FieldICMPv4Code)
	set(v6, openflow.IPProtoICMPv6, openflow.FieldICMPv6Type, openflow.FieldICMPv6Code,
		openflow.FieldIPv6NDTarget, openflow.FieldIPv6NDSLL, openflow.FieldIPv6NDTLL)
	n[openflow.FieldIPv6NDTarget].icmpType = 1 // of either
	n[openflow.FieldIPv6NDSLL].icmpType = 135
	n[openflow.FieldIPv6NDTLL].icmpType = 136
	set([]uint16{openflow.EthTypeMPLS, ethTypeMPLSMulticast}, 0, openflow.FieldMPLSLabel, openflow.FieldMPLSTC,
		openflow.FieldMPLSBOS)
	set([]uint16{openflow.EthTypePBB}, 0, openflow.FieldPBBISID)
	return n
}()
