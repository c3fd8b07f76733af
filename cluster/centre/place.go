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

// Whereabouts are the addresses of a member, as it has published them in the store.
type Whereabouts struct {
	OpenFlow string `json:"openflow,omitempty" doc:"Address for switches"`
	API      string `json:"api,omitempty" doc:"Address of its API"`
}

// elsewhere is the error that another member is the centre.
type elsewhere struct {
	name string // empty: none is
	Whereabouts
}

func (e elsewhere) Error() string {
	switch {
	case e.name == "":
		return "no member is the scheduling centre now: one will be elected within seconds"
	case e.API == "":
		return fmt.Sprintf("the scheduling centre is %s: ask there", e.name)
	}
	return fmt.Sprintf("the scheduling centre is %s: ask there, %s", e.name, e.API)
}

var errHasMaster = errors.New("the switch exists, and has a master")

// askTime is the timeout for values from the store that are optional in an answer.
const askTime = 2 * time.Second

// who returns the centre according to the store; empty: none, or the store does not answer.
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

// whereabouts returns a member's addresses; empty if the store does not answer.
func (c *Centre) whereabouts(ctx context.Context, member string) (w Whereabouts) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if e, err := c.o.Store.Get(ctx, cluster.MemberPrefix+member); err == nil && !e.Gone() {
		_ = json.Unmarshal(e.Value, &w) // possibly of another version
	}
	return w
}

// leader returns the centre's state, or an error that says who is the centre.
func (c *Centre) leader(ctx context.Context) (*leading, error) {
	if l := c.lead.Load(); l != nil {
		return l, nil
	}
	e := elsewhere{name: c.who(ctx)}
	if e.name == c.o.Member { // it holds the lease, and is just starting
		e.name = ""
	} else if e.name != "" {
		e.Whereabouts = c.whereabouts(ctx, e.name)
	}
	return nil, e
}

// Idlest returns the least busy member, including what has been placed at members since their last
// reports.
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

// Place chooses the member for routing nodes with so many addresses in total, and counts them there
// until its reports do, or for 30 s. If dpid is not 0, it is that of the switch to be made: the
// member takes it when it connects, even if others see it sooner.
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
