package pipeline

import (
	"hash/maphash"
	"math/bits"
	"slices"

	"trivet.dev/trivet/openflow"
)

// A table finds the entry of the highest priority that matches a packet, by tuple space search. The
// entries with the same mask are a subtable, a hash map by the masked bits; subtables are searched
// in the order of their highest priority, until none can have a better entry.
type table struct {
	byMask    map[Mask]*subtable
	subtables []*subtable             // by highest priority
	prefixes  [prefixFields]*prefixes // nil for fields with one prefix length in all subtables
	version   uint64                  // raised with each change
	count     int
	lookups   Counter
	misses    Counter
}

type subtable struct {
	mask   Mask
	words  []masked // of the mask, those that are not zero
	stages []stage  // all but the last one
	flows  map[uint64]*Flow
	count  int
	prefix [prefixFields]uint8 // the prefix length of that field in the mask; 0: none, or no prefix

	highest    uint16
	priorities map[uint16]int // number of entries by priority
}

type masked struct {
	word uint8
	bits uint64
}

// A stage is the first words of a mask: if a packet agrees with no entry there, the rest is not
// compared.
type stage struct {
	end   int // of words
	count map[uint64]int32
}

// seed keeps senders from choosing packets whose hashes collide.
var seed = maphash.Bytes(maphash.MakeSeed(), nil) | 1

func mix(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^v, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

func newSubtable(mask Mask) *subtable {
	s := &subtable{mask: mask, flows: map[uint64]*Flow{}, priorities: map[uint16]int{}}
	from := 0
	for _, end := range stageEnds {
		before := len(s.words)
		for ; from <= end; from++ {
			if mask[from] != 0 {
				s.words = append(s.words, masked{uint8(from), mask[from]})
			}
		}
		if before > 0 && len(s.words) > before {
			s.stages = append(s.stages, stage{before, map[uint64]int32{}})
		}
	}
	for field := range s.prefix {
		s.prefix[field] = prefixLength(&mask, field)
	}
	return s
}

// hash returns the hash of values, and calls each with that of the values before each stage's end.
func (s *subtable) hash(values []uint64, each func(stage *stage, h uint64)) uint64 {
	h, next := seed, 0
	for i, v := range values {
		if next < len(s.stages) && s.stages[next].end == i {
			each(&s.stages[next], h)
			next++
		}
		h = mix(h, v)
	}
	return h
}

// find returns the best entry for a packet, and how many of the words were looked at.
func (s *subtable) find(k *Key) (*Flow, int) {
	h, next := seed, 0
	for i := range s.words {
		if next < len(s.stages) && s.stages[next].end == i {
			if s.stages[next].count[h] == 0 {
				return nil, i
			}
			next++
		}
		w := &s.words[i]
		h = mix(h, k[w.word]&w.bits)
	}
	for f := s.flows[h]; f != nil; f = f.next {
		if s.matches(f, k) {
			return f, len(s.words)
		}
	}
	return nil, len(s.words)
}

func (s *subtable) matches(f *Flow, k *Key) bool {
	for i := range s.words {
		w := &s.words[i]
		if k[w.word]&w.bits != f.values[i] {
			return false
		}
	}
	return true
}

// lookup returns the entry that a packet matches, or nil, and adds the bits that it has looked at
// to looked.
func (t *table) lookup(k *Key, looked *Mask) (best *Flow) {
	var search prefixSearch
	for _, s := range t.subtables {
		if best != nil && best.Priority >= s.highest {
			break
		}
		if search.rulesOut(t, s, k, looked) {
			continue
		}
		f, n := s.find(k)
		for i := range n {
			looked[s.words[i].word] |= s.words[i].bits
		}
		if f != nil && (best == nil || f.Priority > best.Priority) {
			best = f
		}
	}
	return best
}

// prefixSearch caches which of a table's prefixes a packet has.
type prefixSearch struct {
	done   [prefixFields]bool
	found  [prefixFields]lengths
	looked [prefixFields]uint8
}

// rulesOut reports whether no entry of a subtable can match, as the packet has none of its
// prefixes.
func (p *prefixSearch) rulesOut(t *table, s *subtable, k *Key, looked *Mask) bool {
	for field, length := range s.prefix {
		tree := t.prefixes[field]
		if length == 0 || tree == nil {
			continue
		}
		if !p.done[field] {
			p.done[field] = true
			p.found[field], p.looked[field] = tree.find(prefixValue(k, field))
		}
		if !p.found[field].has(length) {
			lookPrefix(looked, field, min(p.looked[field], length))
			return true
		}
	}
	return false
}

// plant makes the sets of prefixes for fields that now have several lengths, as there is a new
// subtable.
func (t *table) plant(s *subtable) {
	for field, length := range s.prefix {
		if length == 0 || t.prefixes[field] != nil {
			continue
		}
		other := func(o *subtable) bool { return o.prefix[field] != 0 && o.prefix[field] != length }
		if !slices.ContainsFunc(t.subtables, other) {
			continue
		}
		tree := &prefixes{}
		for _, o := range t.subtables {
			if o.prefix[field] == 0 {
				continue
			}
			for _, f := range o.flows {
				for ; f != nil; f = f.next {
					tree.add(f.prefix(field), o.prefix[field])
				}
			}
		}
		t.prefixes[field] = tree
	}
}

// eachPrefix calls f for the prefixes that an entry has in the sets.
func (t *table) eachPrefix(s *subtable, do func(tree *prefixes, field int)) {
	for field, length := range s.prefix {
		if tree := t.prefixes[field]; length > 0 && tree != nil {
			do(tree, field)
		}
	}
}

// values returns the masked words of a key.
func (s *subtable) values(k *Key) []uint64 {
	out := make([]uint64, len(s.words))
	for i, w := range s.words {
		out[i] = k[w.word] & w.bits
	}
	return out
}

// get returns the entry with exactly that match and priority.
func (t *table) get(value *Key, mask Mask, priority uint16) *Flow {
	s := t.byMask[mask]
	if s == nil {
		return nil
	}
	h := seed
	for i := range s.words {
		h = mix(h, value[s.words[i].word]&s.words[i].bits)
	}
	for f := s.flows[h]; f != nil; f = f.next {
		if f.Priority == priority && s.matches(f, value) {
			return f
		}
	}
	return nil
}

// insert adds an entry that is not in the table yet.
func (t *table) insert(f *Flow, value *Key, mask Mask) {
	s := t.byMask[mask]
	if s == nil {
		s = newSubtable(mask)
		if t.byMask == nil {
			t.byMask = map[Mask]*subtable{}
		}
		t.plant(s)
		t.byMask[mask] = s
		t.subtables = append(t.subtables, s)
	}
	f.subtable, f.values = s, s.values(value)
	t.eachPrefix(s, func(tree *prefixes, field int) { tree.add(f.prefix(field), s.prefix[field]) })
	h := s.hash(f.values, func(stage *stage, h uint64) { stage.count[h]++ })
	at := s.flows[h]
	if at == nil || at.Priority < f.Priority {
		f.next = at
		s.flows[h] = f
	} else {
		for at.next != nil && at.next.Priority >= f.Priority {
			at = at.next
		}
		f.next, at.next = at.next, f
	}
	s.count++
	t.count++
	if s.priorities[f.Priority]++; s.count == 1 || f.Priority > s.highest {
		s.highest = f.Priority
		t.sort()
	}
}

// remove removes an entry that is in the table.
func (t *table) remove(f *Flow) {
	s := f.subtable
	t.eachPrefix(s, func(tree *prefixes, field int) { tree.remove(f.prefix(field), s.prefix[field]) })
	h := s.hash(f.values, func(stage *stage, h uint64) {
		if stage.count[h]--; stage.count[h] == 0 {
			delete(stage.count, h)
		}
	})
	if s.flows[h] == f {
		if f.next == nil {
			delete(s.flows, h)
		} else {
			s.flows[h] = f.next
		}
	} else {
		for at := s.flows[h]; at != nil; at = at.next {
			if at.next == f {
				at.next = f.next
				break
			}
		}
	}
	f.next, f.subtable = nil, nil
	s.count--
	t.count--
	t.removed(s, f.Priority)
}

// removed restores the order of the subtables after one has lost an entry.
func (t *table) removed(s *subtable, priority uint16) {
	if s.priorities[priority]--; s.priorities[priority] > 0 {
		return
	}
	delete(s.priorities, priority)
	switch {
	case s.count == 0:
		delete(t.byMask, s.mask)
		if len(t.byMask) == 0 {
			t.prefixes = [prefixFields]*prefixes{}
		}
		t.subtables = slices.DeleteFunc(t.subtables, func(o *subtable) bool { return o == s })
	case priority == s.highest:
		s.highest = 0
		for p := range s.priorities {
			s.highest = max(s.highest, p)
		}
		t.sort()
	}
}

func (t *table) sort() {
	slices.SortStableFunc(t.subtables, func(a, b *subtable) int { return int(b.highest) - int(a.highest) })
}

// each calls f for all entries that a match covers (section 6.4: not strict), until f returns
// false.
func (t *table) each(value *Key, mask *Mask, f func(*Flow) bool) {
	for _, s := range t.subtables {
		if !s.covered(mask) {
			continue
		}
		for _, flow := range s.flows {
			for ; flow != nil; flow = flow.next {
				if flow.coveredBy(value, mask) && !f(flow) {
					return
				}
			}
		}
	}
}

// covered reports whether all bits of a mask are in that of the subtable.
func (s *subtable) covered(mask *Mask) bool {
	for i := range mask {
		if mask[i]&^s.mask[i] != 0 {
			return false
		}
	}
	return true
}

// overlaps reports whether a packet can match both an entry of that priority and the match.
func (t *table) overlaps(value *Key, mask *Mask, priority uint16) bool {
	for _, s := range t.subtables {
		if s.priorities[priority] == 0 {
			continue
		}
		for _, f := range s.flows {
			for ; f != nil; f = f.next {
				if f.Priority == priority && f.overlaps(value, mask) {
					return true
				}
			}
		}
	}
	return false
}

// list returns all entries, by priority and age.
func (t *table) list(value *Key, mask *Mask) []*Flow {
	if t == nil {
		return nil
	}
	var out []*Flow
	t.each(value, mask, func(f *Flow) bool { out = append(out, f); return true })
	slices.SortFunc(out, func(a, b *Flow) int {
		if a.Priority != b.Priority {
			return int(b.Priority) - int(a.Priority)
		}
		if a.number < b.number {
			return -1
		}
		return 1
	})
	return out
}

// matchOf is matchBits for matches from messages, which may be invalid.
func matchOf(m openflow.Match) (value Key, mask Mask, err error) {
	for o := range m.All() {
		if o.Class != openflow.ClassBasic || o.Field >= openflow.NumFields {
			return value, mask, refuse(openflow.BadMatchBadField, "a field of class %#x", uint16(o.Class))
		}
	}
	if f, missing := m.MissingPrerequisite(); missing {
		return value, mask, refuse(openflow.BadMatchBadPrereq, "%v without its prerequisite", f)
	}
	value, mask = matchBits(m)
	return value, mask, nil
}
