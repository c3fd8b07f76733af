package cluster

import (
	"fmt"
	"slices"

	"trivet.dev/trivet/controller/store"
)

// decide asks for the next commit, unless one is under way: it releases switches whose connection
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

// settle adds to a commit what is to become of a switch.
func (e *engine) settle(s *owned, c *commit) {
	own := s.master == e.name
	if own && s.doubt != 0 && e.beat >= s.doubt {
		s.given, s.doubt, s.held = true, 0, e.beat+holdTime
		e.say("a switch obeys somebody who is no member, and is left to others", "switch", fmt.Sprintf("%016x", s.dpid))
	}
	switch {
	case own && (!s.here || s.given):
		c.release(s)
	case own && s.wish != 0 && e.idle(s):
		c.forget(s)
	case own && !e.mine(s): // by a process before this one: the generation must be a later one
		e.claim(s, c)
	case own:
		e.yield(s, c)
	case !s.here || s.held > e.beat || e.members[e.name].draining:
	case s.wanted == e.name && e.beat >= s.wishSince+e.yields(s):
		e.claim(s, c)
	case s.planned == e.name && e.beat >= s.plannedAt+e.yields(s), s.planned != "" && e.beat >= s.plannedAt+e.yields(s)+takeAfter:
		e.claim(s, c)
	}
}

// yields is for how many beats a switch's master may keep it until nobody notices that another has
// it.
func (e *engine) yields(s *owned) int64 {
	if e.live(s.master) {
		return yieldAfter
	}
	return 0
}

// heir is the live member that is to have a switch of this one.
func (e *engine) heir(s *owned) string {
	for _, to := range []string{s.wanted, s.planned} {
		if to != e.name && e.live(to) && !e.members[to].draining && e.reaches(to, s) {
			return to
		}
	}
	return ""
}

// yield hands a switch of this member over to who is to have it, or asks whether it can: that holds
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

// idle says whether a wish, at a switch of this member, is fulfilled, or nobody follows it.
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

// handOver makes another process, of a member, the master of a switch of this one.
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

// plan says who is to take switches that have no master, or one that is dead or being drained. All
// members that know the same come to the same plan. What is planned counts as a member's load, so
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

// needed says whether a switch needs another master.
func (e *engine) needed(s *owned) bool {
	if s.master == "" {
		return true
	}
	return !e.live(s.master) || e.members[s.master].draining
}

// reach says whether any of the takers is connected to a switch, and notes since when.
func (e *engine) reach(s *owned, takers []string) bool {
	is := slices.ContainsFunc(takers, func(name string) bool { return e.reaches(name, s) })
	if !is {
		s.reached = -1
	} else if s.reached < 0 {
		s.reached = e.beat
	}
	return is
}

// reaches says whether a member is connected to a switch.
func (e *engine) reaches(name string, s *owned) bool {
	if name == e.name {
		return s.here && s.held <= e.beat
	}
	return e.members[name].connected[s.dpid]
}

// connectedAnywhere says whether a member, be it alive or not, says that it is connected to a
// switch.
func (e *engine) connectedAnywhere(s *owned) bool {
	for _, m := range e.members {
		if m.connected[s.dpid] {
			return true
		}
	}
	return false
}

// choose returns who is to take a switch: who is wanted, or else of those connected to it the one
// with the fewest switches, of such the first by name.
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
