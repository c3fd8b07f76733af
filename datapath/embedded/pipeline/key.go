package pipeline

import (
	"fmt"
	"strings"

	"trivet.dev/trivet/openflow"
)

// Words is the number of words of a Key.
const Words = 17

// Key holds the fields of a packet that flow tables match on. Fields that no packet has both share
// bits; the Ethernet type or IP protocol that every match on them includes tells them apart.
type Key [Words]uint64

// Mask holds the bits of a Key that count.
type Mask [Words]uint64

// The words of a Key, from the port to the payload. The last word of each stage of the lookup is
// marked: a table is searched stage by stage, so that a packet that does not match one stage is not
// compared in the next.
const (
	wordPort    = iota // in_port 32, in_phy_port 32
	wordMeta           // metadata 64
	wordTunnel         // tunnel_id 64 (stage)
	wordDst            // eth_dst 48, eth_type 16
	wordSrc            // eth_src 48, outermost VLAN tag 16
	wordTags           // second VLAN tag 16, unused 16, MPLS label 20, TC 3, BOS 1, TTL 8 (stage)
	wordIP             // protocol 8, DSCP 6, ECN 2, shape 8, TTL 8, flow label 20, unused 3, extension headers 9
	wordIPv4           // source 32, destination 32 (IPv4 and ARP); or I-SID 24
	wordIPv6Src        // 128
	_
	wordIPv6Dst // 128 (stage)
	_
	wordPorts  // source 16, destination 16; or ICMP type and code; or ARP opcode
	wordSHA    // arp_sha or ipv6_nd_sll 48
	wordTHA    // arp_tha or ipv6_nd_tll 48
	wordTarget // ipv6_nd_target 128
	_
)

// stageEnds holds the words after which a stage ends.
var stageEnds = [...]int{wordTunnel, wordTags, wordIPv6Dst + 1, Words - 1}

// A VLAN tag in a Key: PCP 3, present 1, VLAN 12; 0 without a tag.
const (
	tagPresent = openflow.VLANPresent
	tagVID     = 0x1fff // with the bit that says that it is there
	tagAll     = 0xffff
	tagsShift  = 48 // of the second tag, in wordTags
)

// The shape of a packet: which headers are missing that its types promise.
const (
	shapeFragment = 1 << iota // a part of an IP packet
	shapeNoL4                 // no transport header: a later fragment, or cut off
	shapeNoL3                 // no valid IP or ARP header
	shapeBadSum               // the checksum of the IPv4 header is wrong
)

const (
	shapeShift   = 40 // in wordIP
	ttlShift     = 32 // in wordIP
	ttlMask      = uint64(0xff) << ttlShift
	mplsTTLMask  = uint64(0xff) // in wordTags
	ethTypeMask  = uint64(0xffff)
	ipProtoMask  = uint64(0xff) << 56
	shapeAllMask = uint64(shapeFragment|shapeNoL4|shapeNoL3|shapeBadSum) << shapeShift
)

// place says where a field is in a Key. Fields of 128 bits are in two words.
type place struct {
	word  uint8
	shift uint8
	width uint8
}

var places = [openflow.NumFields]place{
	openflow.FieldInPort:       {wordPort, 32, 32},
	openflow.FieldInPhyPort:    {wordPort, 0, 32},
	openflow.FieldMetadata:     {wordMeta, 0, 64},
	openflow.FieldEthDst:       {wordDst, 16, 48},
	openflow.FieldEthSrc:       {wordSrc, 16, 48},
	openflow.FieldEthType:      {wordDst, 0, 16},
	openflow.FieldVLANVID:      {wordSrc, 0, 13},
	openflow.FieldVLANPCP:      {wordSrc, 13, 3},
	openflow.FieldIPDSCP:       {wordIP, 50, 6},
	openflow.FieldIPECN:        {wordIP, 48, 2},
	openflow.FieldIPProto:      {wordIP, 56, 8},
	openflow.FieldIPv4Src:      {wordIPv4, 32, 32},
	openflow.FieldIPv4Dst:      {wordIPv4, 0, 32},
	openflow.FieldTCPSrc:       {wordPorts, 48, 16},
	openflow.FieldTCPDst:       {wordPorts, 32, 16},
	openflow.FieldUDPSrc:       {wordPorts, 48, 16},
	openflow.FieldUDPDst:       {wordPorts, 32, 16},
	openflow.FieldSCTPSrc:      {wordPorts, 48, 16},
	openflow.FieldSCTPDst:      {wordPorts, 32, 16},
	openflow.FieldICMPv4Type:   {wordPorts, 48, 8},
	openflow.FieldICMPv4Code:   {wordPorts, 32, 8},
	openflow.FieldARPOp:        {wordPorts, 48, 16},
	openflow.FieldARPSPA:       {wordIPv4, 32, 32},
	openflow.FieldARPTPA:       {wordIPv4, 0, 32},
	openflow.FieldARPSHA:       {wordSHA, 0, 48},
	openflow.FieldARPTHA:       {wordTHA, 0, 48},
	openflow.FieldIPv6Src:      {wordIPv6Src, 0, 128},
	openflow.FieldIPv6Dst:      {wordIPv6Dst, 0, 128},
	openflow.FieldIPv6Flabel:   {wordIP, 12, 20},
	openflow.FieldICMPv6Type:   {wordPorts, 48, 8},
	openflow.FieldICMPv6Code:   {wordPorts, 32, 8},
	openflow.FieldIPv6NDTarget: {wordTarget, 0, 128},
	openflow.FieldIPv6NDSLL:    {wordSHA, 0, 48},
	openflow.FieldIPv6NDTLL:    {wordTHA, 0, 48},
	openflow.FieldMPLSLabel:    {wordTags, 12, 20},
	openflow.FieldMPLSTC:       {wordTags, 9, 3},
	openflow.FieldMPLSBOS:      {wordTags, 8, 1},
	openflow.FieldPBBISID:      {wordIPv4, 0, 24},
	openflow.FieldTunnelID:     {wordTunnel, 0, 64},
	openflow.FieldIPv6Exthdr:   {wordIP, 0, 9},
}

func (p place) get(k *[Words]uint64) openflow.Value {
	if p.width == 128 {
		return openflow.Value{Hi: k[p.word], Lo: k[p.word+1]}
	}
	return openflow.Value{Lo: k[p.word] >> p.shift & (^uint64(0) >> (64 - p.width))}
}

func (p place) set(k *[Words]uint64, v openflow.Value) {
	if p.width == 128 {
		k[p.word], k[p.word+1] = v.Hi, v.Lo
		return
	}
	mask := (^uint64(0) >> (64 - p.width)) << p.shift
	k[p.word] = k[p.word]&^mask | v.Lo<<p.shift&mask
}

// Field returns the value of a field. It is undefined if the packet does not have the field, as
// fields share bits.
func (k *Key) Field(f openflow.Field) openflow.Value { return places[f].get((*[Words]uint64)(k)) }

// SetField changes a field.
func (k *Key) SetField(f openflow.Field, v openflow.Value) { places[f].set((*[Words]uint64)(k), v) }

// SetInPort sets the port at which the packet arrives.
func (k *Key) SetInPort(number uint32) { k.setPort(number) }

// TTL returns the TTL of IPv4 or the hop limit of IPv6.
func (k *Key) TTL() uint8 { return uint8(k[wordIP] >> ttlShift) }

// SetTTL sets the TTL or hop limit.
func (k *Key) SetTTL(ttl uint8) { k[wordIP] = k[wordIP]&^ttlMask | uint64(ttl)<<ttlShift }

// EthType is the type after VLAN tags.
func (k *Key) EthType() uint16 { return uint16(k[wordDst]) }

// Fragment reports whether the packet is a fragment of an IP packet, and whether its transport
// header is in another fragment (or cut off).
func (k *Key) Fragment() (part, later bool) {
	return k[wordIP]>>shapeShift&shapeFragment != 0, k[wordIP]>>shapeShift&shapeNoL4 != 0
}

func (k *Key) ipProto() uint8 { return uint8(k[wordIP] >> 56) }
func (k *Key) shape() uint64  { return k[wordIP] >> shapeShift & 0xff }
func (k *Key) inPort() uint32 { return uint32(k[wordPort] >> 32) }
func (k *Key) tag() uint16    { return uint16(k[wordSrc]) }

// Tags returns how many VLAN tags of a packet are in its key, at most two.
func (k *Key) Tags() (n int) {
	for _, tag := range []uint64{k[wordSrc], k[wordTags] >> tagsShift} {
		if tag&tagPresent != 0 {
			n++
		}
	}
	return n
}

func (k *Key) setTag(tag uint16) { k[wordSrc] = k[wordSrc]&^tagAll | uint64(tag) }

func (k *Key) setPort(number uint32) { k[wordPort] = uint64(number)<<32 | uint64(number) }

// Field returns the bits of a field that count.
func (m *Mask) Field(f openflow.Field) openflow.Value { return places[f].get((*[Words]uint64)(m)) }

// Set makes bits of a field count.
func (m *Mask) Set(f openflow.Field, bits openflow.Value) {
	places[f].set((*[Words]uint64)(m), m.Field(f).Or(bits))
}

// Covers reports whether two keys agree on all bits that count.
func (m *Mask) Covers(a, b *Key) bool {
	differ := uint64(0)
	for i := range m {
		differ |= (a[i] ^ b[i]) & m[i]
	}
	return differ == 0
}

// Union adds the bits of another mask.
func (m *Mask) Union(other *Mask) {
	for i := range m {
		m[i] |= other[i]
	}
}

// String lists the fields with bits that count; of fields that share bits, it shows the first name.
func (m *Mask) String() string {
	var list []string
	left := *m
	for f := range openflow.NumFields {
		bits := left.Field(f)
		if bits.IsZero() {
			continue
		}
		places[f].set((*[Words]uint64)(&left), openflow.Value{})
		switch {
		case bits == fieldMask(f):
			list = append(list, f.String())
		case bits.Hi != 0:
			list = append(list, fmt.Sprintf("%v/%#x%016x", f, bits.Hi, bits.Lo))
		default:
			list = append(list, fmt.Sprintf("%v/%#x", f, bits.Lo))
		}
	}
	if left[wordTags]>>tagsShift != 0 {
		list = append(list, fmt.Sprintf("second tag/%#x", left[wordTags]>>tagsShift))
	}
	if left[wordTags]&mplsTTLMask != 0 {
		list = append(list, "mpls_ttl")
	}
	if left[wordIP]&shapeAllMask != 0 {
		list = append(list, "shape")
	}
	return strings.Join(list, ",")
}

func fieldMask(f openflow.Field) openflow.Value {
	return openflow.OXM{Class: openflow.ClassBasic, Field: f}.EffectiveMask()
}

// matchBits turns a match into the bits that a packet's key must have. All fields must be of
// ClassBasic.
func matchBits(m openflow.Match) (value Key, mask Mask) {
	for o := range m.All() {
		mask.Set(o.Field, o.EffectiveMask())
		value.SetField(o.Field, o.Value)
	}
	return value, mask
}
