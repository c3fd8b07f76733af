package cluster

import "fmt"

// Change is a change in the cluster, as seen by a member.
type Change struct {
	What   string
	Member string // the one concerned; for the store: the one that reports it
	Switch uint64 // for ChangeTaken and ChangeGiven
}

// Kinds of changes.
const (
	ChangeJoined    = "joined" // or is alive again
	ChangeLeft      = "left"
	ChangeDead      = "dead"
	ChangeTaken     = "taken"  // the reporting member has become master of the switch
	ChangeGiven     = "given"  // it no longer is
	ChangeCentre    = "centre" // the member is the scheduling centre; without a name: none is
	ChangeStoreLost = "store lost"
	ChangeStoreBack = "store back"
)

// Counts count a member's events.
type Counts struct {
	Claims    uint64 // of the role of master at a switch
	Refused   uint64 // claims refused by the switch
	Takeovers uint64 // switches taken over from another master
	Lost      uint64 // switches of which it was master, whose connection ended
	Store     uint64 // heartbeats that the store did not accept
}

// Counts returns the member's counts.
func (m *Member) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.engine.counts
	c.Store = m.storeErrors
	return c
}

// tell adds a change for watchers.
func (e *engine) tell(what, member string, dpid uint64) {
	e.changes = append(e.changes, Change{what, member, dpid})
}

// centreEvent records that another member is the scheduling centre, or none.
func (e *engine) centreEvent(name string) {
	if name != e.centre {
		e.centre = name
		e.tell(ChangeCentre, name, 0)
	}
}

// unread logs, once, that a record cannot be read, at least by this version. What was known before
// is kept.
func (e *engine) unread(key string, why error) {
	if !e.odd[key] {
		e.odd[key] = true
		e.say("a record of the cluster cannot be read and is ignored: it was written by another version, or by another program", "key", fmt.Sprintf("%.100q", key), "problem", why)
	}
}
