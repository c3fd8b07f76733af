//go:build linux

package cache

import (
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// Classes of packets: bpf/forward.h.
const (
	classOther = iota
	classIPv4
	classIPv6
	classARP
	classes
)

const (
	numWords = 9
	addrWord = 5 // the first one of addresses
)

// words are the parts of a pipeline.Key that the program reads: bpf/forward.h.
type words [numWords]uint64

// Words of a pipeline.Key; a test compares them with the fields that are there.
const (
	fullDst    = 3
	fullSrc    = 4
	fullTags   = 5
	fullIP     = 6
	fullIPv4   = 7
	fullIPv6   = 8
	fullPorts  = 12
	fullSHA    = 13
	fullTHA    = 14
	fullTarget = 15

	protoMask    = uint64(0xff) << 56
	shapeMask    = uint64(0xff) << 40
	ttlMask      = uint64(0xff) << 32
	icmpTypeMask = uint64(0xff) << 48
	ethTypeMask  = uint64(0xffff)
)

func classOf(k *pipeline.Key) int {
	switch k.EthType() {
	case openflow.EthTypeIPv4:
		return classIPv4
	case openflow.EthTypeIPv6:
		return classIPv6
	case openflow.EthTypeARP:
		return classARP
	}
	return classOther
}

// wordsOf returns the words of a key of that class. The port is not among them.
func wordsOf(k *[pipeline.Words]uint64, class int) (w words) {
	w = words{k[fullDst], k[fullSrc], k[fullTags], k[fullIP] &^ ttlMask, k[fullPorts]}
	switch class {
	case classIPv4, classARP:
		w[addrWord] = k[fullIPv4]
	case classIPv6:
		copy(w[addrWord:], k[fullIPv6:fullIPv6+4])
	}
	return w
}

// maskOf converts a mask of the whole key to one of the words; k is a packet's key. false: it
// includes bits that the program does not read.
func maskOf(m *pipeline.Mask, k *pipeline.Key, class int) (words, bool) {
	w := wordsOf((*[pipeline.Words]uint64)(m), class)
	w[0] |= ethTypeMask // the class follows from it
	beyond := m[fullSHA] | m[fullTHA] | m[fullTarget] | m[fullTarget+1]
	switch {
	case beyond == 0 || class == classIPv4 || class == classOther: // they have none of these fields
	case class == classARP:
		return w, false
	default: // only neighbour discovery has them
		w[3] |= protoMask | shapeMask
		if k.Field(openflow.FieldIPProto).Lo == openflow.IPProtoICMPv6 {
			w[4] |= icmpTypeMask
			if t := k.Field(openflow.FieldICMPv6Type).Lo; t == 135 || t == 136 {
				return w, false
			}
		}
	}
	return w, true
}

func (w *words) and(m *words) (r words) {
	for i := range w {
		r[i] = w[i] & m[i]
	}
	return r
}

func (w *words) or(m *words) (r words) {
	for i := range w {
		r[i] = w[i] | m[i]
	}
	return r
}

// covers reports whether all bits of m are in w.
func (w *words) covers(m *words) bool { return w.or(m) == *w }

// hash returns what the program finds the flow by.
func (w *words) hash(seed uint64, class int) uint64 {
	h := seed
	n := addrWord + 1
	if class == classIPv6 {
		n = numWords
	}
	for _, v := range w[:n] {
		h = (h ^ v) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// parts are the bits of the words that are one field.
var parts = [numWords][]uint64{
	{^uint64(0xffff), 0xffff},
	{^uint64(0xffff), 0xffff},
	{0xffff << 48, 0xffffffff},
	{protoMask, 0xff << 48, shapeMask, 0xfffff << 12, 0x1ff},
	{0xffff << 48, 0xffff << 32},
	{0xffffffff << 32, 0xffffffff}, {^uint64(0)}, {^uint64(0)}, {^uint64(0)},
}

// extend adds those bits of more that are of fields of which a bit is there.
func (w *words) extend(more words, class int) {
	if class == classIPv6 { // its addresses have two words each
		for i := addrWord; i < numWords; i += 2 {
			if w[i]|w[i+1] != 0 {
				w[i] |= more[i]
				w[i+1] |= more[i+1]
			}
		}
	}
	for i, list := range parts {
		for _, bits := range list {
			if w[i]&bits != 0 && (class != classIPv6 || i < addrWord) {
				w[i] |= more[i] & bits
			}
		}
	}
}
