package api

import (
	"fmt"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/openflow"
)

// tables are the contents of a switch, read at one time.
type tables struct {
	entries map[uint8][]*openflow.FlowStats
	groups  map[uint32]*openflow.GroupDesc
	ports   []uint32 // ports that are up
}

// packet is a packet as a flow table sees it: its fields, with exact values.
type packet struct {
	fields openflow.Match
	ttl    int
}

// traced is what a switch does with a packet.
type traced struct {
	hits    []*openflow.FlowStats
	outputs []output
	notes   []string // what could not be traced
	missed  int      // the table without an entry for it; -1: none
}

// output is a packet that leaves the tables.
type output struct {
	port    uint32 // or PortController, PortLocal, PortNormal
	packet  packet
	expired bool   // it is sent to the controller because its TTL has expired
	choice  int    // 0: always sent; of outputs with the same number, exactly one is sent
	reason  string // for a choice or a copy
	hit     *openflow.FlowStats
}

// tracer follows a packet through the tables of one switch (OpenFlow 1.3.5, section 5.3).
type tracer struct {
	*tables
	in     uint32
	out    traced
	choice int
	groups int // nesting depth
}

// trace returns what the switch does with a packet.
func (t *tables) trace(p packet) traced {
	in, _ := p.fields.InPort()
	x := tracer{tables: t, in: in, out: traced{missed: -1}}
	var set []openflow.Action
	for table := 0; table >= 0; {
		entry := t.match(uint8(table), p.fields)
		if entry == nil {
			x.out.missed = table
			return x.out
		}
		x.out.hits = append(x.out.hits, entry)
		next := -1
		for _, i := range ordered(entry.Instructions) {
			switch i.Type {
			case openflow.InstructionApplyActions:
				if !x.actions(i.Actions, &p, 0, "") {
					return x.out
				}
			case openflow.InstructionClearActions:
				set = nil
			case openflow.InstructionWriteActions:
				set = append(set, i.Actions...)
			case openflow.InstructionWriteMetadata:
				old, _ := p.fields.Get(openflow.FieldMetadata)
				p.fields = p.fields.With(openflow.Metadata(old.Value.Lo&^i.MetadataMask | i.Metadata&i.MetadataMask))
			case openflow.InstructionGotoTable:
				if int(i.Table) > table {
					next = int(i.Table)
				}
			case openflow.InstructionMeter:
				x.note("meter %d may drop it", i.Meter)
			default:
				x.note("%v is not traced", i.Type)
			}
		}
		table = next
	}
	x.actionSet(set, p, 0, "")
	return x.out
}

func (x *tracer) note(format string, args ...any) {
	x.out.notes = append(x.out.notes, fmt.Sprintf(format, args...))
}

// match returns the entry of highest priority that matches the packet.
func (t *tables) match(table uint8, fields openflow.Match) (best *openflow.FlowStats) {
	for _, e := range t.entries[table] {
		if (best == nil || e.Priority > best.Priority) && e.Match.Covers(fields) {
			best = e
		}
	}
	return best
}

// ordered returns instructions in the order in which they are executed (section 5.9).
func ordered(list []openflow.Instruction) (out []openflow.Instruction) {
	for _, kind := range []openflow.InstructionType{openflow.InstructionExperimenter, openflow.InstructionMeter,
		openflow.InstructionApplyActions,
		openflow.InstructionClearActions, openflow.InstructionWriteActions, openflow.InstructionWriteMetadata,
		openflow.InstructionGotoTable} {
		out = append(out, lists.Filter(list, func(i openflow.Instruction) bool { return i.Type == kind })...)
	}
	return out
}

// actions executes a list; false means that the packet goes no further.
func (x *tracer) actions(list []openflow.Action, p *packet, choice int, reason string) bool {
	for _, a := range list {
		switch a.Type {
		case openflow.ActionOutput:
			x.output(a.Port, *p, choice, reason)
		case openflow.ActionGroup:
			x.group(a.Group, *p, choice, reason)
		case openflow.ActionSetField:
			p.fields = p.fields.With(a.Field)
		case openflow.ActionDecNwTTL:
			if p.ttl <= 1 {
				x.emit(output{port: openflow.PortController, packet: *p, expired: true, choice: choice})
				return false
			}
			p.ttl--
		case openflow.ActionSetNwTTL:
			p.ttl = int(a.TTL)
		case openflow.ActionPushVLAN:
			p.fields = p.fields.With(openflow.VLANVID(0)).With(openflow.VLANPCP(0))
		case openflow.ActionPopVLAN:
			p.fields = p.fields.With(openflow.VLANNone()).Without(openflow.FieldVLANPCP)
		case openflow.ActionSetQueue:
		case openflow.ActionExperimenter:
			bytes, bit, ok := a.AsCheckPacketLarger()
			if !ok {
				x.note("%s is not traced", a)
				continue
			}
			old, _ := p.fields.Get(openflow.FieldMetadata)
			p.fields = p.fields.With(openflow.Metadata(old.Value.Lo &^ (1 << bit)))
			x.note("this is the path of packets of at most %d bytes, including the Ethernet header", bytes)
		default:
			x.note("%s is not traced", a)
		}
	}
	return true
}

// setOrder is the order of execution of an action set (section 5.10).
var setOrder = []openflow.ActionType{openflow.ActionCopyTTLIn, openflow.ActionPopVLAN, openflow.ActionPopMPLS,
	openflow.ActionPopPBB,
	openflow.ActionPushMPLS, openflow.ActionPushPBB, openflow.ActionPushVLAN, openflow.ActionCopyTTLOut,
	openflow.ActionDecMPLSTTL, openflow.ActionDecNwTTL, openflow.ActionSetMPLSTTL, openflow.ActionSetNwTTL,
	openflow.ActionSetField, openflow.ActionSetQueue, openflow.ActionExperimenter}

// actionSet executes a set: for each type, and each field to set, the last one counts; a group
// takes precedence over an output.
func (x *tracer) actionSet(set []openflow.Action, p packet, choice int, reason string) {
	var list []openflow.Action
	var last *openflow.Action
	for _, kind := range setOrder {
		for i, a := range set {
			if a.Type == kind && !replaced(a, set[i+1:]) {
				list = append(list, a)
			}
		}
	}
	for i := range set {
		if a := &set[i]; a.Type == openflow.ActionGroup ||
			a.Type == openflow.ActionOutput && (last == nil || last.Type != openflow.ActionGroup) {
			last = a
		}
	}
	if last != nil {
		list = append(list, *last)
	}
	x.actions(list, &p, choice, reason)
}

func replaced(a openflow.Action, by []openflow.Action) bool {
	for _, b := range by {
		if a.Type == b.Type &&
			(a.Type != openflow.ActionSetField || a.Field.Field == b.Field.Field && a.Field.Class == b.Field.Class) {
			return true
		}
	}
	return false
}

// output sends the packet out of a port, or several.
func (x *tracer) output(port uint32, p packet, choice int, reason string) {
	switch port {
	case openflow.PortInPort:
		port = x.in
	case openflow.PortAll, openflow.PortFlood:
		for _, each := range x.ports {
			if each != x.in {
				x.emit(output{port: each, packet: p, choice: choice, reason: "flooded"})
			}
		}
		return
	case x.in: // a switch sends a packet back only if told so (section 7.2.5.1)
		return
	}
	x.emit(output{port: port, packet: p, choice: choice, reason: reason})
}

func (x *tracer) emit(o output) {
	if n := len(x.out.hits); n > 0 {
		o.hit = x.out.hits[n-1]
	}
	if len(x.out.outputs) < maxOutputs {
		x.out.outputs = append(x.out.outputs, o)
	}
}

const (
	maxOutputs = 4096
	maxNested  = 16 // groups
)

// group traces a group: all buckets, or one chosen by the switch (section 5.6.1), in which case
// each bucket is a possible choice.
func (x *tracer) group(id uint32, p packet, choice int, reason string) {
	g := x.tables.groups[id]
	if g == nil || x.groups >= maxNested {
		x.note("there is no group %d", id)
		return
	}
	x.groups++
	defer func() { x.groups-- }()
	buckets := g.Buckets
	switch g.Kind {
	case openflow.GroupTypeSelect:
		if len(buckets) > 1 {
			x.choice++
			choice = x.choice
		}
	case openflow.GroupTypeFF:
		buckets = x.live(g)
	}
	for i, b := range buckets {
		why := reason
		switch g.Kind {
		case openflow.GroupTypeSelect:
			why = fmt.Sprintf("%d of %d by hash", i+1, len(buckets))
		case openflow.GroupTypeAll:
			why = "flooded"
		case openflow.GroupTypeFF:
			why = fmt.Sprintf("the first that is up of %d", len(g.Buckets))
		}
		x.actionSet(b.Actions, p, choice, why)
	}
}

// live returns the first bucket of a group whose port is up, if any.
func (x *tracer) live(g *openflow.GroupDesc) []openflow.Bucket {
	for _, b := range g.Buckets {
		for _, up := range x.ports {
			if b.WatchPort == up {
				return []openflow.Bucket{b}
			}
		}
	}
	x.note("no bucket of group %d is up", g.Group)
	return nil
}
