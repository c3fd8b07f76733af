package pipeline

import (
	"math"
	"time"

	"trivet.dev/trivet/openflow"
)

const (
	maxBuckets    = 1024
	maxGroupDepth = 32 // levels of groups within groups
)

// Group is an entry of the group table.
type Group struct {
	Counter
	desc    openflow.GroupDesc
	buckets []Counter
	created time.Duration
}

// GroupMod executes a GROUP_MOD. The error is a *Refusal.
func (s *Switch) GroupMod(m *openflow.GroupMod, now time.Duration) error {
	return s.net.change(func() error {
		switch m.Command {
		case openflow.GroupAdd, openflow.GroupModify:
			return s.setGroup(m, now)
		default:
			return s.deleteGroup(m, now)
		}
	})
}

func (s *Switch) setGroup(m *openflow.GroupMod, now time.Duration) error {
	old := s.groups[m.Group]
	switch {
	case m.Group > openflow.GroupMax:
		return refuse(openflow.GroupModFailedInvalidGroup, "no group can have the number %#x", m.Group)
	case m.Command == openflow.GroupAdd && old != nil:
		return refuse(openflow.GroupModFailedGroupExists, "there is already a group %d", m.Group)
	case m.Command == openflow.GroupModify && old == nil:
		return refuse(openflow.GroupModFailedUnknownGroup, "there is no group %d", m.Group)
	case m.Kind == openflow.GroupTypeIndirect && len(m.Buckets) != 1:
		return refuse(openflow.GroupModFailedInvalidGroup, "an indirect group with %d buckets, not 1", len(m.Buckets))
	case len(m.Buckets) > maxBuckets:
		return refuse(openflow.GroupModFailedOutOfBuckets, "%d buckets; at most %d", len(m.Buckets), maxBuckets)
	}
	g := &Group{desc: m.GroupDesc, buckets: make([]Counter, len(m.Buckets)), created: now}
	g.desc.Buckets = make([]openflow.Bucket, len(m.Buckets))
	for i, b := range m.Buckets {
		if b.Weight != 0 && m.Kind != openflow.GroupTypeSelect {
			return refuse(openflow.GroupModFailedInvalidGroup, "a weight in a group of type %v", m.Kind)
		}
		if err := s.checkBucket(m.Group, &b); err != nil {
			return err
		}
		b.Actions = append([]openflow.Action(nil), b.Actions...)
		g.desc.Buckets[i] = b
	}
	if s.loops(g, m.Group, 0) {
		return refuse(openflow.GroupModFailedLoop, "group %d would lead to itself", m.Group)
	}
	if old != nil {
		g.created = old.created
	}
	s.groups[m.Group] = g
	s.touch(ReadGroups)
	return nil
}

func (s *Switch) checkBucket(group uint32, b *openflow.Bucket) error {
	for i := range b.Actions {
		a := &b.Actions[i]
		if a.Type == openflow.ActionGroup && a.Group == group {
			return refuse(openflow.GroupModFailedLoop, "group %d leads to itself", group)
		}
	}
	if b.WatchGroup != openflow.GroupAny && b.WatchGroup > openflow.GroupMax {
		return refuse(openflow.GroupModFailedBadWatch, "group %#x to watch", b.WatchGroup)
	}
	return s.checkSet(b.Actions)
}

// loops reports whether the actions of a group lead to one of that number.
func (s *Switch) loops(g *Group, number uint32, depth int) bool {
	if depth > maxGroupDepth {
		return true
	}
	for _, b := range g.desc.Buckets {
		for _, a := range b.Actions {
			if a.Type != openflow.ActionGroup {
				continue
			}
			if next := s.groups[a.Group]; a.Group == number || next != nil && s.loops(next, number, depth+1) {
				return true
			}
		}
	}
	return false
}

// deleteGroup removes a group, and the entries that use it (section 6.5).
func (s *Switch) deleteGroup(m *openflow.GroupMod, now time.Duration) error {
	if m.Group > openflow.GroupMax && m.Group != openflow.GroupAll {
		return refuse(openflow.GroupModFailedInvalidGroup, "no group has the number %#x", m.Group)
	}
	all := m.Group == openflow.GroupAll
	for number, g := range s.groups {
		for _, b := range g.desc.Buckets {
			for _, a := range b.Actions {
				if !all && number != m.Group && a.Type == openflow.ActionGroup && a.Group == m.Group {
					return refuse(openflow.GroupModFailedChainedGroup, "group %d leads to group %d", number, m.Group)
				}
			}
		}
	}
	uses := func(a *openflow.Action) bool {
		return a.Type == openflow.ActionGroup && (all || a.Group == m.Group)
	}
	s.removeWith(func(p *program) bool { return p.has(uses) }, openflow.RemovedGroupDelete, now)
	if all {
		clear(s.groups)
	} else {
		delete(s.groups, m.Group)
	}
	s.touch(ReadGroups)
	return nil
}

// removeWith removes the entries with such a program.
func (s *Switch) removeWith(is func(*program) bool, why openflow.FlowRemovedReason, now time.Duration) {
	chosen := map[*program]bool{}
	for _, p := range s.programs {
		if is(p) {
			chosen[p] = true
		}
	}
	if len(chosen) == 0 {
		return
	}
	for _, t := range s.tables {
		for _, f := range t.list(&Key{}, &Mask{}) {
			if chosen[f.program] {
				s.removeFlow(f, why, now)
			}
		}
	}
}

// references counts the entries and groups that lead to a group (section 5.6.1).
func (s *Switch) references(number uint32) (n uint32) {
	uses := func(a *openflow.Action) bool { return a.Type == openflow.ActionGroup && a.Group == number }
	for _, p := range s.programs {
		if p.has(uses) {
			n += uint32(p.entries)
		}
	}
	for _, g := range s.groups {
		for _, b := range g.desc.Buckets {
			for i := range b.Actions {
				if uses(&b.Actions[i]) {
					n++
				}
			}
		}
	}
	return n
}

// alive reports whether a bucket can be chosen: the port or group that it watches, if any, is live
// (section 5.6.1).
func (s *Switch) alive(b *openflow.Bucket, depth int) bool {
	if b.WatchPort == openflow.PortAny && b.WatchGroup == openflow.GroupAny {
		return true
	}
	if p := s.ports[b.WatchPort]; p != nil && p.live() {
		return true
	}
	g := s.groups[b.WatchGroup]
	if g == nil || depth > maxGroupDepth {
		return false
	}
	for i := range g.desc.Buckets {
		if s.alive(&g.desc.Buckets[i], depth+1) {
			return true
		}
	}
	return false
}

// firstLive returns the first bucket of a fast failover group that is alive, or -1.
func (s *Switch) firstLive(g *Group) int {
	for i := range g.desc.Buckets {
		if s.alive(&g.desc.Buckets[i], 0) {
			return i
		}
	}
	return -1
}

// choose returns the bucket of a select group for packets of a hash, or -1. Each bucket draws a
// number by hash and weight, and the best one wins: when one comes or goes, only its own packets
// move (weighted rendezvous hashing).
func (s *Switch) choose(g *Group, hash uint64) int {
	best, chosen := math.Inf(-1), -1
	for i := range g.desc.Buckets {
		b := &g.desc.Buckets[i]
		if b.Weight == 0 || !s.alive(b, 0) {
			continue
		}
		h := mixFixed(hash, uint64(i)+1)
		u := (float64(h>>11) + 0.5) / (1 << 53) // in (0, 1)
		if score := float64(b.Weight) / -math.Log(u); score > best {
			best, chosen = score, i
		}
	}
	return chosen
}

// mixFixed is a hash that is the same in every process (the finalizer of SplitMix64).
func mixFixed(h, v uint64) uint64 {
	h ^= v * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
