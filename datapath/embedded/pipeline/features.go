package pipeline

import "trivet.dev/trivet/openflow"

// Features answers a FEATURES_REQUEST.
func (s *Switch) Features() *openflow.FeaturesReply {
	return &openflow.FeaturesReply{
		DatapathID: s.config.DatapathID, Tables: uint8(len(s.tables)),
		Capabilities: openflow.CapabilityFlowStats | openflow.CapabilityTableStats | openflow.CapabilityPortStats |
			openflow.CapabilityGroupStats | openflow.CapabilityQueueStats | openflow.CapabilityPortBlocked,
	}
}

// allActions are the supported actions.
var allActions = []openflow.ActionType{
	openflow.ActionOutput, openflow.ActionCopyTTLOut, openflow.ActionCopyTTLIn, openflow.ActionSetMPLSTTL,
	openflow.ActionDecMPLSTTL, openflow.ActionPushVLAN, openflow.ActionPopVLAN, openflow.ActionPushMPLS,
	openflow.ActionPopMPLS, openflow.ActionSetQueue, openflow.ActionGroup, openflow.ActionSetNwTTL,
	openflow.ActionDecNwTTL, openflow.ActionSetField, openflow.ActionPushPBB, openflow.ActionPopPBB,
}

var groupFeatures = func() openflow.GroupFeatures {
	f := openflow.GroupFeatures{
		Types: 0xf,
		Capabilities: openflow.GroupSelectWeight | openflow.GroupSelectLiveness | openflow.GroupChaining |
			openflow.GroupChainingChecks,
	}
	for i := range f.MaxGroups {
		f.MaxGroups[i] = openflow.GroupMax
		for _, a := range allActions {
			f.Actions[i] |= 1 << a
		}
	}
	return f
}()

var meterFeatures = openflow.MeterFeatures{
	MaxMeters: openflow.MeterMax, BandTypes: 1<<openflow.BandDrop | 1<<openflow.BandDSCPRemark,
	Capabilities: uint32(openflow.MeterFlagKbps | openflow.MeterFlagPktps | openflow.MeterFlagBurst |
		openflow.MeterFlagStats),
	MaxBands: maxBands,
}

// tableFeatures describes each table; tables differ only in which ones can follow.
func (s *Switch) tableFeatures() openflow.TableFeaturesList {
	var instructions []openflow.InstructionID
	for t := openflow.InstructionGotoTable; t <= openflow.InstructionMeter; t++ {
		instructions = append(instructions, openflow.InstructionID{Type: t})
	}
	var actions []openflow.ActionID
	for _, a := range allActions {
		actions = append(actions, openflow.ActionID{Type: a})
	}
	var match, wildcards, set []openflow.FieldID
	for f := range openflow.NumFields {
		match = append(match, openflow.BasicFieldID(f, f.Maskable()))
		wildcards = append(wildcards, openflow.BasicFieldID(f, false))
		if checkSetField(openflow.OXM{Class: openflow.ClassBasic, Field: f,
			Value: openflow.Value{Lo: openflow.VLANPresent}}) == nil {
			set = append(set, openflow.BasicFieldID(f, false))
		}
	}
	list := make(openflow.TableFeaturesList, len(s.tables))
	for id := range list {
		var next []uint8
		for n := id + 1; n < len(s.tables); n++ {
			next = append(next, uint8(n))
		}
		own := instructions
		if next == nil { // the last table leads nowhere
			own = instructions[1:]
		}
		list[id] = openflow.TableFeatures{ // without a name, which ovs-ofctl would show in place of the number
			Table: uint8(id), MetadataMatch: ^uint64(0), MetadataWrite: ^uint64(0),
			MaxEntries: uint32(s.config.MaxFlows),
			Properties: properties(
				openflow.TableProperty{Type: openflow.TableInstructions, Instructions: own},
				openflow.TableProperty{Type: openflow.TableNextTables, NextTables: next},
				openflow.TableProperty{Type: openflow.TableWriteActions, Actions: actions},
				openflow.TableProperty{Type: openflow.TableApplyActions, Actions: actions},
				openflow.TableProperty{Type: openflow.TableMatch, Fields: match},
				openflow.TableProperty{Type: openflow.TableWildcards, Fields: wildcards},
				openflow.TableProperty{Type: openflow.TableWriteSetField, Fields: set},
				openflow.TableProperty{Type: openflow.TableApplySetField, Fields: set},
			),
		}
	}
	return list
}

// properties adds to each property the same one for the table-miss entry, which supports all
// instructions and actions that other entries do. It could be omitted where it is equal (section
// 7.3.5.5.2), but some controllers then take it as empty, and make no table-miss entry.
func properties(list ...openflow.TableProperty) (out []openflow.TableProperty) {
	for _, p := range list {
		out = append(out, p)
		if p.Type != openflow.TableMatch && p.Type != openflow.TableWildcards {
			p.Type++
			out = append(out, p)
		}
	}
	return out
}
