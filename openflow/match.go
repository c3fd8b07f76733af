package openflow

import (
	"cmp"
	"iter"
	"slices"
)

// Match is a set of fields that packets must have: ofp_match (section 7.2.3). The zero Match has
// none and matches every packet.
//
// It is an immutable value of the size of a string. Two matches that mean the same are equal (==),
// so a Match can be the key of a map. For this, its fields are sorted by number, masks of all ones
// are left out, and so are fields with masks of zeros (section 7.2.3.5 makes them equivalent).
type Match struct{ oxm string } // OXM TLVs, as on the wire

// NewMatch returns the match of the fields. If a field is given twice, the last one counts. The
// caller must include prerequisites, see MissingPrerequisite.
func NewMatch(fields ...OXM) Match {
	if !inOrder(fields) {
		fields = slices.Clone(fields)
		slices.SortStableFunc(fields, func(a, b OXM) int { return cmp.Compare(orderOf(&a), orderOf(&b)) })
	}
	var room [128]byte
	b := room[:0]
	for i := range fields {
		o := &fields[i]
		if i+1 < len(fields) && orderOf(o) == orderOf(&fields[i+1]) || o.isNothing() {
			continue
		}
		b = appendOXM(b, o)
	}
	return Match{string(b)}
}

func inOrder(fields []OXM) bool {
	for i := 1; i < len(fields); i++ {
		if orderOf(&fields[i-1]) > orderOf(&fields[i]) {
			return false
		}
	}
	return true
}

// With returns the match with a field added or replaced.
func (m Match) With(o OXM) Match {
	from, to := m.find(orderOf(&o))
	b := append(make([]byte, 0, 128), m.oxm[:from]...)
	if !o.isNothing() {
		b = appendOXM(b, &o)
	}
	return Match{string(append(b, m.oxm[to:]...))}
}

// Without returns the match without a field of ClassBasic.
func (m Match) Without(f Field) Match {
	from, to := m.find(uint64(f) << 32)
	if from == to {
		return m
	}
	return Match{m.oxm[:from] + m.oxm[to:]}
}

// Get returns a field of ClassBasic.
func (m Match) Get(f Field) (OXM, bool) {
	from, to := m.find(uint64(f) << 32)
	if from == to {
		return OXM{}, false
	}
	return parseOXM(m.oxm[from:to]), true
}

// InPort returns the ingress port, if the match has it. In a PACKET_IN it is the port on which the
// packet arrived.
func (m Match) InPort() (port uint32, ok bool) {
	const header = "\x80\x00\x00\x04" // the field is the first of all
	if len(m.oxm) < 8 || m.oxm[:4] != header {
		return 0, false
	}
	return uint32(valueOf(m.oxm[4:8]).Lo), true
}

// All yields the fields in their order.
func (m Match) All() iter.Seq[OXM] {
	return func(yield func(OXM) bool) {
		for rest := m.oxm; rest != ""; {
			n := 4 + int(rest[3])
			if !yield(parseOXM(rest[:n])) {
				return
			}
			rest = rest[n:]
		}
	}
}

// Len returns the number of fields.
func (m Match) Len() (n int) {
	for i := 0; i < len(m.oxm); i += 4 + int(m.oxm[i+3]) {
		n++
	}
	return n
}

// Covers reports whether m matches every packet that other matches. This decides whether a
// non-strict DELETE or MODIFY applies to an entry (section 6.4). Fields of classes other than
// ClassBasic cover only equal ones.
func (m Match) Covers(other Match) bool {
	for o := range m.All() {
		from, to := other.find(orderOf(&o))
		if from == to {
			return false
		}
		p := parseOXM(other.oxm[from:to])
		if o.opaque() {
			if o != p {
				return false
			}
			continue
		}
		mask := o.EffectiveMask()
		if !mask.AndNot(p.EffectiveMask()).IsZero() || p.Value.And(mask) != o.Value {
			return false
		}
	}
	return true
}

// Overlaps reports whether a packet can match both (section 6.4, CHECK_OVERLAP). Masked fields of
// classes other than ClassBasic count as overlapping.
func (m Match) Overlaps(other Match) bool {
	for o := range m.All() {
		from, to := other.find(orderOf(&o))
		if from == to {
			continue
		}
		p := parseOXM(other.oxm[from:to])
		if o.opaque() {
			if o != p && !o.Masked && !p.Masked {
				return false
			}
			continue
		}
		if !o.Value.Xor(p.Value).And(o.EffectiveMask()).And(p.EffectiveMask()).IsZero() {
			return false
		}
	}
	return true
}

// find returns the position of the field with that order in m.oxm, or if from == to, where it would
// be.
func (m Match) find(order uint64) (from, to int) {
	for at := 0; at < len(m.oxm); {
		n := 4 + int(m.oxm[at+3])
		switch here := orderOfTLV(m.oxm[at : at+n]); {
		case here == order:
			return at, at + n
		case here > order:
			return at, at
		}
		at += n
	}
	return len(m.oxm), len(m.oxm)
}

const matchOXM = 1 // OFPMT_OXM

// appendTo appends an ofp_match with its padding.
func (m Match) appendTo(b []byte) []byte {
	at := len(b)
	n := 4 + len(m.oxm)
	b = append(b, 0, matchOXM, byte(n>>8), byte(n))
	return pad8(append(b, m.oxm...), at)
}

// match decodes the ofp_match at offset at, and returns where its padding ends.
func (d decoder) match(at, end int) (m Match, next int, err error) {
	if err := d.within(at, 8, end, BadMatchBadLen); err != nil {
		return Match{}, 0, err
	}
	if t := get16(d.b, at); t != matchOXM {
		return Match{}, 0, d.fail(at, BadMatchBadType, "match type %d, want %d", t, matchOXM)
	}
	n := int(get16(d.b, at+2))
	next = at + (n+7)&^7
	if n < 4 || next > end {
		return Match{}, 0, d.fail(at+2, BadMatchBadLen, "length %d of a match, want 4 to %d", n, end-at)
	}
	canonical, err := d.checkOXMs(at+4, at+n)
	if err != nil {
		return Match{}, 0, err
	}
	if canonical {
		return Match{string(d.b[at+4 : at+n])}, next, nil
	}
	m, err = d.sortOXMs(at+4, at+n)
	return m, next, err
}

// checkOXMs checks the TLVs from offset at to end, and reports whether they are in canonical form.
func (d decoder) checkOXMs(at, end int) (canonical bool, err error) {
	canonical = true
	strict := d.strict()
	var have condition
	for last := uint64(0); at < end; {
		h, value, exact, err := d.checkOXM(at, end)
		if err != nil {
			return false, err
		}
		n := 4 + int(h&0xff)
		order := orderOfHeader(h)
		if h>>16 == uint32(ClassExperimenter) {
			order = orderOfTLV(d.b[at : at+n])
		}
		order++ // the first field's order is 0, and greater than last
		canonical = canonical && exact && order > last
		last = order
		if f := Field(h >> 9 & 0x7f); strict && h>>16 == uint32(ClassBasic) {
			if need := prerequisites[f]; need != 0 && need&have == 0 {
				return false, d.fail(at, BadMatchBadPrereq, "%v without its prerequisite before it", f)
			}
			have |= grants(f, value)
		}
		at += n
	}
	return canonical, nil
}

// sortOXMs makes a match of TLVs that checkOXMs has checked and that are not in canonical form.
func (d decoder) sortOXMs(at, end int) (Match, error) {
	seen := make(map[uint64]bool)
	var fields []OXM
	for at < end {
		n := 4 + int(d.b[at+3])
		o := parseOXM(string(d.b[at : at+n]))
		if order := orderOf(&o); seen[order] {
			return Match{}, d.fail(at, BadMatchDupField, "%v is given twice", o.name())
		} else {
			seen[order] = true
		}
		fields = append(fields, o)
		at += n
	}
	return NewMatch(fields...), nil
}
