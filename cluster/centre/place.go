package centre

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/store"
)

// Whereabouts is how a member is reached, as it says itself in the store.
type Whereabouts struct {
	OpenFlow string `json:"openflow,omitempty" doc:"Where it listens for switches"`
	API      string `json:"api,omitempty" doc:"Where its API is"`
}

// elsewhere is that another member is the centre.
type elsewhere struct {
	name string // empty: nobody is
	Whereabouts
}

func (e elsewhere) Error() string {
	switch {
	case e.name == "":
		return "no member is the scheduling centre now: one will be within seconds"
	case e.API == "":
		return fmt.Sprintf("the scheduling centre is %s: ask there", e.name)
	}
	return fmt.Sprintf("the scheduling centre is %s: ask there, %s", e.name, e.API)
}

var errHasMaster = errors.New("the switch exists, and has a master")

// askTime is how long the store is asked for what an answer can do without.
const askTime = 2 * time.Second

// who is the centre, as the store has it; empty: nobody is, or the store does not say.
func (c *Centre) who(ctx context.Context) string {
	if c.Leads() {
		return c.o.Member
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	e, err := c.o.Store.Get(ctx, leaseKey)
	if err != nil {
		return ""
	}
	return string(e.Value)
}

// whereabouts are those of a member; empty where the store does not say.
func (c *Centre) whereabouts(ctx context.Context, member string) (w Whereabouts) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if e, err := c.o.Store.Get(ctx, cluster.MemberPrefix+member); err == nil && !e.Gone() {
		_ = json.Unmarshal(e.Value, &w) // of a member of another version, perhaps
	}
	return w
}

// leader is this member as the centre, or who is instead.
func (c *Centre) leader(ctx context.Context) (*leading, error) {
	if l := c.lead.Load(); l != nil {
		return l, nil
	}
	e := elsewhere{name: c.who(ctx)}
	if e.name == c.o.Member { // it has the lease, and is just beginning
		e.name = ""
	} else if e.name != "" {
		e.Whereabouts = c.whereabouts(ctx, e.name)
	}
	return nil, e
}

// Idlest is the member that is least busy now, with what has been placed at members since their
// last reports.
func (c *Centre) Idlest(ctx context.Context) (Standing, error) {
	if _, err := c.leader(ctx); err != nil {
		return Standing{}, err
	}
	return c.idlest()
}

func (c *Centre) idlest() (Standing, error) {
	all, _ := c.Standings()
	var shares []Share
	of := map[string]Standing{}
	for _, s := range all {
		if s.Candidate {
			shares, of[s.Name] = append(shares, s.Share), s
		}
	}
	least, err := Idlest(shares)
	return of[least.Member], err
}

// Place says which member is to have routing nodes with so many addresses together, and counts them
// there until its reports do, or for 30 s. If dpid is not 0, it is that of the switch that will be
// made: the member then takes it when it connects, though others see it sooner.
func (c *Centre) Place(ctx context.Context, nodes, addresses int, dpid uint64) (Standing, error) {
	l, err := c.leader(ctx)
	if err != nil {
		return Standing{}, err
	}
	l.placing.Lock()
	defer l.placing.Unlock()
	s, err := c.idlest()
	if err != nil {
		return Standing{}, err
	}
	if dpid != 0 {
		none := store.Condition{Key: cluster.SwitchKey(dpid)}
		noWish := store.Condition{Key: cluster.WantedKey(dpid)}
		err := c.o.Store.Commit(ctx, []store.Condition{l.held.Is(), none, noWish}, wanted(dpid, s.Name, byPlacement))
		switch {
		case errors.Is(err, store.ErrChanged) && !c.Leads():
			_, err := c.leader(ctx)
			return Standing{}, err
		case errors.Is(err, store.ErrChanged):
			return Standing{}, fmt.Errorf("%016x: %w, or has been placed already", dpid, errHasMaster)
		case err != nil:
			return Standing{}, err
		}
	}
	c.table.place(s.Name, nodes, addresses, time.Now())
	return s, nil
}
