package openflow

import (
	"fmt"
	"slices"
)

// TableFeatures is ofp_table_features: what a table can do, or shall be able to do (section
// 7.3.5.5.1).
type TableFeatures struct {
	Table         uint8
	Name          string // at most 31 bytes
	MetadataMatch uint64 // bits of the metadata that can be matched
	MetadataWrite uint64 // bits of the metadata that can be written
	Config        uint32
	MaxEntries    uint32
	Properties    []TableProperty
}

// TableFeaturesList asks a switch to take on these features or, if it is empty, to report its own.
// It is also the answer (section 7.3.5.5).
type TableFeaturesList = List[TableFeatures, *TableFeatures]

// TablePropertyType is ofp_table_feature_prop_type (section 7.3.5.5.2). Those with Miss are for the
// table-miss entry; if one is left out, the property without Miss applies to it, too.
type TablePropertyType uint16

const (
	TableInstructions      TablePropertyType = 0
	TableInstructionsMiss  TablePropertyType = 1
	TableNextTables        TablePropertyType = 2
	TableNextTablesMiss    TablePropertyType = 3
	TableWriteActions      TablePropertyType = 4
	TableWriteActionsMiss  TablePropertyType = 5
	TableApplyActions      TablePropertyType = 6
	TableApplyActionsMiss  TablePropertyType = 7
	TableMatch             TablePropertyType = 8
	TableWildcards         TablePropertyType = 10
	TableWriteSetField     TablePropertyType = 12
	TableWriteSetFieldMiss TablePropertyType = 13
	TableApplySetField     TablePropertyType = 14
	TableApplySetFieldMiss TablePropertyType = 15

	TableExperimenter     TablePropertyType = 0xfffe
	TableExperimenterMiss TablePropertyType = 0xffff
)

var tablePropertyNames = []string{
	"INSTRUCTIONS", "INSTRUCTIONS_MISS", "NEXT_TABLES", "NEXT_TABLES_MISS", "WRITE_ACTIONS", "WRITE_ACTIONS_MISS",
	"APPLY_ACTIONS", "APPLY_ACTIONS_MISS", "MATCH", "", "WILDCARDS", "", "WRITE_SETFIELD", "WRITE_SETFIELD_MISS",
	"APPLY_SETFIELD", "APPLY_SETFIELD_MISS",
}

// String returns the name in the specification without its prefix OFPTFPT_.
func (t TablePropertyType) String() string {
	switch t {
	case TableExperimenter:
		return "EXPERIMENTER"
	case TableExperimenterMiss:
		return "EXPERIMENTER_MISS"
	}
	return nameOf(tablePropertyNames, "table property ", t)
}

// TableProperty is one property of a table (section 7.3.5.5.2). Besides Type, only the fields for
// that type have a meaning.
type TableProperty struct {
	Type         TablePropertyType
	Instructions []InstructionID // TableInstructions
	NextTables   []uint8         // TableNextTables
	Actions      []ActionID      // TableWriteActions, TableApplyActions
	Fields       []FieldID       // TableMatch, TableWildcards, TableWriteSetField, TableApplySetField
	Experimenter uint32          // TableExperimenter
	ExpType      uint32          // TableExperimenter
	Data         []byte          // TableExperimenter
}

// InstructionID names an instruction that a table supports.
type InstructionID struct {
	Type         InstructionType
	Experimenter uint32 // of InstructionExperimenter
}

// ActionID names an action that a table supports.
type ActionID struct {
	Type         ActionType
	Experimenter uint32 // of ActionExperimenter
}

// FieldID names a field that a table supports: the header of an OXM.
type FieldID struct {
	Class        Class
	Field        Field
	Masked       bool   // with any mask
	Length       uint8  // of value and mask, in bytes
	Experimenter uint32 // of ClassExperimenter
}

// BasicFieldID returns the name of a field of ClassBasic.
func BasicFieldID(f Field, masked bool) FieldID {
	h := (&OXM{Class: ClassBasic, Field: f, Masked: masked}).header()
	return FieldID{ClassBasic, f, masked, uint8(h), 0}
}

func (*TableFeatures) listType() MultipartType { return MultipartTableFeatures }

const tableNameLen = 32

func (f *TableFeatures) appendTo(b []byte) []byte {
	at := len(b)
	b, p := extend(b, 64)
	p[2] = f.Table
	putText(p[8:8+tableNameLen], f.Name)
	put64(p, 40, f.MetadataMatch)
	put64(p, 48, f.MetadataWrite)
	put32(p, 56, f.Config)
	put32(p, 60, f.MaxEntries)
	for i := range f.Properties {
		b = f.Properties[i].appendTo(b)
	}
	put16(b, at, uint16(len(b)-at))
	return b
}

func (t *TableProperty) appendTo(b []byte) []byte {
	at := len(b)
	b, p := extend(b, 4)
	put16(p, 0, uint16(t.Type))
	for _, id := range t.Instructions {
		b = appendID(b, uint16(id.Type), id.Experimenter)
	}
	b = append(b, t.NextTables...)
	for _, id := range t.Actions {
		b = appendID(b, uint16(id.Type), id.Experimenter)
	}
	for _, id := range t.Fields {
		mask := byte(0)
		if id.Masked {
			mask = 1
		}
		b = append(b, byte(id.Class>>8), byte(id.Class), byte(id.Field)<<1|mask, id.Length)
		if id.Class == ClassExperimenter {
			b, p = extend(b, 4)
			put32(p, 0, id.Experimenter)
		}
	}
	if t.Type >= TableExperimenter {
		b = append(appendNumbers(b, t.Experimenter, t.ExpType), t.Data...)
	}
	put16(b, at+2, uint16(len(b)-at))
	return pad8(b, at)
}

// appendID appends the type of an instruction or an action and its length, which includes the
// id of an experimenter.
func appendID(b []byte, kind uint16, experimenter uint32) []byte {
	if kind != 0xffff {
		return append(b, byte(kind>>8), byte(kind), 0, 4)
	}
	b, p := extend(append(b, 0xff, 0xff, 0, 8), 4)
	put32(p, 0, experimenter)
	return b
}

func (d decoder) tableFeatures(f *TableFeatures, at, end int) (err error) {
	b := d.b[at:end]
	*f = TableFeatures{
		Table: b[2], Name: d.text(at+8, tableNameLen),
		MetadataMatch: get64(b, 40), MetadataWrite: get64(b, 48), Config: get32(b, 56), MaxEntries: get32(b, 60),
	}
	f.Properties, err = d.tableProperties(at+64, end)
	return err
}

func (d decoder) tableProperties(at, end int) (list []TableProperty, err error) {
	for at < end {
		if err := d.within(at, 4, end, TableFeaturesFailedBadLen); err != nil {
			return nil, err
		}
		p := TableProperty{Type: TablePropertyType(get16(d.b, at))}
		n := int(get16(d.b, at+2))
		if n < 4 {
			return nil, d.fail(at+2, TableFeaturesFailedBadLen, "length %d of %v, want 4 or more", n, p.Type)
		}
		if err := d.within(at, (n+7)&^7, end, TableFeaturesFailedBadLen); err != nil {
			return nil, err
		}
		if err := d.tableProperty(&p, at, at+4, at+n); err != nil {
			return nil, err
		}
		list = append(list, p)
		at += (n + 7) &^ 7
	}
	return list, nil
}

// tableProperty decodes the property whose header is at offset start, from offset at to end.
func (d decoder) tableProperty(p *TableProperty, start, at, end int) (err error) {
	switch p.Type {
	case TableInstructions, TableInstructionsMiss:
		return d.ids(at, end, func(kind uint16, experimenter uint32) {
			p.Instructions = append(p.Instructions, InstructionID{InstructionType(kind), experimenter})
		})
	case TableNextTables, TableNextTablesMiss:
		p.NextTables = slices.Clone(d.view(at, end))
	case TableWriteActions, TableWriteActionsMiss, TableApplyActions, TableApplyActionsMiss:
		return d.ids(at, end, func(kind uint16, experimenter uint32) {
			p.Actions = append(p.Actions, ActionID{ActionType(kind), experimenter})
		})
	case TableMatch, TableWildcards, TableWriteSetField, TableWriteSetFieldMiss, TableApplySetField,
		TableApplySetFieldMiss:
		p.Fields, err = d.fieldIDs(at, end)
	case TableExperimenter, TableExperimenterMiss:
		if err = d.within(at, 8, end, TableFeaturesFailedBadLen); err == nil {
			p.Experimenter, p.ExpType, p.Data = get32(d.b, at), get32(d.b, at+4), d.view(at+8, end)
		}
	default:
		err = d.fail(start, TableFeaturesFailedBadType, "%v is not defined in OpenFlow 1.3", p.Type)
	}
	return err
}

// ids decodes types of instructions or actions with their lengths. Action headers elsewhere have 4
// bytes of padding, which some switches include here, too: greater lengths are accepted.
func (d decoder) ids(at, end int, add func(kind uint16, experimenter uint32)) error {
	for at < end {
		if err := d.within(at, 4, end, TableFeaturesFailedBadLen); err != nil {
			return err
		}
		kind, n, experimenter := get16(d.b, at), int(get16(d.b, at+2)), uint32(0)
		least := 4
		if kind == 0xffff {
			least = 8
		}
		if n < least {
			return d.fail(at+2, TableFeaturesFailedBadLen, "length %d, want %d or more", n, least)
		}
		if err := d.within(at, n, end, TableFeaturesFailedBadLen); err != nil {
			return err
		}
		if kind == 0xffff {
			experimenter = get32(d.b, at+4)
		}
		add(kind, experimenter)
		at += n
	}
	return nil
}

func (d decoder) fieldIDs(at, end int) (list []FieldID, err error) {
	for ; at < end; at += 4 {
		if err := d.within(at, 4, end, TableFeaturesFailedBadLen); err != nil {
			return nil, err
		}
		id := FieldID{Class(get16(d.b, at)), Field(d.b[at+2] >> 1), d.b[at+2]&1 != 0, d.b[at+3], 0}
		if id.Class == ClassExperimenter {
			if at += 4; end-at < 4 {
				return nil, d.fail(at, TableFeaturesFailedBadLen, "the experimenter id is missing")
			}
			id.Experimenter = get32(d.b, at)
		}
		list = append(list, id)
	}
	return list, nil
}

// String describes the table.
func (f *TableFeatures) String() string {
	s := fmt.Sprintf("table=%d name=%q max_entries=%d", f.Table, f.Name, f.MaxEntries)
	for _, p := range f.Properties {
		s += fmt.Sprintf(" %v:%d", p.Type, len(p.Instructions)+len(p.NextTables)+len(p.Actions)+len(p.Fields))
	}
	return s
}
