package openflow

import "fmt"

// EchoRequest is ECHO_REQUEST (section 7.5.2): the peer answers with an EchoReply of the same
// Xid and Data.
type EchoRequest struct {
	Xid
	Data []byte
}

// EchoReply is ECHO_REPLY (section 7.5.3).
type EchoReply struct {
	Xid
	Data []byte
}

// Reply returns the answer to the request.
func (m *EchoRequest) Reply() *EchoReply { return &EchoReply{m.Xid, m.Data} }

// Type returns TypeEchoRequest.
func (m *EchoRequest) Type() Type { return TypeEchoRequest }

// Type returns TypeEchoReply.
func (m *EchoReply) Type() Type { return TypeEchoReply }

// AppendTo appends the encoded message.
func (m *EchoRequest) AppendTo(b []byte) []byte { return appendData(b, m.Type(), m.Xid, m.Data) }

// AppendTo appends the encoded message.
func (m *EchoReply) AppendTo(b []byte) []byte { return appendData(b, m.Type(), m.Xid, m.Data) }

func appendData(b []byte, t Type, x Xid, data []byte) []byte {
	at := len(b)
	b, _ = start(b, t, x, HeaderLen)
	return finish(append(b, data...), at)
}

func (m *EchoRequest) decode(d decoder) error {
	m.Data = d.view(HeaderLen, len(d.b))
	return nil
}

func (m *EchoReply) decode(d decoder) error {
	m.Data = d.view(HeaderLen, len(d.b))
	return nil
}

// String describes the message.
func (m *EchoRequest) String() string { return fmt.Sprintf("ECHO_REQUEST %d bytes", len(m.Data)) }

// String describes the message.
func (m *EchoReply) String() string { return fmt.Sprintf("ECHO_REPLY %d bytes", len(m.Data)) }

// Experimenter is EXPERIMENTER (section 7.5.4).
type Experimenter struct {
	Xid
	Experimenter uint32 // an IEEE OUI below 1<<24, else a registered number
	ExpType      uint32 // the experimenter's own
	Data         []byte
}

// Type returns TypeExperimenter.
func (m *Experimenter) Type() Type { return TypeExperimenter }

// AppendTo appends the encoded message.
func (m *Experimenter) AppendTo(b []byte) []byte {
	at := len(b)
	b, p := start(b, TypeExperimenter, m.Xid, 16)
	put32(p, 8, m.Experimenter)
	put32(p, 12, m.ExpType)
	return finish(append(b, m.Data...), at)
}

func (m *Experimenter) decode(d decoder) error {
	if err := d.need(8, 8); err != nil {
		return err
	}
	m.Experimenter, m.ExpType, m.Data = get32(d.b, 8), get32(d.b, 12), d.view(16, len(d.b))
	return nil
}

// String describes the message.
func (m *Experimenter) String() string {
	return fmt.Sprintf("EXPERIMENTER experimenter=%#08x type=%d %d bytes", m.Experimenter, m.ExpType, len(m.Data))
}
