package pipeline

import (
	"math/bits"

	"trivet.dev/trivet/openflow"
)

// prefixes is a multiset of prefixes of one field: a compressed binary trie. It finds the lengths
// of the prefixes that a value has while it looks at as few bits as possible: so subtables are
// skipped, and masks stay short.
type prefixes struct{ root *prefixNode }

type prefixNode struct {
	value  openflow.Value // from the highest bit on
	length uint8
	count  int32 // how often it was added; 0: only a branch
	child  [2]*prefixNode
}

// lengths is a set of lengths, of 0 to 128.
type lengths [3]uint64

func (l *lengths) has(n uint8) bool { return l[n>>6]>>(n&63)&1 == 1 }

func firstBits(v openflow.Value, n uint8) openflow.Value {
	if n > 64 {
		return openflow.Value{Hi: v.Hi, Lo: v.Lo &^ (^uint64(0) >> (n - 64))}
	}
	return openflow.Value{Hi: v.Hi &^ (^uint64(0) >> n)}
}

func bitAt(v openflow.Value, n uint8) uint64 {
	if n < 64 {
		return v.Hi >> (63 - n) & 1
	}
	return v.Lo >> (127 - n) & 1
}

// common returns how many bits two values have in common from the highest on.
func common(a, b openflow.Value) uint8 {
	d := a.Xor(b)
	if d.Hi != 0 {
		return uint8(bits.LeadingZeros64(d.Hi))
	}
	return uint8(64 + bits.LeadingZeros64(d.Lo))
}

// add adds a prefix; bits beyond its length must be zero.
func (p *prefixes) add(v openflow.Value, length uint8) {
	at := &p.root
	for {
		n := *at
		if n == nil {
			*at = &prefixNode{value: v, length: length, count: 1}
			return
		}
		same := min(common(v, n.value), length, n.length)
		switch {
		case same == n.length && same == length:
			n.count++
			return
		case same == n.length:
			at = &n.child[bitAt(v, same)]
		default: // a node comes between, which is the prefix itself or branches to it
			branch := &prefixNode{value: firstBits(v, same), length: same}
			branch.child[bitAt(n.value, same)] = n
			*at = branch
			if same == length {
				branch.count = 1
				return
			}
			at = &branch.child[bitAt(v, same)]
		}
	}
}

// remove removes a prefix that was added.
func (p *prefixes) remove(v openflow.Value, length uint8) {
	var above **prefixNode
	at := &p.root
	for (*at).length < length {
		above = at
		at = &(*at).child[bitAt(v, (*at).length)]
	}
	n := *at
	if n.count--; n.count > 0 || n.child[0] != nil && n.child[1] != nil {
		return
	}
	if *at = n.only(); *at == nil && above != nil && (*above).count == 0 {
		*above = (*above).only() // it is no longer a branch
	}
}

// only returns the child of a node that has at most one.
func (n *prefixNode) only() *prefixNode {
	if n.child[0] != nil {
		return n.child[0]
	}
	return n.child[1]
}

// find returns the lengths of the prefixes that v has, and how many of its bits were looked at.
func (p *prefixes) find(v openflow.Value) (found lengths, looked uint8) {
	for n := p.root; n != nil; {
		same := min(common(v, n.value), n.length)
		if same < n.length {
			return found, max(looked, same+1)
		}
		if n.count > 0 {
			found[n.length>>6] |= 1 << (n.length & 63)
		}
		looked = n.length
		if n.child[0] == nil && n.child[1] == nil {
			break
		}
		looked++
		n = n.child[bitAt(v, n.length)]
	}
	return found, looked
}

// The fields of which a table has prefixes.
const (
	prefixIPv4Src = iota
	prefixIPv4Dst
	prefixIPv6Src
	prefixIPv6Dst
	prefixFields
)

// prefixValue returns a field of a key from the highest bit on.
func prefixValue(k *Key, field int) openflow.Value {
	switch field {
	case prefixIPv4Src:
		return openflow.Value{Hi: k[wordIPv4] &^ 0xffffffff}
	case prefixIPv4Dst:
		return openflow.Value{Hi: k[wordIPv4] << 32}
	case prefixIPv6Src:
		return openflow.Value{Hi: k[wordIPv6Src], Lo: k[wordIPv6Src+1]}
	}
	return openflow.Value{Hi: k[wordIPv6Dst], Lo: k[wordIPv6Dst+1]}
}

// lookPrefix adds the first bits of a field to a mask.
func lookPrefix(m *Mask, field int, n uint8) {
	all := firstBits(openflow.Value{Hi: ^uint64(0), Lo: ^uint64(0)}, n)
	switch field {
	case prefixIPv4Src:
		m[wordIPv4] |= all.Hi &^ 0xffffffff
	case prefixIPv4Dst:
		m[wordIPv4] |= all.Hi >> 32
	case prefixIPv6Src:
		m[wordIPv6Src] |= all.Hi
		m[wordIPv6Src+1] |= all.Lo
	default:
		m[wordIPv6Dst] |= all.Hi
		m[wordIPv6Dst+1] |= all.Lo
	}
}

// prefixLength returns how many of the first bits of a field a mask has; 0: none, or others too.
func prefixLength(m *Mask, field int) uint8 {
	v := prefixValue((*Key)(m), field)
	n := uint8(bits.LeadingZeros64(^v.Hi))
	if n == 64 {
		n += uint8(bits.LeadingZeros64(^v.Lo))
	}
	if firstBits(v, n) != v {
		return 0
	}
	return n
}
