package cluster

import "fmt"

// Change is something that has happened in the cluster, as a member sees it.
type Change struct {
	What   string
	Member string // that it is about; of the store the one that says so
	Switch uint64 // of ChangeTaken and ChangeGiven
}

// What happens in a cluster.
const (
	ChangeJoined    = "joined" // or shows a sign of life again
	ChangeLeft      = "left"
	ChangeDead      = "dead"
	ChangeTaken     = "taken"  // the member that says so has become the master of a switch
	ChangeGiven     = "given"  // it is not any more
	ChangeCentre    = "centre" // the member is the scheduling centre; without a name: none is
	ChangeStoreLost = "store lost"
	ChangeStoreBack = "store back"
)

// Counts are how often something has happened to a member.
type Counts struct {
	Claims    uint64 // of the role of master at a switch
	Refused   uint64 // of these, by the switch
	Takeovers uint64 // switches of another master that it became the master of
	Lost      uint64 // switches that it was the master of, whose connection ended
	Store     uint64 // signs of life that the store did not take
}

// Counts returns how often something has happened to the member.
func (m *Member) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.engine.counts
	c.Store = m.storeErrors
	return c
}

// tell notes what has happened, for whoever watches.
func (e *engine) tell(what, member string, dpid uint64) {
	e.changes = append(e.changes, Change{what, member, dpid})
}

// centreEvent is that another member is the scheduling centre, or none.
func (e *engine) centreEvent(name string) {
	if name != e.centre {
		e.centre = name
		e.tell(ChangeCentre, name, 0)
	}
}

// unread says once of a record that it cannot be understood, by this version at least. What was
// known before stays.
func (e *engine) unread(key string, why error) {
	if !e.odd[key] {
		e.odd[key] = true
		e.say("a record of the cluster cannot be understood, and is left alone: another version has written it, or somebody else", "key", fmt.Sprintf("%.100q", key), "problem", why)
	}
}
