package openflow

import (
	"encoding/binary"
	"fmt"
)

// Version is the wire version of OpenFlow 1.3 (section 7.1.1).
const Version = 0x04

const (
	HeaderLen = 8      // bytes of the header that every message starts with
	MaxLength = 0xffff // bytes of the longest message, header included
	TCPPort   = 6653   // of a controller, by default (section 6.3.3)
)

// Type is the type of a message: ofp_type (section 7.1.1).
type Type uint8

const (
	TypeHello Type = iota
	TypeError
	TypeEchoRequest
	TypeEchoReply
	TypeExperimenter
	TypeFeaturesRequest
	TypeFeaturesReply
	TypeGetConfigRequest
	TypeGetConfigReply
	TypeSetConfig
	TypePacketIn
	TypeFlowRemoved
	TypePortStatus
	TypePacketOut
	TypeFlowMod
	TypeGroupMod
	TypePortMod
	TypeTableMod
	TypeMultipartRequest
	TypeMultipartReply
	TypeBarrierRequest
	TypeBarrierReply
	TypeQueueGetConfigRequest
	TypeQueueGetConfigReply
	TypeRoleRequest
	TypeRoleReply
	TypeGetAsyncRequest
	TypeGetAsyncReply
	TypeSetAsync
	TypeMeterMod
)

var typeNames = [...]string{
	"HELLO", "ERROR", "ECHO_REQUEST", "ECHO_REPLY", "EXPERIMENTER",
	"FEATURES_REQUEST", "FEATURES_REPLY", "GET_CONFIG_REQUEST", "GET_CONFIG_REPLY", "SET_CONFIG",
	"PACKET_IN", "FLOW_REMOVED", "PORT_STATUS", "PACKET_OUT", "FLOW_MOD", "GROUP_MOD", "PORT_MOD", "TABLE_MOD",
	"MULTIPART_REQUEST", "MULTIPART_REPLY", "BARRIER_REQUEST", "BARRIER_REPLY",
	"QUEUE_GET_CONFIG_REQUEST", "QUEUE_GET_CONFIG_REPLY", "ROLE_REQUEST", "ROLE_REPLY",
	"GET_ASYNC_REQUEST", "GET_ASYNC_REPLY", "SET_ASYNC", "METER_MOD",
}

// String returns the name in the specification without its prefix OFPT_.
func (t Type) String() string { return nameOf(typeNames[:], "type ", t) }

// nameOf returns names[v], or v as a number where it has no name.
func nameOf[T ~uint8 | ~uint16 | ~uint32](names []string, kind string, v T) string {
	if uint64(v) < uint64(len(names)) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s%d", kind, uint64(v))
}

// Header is ofp_header (section 7.1.1).
type Header struct {
	Version uint8
	Type    Type
	Length  uint16 // bytes of the message, with this header
	Xid     Xid
}

// ParseHeader reads the header at the start of b, which holds HeaderLen bytes or more.
func ParseHeader(b []byte) Header {
	_ = b[HeaderLen-1]
	return Header{
		Version: b[0],
		Type:    Type(b[1]),
		Length:  binary.BigEndian.Uint16(b[2:]),
		Xid:     Xid(binary.BigEndian.Uint32(b[4:])),
	}
}

// Xid is the transaction id of a message; a reply has that of its request. It is embedded in
// every message: callers choose it.
type Xid uint32

// Transaction returns the transaction id.
func (x Xid) Transaction() uint32 { return uint32(x) }

// SetTransaction changes the transaction id.
func (x *Xid) SetTransaction(id uint32) { *x = Xid(id) }

// Message is one OpenFlow message; there is one type for each, all implemented by pointers.
type Message interface {
	Type() Type
	Transaction() uint32
	SetTransaction(uint32)

	// AppendTo appends the encoded message. A message of more than MaxLength bytes cannot be
	// encoded: b is returned unchanged.
	AppendTo(b []byte) []byte

	// String describes the message in one line.
	String() string

	decode(d decoder) error
}

// start appends n bytes, of which the first eight are the header and the rest zero, and returns
// the whole and those n bytes.
func start(b []byte, t Type, x Xid, n int) (whole, fixed []byte) {
	whole, fixed = extend(b, n)
	fixed[0], fixed[1] = Version, byte(t)
	binary.BigEndian.PutUint16(fixed[2:], uint16(n))
	binary.BigEndian.PutUint32(fixed[4:], uint32(x))
	return whole, fixed
}

// finish sets the length of the message that starts at b[at:].
func finish(b []byte, at int) []byte {
	n := len(b) - at
	if n > MaxLength {
		return b[:at]
	}
	binary.BigEndian.PutUint16(b[at+2:], uint16(n))
	return b
}

// extend appends n zero bytes and returns the whole and those bytes.
func extend(b []byte, n int) (whole, added []byte) {
	l := len(b)
	b = append(b, make([]byte, n)...)
	return b, b[l:]
}

// pad8 appends zero bytes until the length of b[at:] is a multiple of 8.
func pad8(b []byte, at int) []byte {
	const zeros = "\x00\x00\x00\x00\x00\x00\x00"
	return append(b, zeros[:-(len(b)-at)&7]...)
}

func put16(b []byte, at int, v uint16) { binary.BigEndian.PutUint16(b[at:], v) }
func put32(b []byte, at int, v uint32) { binary.BigEndian.PutUint32(b[at:], v) }
func put64(b []byte, at int, v uint64) { binary.BigEndian.PutUint64(b[at:], v) }

func get16(b []byte, at int) uint16 { return binary.BigEndian.Uint16(b[at:]) }
func get32(b []byte, at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
func get64(b []byte, at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
