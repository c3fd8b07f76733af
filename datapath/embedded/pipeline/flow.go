package pipeline

import (
	"container/heap"
	"time"

	"trivet.dev/trivet/openflow"
)

// Flow is a flow entry.
type Flow struct {
	Counter
	Match       openflow.Match
	Cookie      uint64
	Priority    uint16
	IdleTimeout uint16 // seconds
	HardTimeout uint16 // seconds
	Flags       openflow.FlowModFlags
	Table       uint8

	gone     bool
	program  *program
	owner    *Switch
	created  time.Duration
	number   uint64 // that of the entry's birth
	subtable *subtable
	values   []uint64
	next     *Flow // with the same hash, of the same or a lower priority
	expiry   int   // index in the heap of the network + 1; 0: not in it
	deadline time.Duration
}

// Instructions returns what the entry does; it must not be changed.
func (f *Flow) Instructions() []openflow.Instruction { return f.program.instructions }

// coveredBy reports whether the entry's match includes all bits of a mask, which the mask of the
// entry's subtable covers.
func (f *Flow) coveredBy(value *Key, mask *Mask) bool {
	for i, w := range f.subtable.words {
		if (f.values[i]^value[w.word])&mask[w.word] != 0 {
			return false
		}
	}
	return true
}

// prefix returns the bits of a field that the entry matches, from the highest on.
func (f *Flow) prefix(field int) openflow.Value {
	var k Key
	for i, w := range f.subtable.words {
		k[w.word] = f.values[i]
	}
	return firstBits(prefixValue(&k, field), f.subtable.prefix[field])
}

func (f *Flow) overlaps(value *Key, mask *Mask) bool {
	for i, w := range f.subtable.words {
		if (f.values[i]^value[w.word])&w.bits&mask[w.word] != 0 {
			return false
		}
	}
	return true
}

// tableMiss reports whether it is the table-miss entry (section 5.4).
func (f *Flow) tableMiss() bool { return f.Priority == 0 && len(f.values) == 0 }

// due returns when the entry expires if no packet comes, and why; false: never.
func (f *Flow) due() (at time.Duration, why openflow.FlowRemovedReason, ok bool) {
	if f.IdleTimeout > 0 {
		at = max(f.Used(), f.created) + time.Duration(f.IdleTimeout)*time.Second
		why, ok = openflow.RemovedIdleTimeout, true
	}
	if hard := f.created + time.Duration(f.HardTimeout)*time.Second; f.HardTimeout > 0 && (!ok || hard <= at) {
		return hard, openflow.RemovedHardTimeout, true
	}
	return at, why, ok
}

// FlowMod executes a FLOW_MOD, except for its buffer. The error is a *Refusal, and then nothing has
// changed.
func (s *Switch) FlowMod(m *openflow.FlowMod, now time.Duration) error {
	return s.net.change(func() error { return s.flowMod(m, now) })
}

func (s *Switch) flowMod(m *openflow.FlowMod, now time.Duration) error {
	value, mask, err := matchOf(m.Match)
	if err != nil {
		return err
	}
	deletes := m.Command == openflow.FlowDelete || m.Command == openflow.FlowDeleteStrict
	if int(m.Table) >= len(s.tables) && !(deletes && m.Table == openflow.TableAll) {
		return refuse(openflow.FlowModFailedBadTableID, "there is no table %d", m.Table)
	}
	if m.Flags&^(openflow.FlowNoBytCounts<<1-1) != 0 {
		return refuse(openflow.FlowModFailedBadFlags, "flags %#x", uint16(m.Flags))
	}
	if deletes {
		s.deleteFlows(m, &value, &mask, now)
		return nil
	}
	if err := s.checkInstructions(m.Instructions, m.Table, &value, &mask); err != nil {
		return err
	}
	if m.Command == openflow.FlowAdd {
		return s.addFlow(m, &value, mask, now)
	}
	s.modifyFlows(m, &value, &mask)
	return nil
}

func (s *Switch) addFlow(m *openflow.FlowMod, value *Key, mask Mask, now time.Duration) error {
	t := s.table(int(m.Table))
	old := t.get(value, mask, m.Priority)
	if m.Flags&openflow.FlowCheckOverlap != 0 && t.overlaps(value, &mask, m.Priority) {
		return refuse(openflow.FlowModFailedOverlap, "an entry of priority %d overlaps", m.Priority)
	}
	if old == nil && t.count >= s.config.MaxFlows {
		return refuse(openflow.FlowModFailedTableFull, "table %d has %d entries already", m.Table, t.count)
	}
	s.net.births++
	f := &Flow{
		Match: m.Match, Cookie: m.Cookie, Priority: m.Priority, IdleTimeout: m.IdleTimeout, HardTimeout: m.HardTimeout,
		Flags: m.Flags &^ openflow.FlowResetCounts, Table: m.Table, owner: s, created: now, number: s.net.births,
	}
	f.program = s.programFor(m.Instructions)
	if old != nil {
		if m.Flags&openflow.FlowResetCounts == 0 {
			s.net.fold(old, 0)
			f.copyFrom(&old.Counter)
		}
		s.takeOut(old)
	}
	t.insert(f, value, mask)
	s.touch(int(m.Table))
	s.net.watch(f)
	return nil
}

// modifyFlows changes the instructions of existing entries; it adds none (section 6.4).
func (s *Switch) modifyFlows(m *openflow.FlowMod, value *Key, mask *Mask) {
	for _, f := range s.chosen(s.table(int(m.Table)), m, value, mask, m.Command == openflow.FlowModifyStrict) {
		if (f.Cookie^m.Cookie)&m.CookieMask != 0 {
			continue
		}
		p := s.programFor(m.Instructions)
		s.dropProgram(f.program)
		f.program = p
		if m.Flags&openflow.FlowResetCounts != 0 {
			s.net.fold(f, 0) // hits counted elsewhere so far belong to the old instructions
			f.reset()
		}
		s.touch(int(m.Table))
	}
}

// chosen returns the entries of a table that a command applies to.
func (s *Switch) chosen(t *table, m *openflow.FlowMod, value *Key, mask *Mask, strict bool) (list []*Flow) {
	if strict {
		if f := t.get(value, *mask, m.Priority); f != nil {
			list = append(list, f)
		}
		return list
	}
	t.each(value, mask, func(f *Flow) bool { list = append(list, f); return true })
	return list
}

func (s *Switch) deleteFlows(m *openflow.FlowMod, value *Key, mask *Mask, now time.Duration) {
	for id, t := range s.tables {
		if t == nil || m.Table != openflow.TableAll && int(m.Table) != id {
			continue
		}
		for _, f := range s.chosen(t, m, value, mask, m.Command == openflow.FlowDeleteStrict) {
			if (f.Cookie^m.Cookie)&m.CookieMask == 0 && f.program.outputsTo(m.OutPort, m.OutGroup) {
				s.removeFlow(f, openflow.RemovedDelete, now)
			}
		}
	}
}

// removeFlow removes an entry, and reports it if the entry asks for that.
func (s *Switch) removeFlow(f *Flow, why openflow.FlowRemovedReason, now time.Duration) {
	s.net.fold(f, 0)
	s.takeOut(f)
	s.touch(int(f.Table))
	if f.Flags&openflow.FlowSendFlowRem == 0 {
		return
	}
	s.net.tell(s, &openflow.FlowRemoved{
		Cookie: f.Cookie, Priority: f.Priority, Reason: why, Table: f.Table,
		Duration: openflow.DurationOf(max(now-f.created, 0)), IdleTimeout: f.IdleTimeout, HardTimeout: f.HardTimeout,
		Packets: f.Packets(), Bytes: f.Bytes(), Match: f.Match,
	})
}

func (s *Switch) takeOut(f *Flow) {
	f.gone = true
	s.tables[f.Table].remove(f)
	s.dropProgram(f.program)
	if f.expiry > 0 {
		heap.Remove(&s.net.expiries, f.expiry-1)
	}
}

// watch adds an entry with a timeout to the heap of those that expire.
func (n *Network) watch(f *Flow) {
	if at, _, ok := f.due(); ok {
		f.deadline = at
		heap.Push(&n.expiries, f)
	}
}

// Expire removes the entries that have expired, and returns when to call it again; false: once an
// entry with a timeout has been added. Entries may then turn out to have been used and to live
// longer.
func (n *Network) Expire(now time.Duration) (next time.Duration, ok bool) {
	_ = n.change(func() error {
		for len(n.expiries) > 0 && n.expiries[0].deadline <= now {
			f := n.expiries[0]
			n.fold(f, now)
			at, why, _ := f.due()
			if at > now {
				f.deadline = at
				heap.Fix(&n.expiries, 0)
				continue
			}
			f.owner.removeFlow(f, why, now)
		}
		if len(n.expiries) > 0 {
			next, ok = n.expiries[0].deadline, true
		}
		return nil
	})
	return next, ok
}

// expiries is a heap of entries by deadline.
type expiries []*Flow

func (e expiries) Len() int           { return len(e) }
func (e expiries) Less(i, j int) bool { return e[i].deadline < e[j].deadline }
func (e expiries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].expiry, e[j].expiry = i+1, j+1
}

func (e *expiries) Push(x any) {
	f := x.(*Flow)
	*e = append(*e, f)
	f.expiry = len(*e)
}

func (e *expiries) Pop() any {
	old := *e
	f := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	f.expiry = 0
	return f
}
