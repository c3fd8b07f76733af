package pipeline

import (
	"math/bits"
	"slices"

	"trivet.dev/trivet/openflow"
)

const maxPush = 4 // VLAN tags that a Rewrite can push

// state is the current state of a packet on its way: its fields, and how they differ from the
// packet as received.
type state struct {
	key    Key
	known  Mask   // the bits of key that are the same for all packets that reach this point
	set    uint64 // the fields that have been set, by number
	popped uint8  // of the packet's own tags: 0 or 1
	pushed uint8
	push   [maxPush]Tag // the bit tagPresent is set in TCI

	below      uint16 // the outermost own tag, if others were pushed on it
	belowKnown uint16

	ttlSet  bool
	ttlDec  uint8
	mplsTTL bool // the TTL was set

	queue uint32
	base  []byte // the bytes to which all this is relative; nil: as received
	grown int16  // by how much base is longer than the received packet
}

// length returns by how many bytes the packet has grown.
func (s *state) length() int16 { return s.grown + 4*int16(s.pushed) - 4*int16(s.popped) }

// look records that bits of a word have been looked at, if they are the packet's own.
func (t *translator) look(word int, bits uint64) {
	bits &^= t.st.known[word]
	if word == wordSrc && t.st.popped > 0 && bits&tagAll != 0 {
		t.out.Mask[wordTags] |= bits & tagAll << tagsShift
		bits &^= tagAll
	}
	t.out.Mask[word] |= bits
}

// write sets a field, which has the same value for all packets from now on.
func (t *translator) write(f openflow.Field, v openflow.Value) {
	t.st.key.SetField(f, v)
	t.st.known.Set(f, fieldMask(f))
	t.st.set |= 1 << f
}

// ip reports whether the packet is valid IPv4 or IPv6.
func (t *translator) ip() bool {
	t.look(wordDst, ethTypeMask)
	if e := t.st.key.EthType(); e != openflow.EthTypeIPv4 && e != openflow.EthTypeIPv6 {
		return false
	}
	return !t.lacks(shapeNoL3)
}

func (t *translator) lacks(shape uint64) bool {
	t.look(wordIP, shape<<shapeShift)
	return t.st.key.shape()&shape != 0
}

func (t *translator) mpls() bool {
	t.look(wordDst, ethTypeMask)
	e := t.st.key.EthType()
	return (e == openflow.EthTypeMPLS || e == ethTypeMPLSMulticast) && !t.lacks(shapeNoL3)
}

func (t *translator) tagged() bool {
	t.look(wordSrc, tagPresent)
	return t.st.key.tag()&tagPresent != 0
}

// has reports whether the packet has a field that can be set.
func (t *translator) has(f openflow.Field) bool {
	need := &needs[f]
	if need.ethTypes == nil {
		return true
	}
	t.look(wordDst, ethTypeMask)
	if !slices.Contains(need.ethTypes, t.st.key.EthType()) || t.lacks(shapeNoL3) {
		return false
	}
	if need.ipProto == 0 {
		return true
	}
	t.look(wordIP, ipProtoMask)
	if t.st.key.ipProto() != need.ipProto || t.lacks(shapeNoL4) {
		return false
	}
	if need.icmpType == 0 {
		return true
	}
	return t.neighbour(f, uint64(need.icmpType))
}

// neighbour reports whether an ICMPv6 packet has a field of neighbour discovery.
func (t *translator) neighbour(f openflow.Field, icmpType uint64) bool {
	t.look(wordPorts, 0xff<<48)
	got := t.st.key[wordPorts] >> 48 & 0xff
	if got != 135 && got != 136 || icmpType != 1 && got != icmpType {
		return false
	}
	t.look(wordTarget, ^uint64(0))
	t.look(wordTarget+1, ^uint64(0))
	if t.st.key[wordTarget]|t.st.key[wordTarget+1] == 0 {
		return false
	}
	switch f {
	case openflow.FieldIPv6NDSLL:
		t.look(wordSHA, ^uint64(0))
		return t.st.key[wordSHA] != 0
	case openflow.FieldIPv6NDTLL:
		t.look(wordTHA, ^uint64(0))
		return t.st.key[wordTHA] != 0
	}
	return true
}

// setField executes the action for packets that have the field.
func (t *translator) setField(a *openflow.Action) {
	f, v := a.Field.Field, a.Field.Value
	switch f {
	case openflow.FieldTunnelID:
		t.st.key.SetField(f, v)
	case openflow.FieldVLANVID, openflow.FieldVLANPCP:
		if t.tagged() {
			t.setTagField(f, v)
		}
	case openflow.FieldEthType, openflow.FieldIPProto, openflow.FieldICMPv4Type, openflow.FieldICMPv6Type:
		if t.has(f) {
			t.structural(a, "a field is set that says what follows")
		}
	default:
		if t.has(f) {
			t.write(f, v)
		}
	}
}

func (t *translator) setTagField(f openflow.Field, v openflow.Value) {
	if t.st.pushed == 0 {
		t.write(f, v)
		return
	}
	t.st.key.SetField(f, v)
	t.st.push[t.st.pushed-1].TCI = t.st.key.tag()
}

// pushVLAN adds a tag, with the values of the tag below it (section 5.12.1).
func (t *translator) pushVLAN(ethType uint16) {
	if int(t.st.pushed) == maxPush && !t.rebase("more VLAN tags than a cache knows") {
		return
	}
	t.look(wordSrc, tagAll)
	st := &t.st
	if st.pushed == 0 {
		st.below, st.belowKnown = st.key.tag(), uint16(st.known[wordSrc])
	}
	tag := st.key.tag() | tagPresent
	st.push[st.pushed] = Tag{ethType, tag}
	st.pushed++
	st.key.setTag(tag)
	st.known[wordSrc] |= tagAll
}

func (t *translator) popVLAN() {
	if !t.tagged() {
		return
	}
	st := &t.st
	switch {
	case st.pushed > 1:
		st.pushed--
		st.key.setTag(st.push[st.pushed-1].TCI)
	case st.pushed == 1:
		st.pushed = 0
		st.key.setTag(st.below)
		st.known[wordSrc] = st.known[wordSrc]&^tagAll | uint64(st.belowKnown)
	case st.popped == 1:
		if t.rebase("more VLAN tags than a cache knows") {
			t.popVLAN()
		}
	default:
		st.popped = 1
		st.key.setTag(uint16(st.key[wordTags] >> tagsShift))
		st.known[wordSrc] = st.known[wordSrc]&^tagAll | st.known[wordTags]>>tagsShift
		st.set &^= 1<<openflow.FieldVLANVID | 1<<openflow.FieldVLANPCP
	}
}

// rebase builds the packet's current bytes, and continues from these. Only a Processor has bytes:
// otherwise the translation becomes slow, for the reason why, and rebase returns false.
func (t *translator) rebase(why string) bool {
	if !t.dynamic {
		t.slow(why)
		return false
	}
	r := t.rewrite()
	frame := t.frame
	if t.st.base != nil {
		frame = t.st.base
	}
	t.reparse(r.apply(nil, frame, t.partial))
	return true
}

// reparse continues from the bytes of a frame.
func (t *translator) reparse(frame []byte) (l layout) {
	st := &t.st
	port, metadata, tunnel := st.key[wordPort], st.key[wordMeta], st.key[wordTunnel]
	grown := int16(len(frame) - len(t.frame))
	*st = state{queue: st.queue, base: frame, grown: grown}
	l, _ = parse(frame, &st.key)
	st.key[wordPort], st.key[wordMeta], st.key[wordTunnel] = port, metadata, tunnel
	for i := range st.known {
		st.known[i] = ^uint64(0)
	}
	return l
}

// structural executes an action that adds or removes headers.
func (t *translator) structural(a *openflow.Action, why string) {
	if !t.rebase(why) {
		return
	}
	var k Key
	l, ok := parse(t.st.base, &k)
	if ok {
		t.reparse(onBytes(a, t.st.base, &k, &l))
	}
}

// rewrite returns how the packet differs from its base.
func (t *translator) rewrite() Rewrite {
	st, o := &t.st, t.out
	r := Rewrite{PopVLAN: st.popped, DecTTL: st.ttlDec}
	if st.ttlSet {
		r.SetTTL, r.TTL, r.DecTTL = true, st.key.TTL(), 0
	}
	if st.mplsTTL {
		r.SetMPLSTTL, r.MPLSTTL = true, uint8(st.key[wordTags])
	}
	from := len(o.sets)
	for set := st.set; set != 0; set &= set - 1 {
		f := openflow.Field(bits.TrailingZeros64(set))
		v := st.key.Field(f)
		if st.pushed > 0 && f == openflow.FieldVLANVID {
			v.Lo = uint64(st.below & tagVID)
		}
		if st.pushed > 0 && f == openflow.FieldVLANPCP {
			v.Lo = uint64(st.below >> 13)
		}
		o.sets = append(o.sets, Set{f, v})
	}
	r.Sets = o.sets[from:len(o.sets):len(o.sets)]
	from = len(o.tags)
	for _, tag := range st.push[:st.pushed] {
		o.tags = append(o.tags, Tag{tag.EthType, tag.TCI &^ tagPresent})
	}
	r.Push = o.tags[from:len(o.tags):len(o.tags)]
	return r
}
