package controller

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	"trivet.dev/trivet/openflow"
)

// Rules are the flow entries and groups that one app wants in one switch; only differences are
// sent. They start as what the switch had when it connected, so when a switch or the controller
// comes back, nothing that is already right is touched.
//
// Entries that the switch removes by itself (timeouts) must be dropped with Forget, or are better
// sent without Rules. Rules are not safe for concurrent use.
type Rules struct {
	sw           *Switch
	cookie, mask uint64
	flows        map[RuleKey]*openflow.FlowMod
	groups       map[uint32]*openflow.GroupDesc
}

// RuleKey identifies an entry of a switch (OpenFlow 1.3.5, section 5.2).
type RuleKey struct {
	Table    uint8
	Priority uint16
	Match    openflow.Match
}

// KeyOf returns the key of a FLOW_MOD's entry.
func KeyOf(m *openflow.FlowMod) RuleKey { return RuleKey{m.Table, m.Priority, m.Match} }

// Rules returns the entries of s whose cookie equals cookie in the bits of mask, and the groups for
// which ownGroup is true (nil: none). It must be called in SwitchUp.
func (s *Switch) Rules(cookie, mask uint64, ownGroup func(id uint32) bool) *Rules {
	r := &Rules{sw: s, cookie: cookie, mask: mask, flows: map[RuleKey]*openflow.FlowMod{},
		groups: map[uint32]*openflow.GroupDesc{}}
	if s.had == nil {
		return r
	}
	for i := range s.had.flows {
		f := &s.had.flows[i]
		if f.Cookie&mask != cookie {
			continue
		}
		m := openflow.NewFlowMod(openflow.FlowAdd, f.Priority, f.Match, f.Instructions...)
		m.Table, m.Cookie, m.Flags, m.IdleTimeout, m.HardTimeout = f.Table, f.Cookie, f.Flags, f.IdleTimeout,
			f.HardTimeout
		r.flows[KeyOf(m)] = m
	}
	for i := range s.had.groups {
		if g := &s.had.groups[i]; ownGroup != nil && ownGroup(g.Group) {
			r.groups[g.Group] = g
		}
	}
	return r
}

// Flows returns the entries, in no order. They must not be changed.
func (r *Rules) Flows() []*openflow.FlowMod { return slices.Collect(maps.Values(r.flows)) }

// Flow returns an entry, or nil.
func (r *Rules) Flow(k RuleKey) *openflow.FlowMod { return r.flows[k] }

// Has reports whether the switch has exactly this entry.
func (r *Rules) Has(m *openflow.FlowMod) bool {
	old := r.flows[KeyOf(m)]
	return old != nil && sameFlow(old, m)
}

// Set adds or replaces an entry; the rules' cookie is set where the entry's differs.
func (r *Rules) Set(m *openflow.FlowMod) error {
	if m.Cookie&r.mask != r.cookie {
		m.Cookie |= r.cookie
	}
	m.Command = openflow.FlowAdd
	key := KeyOf(m)
	if r.Has(m) {
		return nil
	}
	r.flows[key] = m
	return r.sw.Send(m)
}

// Remove deletes an entry.
func (r *Rules) Remove(k RuleKey) error {
	if r.flows[k] == nil {
		return nil
	}
	delete(r.flows, k)
	m := openflow.NewFlowMod(openflow.FlowDeleteStrict, k.Priority, k.Match)
	m.Table, m.Cookie, m.CookieMask = k.Table, r.cookie, r.mask
	return r.sw.Send(m)
}

// Forget drops an entry that the switch has reported as removed.
func (r *Rules) Forget(k RuleKey) { delete(r.flows, k) }

// Group returns a group, or nil. It must not be changed.
func (r *Rules) Group(id uint32) *openflow.GroupDesc { return r.groups[id] }

// SetGroup adds or changes a group.
func (r *Rules) SetGroup(g *openflow.GroupDesc) error {
	command := openflow.GroupAdd
	if old := r.groups[g.Group]; old != nil {
		if sameGroup(old, g) {
			return nil
		}
		command = openflow.GroupModify
	}
	r.groups[g.Group] = g
	return r.sw.Send(&openflow.GroupMod{Command: command, GroupDesc: *g})
}

// RemoveGroup deletes a group, and with it all entries that use it.
func (r *Rules) RemoveGroup(id uint32) error {
	if r.groups[id] == nil {
		return nil
	}
	delete(r.groups, id)
	return r.sw.Send(&openflow.GroupMod{Command: openflow.GroupDelete, GroupDesc: openflow.GroupDesc{Group: id}})
}

// GroupDescs returns the groups, in no order. They must not be changed.
func (r *Rules) GroupDescs() []*openflow.GroupDesc { return slices.Collect(maps.Values(r.groups)) }

// Replace makes the rules exactly these. New entries are sent before old ones are removed, so that
// no packet ever finds neither.
func (r *Rules) Replace(flows []*openflow.FlowMod, groups []*openflow.GroupDesc) error {
	var errs []error
	keepGroup := map[uint32]bool{}
	for _, g := range groups {
		keepGroup[g.Group] = true
		errs = append(errs, r.SetGroup(g))
	}
	keep := make(map[RuleKey]bool, len(flows))
	for _, m := range flows {
		keep[KeyOf(m)] = true
		errs = append(errs, r.Set(m))
	}
	for k := range r.flows {
		if !keep[k] {
			errs = append(errs, r.Remove(k))
		}
	}
	for id := range r.groups {
		if !keepGroup[id] {
			errs = append(errs, r.RemoveGroup(id))
		}
	}
	return errors.Join(errs...)
}

// sameFlow reports whether two entries with the same key do the same.
func sameFlow(a, b *openflow.FlowMod) bool {
	if a.Cookie != b.Cookie || a.IdleTimeout != b.IdleTimeout || a.HardTimeout != b.HardTimeout || a.Flags != b.Flags {
		return false
	}
	var room [2][512]byte
	return bytes.Equal(body(a).AppendTo(room[0][:0]), body(b).AppendTo(room[1][:0]))
}

// body is a message with only the entry's instructions.
func body(m *openflow.FlowMod) *openflow.FlowMod {
	return &openflow.FlowMod{Instructions: m.Instructions}
}

func sameGroup(a, b *openflow.GroupDesc) bool {
	encode := func(g *openflow.GroupDesc) []byte {
		return (&openflow.GroupMod{GroupDesc: *g}).AppendTo(nil)
	}
	return bytes.Equal(encode(a), encode(b))
}
