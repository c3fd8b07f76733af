package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	"trivet.dev/trivet/controller/store"
)

// Times, in beats of this member.
const (
	deadAfter  = 4  // beats without one of another: it is dead
	takeAfter  = 4  // whoever was to take a switch has not: anyone may
	yieldAfter = 15 // a master that lives has not handed a switch over: it is taken from it
	settleTime = 2  // a switch is new: until all know who is connected to it
	holdTime   = 25 // after a switch was given up: until this member tries it again
	wishTime   = 25 // until a wish that nobody can follow is forgotten
)

// mostKeys is how many keys a commit may change, and mostSwitches how many switches.
const (
	mostKeys     = 120
	mostSwitches = 100
)

// engine decides for one member. It is used by one goroutine at a time.
type engine struct {
	name     string
	instance string

	known    bool  // the store has told what there is
	beat     int64 // own beats that the store has told of
	inFlight bool  // a commit is not yet answered
	stale    bool  // something has happened that there may be something to decide about
	ended    string

	members  map[string]*member
	switches map[uint64]*owned
	order    []uint64 // of the switches
	turns    uint64   // calls of Become
	centre   string   // the scheduling centre; none: nobody is

	out     []action
	changes []Change // for whoever watches
	counts  Counts
	odd     map[string]bool // keys of records that cannot be understood
}

// member is what is known of a member.
type member struct {
	record    MemberRecord
	there     bool // it has a record
	silent    int  // own beats since its last
	draining  bool
	connected map[uint64]bool
}

// owned is what is known of a switch.
type owned struct {
	dpid      uint64
	master    string
	instance  string // the process of that name
	revision  int64  // of master's taking; 0: nobody has
	wanted    string
	wish      int64 // revision of the wish
	wishSince int64

	here  bool   // it is connected to this member
	told  int64  // the generation that Become was called with; 0: it was not, or Cease was
	turn  uint64 // of the last call of Become
	doubt int64  // the beat at which it is given up, if nobody has taken it who the switch may mean; 0: none
	given bool   // it could not be become master of: it is to be given up
	held  int64  // it is not tried again before this beat
	asked int64  // the beat at which it was last asked whether it can be handed over
	ready bool   // it can

	reached   int64 // the beat since which somebody is connected to it; -1: nobody is
	planned   string
	plannedAt int64
}

// action is something to be done: a commit, or a call of Ready, Become or Cease.
type action struct {
	commit *commit

	dpid   uint64
	become int64 // the generation; 0: Cease
	turn   uint64
	ask    bool // Ready

	say  string
	args []any
}

type commit struct {
	conditions []store.Condition
	changes    []store.Change
	switches   int
	asked      int // switches of which it was asked whether they can be handed over
}

func newEngine(name, instance string) *engine {
	return &engine{name: name, instance: instance, members: map[string]*member{}, switches: map[uint64]*owned{}, odd: map[string]bool{}}
}

// take returns what is to be done since it was called last.
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

// snapshot takes what the store has, in place of all that it has told before. Nobody's silence
// counts over what was not heard.
func (e *engine) snapshot(entries []store.Entry) {
	there := map[string]bool{}
	for _, x := range entries {
		there[x.Key] = true
	}
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

// events takes what the store tells.
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
			e.say("the others are to take over the switches of a member", "member", name)
		}
	} else if dpid, ok := DPIDOf(x.Key, SwitchPrefix); ok {
		e.masterEvent(e.switchOf(dpid), x)
	} else if dpid, ok := DPIDOf(x.Key, WantedPrefix); ok {
		e.stale = true
		var r WantedRecord
		_ = json.Unmarshal(x.Value, &r) // one that names nobody is forgotten after its time
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
			e.say(map[bool]string{true: "a member has come", false: "a member has gone"}[is], "member", name)
			e.tell(map[bool]string{true: ChangeJoined, false: ChangeLeft}[is], name, 0)
		}
		return
	}
	if m.there && m.record.Instance != e.instance {
		e.end("another controller has this member's name by now: " + m.record.OpenFlow)
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

// end is that this process is not the member any more.
func (e *engine) end(why string) {
	if e.ended != "" {
		return
	}
	e.ended = why
	for _, dpid := range e.order {
		e.cease(e.switches[dpid])
	}
}

// live says whether a member is.
func (e *engine) live(name string) bool {
	m := e.members[name]
	return m != nil && m.there && (name == e.name || m.silent < deadAfter)
}

func (e *engine) masterEvent(s *owned, x store.Event) {
	before, had, was := s.revision, e.mine(s), s.master
	s.master, s.instance, s.revision = "", "", 0
	if !x.Gone() {
		var r SwitchRecord
		_ = json.Unmarshal(x.Value, &r) // one that names nobody is like one of somebody who is dead
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

// mine says whether this process is the master of a switch, by what the store has told.
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

// connected is that a switch has connected to this member.
func (e *engine) connected(dpid uint64) {
	s := e.switchOf(dpid)
	s.here, s.told, s.held = true, 0, 0
	e.become(s)
}

// lost is that the connection has ended: nothing need cease there.
func (e *engine) lost(dpid uint64) {
	s := e.switchOf(dpid)
	if s.told != 0 {
		e.counts.Lost++
	}
	s.here, s.told, e.stale = false, 0, true
	e.decide()
}

// failed is that a switch could not be become master of.
func (e *engine) failed(dpid, turn uint64, why error) {
	s := e.switches[dpid]
	if s == nil || s.turn != turn || s.told == 0 || !s.here {
		return
	}
	e.counts.Refused++
	s.given, s.held, e.stale = true, e.beat+holdTime, true
	e.say("a switch does not take this member as its master, and is left to others", "switch", fmt.Sprintf("%016x", dpid), "problem", why)
	e.decide()
}

// deposed is that a switch says that it has a later master. The store will tell who, soon; else it
// is somebody whom the cluster does not know.
func (e *engine) deposed(dpid uint64) {
	if s := e.switches[dpid]; s != nil && s.told != 0 && s.doubt == 0 {
		s.doubt = e.beat + deadAfter
	}
}

// ready is that a switch can be handed over, which was asked when this member became its master by
// that call of Become.
func (e *engine) ready(dpid, turn uint64) {
	if s := e.switches[dpid]; s != nil && s.turn == turn && s.told != 0 {
		s.ready, e.stale = true, true
		e.decide()
	}
}

// committed is that the commit that was asked for has been answered, however: what became of it is
// told by the store.
func (e *engine) committed() {
	e.inFlight, e.stale = false, true
	e.decide()
}

// here are the switches that are connected to this member.
func (e *engine) here() (out []uint64) {
	for _, dpid := range e.order {
		if e.switches[dpid].here {
			out = append(out, dpid)
		}
	}
	return out
}
