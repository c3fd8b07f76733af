package openflow

import (
	"bytes"
	"fmt"
)

// DecodeError says what is malformed in a message, and how to answer its sender.
type DecodeError struct {
	Message Type      // of the message
	Xid     Xid       // of the message
	Offset  int       // of the malformed part, in bytes from the start of the message
	Code    ErrorCode // to answer with
	What    string    // what is wrong there
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("openflow: %v at byte %d: %s (%v)", e.Message, e.Offset, e.What, e.Code)
}

// Reply returns the ERROR message with which the receiver of the malformed message answers. It
// carries at most the first 64 bytes of that message (section 7.4.4).
func (e *DecodeError) Reply(message []byte) *Error {
	return &Error{Xid: e.Xid, Code: e.Code, Data: message[:min(len(message), 64)]}
}

// Decode decodes the one message that b holds. The error is a *DecodeError.
//
// What a message carries as []byte (Data of PACKET_IN and so on) is a part of b, not a copy;
// everything else is independent of b.
//
// HELLO and ERROR are decoded in every version, all others in that of OpenFlow 1.3 alone.
func Decode(b []byte) (Message, error) {
	h, err := checkFrame(b)
	if err != nil {
		return nil, err
	}
	m := newMessage(h.Type)
	if m == nil {
		return nil, &DecodeError{h.Type, h.Xid, 1, BadRequestBadType, "no such message type"}
	}
	d := decoder{b: b, typ: h.Type}
	if err := m.decode(d); err != nil {
		return nil, err
	}
	m.SetTransaction(uint32(h.Xid))
	return m, nil
}

// DecodeInto decodes the message that b holds into m, which must be of its type: for loops that
// must not allocate. Slices in m are reused if they have capacity. After an error, the content of m
// is undefined.
func DecodeInto(b []byte, m Message) error {
	h, err := checkFrame(b)
	if err != nil {
		return err
	}
	if h.Type != m.Type() {
		return &DecodeError{h.Type, h.Xid, 1, BadRequestBadType, fmt.Sprintf("want %v", m.Type())}
	}
	d := decoder{b: b, typ: h.Type}
	if err := m.decode(d); err != nil {
		return err
	}
	m.SetTransaction(uint32(h.Xid))
	return nil
}

func checkFrame(b []byte) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, &DecodeError{Offset: len(b), Code: BadRequestBadLen, What: "the header is incomplete"}
	}
	h := ParseHeader(b)
	if int(h.Length) != len(b) {
		return h, &DecodeError{h.Type, h.Xid, 2, BadRequestBadLen,
			fmt.Sprintf("length %d of a message of %d bytes", h.Length, len(b))}
	}
	if h.Version != Version && h.Type != TypeHello && h.Type != TypeError {
		return h, &DecodeError{h.Type, h.Xid, 0, BadRequestBadVersion,
			fmt.Sprintf("version %#02x, want %#02x", h.Version, Version)}
	}
	return h, nil
}

func newMessage(t Type) Message {
	switch t {
	case TypeHello:
		return new(Hello)
	case TypeError:
		return new(Error)
	case TypeEchoRequest:
		return new(EchoRequest)
	case TypeEchoReply:
		return new(EchoReply)
	case TypeExperimenter:
		return new(Experimenter)
	case TypeFeaturesRequest:
		return new(FeaturesRequest)
	case TypeFeaturesReply:
		return new(FeaturesReply)
	case TypeGetConfigRequest:
		return new(GetConfigRequest)
	case TypeGetConfigReply:
		return new(GetConfigReply)
	case TypeSetConfig:
		return new(SetConfig)
	case TypePacketIn:
		return new(PacketIn)
	case TypeFlowRemoved:
		return new(FlowRemoved)
	case TypePortStatus:
		return new(PortStatus)
	case TypePacketOut:
		return new(PacketOut)
	case TypeFlowMod:
		return new(FlowMod)
	case TypeGroupMod:
		return new(GroupMod)
	case TypePortMod:
		return new(PortMod)
	case TypeTableMod:
		return new(TableMod)
	case TypeMultipartRequest:
		return new(MultipartRequest)
	case TypeMultipartReply:
		return new(MultipartReply)
	case TypeBarrierRequest:
		return new(BarrierRequest)
	case TypeBarrierReply:
		return new(BarrierReply)
	case TypeQueueGetConfigRequest:
		return new(QueueGetConfigRequest)
	case TypeQueueGetConfigReply:
		return new(QueueGetConfigReply)
	case TypeRoleRequest:
		return new(RoleRequest)
	case TypeRoleReply:
		return new(RoleReply)
	case TypeGetAsyncRequest:
		return new(GetAsyncRequest)
	case TypeGetAsyncReply:
		return new(GetAsyncReply)
	case TypeSetAsync:
		return new(SetAsync)
	case TypeMeterMod:
		return new(MeterMod)
	}
	return nil
}

// decoder is a message being decoded. All offsets are from the start of the message, so that an
// error can name its place.
type decoder struct {
	b   []byte
	typ Type
}

func (d decoder) fail(at int, code ErrorCode, format string, args ...any) error {
	return &DecodeError{d.typ, ParseHeader(d.b).Xid, at, code, fmt.Sprintf(format, args...)}
}

// strict reports whether the message comes from a controller: its matches must then satisfy rules
// that do not apply to a switch's reports.
func (d decoder) strict() bool {
	return d.typ == TypeFlowMod || d.typ == TypeMultipartRequest
}

// need fails unless there are n bytes from offset at on.
func (d decoder) need(at, n int) error {
	return d.within(at, n, len(d.b), BadRequestBadLen)
}

// within fails with the code unless there are n bytes from offset at to offset end.
func (d decoder) within(at, n, end int, code ErrorCode) error {
	if end-at < n {
		return d.fail(at, code, "%d bytes where %d are needed", max(end-at, 0), n)
	}
	return nil
}

// exactly fails unless the message has n bytes.
func (d decoder) exactly(n int) error {
	if len(d.b) != n {
		return d.fail(2, BadRequestBadLen, "%d bytes, want %d", len(d.b), n)
	}
	return nil
}

// tlv reads the type and the length that start an element at offset at of a list that ends at
// offset end, and checks that the length is at least least and a multiple of 8.
func (d decoder) tlv(at, end, least int, code ErrorCode) (kind uint16, length int, err error) {
	if err := d.within(at, 4, end, code); err != nil {
		return 0, 0, err
	}
	kind, length = get16(d.b, at), int(get16(d.b, at+2))
	if length < least || length%8 != 0 {
		return 0, 0, d.fail(at+2, code, "length %d, want %d or more and a multiple of 8", length, least)
	}
	return kind, length, d.within(at, length, end, code)
}

// view returns a part of the message, whose capacity is limited to it; nil: it is empty.
func (d decoder) view(from, to int) []byte {
	if from >= to {
		return nil
	}
	return d.b[from:to:to]
}

// text returns a field of n bytes as a string up to the first zero; the last byte counts as zero.
func (d decoder) text(at, n int) string {
	field := d.b[at : at+n-1]
	if end := bytes.IndexByte(field, 0); end >= 0 {
		field = field[:end]
	}
	return string(field)
}

// putText writes s to a field, truncated to leave room for a final zero, and fills the rest with
// zeros.
func putText(field []byte, s string) {
	n := copy(field[:len(field)-1], s)
	clear(field[n:])
}
