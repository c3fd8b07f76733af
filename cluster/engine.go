package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/lists"
)

// Times, in beats of this member.
const (
	deadAfter  = 4  // another member is dead after as many beats without one of its own
	takeAfter  = 4  // if the member that was to take a switch has not, any other may
	yieldAfter = 15 // a live master has not handed a switch over: it is taken from it
	settleTime = 2  // for a new switch, until all members know who is connected to it
	holdTime   = 25 // after a switch was given up, until this member tries again
	wishTime   = 25 // until a wish that cannot be fulfilled is forgotten
)

// Limits per commit: keys, and switches.
const (
	mostKeys     = 120
	mostSwitches = 100
)

// engine decides for one member. It is not safe for concurrent use.
type engine struct {
	name     string
	instance string

	known    bool  // the store's state has been read
	beat     int64 // own beats reported by the store
	inFlight bool  // a commit has not been answered yet
	stale    bool  // something has happened that may require a decision
	ended    string

	members  map[string]*member
	switches map[uint64]*owned
	order    []uint64 // of the switches
	turns    uint64   // number of calls of Become
	centre   string   // the scheduling centre; empty: none

	out     []action
	changes []Change // for watchers
	counts  Counts
	odd     map[string]bool // keys of records that cannot be read
}

// member is the state of a member.
type member struct {
	record    MemberRecord
	there     bool // it has a record
	silent    int  // own beats since its last one
	draining  bool
	connected map[uint64]bool
}

// owned is the state of a switch.
type owned struct {
	dpid      uint64
	master    string
	instance  string // the process of the master
	revision  int64  // of the master's record; 0: there is none
	wanted    string
	wish      int64 // revision of the wish
	wishSince int64

	here bool   // connected to this member
	told int64  // the generation passed to Become; 0: not called, or Cease was called since
	turn uint64 // number of the last call of Become
	// The beat at which it is given up, unless the master that the switch reports has shown up in
	// the store; 0: none.
	doubt int64
	given bool  // Become has failed: it is to be given up
	held  int64 // it is not tried again before this beat
	asked int64 // the beat at which Ready was last called
	ready bool  // Ready returned true

	reached   int64 // the beat since which a member is connected to it; -1: none is
	planned   string
	plannedAt int64
}

// action is something to do: a commit, or a call of Ready, Become or Cease.
type action struct {
	commit *commit

	dpid   uint64
	become int64 // the generation; 0: Cease
	turn   uint64
	ask    bool // call Ready

	say  string
	args []any
}

type commit struct {
	conditions []store.Condition
	changes    []store.Change
	switches   int
	asked      int // switches for which Ready was called
}

func newEngine(name, instance string) *engine {
	return &engine{name: name, instance: instance, members: map[string]*member{}, switches: map[uint64]*owned{},
		odd: map[string]bool{}}
}

// take returns the actions since the last call.
func (e *engine) take() (out []action) {
	out, e.out = e.out, nil
	return out
}

func (e *engine) say(text string, args ...any) {
	e.out = append(e.out, action{say: text, args: args})
}

func (e *engine) memberOf(name string) *member {
	m := e.members[name]
	if m == nil {
		m = &member{}
		e.members[name] = m
	}
	return m
}

func (e *engine) switchOf(dpid uint64) *owned {
	s := e.switches[dpid]
	if s == nil {
		s = &owned{dpid: dpid, reached: -1}
		e.switches[dpid] = s
		at := sort.Search(len(e.order), func(i int) bool { return e.order[i] > dpid })
		e.order = slices.Insert(e.order, at, dpid)
	}
	return s
}

// snapshot replaces all state by the store's entries. Silence of others before it does not count.
func (e *engine) snapshot(entries []store.Entry) {
	there := lists.Set(entries, func(x store.Entry) string { return x.Key })
	gone := func(key string) {
		if !there[key] {
			e.event(store.Event{Key: key})
		}
	}
	for name, m := range e.members {
		m.silent = 0
		gone(MemberPrefix + name)
		gone(connectedPrefix + name)
		gone(drainPrefix + name)
	}
	for _, dpid := range e.order {
		gone(SwitchKey(dpid))
		gone(WantedKey(dpid))
	}
	gone(CentreKey)
	for _, x := range entries {
		e.event(x)
	}
	e.known, e.stale = true, true
	e.decide()
}

// events applies changes of the store.
func (e *engine) events(list []store.Event) {
	for _, x := range list {
		e.event(x)
	}
	e.decide()
}

func (e *engine) event(x store.Event) {
	if name, ok := strings.CutPrefix(x.Key, MemberPrefix); ok {
		e.memberEvent(name, x)
	} else if name, ok := strings.CutPrefix(x.Key, connectedPrefix); ok {
		m := e.memberOf(name)
		if x.Gone() {
			m.connected = nil
		} else if is, err := decodeConnected(x.Value); err != nil {
			e.unread(x.Key, err)
		} else {
			m.connected = is
		}
		for dpid := range m.connected {
			e.switchOf(dpid)
		}
	} else if x.Key == CentreKey {
		e.centreEvent(string(x.Value))
	} else if name, ok := strings.CutPrefix(x.Key, drainPrefix); ok {
		m := e.memberOf(name)
		was := m.draining
		if m.draining, e.stale = !x.Gone(), true; m.draining && !was {
			e.say("a member is being drained: others take over its switches", "member", name)
		}
	} else if dpid, ok := DPIDOf(x.Key, SwitchPrefix); ok {
		e.masterEvent(e.switchOf(dpid), x)
	} else if dpid, ok := DPIDOf(x.Key, WantedPrefix); ok {
		e.stale = true
		var r WantedRecord
		_ = json.Unmarshal(x.Value, &r) // a record without a name is forgotten after its time
		s := e.switchOf(dpid)
		s.wanted, s.wish, s.wishSince = r.Member, x.Revision, e.beat
		if x.Gone() {
			s.wanted, s.wish = "", 0
		}
	}
}

func (e *engine) memberEvent(name string, x store.Event) {
	m := e.memberOf(name)
	was := e.live(name)
	if m.there = !x.Gone(); m.there {
		var r MemberRecord
		if err := json.Unmarshal(x.Value, &r); err != nil {
			e.unread(x.Key, err)
			r = m.record
		}
		m.silent, m.record = 0, r
	}
	if name != e.name {
		if is := e.live(name); is != was {
			e.stale = true
			e.say(map[bool]string{true: "a member has joined", false: "a member has left"}[is], "member", name)
			e.tell(map[bool]string{true: ChangeJoined, false: ChangeLeft}[is], name, 0)
		}
		return
	}
	if m.there && m.record.Instance != e.instance {
		e.end("another controller has taken this member's name: " + m.record.OpenFlow)
		return
	}
	if !m.there {
		return
	}
	e.beat++
	e.stale = true
	for other, o := range e.members {
		if other != e.name && o.there {
			if o.silent++; o.silent == deadAfter {
				e.say("a member is dead", "member", other)
				e.tell(ChangeDead, other, 0)
			}
		}
	}
}

// end records that this process is no longer the member.
func (e *engine) end(why string) {
	if e.ended != "" {
		return
	}
	e.ended = why
	for _, dpid := range e.order {
		e.cease(e.switches[dpid])
	}
}

// live reports whether a member is alive.
func (e *engine) live(name string) bool {
	m := e.members[name]
	return m != nil && m.there && (name == e.name || m.silent < deadAfter)
}

func (e *engine) masterEvent(s *owned, x store.Event) {
	before, had, was := s.revision, e.mine(s), s.master
	s.master, s.instance, s.revision = "", "", 0
	if !x.Gone() {
		var r SwitchRecord
		_ = json.Unmarshal(x.Value, &r) // a record without a name is treated as a dead member's
		s.master, s.instance, s.revision = r.Master, r.Instance, x.Revision
	}
	if s.revision == before {
		return
	}
	switch is := e.mine(s); {
	case is && !had:
		e.tell(ChangeTaken, e.name, s.dpid)
		if was != "" && was != e.name {
			e.counts.Takeovers++
		}
	case had && !is:
		e.tell(ChangeGiven, e.name, s.dpid)
	}
	s.planned, s.given, s.doubt, s.ready, e.stale = "", false, 0, false, true
	e.cease(s)
	e.become(s)
}

// mine reports whether this process is the master of a switch, according to the store.
func (e *engine) mine(s *owned) bool {
	return s.master == e.name && s.instance == e.instance
}

func (e *engine) become(s *owned) {
	if s.here && s.told == 0 && e.mine(s) && e.ended == "" {
		e.turns++
		e.counts.Claims++
		s.told, s.turn = s.revision, e.turns
		e.out = append(e.out, action{dpid: s.dpid, become: s.told, turn: s.turn})
	}
}

func (e *engine) cease(s *owned) {
	if s.told != 0 {
		s.told = 0
		e.out = append(e.out, action{dpid: s.dpid})
	}
}

// connected records that a switch has connected to this member.
func (e *engine) connected(dpid uint64) {
	s := e.switchOf(dpid)
	s.here, s.told, s.held = true, 0, 0
	e.become(s)
}

// lost records that the connection has ended, so Cease need not be called.
func (e *engine) lost(dpid uint64) {
	s := e.switchOf(dpid)
	if s.told != 0 {
		e.counts.Lost++
	}
	s.here, s.told, e.stale = false, 0, true
	e.decide()
}

// failed records that Become has failed.
func (e *engine) failed(dpid, turn uint64, why error) {
	s := e.switches[dpid]
	if s == nil || s.turn != turn || s.told == 0 || !s.here {
		return
	}
	e.counts.Refused++
	s.given, s.held, e.stale = true, e.beat+holdTime, true
	e.say("a switch does not accept this member as its master; giving it up", "switch", fmt.Sprintf("%016x", dpid),
		"problem", why)
	e.decide()
}

// deposed records that a switch has reported a later master. The store will soon tell who;
// otherwise it is not a member of the cluster.
func (e *engine) deposed(dpid uint64) {
	if s := e.switches[dpid]; s != nil && s.told != 0 && s.doubt == 0 {
		s.doubt = e.beat + deadAfter
	}
}

// ready records that a switch can be handed over, as asked during the mastership begun by that call
// of Become.
func (e *engine) ready(dpid, turn uint64) {
	if s := e.switches[dpid]; s != nil && s.turn == turn && s.told != 0 {
		s.ready, e.stale = true, true
		e.decide()
	}
}

// committed records that the commit has been answered, successfully or not: its result is learned
// from the store.
func (e *engine) committed() {
	e.inFlight, e.stale = false, true
	e.decide()
}

// here returns the switches connected to this member.
func (e *engine) here() []uint64 {
	return lists.Filter(e.order, func(dpid uint64) bool { return e.switches[dpid].here })
}
