package flowload

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"trivet.dev/trivet/openflow"
)

const (
	maxEntries = 250_000 // of a switch; a further one is refused
	maxGroups  = 10_000
	tables     = 254
)

// store is the flow and group tables of a switch, which controllers can read back. An entry is kept
// as the FLOW_MOD that added it and parsed only on request, so that adding one is as cheap as
// possible. Entries do not expire and count no packets.
type store struct {
	seed    maphash.Seed
	entries map[uint64]*entry // by table, priority and match
	n       int
	groups  map[uint32]openflow.GroupDesc
	senders []*sender // the first to match a packet first
	bySend  map[*entry]*sender
	dirty   bool // bySend is ahead of senders
}

type entry struct {
	raw    []byte
	since  time.Time
	sender bool
	next   *entry // another one with the same hash
}

func newStore() *store {
	return &store{seed: maphash.MakeSeed(), entries: map[uint64]*entry{}, groups: map[uint32]openflow.GroupDesc{},
		bySend: map[*entry]*sender{}}
}

// match13 is the match of a FLOW_MOD that flowMod13 has found well-formed.
func match13(m []byte) []byte { return m[48 : 48+int(be.Uint16(m[50:]))] }

func (s *store) hash(m []byte) uint64 {
	return maphash.Bytes(s.seed, match13(m)) ^ uint64(m[24])<<16 ^ uint64(be.Uint16(m[30:]))
}

// same reports whether two FLOW_MODs are of the same entry.
func same(a, b []byte) bool {
	return a[24] == b[24] && a[30] == b[30] && a[31] == b[31] && bytes.Equal(match13(a), match13(b))
}

// add takes a FLOW_MOD that adds an entry; v is what flowMod13 read of it. The result is 0 or why
// not.
func (s *store) add(m []byte, v *said, now time.Time) openflow.ErrorCode {
	if m[24] >= tables {
		return openflow.FlowModFailedBadTableID
	}
	if v.hasGroup {
		if _, ok := s.groups[v.group]; !ok {
			return openflow.BadActionBadOutGroup
		}
	}
	key := s.hash(m)
	e := s.entries[key]
	for ; e != nil && !same(e.raw, m); e = e.next {
	}
	if e == nil {
		if s.n >= maxEntries {
			return openflow.FlowModFailedTableFull
		}
		e = &entry{next: s.entries[key]}
		s.entries[key] = e
		s.n++
	}
	e.raw = append(e.raw[:0], m...)
	e.since = now
	if v.toController || e.sender {
		s.setSender(e, v.toController)
	}
	return 0
}

// setSender keeps the list of the entries that send to the controller.
func (s *store) setSender(e *entry, is bool) {
	e.sender, s.dirty = is, true
	if !is {
		delete(s.bySend, e)
		return
	}
	var f openflow.FlowMod
	if openflow.DecodeInto(e.raw, &f) == nil {
		s.bySend[e] = newSender(&f)
	}
}

// publish sorts the entries that send packets to the controller, and reports whether they have
// changed.
func (s *store) publish() bool {
	if !s.dirty {
		return false
	}
	s.dirty = false
	s.senders = slices.SortedFunc(maps.Values(s.bySend), func(a, b *sender) int {
		return cmp.Or(cmp.Compare(a.table, b.table), -cmp.Compare(a.priority, b.priority))
	})
	return true
}

// each calls f with every entry that a request selects: by table, cookie, output and match as in
// ofp_flow_stats_request (section 7.3.5.2); strict compares match and priority. f returns whether
// the entry stays.
func (s *store) each(want *openflow.FlowMod, strict bool, f func(e *entry, m *openflow.FlowMod) (stays bool)) {
	sure := surely(want.Match)
	for key, first := range s.entries {
		link := &first
		for e := first; e != nil; e = e.next {
			if s.means(e, want, strict, sure, f) {
				link = &e.next
				continue
			}
			*link = e.next
			s.n--
			if e.sender {
				s.setSender(e, false)
			}
		}
		switch {
		case first == nil:
			delete(s.entries, key)
		case first != s.entries[key]:
			s.entries[key] = first
		}
	}
}

func (s *store) means(e *entry, want *openflow.FlowMod, strict bool, sure [][]byte,
	f func(*entry, *openflow.FlowMod) bool) bool {
	if want.Table != openflow.TableAll && want.Table != e.raw[24] ||
		(be.Uint64(e.raw[8:])^want.Cookie)&want.CookieMask != 0 {
		return true
	}
	for _, field := range sure {
		if !bytes.Contains(match13(e.raw), field) {
			return true
		}
	}
	var m openflow.FlowMod
	if openflow.DecodeInto(e.raw, &m) != nil {
		return true
	}
	if strict && (m.Priority != want.Priority || m.Match != want.Match) || !strict && !want.Match.Covers(m.Match) {
		return true
	}
	if want.OutPort != openflow.PortAny &&
		!leads(&m, func(a openflow.Action) bool { return a.Type == openflow.ActionOutput && a.Port == want.OutPort }) ||
		want.OutGroup != openflow.GroupAny && !leads(&m, func(a openflow.Action) bool {
			return a.Type == openflow.ActionGroup && a.Group == want.OutGroup
		}) {
		return true
	}
	return f(e, &m)
}

// surely returns the encoded fields without a mask: entries covered by the match have them, too, so
// that others need not be parsed.
func surely(m openflow.Match) (fields [][]byte) {
	for o := range m.All() {
		if !o.Masked {
			one := openflow.NewFlowMod(openflow.FlowAdd, 0, openflow.NewMatch(o)).AppendTo(nil)
			fields = append(fields, match13(one)[4:])
		}
	}
	return fields
}

// leads reports whether an entry has such an action.
func leads(m *openflow.FlowMod, is func(openflow.Action) bool) bool {
	for _, i := range m.Instructions {
		if slices.ContainsFunc(i.Actions, is) {
			return true
		}
	}
	return false
}

// change carries out a FLOW_MOD that modifies or deletes, and returns what to tell the controller.
func (s *store) change(f *openflow.FlowMod, now time.Time) (tell []openflow.Message) {
	strict := f.Command == openflow.FlowModifyStrict || f.Command == openflow.FlowDeleteStrict
	want := *f
	if f.Command == openflow.FlowModify || f.Command == openflow.FlowModifyStrict {
		want.OutPort, want.OutGroup = openflow.PortAny, openflow.GroupAny // they count in DELETE alone
		s.each(&want, strict, func(e *entry, m *openflow.FlowMod) bool {
			m.Instructions = f.Instructions
			e.raw = m.AppendTo(e.raw[:0])
			var v said
			if v.flowMod13(e.raw) && (v.toController || e.sender) {
				s.setSender(e, v.toController)
			}
			return true
		})
		return nil
	}
	return s.remove(&want, strict, openflow.RemovedDelete, now)
}

func (s *store) remove(want *openflow.FlowMod, strict bool, why openflow.FlowRemovedReason,
	now time.Time) (tell []openflow.Message) {
	s.each(want, strict, func(e *entry, m *openflow.FlowMod) bool {
		if m.Flags&openflow.FlowSendFlowRem != 0 {
			tell = append(tell, &openflow.FlowRemoved{Cookie: m.Cookie, Priority: m.Priority, Reason: why,
				Table:    m.Table,
				Duration: openflow.DurationOf(now.Sub(e.since)), IdleTimeout: m.IdleTimeout, HardTimeout: m.HardTimeout,
				Match: m.Match})
		}
		return false
	})
	return tell
}

// changeGroup carries out a GROUP_MOD (section 6.5): the code is 0 or why not.
func (s *store) changeGroup(g *openflow.GroupMod, now time.Time) (tell []openflow.Message, code openflow.ErrorCode) {
	_, known := s.groups[g.Group]
	switch {
	case g.Command == openflow.GroupDelete:
		want := openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.Match{})
		want.Table = openflow.TableAll
		for id := range s.groups {
			if g.Group == openflow.GroupAll || g.Group == id {
				want.OutGroup = id
				tell = append(tell, s.remove(want, false, openflow.RemovedGroupDelete, now)...)
				delete(s.groups, id)
			}
		}
		return tell, 0
	case g.Group > openflow.GroupMax:
		return nil, openflow.GroupModFailedInvalidGroup
	case g.Command == openflow.GroupAdd && known:
		return nil, openflow.GroupModFailedGroupExists
	case g.Command == openflow.GroupModify && !known:
		return nil, openflow.GroupModFailedUnknownGroup
	case !known && len(s.groups) >= maxGroups:
		return nil, openflow.GroupModFailedOutOfGroups
	}
	s.groups[g.Group] = g.GroupDesc
	return nil, 0
}
