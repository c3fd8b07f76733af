package pipeline

import (
	"fmt"

	"trivet.dev/trivet/openflow"
)

// Features answers a FEATURES_REQUEST.
func (s *Switch) Features() *openflow.FeaturesReply {
	return &openflow.FeaturesReply{
		DatapathID: s.config.DatapathID, Tables: uint8(len(s.tables)),
		Capabilities: openflow.CapabilityFlowStats | openflow.CapabilityTableStats | openflow.CapabilityPortStats |
			openflow.CapabilityGroupStats | openflow.CapabilityQueueStats | openflow.CapabilityPortBlocked,
	}
}

// allActions are the actions that there are.
var allActions = []openflow.ActionType{
	openflow.ActionOutput, openflow.ActionCopyTTLOut, openflow.ActionCopyTTLIn, openflow.ActionSetMPLSTTL, openflow.ActionDecMPLSTTL,
	openflow.ActionPushVLAN, openflow.ActionPopVLAN, openflow.ActionPushMPLS, openflow.ActionPopMPLS, openflow.ActionSetQueue,
	openflow.ActionGroup, openflow.ActionSetNwTTL, openflow.ActionDecNwTTL, openflow.ActionSetField,
	openflow.ActionPushPBB, openflow.ActionPopPBB,
}

var groupFeatures = func() openflow.GroupFeatures {
	f := openflow.GroupFeatures{
		Types:        0xf,
		Capabilities: openflow.GroupSelectWeight | openflow.GroupSelectLiveness | openflow.GroupChaining | openflow.GroupChainingChecks,
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
	Capabilities: uint32(openflow.MeterFlagKbps | openflow.MeterFlagPktps | openflow.MeterFlagBurst | openflow.MeterFlagStats),
	MaxBands:     maxBands,
}

// tableFeatures says what each table can do; they are alike but for the tables that can follow.
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
		if checkSetField(openflow.OXM{Class: openflow.ClassBasic, Field: f, Value: openflow.Value{Lo: openflow.VLANPresent}}) == nil {
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
		list[id] = openflow.TableFeatures{
			Table: uint8(id), Name: fmt.Sprintf("table %d", id), MetadataMatch: ^uint64(0), MetadataWrite: ^uint64(0),
			MaxEntries: uint32(s.config.MaxFlows),
			Properties: []openflow.TableProperty{
				{Type: openflow.TableInstructions, Instructions: own},
				{Type: openflow.TableNextTables, NextTables: next},
				{Type: openflow.TableWriteActions, Actions: actions},
				{Type: openflow.TableApplyActions, Actions: actions},
				{Type: openflow.TableMatch, Fields: match},
				{Type: openflow.TableWildcards, Fields: wildcards},
				{Type: openflow.TableWriteSetField, Fields: set},
				{Type: openflow.TableApplySetField, Fields: set},
			},
		}
	}
	return list
}
