package openflow

import "fmt"

// ConfigFlags is ofp_config_flags: what a switch does with IP fragments (section 7.3.2).
type ConfigFlags uint16

const (
	FragNormal ConfigFlags = iota // no special handling
	FragDrop
	FragReasm // reassemble; where CapabilityIPReasm is set

	FragMask ConfigFlags = 3
)

// Values of a max_len and a miss_send_len: how many bytes of a packet go to the controller
// (section 7.2.5).
const (
	MaxLenMax      = 0xffe5 // the most that can be asked for
	MaxLenNoBuffer = 0xffff // the whole packet, which is not kept in a buffer
)

// SwitchConfig is ofp_switch_config (section 7.3.2).
type SwitchConfig struct {
	Flags       ConfigFlags
	MissSendLen uint16 // bytes of a packet that a table-miss or an invalid TTL sends to the controller
}

// GetConfigRequest is GET_CONFIG_REQUEST (section 7.3.2).
type GetConfigRequest struct{ Xid }

// GetConfigReply is GET_CONFIG_REPLY (section 7.3.2).
type GetConfigReply struct {
	Xid
	SwitchConfig
}

// SetConfig is SET_CONFIG (section 7.3.2); it has no answer.
type SetConfig struct {
	Xid
	SwitchConfig
}

// Type returns TypeGetConfigRequest.
func (m *GetConfigRequest) Type() Type { return TypeGetConfigRequest }

// Type returns TypeGetConfigReply.
func (m *GetConfigReply) Type() Type { return TypeGetConfigReply }

// Type returns TypeSetConfig.
func (m *SetConfig) Type() Type { return TypeSetConfig }

// AppendTo appends the encoded message.
func (m *GetConfigRequest) AppendTo(b []byte) []byte { return appendData(b, m.Type(), m.Xid, nil) }

// AppendTo appends the encoded message.
func (m *GetConfigReply) AppendTo(b []byte) []byte { return m.SwitchConfig.append(b, m.Type(), m.Xid) }

// AppendTo appends the encoded message.
func (m *SetConfig) AppendTo(b []byte) []byte { return m.SwitchConfig.append(b, m.Type(), m.Xid) }

func (c SwitchConfig) append(b []byte, t Type, x Xid) []byte {
	b, p := start(b, t, x, 12)
	put16(p, 8, uint16(c.Flags))
	put16(p, 10, c.MissSendLen)
	return b
}

func (m *GetConfigRequest) decode(d decoder) error { return d.exactly(HeaderLen) }

func (m *GetConfigReply) decode(d decoder) error { return m.SwitchConfig.decode(d) }

func (m *SetConfig) decode(d decoder) error { return m.SwitchConfig.decode(d) }

func (c *SwitchConfig) decode(d decoder) error {
	if err := d.exactly(12); err != nil {
		return err
	}
	*c = SwitchConfig{ConfigFlags(get16(d.b, 8)), get16(d.b, 10)}
	return nil
}

// String describes the message.
func (m *GetConfigRequest) String() string { return "GET_CONFIG_REQUEST" }

// String describes the message.
func (m *GetConfigReply) String() string { return "GET_CONFIG_REPLY " + m.SwitchConfig.String() }

// String describes the message.
func (m *SetConfig) String() string { return "SET_CONFIG " + m.SwitchConfig.String() }

// String describes the configuration.
func (c SwitchConfig) String() string {
	frags := nameOf([]string{"normal", "drop", "reassemble"}, "flags ", c.Flags)
	return fmt.Sprintf("frags=%s miss_send_len=%d", frags, c.MissSendLen)
}
