package openflow

import "fmt"

// Error is ERROR (section 7.4.4). It is an error, too: what a switch answered.
type Error struct {
	Xid
	Code         ErrorCode // of the type ErrorExperimenter: the experimenter's own code
	Experimenter uint32    // of the type ErrorExperimenter alone
	Data         []byte    // the start of the message that failed; of HELLO_FAILED, a text
}

// Type returns TypeError.
func (m *Error) Type() Type { return TypeError }

// AppendTo appends the encoded message.
func (m *Error) AppendTo(b []byte) []byte {
	at, n := len(b), 12
	if m.Code.Type() == ErrorExperimenter {
		n = 16
	}
	b, p := start(b, TypeError, m.Xid, n)
	put32(p, 8, uint32(m.Code))
	if n == 16 {
		put32(p, 12, m.Experimenter)
	}
	return finish(append(b, m.Data...), at)
}

func (m *Error) decode(d decoder) error {
	if err := d.need(8, 4); err != nil {
		return err
	}
	*m = Error{Code: ErrorCode(get32(d.b, 8))}
	at := 12
	if m.Code.Type() == ErrorExperimenter {
		if err := d.need(at, 4); err != nil {
			return err
		}
		m.Experimenter = get32(d.b, at)
		at += 4
	}
	m.Data = d.view(at, len(d.b))
	return nil
}

// String describes the message.
func (m *Error) String() string {
	s := fmt.Sprintf("ERROR %v %d bytes", m.Code, len(m.Data))
	if h, ok := m.Failed(); ok {
		s += fmt.Sprintf(" of %v", h.Type)
	}
	return s
}

// Error makes the message an error.
func (m *Error) Error() string {
	s := "openflow: the peer answers " + m.Code.String()
	if m.Code.Type() == ErrorExperimenter {
		s += fmt.Sprintf(" of experimenter %#08x", m.Experimenter)
	}
	if m.Code.Type() == ErrorHelloFailed && len(m.Data) > 0 {
		return s + fmt.Sprintf(": %q", m.Data)
	}
	if len(m.Data) >= HeaderLen {
		s += fmt.Sprintf(" to %v", ParseHeader(m.Data).Type)
	}
	return s
}

// Failed returns the header of the message that failed; false when Data does not hold it.
func (m *Error) Failed() (Header, bool) {
	if m.Code.Type() == ErrorHelloFailed || len(m.Data) < HeaderLen {
		return Header{}, false
	}
	return ParseHeader(m.Data), true
}
