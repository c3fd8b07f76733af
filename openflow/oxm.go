package openflow

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
)

// Class is an ofp_oxm_class: who defines a field (section 7.2.3.3).
type Class uint16

const (
	ClassNXM0         Class = 0x0000
	ClassNXM1         Class = 0x0001
	ClassBasic        Class = 0x8000 // OFPXMC_OPENFLOW_BASIC
	ClassExperimenter Class = 0xffff
)

// Field is a field of the class ClassBasic: oxm_ofb_match_fields (section 7.2.3.7).
type Field uint8

const (
	FieldInPort Field = iota
	FieldInPhyPort
	FieldMetadata
	FieldEthDst
	FieldEthSrc
	FieldEthType
	FieldVLANVID
	FieldVLANPCP
	FieldIPDSCP
	FieldIPECN
	FieldIPProto
	FieldIPv4Src
	FieldIPv4Dst
	FieldTCPSrc
	FieldTCPDst
	FieldUDPSrc
	FieldUDPDst
	FieldSCTPSrc
	FieldSCTPDst
	FieldICMPv4Type
	FieldICMPv4Code
	FieldARPOp
	FieldARPSPA
	FieldARPTPA
	FieldARPSHA
	FieldARPTHA
	FieldIPv6Src
	FieldIPv6Dst
	FieldIPv6Flabel
	FieldICMPv6Type
	FieldICMPv6Code
	FieldIPv6NDTarget
	FieldIPv6NDSLL
	FieldIPv6NDTLL
	FieldMPLSLabel
	FieldMPLSTC
	FieldMPLSBOS
	FieldPBBISID
	FieldTunnelID
	FieldIPv6Exthdr

	NumFields // how many there are
)

// fields is the specification's table of fields (section 7.2.3.7), except that TCP and UDP ports
// may have masks, as in Open vSwitch. A value whose width is not a multiple of 8 bits is in the low
// bits of its bytes.
var fields = [NumFields]struct {
	name     string // in lower case, as ovs-ofctl writes it
	bits     uint8
	bytes    uint8
	maskable bool
	kind     valueKind
}{
	{"in_port", 32, 4, false, kindPort},
	{"in_phy_port", 32, 4, false, kindPort},
	{"metadata", 64, 8, true, kindHex},
	{"eth_dst", 48, 6, true, kindMAC},
	{"eth_src", 48, 6, true, kindMAC},
	{"eth_type", 16, 2, false, kindHex},
	{"vlan_vid", 13, 2, true, kindHex},
	{"vlan_pcp", 3, 1, false, kindDecimal},
	{"ip_dscp", 6, 1, false, kindDecimal},
	{"ip_ecn", 2, 1, false, kindDecimal},
	{"ip_proto", 8, 1, false, kindDecimal},
	{"ipv4_src", 32, 4, true, kindIPv4},
	{"ipv4_dst", 32, 4, true, kindIPv4},
	{"tcp_src", 16, 2, true, kindDecimal},
	{"tcp_dst", 16, 2, true, kindDecimal},
	{"udp_src", 16, 2, true, kindDecimal},
	{"udp_dst", 16, 2, true, kindDecimal},
	{"sctp_src", 16, 2, false, kindDecimal},
	{"sctp_dst", 16, 2, false, kindDecimal},
	{"icmpv4_type", 8, 1, false, kindDecimal},
	{"icmpv4_code", 8, 1, false, kindDecimal},
	{"arp_op", 16, 2, false, kindDecimal},
	{"arp_spa", 32, 4, true, kindIPv4},
	{"arp_tpa", 32, 4, true, kindIPv4},
	{"arp_sha", 48, 6, true, kindMAC},
	{"arp_tha", 48, 6, true, kindMAC},
	{"ipv6_src", 128, 16, true, kindIPv6},
	{"ipv6_dst", 128, 16, true, kindIPv6},
	{"ipv6_flabel", 20, 4, true, kindHex},
	{"icmpv6_type", 8, 1, false, kindDecimal},
	{"icmpv6_code", 8, 1, false, kindDecimal},
	{"ipv6_nd_target", 128, 16, false, kindIPv6},
	{"ipv6_nd_sll", 48, 6, false, kindMAC},
	{"ipv6_nd_tll", 48, 6, false, kindMAC},
	{"mpls_label", 20, 4, false, kindDecimal},
	{"mpls_tc", 3, 1, false, kindDecimal},
	{"mpls_bos", 1, 1, false, kindDecimal},
	{"pbb_isid", 24, 3, true, kindHex},
	{"tunnel_id", 64, 8, true, kindHex},
	{"ipv6_exthdr", 9, 2, true, kindHex},
}

// String returns the name in the specification without its prefix OFPXMT_OFB_, in lower case.
func (f Field) String() string {
	if f < NumFields {
		return fields[f].name
	}
	return fmt.Sprintf("field %d", uint8(f))
}

// Bits returns the width of the field, 0 of one that does not exist.
func (f Field) Bits() int {
	if f < NumFields {
		return int(fields[f].bits)
	}
	return 0
}

// Maskable reports whether the field may have a mask in a match.
func (f Field) Maskable() bool { return f < NumFields && fields[f].maskable }

// exact returns the mask of all the field's bits.
func (f Field) exact() Value {
	if f < NumFields {
		return exactMasks[f]
	}
	return Value{}
}

// exactMasks holds the masks of all bits, and plainHeaders the headers of the TLVs without a mask.
var exactMasks, plainHeaders = func() (masks [NumFields]Value, headers [NumFields]uint32) {
	for f := range NumFields {
		masks[f] = ones(int(fields[f].bits))
		headers[f] = uint32(ClassBasic)<<16 | uint32(f)<<9 | uint32(fields[f].bytes)
	}
	return masks, headers
}()

// Value is the value of a field, a number of up to 128 bits. Addresses are numbers in network
// byte order: the MAC address 00:00:00:00:01:02 is 0x102.
type Value struct{ Hi, Lo uint64 }

// ones returns the number of n bits that are all set.
func ones(n int) Value {
	if n > 64 {
		return Value{^uint64(0) >> (128 - n), ^uint64(0)}
	}
	return Value{0, ^uint64(0) >> (64 - n)} // a shift by 64 gives 0
}

// And returns the bits set in both.
func (v Value) And(w Value) Value { return Value{v.Hi & w.Hi, v.Lo & w.Lo} }

// Or returns the bits set in one or both.
func (v Value) Or(w Value) Value { return Value{v.Hi | w.Hi, v.Lo | w.Lo} }

// AndNot returns the bits set in v and not in w.
func (v Value) AndNot(w Value) Value { return Value{v.Hi &^ w.Hi, v.Lo &^ w.Lo} }

// Xor returns the bits set in exactly one of both.
func (v Value) Xor(w Value) Value { return Value{v.Hi ^ w.Hi, v.Lo ^ w.Lo} }

// IsZero reports whether no bit is set.
func (v Value) IsZero() bool { return v.Hi|v.Lo == 0 }

// prefixLen returns the length of the prefix that v masks in a field of n bits; false: v is not a
// prefix's mask.
func (v Value) prefixLen(n int) (int, bool) {
	length := bits.OnesCount64(v.Hi) + bits.OnesCount64(v.Lo)
	return length, ones(n).AndNot(ones(n-length)) == v
}

// OXM is one field of a match, or the field that a set-field action sets: ofp_oxm (section
// 7.2.3.2). The constructors (InPort, EthDst, …) make those of ClassBasic. Two OXMs that mean
// the same are equal (==).
type OXM struct {
	Class  Class
	Field  Field // of another class than ClassBasic: that class's number, below 128
	Masked bool
	Value  Value // of ClassBasic
	Mask   Value // of ClassBasic, where Masked: a bit that is set is compared

	// Payload is all that follows the header of a field of another class: an experimenter's
	// id (4 bytes, big endian; ClassExperimenter alone), value, and mask where Masked.
	Payload string
}

// WithMask returns the field with a mask, and with those bits of the value cleared that the mask
// leaves out.
func (o OXM) WithMask(mask Value) OXM {
	o.Masked, o.Mask = true, mask.And(o.Field.exact())
	o.Value = o.Value.And(o.Mask)
	if o.Mask == o.Field.exact() {
		o.Masked, o.Mask = false, Value{}
	}
	return o
}

// WithMask64 is WithMask for a field of at most 64 bits.
func (o OXM) WithMask64(mask uint64) OXM { return o.WithMask(Value{Lo: mask}) }

// WithPrefix returns the field with a mask of its n highest bits: WithPrefix(24) of an IPv4
// address is its /24.
func (o OXM) WithPrefix(n int) OXM {
	width := o.Field.Bits()
	return o.WithMask(ones(width).AndNot(ones(width - min(max(n, 0), width))))
}

// EffectiveMask returns the mask, also of a field of ClassBasic that has none: all of its bits.
func (o OXM) EffectiveMask() Value {
	if o.Masked {
		return o.Mask
	}
	return o.Field.exact()
}

// MAC returns the value as a MAC address.
func (o OXM) MAC() MAC { return macOf(o.Value) }

// Addr returns the value as an address: IPv6 of a field of 128 bits, else IPv4.
func (o OXM) Addr() netip.Addr { return addrOf(o.Value, o.Field.Bits()) }

// Prefix returns the value and mask as a prefix of addresses; false where the mask is another.
func (o OXM) Prefix() (netip.Prefix, bool) {
	n, ok := o.EffectiveMask().prefixLen(o.Field.Bits())
	return netip.PrefixFrom(o.Addr(), n), ok
}

// Experimenter returns the id of the experimenter who defines the field, where one does.
func (o OXM) Experimenter() (id uint32, ok bool) {
	if o.Class != ClassExperimenter || len(o.Payload) < 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32([]byte(o.Payload[:4])), true
}

func addrOf(v Value, width int) netip.Addr {
	if width == 128 {
		var a [16]byte
		put64(a[:], 0, v.Hi)
		put64(a[:], 8, v.Lo)
		return netip.AddrFrom16(a)
	}
	var a [4]byte
	put32(a[:], 0, uint32(v.Lo))
	return netip.AddrFrom4(a)
}

func valueOfAddr(a netip.Addr) Value {
	if a.Is4() {
		b := a.As4()
		return Value{Lo: uint64(get32(b[:], 0))}
	}
	b := a.As16()
	return Value{get64(b[:], 0), get64(b[:], 8)}
}
