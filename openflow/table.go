package openflow

import "fmt"

// TableMod is TABLE_MOD (section 7.3.3). No bit of Config has a meaning in OpenFlow 1.3.
type TableMod struct {
	Xid
	Table  uint8 // or TableAll
	Config uint32
}

// Type returns TypeTableMod.
func (m *TableMod) Type() Type { return TypeTableMod }

// AppendTo appends the encoded message.
func (m *TableMod) AppendTo(b []byte) []byte {
	b, p := start(b, TypeTableMod, m.Xid, 16)
	p[8] = m.Table
	put32(p, 12, m.Config)
	return b
}

func (m *TableMod) decode(d decoder) error {
	if err := d.exactly(16); err != nil {
		return err
	}
	m.Table, m.Config = d.b[8], get32(d.b, 12)
	return nil
}

// String describes the message.
func (m *TableMod) String() string {
	return fmt.Sprintf("TABLE_MOD table=%s config=%#x", tableName(m.Table), m.Config)
}

func tableName(id uint8) string {
	if id == TableAll {
		return "all"
	}
	return fmt.Sprint(id)
}
