//go:build linux

package cache

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"trivet.dev/trivet/datapath/embedded/bpf"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

const (
	maxOutputs = 512 // MAX_OUTPUTS in bpf/forward.c
	ethernet   = 14  // bytes of a header
	vlanTag    = 4   // of a tag
)

// What an output sets: bpf/forward.h.
const (
	setDst = 1 << iota
	setSrc
	setSrcAddr
	setDstAddr
	setSrcPort
	setDstPort
	setTOS
	setTTL
	decTTL
	vlanPop
	vlanPush
)

// compiled is a translation in the program's terms.
type compiled struct {
	ttlMin, ttlMax uint8
	mtu            uint32
	outputs        []bpf.ForwardOutput
}

func (c *compiled) equal(other *compiled) bool {
	if c.ttlMin != other.ttlMin || c.ttlMax != other.ttlMax || c.mtu != other.mtu ||
		len(c.outputs) != len(other.outputs) {
		return false
	}
	for i := range c.outputs {
		a, b := c.outputs[i], other.outputs[i]
		a.Next, b.Next = 0, 0
		if a != b {
			return false
		}
	}
	return true
}

// compile converts the translation of a packet for the program, or returns why it cannot. Outputs
// to ports without a device are discarded.
func compile(o *pipeline.Translation, of *pipeline.Key,
	deviceOf func(*pipeline.Port) (id, mtu uint32, ok bool)) (c compiled, why string) {
	switch {
	case o.Slow != "":
		return c, o.Slow
	case o.ToController():
		return c, "packets go to a controller"
	case o.Metered():
		return c, "a meter decides"
	case len(o.Mirrors) > 0:
		return c, "a link on the path is being captured"
	case len(o.Outputs) > maxOutputs:
		return c, "more outputs than the program supports"
	}
	c.ttlMin, c.ttlMax = o.TTLMin, o.TTLMax
	if o.Largest != pipeline.AnySize {
		c.mtu = uint32(max(o.Largest-ethernet-of.Tags()*vlanTag, 1))
	}
	for i := range o.Outputs {
		id, mtu, ok := deviceOf(o.Outputs[i].Port)
		if !ok {
			continue
		}
		out := bpf.ForwardOutput{Port: id}
		if why := encode(&out, &o.Outputs[i].Rewrite); why != "" {
			return c, why
		}
		c.outputs = append(c.outputs, out)
		if c.mtu == 0 || mtu < c.mtu {
			c.mtu = mtu
		}
	}
	return c, ""
}

func encode(out *bpf.ForwardOutput, r *pipeline.Rewrite) (why string) {
	switch {
	case r.SetMPLSTTL:
		return "the TTL of a label is set"
	case r.SetTTL:
		out.Set |= setTTL
		out.Ttl = r.TTL
	case r.DecTTL > 0:
		out.Set |= decTTL
		out.Ttl = r.DecTTL
	}
	var tag, tagMask uint16 // the packet's own tag
	for _, s := range r.Sets {
		v := s.Value
		switch s.Field {
		case openflow.FieldEthDst:
			out.Set |= setDst
			putMAC(&out.Dst, v.Lo)
		case openflow.FieldEthSrc:
			out.Set |= setSrc
			putMAC(&out.Src, v.Lo)
		case openflow.FieldIPv4Src:
			out.Set |= setSrcAddr
			out.Saddr[0] = network32(uint32(v.Lo))
		case openflow.FieldIPv4Dst:
			out.Set |= setDstAddr
			out.Daddr[0] = network32(uint32(v.Lo))
		case openflow.FieldIPv6Src:
			out.Set |= setSrcAddr
			out.Saddr = network128(v)
		case openflow.FieldIPv6Dst:
			out.Set |= setDstAddr
			out.Daddr = network128(v)
		case openflow.FieldTCPSrc, openflow.FieldUDPSrc:
			out.Set |= setSrcPort
			out.Sport = bits.ReverseBytes16(uint16(v.Lo))
		case openflow.FieldTCPDst, openflow.FieldUDPDst:
			out.Set |= setDstPort
			out.Dport = bits.ReverseBytes16(uint16(v.Lo))
		case openflow.FieldIPDSCP:
			out.Set |= setTOS
			out.Tos |= uint8(v.Lo) << 2
			out.TosMask |= 0xfc
		case openflow.FieldIPECN:
			out.Set |= setTOS
			out.Tos |= uint8(v.Lo) & 3
			out.TosMask |= 3
		case openflow.FieldVLANVID:
			tag |= uint16(v.Lo) & 0xfff
			tagMask |= 0xfff
		case openflow.FieldVLANPCP:
			tag |= uint16(v.Lo) << 13
			tagMask |= 7 << 13
		default:
			return "a field is set that the program does not support: " + s.Field.String()
		}
	}
	return encodeTags(out, r, tag, tagMask)
}

func encodeTags(out *bpf.ForwardOutput, r *pipeline.Rewrite, tag, tagMask uint16) (why string) {
	switch {
	case r.PopVLAN > 1 || len(r.Push) > 1, tagMask != 0 && (r.PopVLAN > 0 || len(r.Push) > 0):
		return "more changes to VLAN tags than the program supports"
	case tagMask != 0: // the packet's own tag is replaced
		out.Set |= vlanPop | vlanPush
		out.VlanTci, out.VlanKeep = tag, ^tagMask
		return ""
	}
	if r.PopVLAN > 0 {
		out.Set |= vlanPop
	}
	if len(r.Push) > 0 {
		out.Set |= vlanPush
		out.VlanProto, out.VlanTci = r.Push[0].EthType, r.Push[0].TCI
	}
	return ""
}

func putMAC(b *[6]uint8, v uint64) {
	for i := range b {
		b[i] = uint8(v >> (40 - 8*i))
	}
}

// network32 returns a number whose bytes in memory are in network order.
func network32(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return *(*uint32)(unsafe.Pointer(&b))
}

func network128(v openflow.Value) (out [4]uint32) {
	return [4]uint32{network32(uint32(v.Hi >> 32)), network32(uint32(v.Hi)), network32(uint32(v.Lo >> 32)),
		network32(uint32(v.Lo))}
}
