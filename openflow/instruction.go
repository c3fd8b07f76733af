package openflow

// InstructionType is ofp_instruction_type (section 7.2.4).
type InstructionType uint16

const (
	InstructionGotoTable     InstructionType = 1
	InstructionWriteMetadata InstructionType = 2
	InstructionWriteActions  InstructionType = 3
	InstructionApplyActions  InstructionType = 4
	InstructionClearActions  InstructionType = 5
	InstructionMeter         InstructionType = 6

	InstructionExperimenter InstructionType = 0xffff
)

var instructionNames = []string{"", "GOTO_TABLE", "WRITE_METADATA", "WRITE_ACTIONS", "APPLY_ACTIONS", "CLEAR_ACTIONS",
	"METER"}

// String returns the name in the specification without its prefix OFPIT_.
func (t InstructionType) String() string {
	if t == InstructionExperimenter {
		return "EXPERIMENTER"
	}
	return nameOf(instructionNames, "instruction ", t)
}

// Instruction is one instruction of a flow entry (section 7.2.4). Besides Type, only the fields for
// that type have a meaning; the constructors (GotoTable, ApplyActions, …) set them.
type Instruction struct {
	Type         InstructionType
	Table        uint8    // GotoTable
	Meter        uint32   // Meter
	Metadata     uint64   // WriteMetadata
	MetadataMask uint64   // WriteMetadata: the bits to write
	Actions      []Action // WriteActions, ApplyActions
	Experimenter uint32   // of an experimenter's
	Data         string   // of an experimenter's: the bytes after its id; their number is a multiple of 8
}

// GotoTable goes on with another, later table.
func GotoTable(table uint8) Instruction {
	return Instruction{Type: InstructionGotoTable, Table: table}
}

// WriteMetadata writes the bits of the mask into the metadata between tables.
func WriteMetadata(metadata, mask uint64) Instruction {
	return Instruction{Type: InstructionWriteMetadata, Metadata: metadata, MetadataMask: mask}
}

// WriteActions adds to the action set, which is executed when the last table is done.
func WriteActions(actions ...Action) Instruction {
	return Instruction{Type: InstructionWriteActions, Actions: actions}
}

// ApplyActions executes actions at once, in their order.
func ApplyActions(actions ...Action) Instruction {
	return Instruction{Type: InstructionApplyActions, Actions: actions}
}

// ClearActions empties the action set.
func ClearActions() Instruction { return Instruction{Type: InstructionClearActions} }

// Meter passes the packet to a meter, which may drop it.
func Meter(id uint32) Instruction { return Instruction{Type: InstructionMeter, Meter: id} }

// ExperimenterInstruction returns an instruction defined by an experimenter. data is padded with
// zeros to a multiple of 8 bytes.
func ExperimenterInstruction(id uint32, data string) Instruction {
	data += "\x00\x00\x00\x00\x00\x00\x00"[:-len(data)&7]
	return Instruction{Type: InstructionExperimenter, Experimenter: id, Data: data}
}

// appendTo appends the encoded instruction.
func (i *Instruction) appendTo(b []byte) []byte {
	at := len(b)
	b, p := extend(b, 8)
	put16(p, 0, uint16(i.Type))
	switch i.Type {
	case InstructionGotoTable:
		p[4] = i.Table
	case InstructionWriteMetadata:
		b, p = extend(b, 16)
		put64(p, 0, i.Metadata)
		put64(p, 8, i.MetadataMask)
	case InstructionWriteActions, InstructionApplyActions:
		b = appendActions(b, i.Actions)
	case InstructionMeter:
		put32(p, 4, i.Meter)
	case InstructionExperimenter:
		put32(p, 4, i.Experimenter)
		b = pad8(append(b, i.Data...), at)
	}
	put16(b, at+2, uint16(len(b)-at))
	return b
}

func appendInstructions(b []byte, instructions []Instruction) []byte {
	for i := range instructions {
		b = instructions[i].appendTo(b)
	}
	return b
}

// instructions decodes the instructions from offset at to offset end, and appends them to list,
// reusing the slices in its elements.
func (d decoder) instructions(list []Instruction, at, end int) ([]Instruction, error) {
	if list == nil && at < end {
		list = make([]Instruction, 0, d.countTLVs(at, end))
	}
	for at < end {
		kind, n, err := d.tlv(at, end, 8, BadInstructionBadLen)
		if err != nil {
			return nil, err
		}
		var room []Action
		if len(list) < cap(list) {
			room = list[:len(list)+1][len(list)].Actions[:0]
		}
		list = append(list, Instruction{Type: InstructionType(kind)})
		if err := d.instruction(&list[len(list)-1], room, at, n); err != nil {
			return nil, err
		}
		at += n
	}
	return list, nil
}

// instruction decodes the instruction at offset at, of n bytes and with its type set.
func (d decoder) instruction(i *Instruction, room []Action, at, n int) (err error) {
	want := 8
	switch i.Type {
	case InstructionGotoTable:
		i.Table = d.b[at+4]
	case InstructionWriteMetadata:
		if want = 24; n == want {
			i.Metadata, i.MetadataMask = get64(d.b, at+8), get64(d.b, at+16)
		}
	case InstructionWriteActions, InstructionApplyActions:
		i.Actions, err = d.actions(room, at+8, at+n)
		return err
	case InstructionClearActions:
	case InstructionMeter:
		i.Meter = get32(d.b, at+4)
	case InstructionExperimenter:
		i.Experimenter = get32(d.b, at+4)
		i.Data = string(d.b[at+8 : at+n])
		return nil
	default:
		return d.fail(at, BadInstructionUnknownInst, "%v is not defined in OpenFlow 1.3", i.Type)
	}
	if n != want {
		return d.fail(at+2, BadInstructionBadLen, "length %d of %v, want %d", n, i.Type, want)
	}
	return nil
}
