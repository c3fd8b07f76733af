package cluster

import (
	"fmt"
	"slices"

	"trivet.dev/trivet/controller/store"
)

// decide prepares the next commit, unless one is in flight: it releases switches whose connection
// is lost, and takes those that are to be this member's.
func (e *engine) decide() {
	if !e.known || !e.stale || e.inFlight || e.ended != "" || !e.live(e.name) {
		return
	}
	e.stale = false
	e.plan()
	e.forget()
	var c commit
	for _, dpid := range e.order {
		if c.switches == mostSwitches || len(c.changes) > mostKeys-2 {
			break
		}
		e.settle(e.switches[dpid], &c)
	}
	if len(c.changes) > 0 {
		e.inFlight = true
		e.out = append(e.out, action{commit: &c})
	}
}

// forget drops switches that nobody has, knows or wants.
func (e *engine) forget() {
	e.order = slices.DeleteFunc(e.order, func(dpid uint64) bool {
		s := e.switches[dpid]
		if s.revision != 0 || s.here || s.wish != 0 || s.told != 0 || e.connectedAnywhere(s) {
			return false
		}
		delete(e.switches, dpid)
		return true
	})
}

// settle adds what is to become of a switch to a commit.
func (e *engine) settle(s *owned, c *commit) {
	own := s.master == e.name
	if own && s.doubt != 0 && e.beat >= s.doubt {
		s.given, s.doubt, s.held = true, 0, e.beat+holdTime
		e.say("a switch has a master that is not a member; giving it up", "switch", fmt.Sprintf("%016x", s.dpid))
	}
	switch {
	case own && (!s.here || s.given):
		c.release(s)
	case own && s.wish != 0 && e.idle(s):
		c.forget(s)
	case own && !e.mine(s): // taken by an earlier process: a later generation is needed
		e.claim(s, c)
	case own:
		e.yield(s, c)
	case !s.here || s.held > e.beat || e.members[e.name].draining:
	case s.wanted == e.name && e.beat >= s.wishSince+e.yields(s):
		e.claim(s, c)
	case s.planned == e.name && e.beat >= s.plannedAt+e.yields(s),
		s.planned != "" && e.beat >= s.plannedAt+e.yields(s)+takeAfter:
		e.claim(s, c)
	}
}

// yields is the number of beats for which a master may keep a switch until the takeover can go
// unnoticed.
func (e *engine) yields(s *owned) int64 {
	if e.live(s.master) {
		return yieldAfter
	}
	return 0
}

// heir returns the live member that is to take over one of this member's switches.
func (e *engine) heir(s *owned) string {
	for _, to := range []string{s.wanted, s.planned} {
		if to != e.name && e.live(to) && !e.members[to].draining && e.reaches(to, s) {
			return to
		}
	}
	return ""
}

// yield hands one of this member's switches over, or asks whether it can be: the answer is valid
// for this beat.
func (e *engine) yield(s *owned, c *commit) {
	switch to := e.heir(s); {
	case to == "":
	case s.ready && s.asked == e.beat:
		c.handOver(s, to, e.members[to].record.Instance)
	case s.told != 0 && s.asked < e.beat && c.asked < mostSwitches:
		s.asked, s.ready = e.beat, false
		c.asked++
		e.out = append(e.out, action{dpid: s.dpid, turn: s.turn, ask: true})
	}
}

// idle reports whether a wish, for a switch of this member, has been fulfilled, or cannot be.
func (e *engine) idle(s *owned) bool {
	return s.wanted == e.name || e.beat >= s.wishSince+wishTime
}

func (e *engine) claim(s *owned, c *commit) {
	c.on(s)
	c.changes = append(c.changes, store.Put(SwitchKey(s.dpid), encode(SwitchRecord{e.name, e.instance})))
	if s.wanted == e.name {
		c.forget(s)
	}
}

// handOver makes another member's process the master of one of this member's switches.
func (c *commit) handOver(s *owned, to, instance string) {
	c.on(s)
	c.changes = append(c.changes, store.Put(SwitchKey(s.dpid), encode(SwitchRecord{to, instance})))
	if s.wanted == to {
		c.forget(s)
	}
}

func (c *commit) release(s *owned) {
	c.on(s)
	c.changes = append(c.changes, store.Delete(SwitchKey(s.dpid)))
}

func (c *commit) on(s *owned) {
	c.switches++
	c.conditions = append(c.conditions, store.Condition{Key: SwitchKey(s.dpid), Revision: s.revision})
}

// forget deletes the wish for a switch.
func (c *commit) forget(s *owned) {
	c.conditions = append(c.conditions, store.Condition{Key: WantedKey(s.dpid), Revision: s.wish})
	c.changes = append(c.changes, store.Delete(WantedKey(s.dpid)))
}

// plan determines who takes switches without a master, or with one that is dead or being drained.
// Members with the same knowledge make the same plan. Planned switches count as a member's load, so
// that the plan stays the same while it is carried out.
func (e *engine) plan() {
	var takers []string
	for name, m := range e.members {
		if e.live(name) && !m.draining {
			takers = append(takers, name)
		}
	}
	slices.Sort(takers)
	load := map[string]int{}
	var open []*owned
	for _, dpid := range e.order {
		s := e.switches[dpid]
		if !e.reach(s, takers) || !e.needed(s) {
			s.planned = ""
			load[s.master]++
			continue
		}
		if s.planned != "" && slices.Contains(takers, s.planned) && e.reaches(s.planned, s) {
			load[s.planned]++
			continue
		}
		s.planned = ""
		if e.beat >= s.reached+settleTime || len(takers) == 1 {
			open = append(open, s)
		}
	}
	for _, s := range open {
		s.planned, s.plannedAt = e.choose(s, takers, load), e.beat
		load[s.planned]++
	}
}

// needed reports whether a switch needs another master.
func (e *engine) needed(s *owned) bool {
	if s.master == "" {
		return true
	}
	return !e.live(s.master) || e.members[s.master].draining
}

// reach reports whether any of the takers is connected to a switch, and records since when.
func (e *engine) reach(s *owned, takers []string) bool {
	is := slices.ContainsFunc(takers, func(name string) bool { return e.reaches(name, s) })
	if !is {
		s.reached = -1
	} else if s.reached < 0 {
		s.reached = e.beat
	}
	return is
}

// reaches reports whether a member is connected to a switch.
func (e *engine) reaches(name string, s *owned) bool {
	if name == e.name {
		return s.here && s.held <= e.beat
	}
	return e.members[name].connected[s.dpid]
}

// connectedAnywhere reports whether any member, live or not, claims to be connected to a switch.
func (e *engine) connectedAnywhere(s *owned) bool {
	for _, m := range e.members {
		if m.connected[s.dpid] {
			return true
		}
	}
	return false
}

// choose returns who is to take a switch: the member wanted, or else, among those connected to it,
// the one with the fewest switches; ties are broken by name.
func (e *engine) choose(s *owned, takers []string, load map[string]int) (best string) {
	for _, name := range takers {
		if !e.reaches(name, s) {
			continue
		}
		if name == s.wanted {
			return name
		}
		if best == "" || load[name] < load[best] {
			best = name
		}
	}
	return best
}
