package openflow

import "fmt"

// FlowModCommand is ofp_flow_mod_command (section 7.3.4.1).
type FlowModCommand uint8

const (
	FlowAdd FlowModCommand = iota
	FlowModify
	FlowModifyStrict
	FlowDelete
	FlowDeleteStrict
)

// String returns the name in the specification without its prefix OFPFC_.
func (c FlowModCommand) String() string {
	return nameOf([]string{"ADD", "MODIFY", "MODIFY_STRICT", "DELETE", "DELETE_STRICT"}, "command ", c)
}

// FlowModFlags is ofp_flow_mod_flags (section 7.3.4.1).
type FlowModFlags uint16

const (
	FlowSendFlowRem  FlowModFlags = 1 << iota // send FLOW_REMOVED when the entry ends
	FlowCheckOverlap                          // refuse an entry that overlaps one of the same priority
	FlowResetCounts
	FlowNoPktCounts
	FlowNoBytCounts
)

// String lists the names as ovs-ofctl writes them.
func (f FlowModFlags) String() string {
	return flagNames(uint32(f), "send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts")
}

// Numbers with a meaning of their own.
const (
	TableMax        uint8  = 0xfe       // the last table (section 7.3.3)
	TableAll        uint8  = 0xff       // all tables; in some requests
	BufferNone      uint32 = 0xffffffff // no buffered packet: OFP_NO_BUFFER
	GroupMax        uint32 = 0xffffff00 // the last group (section 7.3.4.2)
	GroupAll        uint32 = 0xfffffffc // all groups; in GROUP_MOD to delete, and requests
	GroupAny        uint32 = 0xffffffff // no group in particular
	DefaultPriority uint16 = 0x8000
)

// FlowMod is FLOW_MOD, which changes flow tables (section 7.3.4.1). NewFlowMod sets the fields that
// are seldom needed to their defaults.
type FlowMod struct {
	Xid
	Cookie       uint64
	CookieMask   uint64 // of MODIFY and DELETE: restricts to the entries with that cookie
	Table        uint8
	Command      FlowModCommand
	IdleTimeout  uint16 // seconds without a packet; 0: none
	HardTimeout  uint16 // seconds; 0: none
	Priority     uint16
	Buffer       uint32 // a packet in the switch to which the entry is applied, or BufferNone
	OutPort      uint32 // of DELETE: restricts to entries that output there, or PortAny
	OutGroup     uint32 // of DELETE: restricts to entries with that group, or GroupAny
	Flags        FlowModFlags
	Match        Match
	Instructions []Instruction
}

// NewFlowMod returns a FLOW_MOD with the given content and no buffer, port or group.
func NewFlowMod(command FlowModCommand, priority uint16, match Match, instructions ...Instruction) *FlowMod {
	return &FlowMod{
		Command: command, Priority: priority, Match: match, Instructions: instructions,
		Buffer: BufferNone, OutPort: PortAny, OutGroup: GroupAny,
	}
}

// Type returns TypeFlowMod.
func (m *FlowMod) Type() Type { return TypeFlowMod }

// AppendTo appends the encoded message.
func (m *FlowMod) AppendTo(b []byte) []byte {
	at := len(b)
	b, p := start(b, TypeFlowMod, m.Xid, 48)
	put64(p, 8, m.Cookie)
	put64(p, 16, m.CookieMask)
	p[24], p[25] = m.Table, byte(m.Command)
	put16(p, 26, m.IdleTimeout)
	put16(p, 28, m.HardTimeout)
	put16(p, 30, m.Priority)
	put32(p, 32, m.Buffer)
	put32(p, 36, m.OutPort)
	put32(p, 40, m.OutGroup)
	put16(p, 44, uint16(m.Flags))
	b = m.Match.appendTo(b)
	return finish(appendInstructions(b, m.Instructions), at)
}

func (m *FlowMod) decode(d decoder) error {
	if err := d.need(0, 56); err != nil {
		return err
	}
	b := d.b[:48]
	match, next, err := d.match(48, len(d.b))
	if err != nil {
		return err
	}
	room := m.Instructions[:0]
	*m = FlowMod{
		Cookie: get64(b, 8), CookieMask: get64(b, 16),
		Table: b[24], Command: FlowModCommand(b[25]),
		IdleTimeout: get16(b, 26), HardTimeout: get16(b, 28), Priority: get16(b, 30),
		Buffer: get32(b, 32), OutPort: get32(b, 36), OutGroup: get32(b, 40),
		Flags: FlowModFlags(get16(b, 44)), Match: match,
	}
	if m.Command > FlowDeleteStrict {
		return d.fail(25, FlowModFailedBadCommand, "%v", m.Command)
	}
	m.Instructions, err = d.instructions(room, next, len(d.b))
	return err
}

// String describes the message; its flow is written as FormatFlow does.
func (m *FlowMod) String() string { return fmt.Sprintf("FLOW_MOD %v %s", m.Command, FormatFlow(m)) }

// FlowRemovedReason is ofp_flow_removed_reason (section 7.4.2).
type FlowRemovedReason uint8

const (
	RemovedIdleTimeout FlowRemovedReason = iota
	RemovedHardTimeout
	RemovedDelete
	RemovedGroupDelete
)

// String returns the name in the specification without its prefix OFPRR_.
func (r FlowRemovedReason) String() string {
	return nameOf([]string{"IDLE_TIMEOUT", "HARD_TIMEOUT", "DELETE", "GROUP_DELETE"}, "reason ", r)
}

// FlowRemoved is FLOW_REMOVED: a flow entry has ended (section 7.4.2).
type FlowRemoved struct {
	Xid
	Cookie      uint64
	Priority    uint16
	Reason      FlowRemovedReason
	Table       uint8
	Duration    Duration
	IdleTimeout uint16 // seconds
	HardTimeout uint16 // seconds
	Packets     uint64
	Bytes       uint64
	Match       Match
}

// Type returns TypeFlowRemoved.
func (m *FlowRemoved) Type() Type { return TypeFlowRemoved }

// AppendTo appends the encoded message.
func (m *FlowRemoved) AppendTo(b []byte) []byte {
	at := len(b)
	b, p := start(b, TypeFlowRemoved, m.Xid, 48)
	put64(p, 8, m.Cookie)
	put16(p, 16, m.Priority)
	p[18], p[19] = byte(m.Reason), m.Table
	m.Duration.put(p, 20)
	put16(p, 28, m.IdleTimeout)
	put16(p, 30, m.HardTimeout)
	put64(p, 32, m.Packets)
	put64(p, 40, m.Bytes)
	return finish(m.Match.appendTo(b), at)
}

func (m *FlowRemoved) decode(d decoder) error {
	if err := d.need(0, 56); err != nil {
		return err
	}
	match, next, err := d.match(48, len(d.b))
	if err != nil {
		return err
	}
	*m = FlowRemoved{
		Cookie: get64(d.b, 8), Priority: get16(d.b, 16), Reason: FlowRemovedReason(d.b[18]), Table: d.b[19],
		Duration: getDuration(d.b, 20), IdleTimeout: get16(d.b, 28), HardTimeout: get16(d.b, 30),
		Packets: get64(d.b, 32), Bytes: get64(d.b, 40), Match: match,
	}
	return d.exactly(next)
}

// String describes the message.
func (m *FlowRemoved) String() string {
	return fmt.Sprintf("FLOW_REMOVED %v table=%d cookie=%#x duration=%v n_packets=%d n_bytes=%d %s",
		m.Reason, m.Table, m.Cookie, m.Duration, m.Packets, m.Bytes, withPriority(m.Priority, m.Match))
}
