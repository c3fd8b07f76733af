package api

import (
	"slices"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/discovery"
)

// A member that is asked for its part of the events first sends its state (links, hosts, members),
// as events. Then it sends what happens and, periodically, a PartEvent with the time up to which
// everything has been sent. So whoever merges the parts learns what has changed while it was not
// connected, and can order events.

// PartEvent tells the merger of members' events that everything before this time has been sent.
type PartEvent struct {
	Time   time.Time `json:"time"`
	CutOff bool      `json:"cut_off,omitempty" doc:"The member cannot use the store: what it knows of others may be old"`
	Taken  []string  `json:"taken,omitempty" doc:"Routers whose routes are from now on those that the member tells: it is the master, and none of them restarts"`
	Given  []string  `json:"given,omitempty" doc:"Routers of which that does not hold any more"`
}

// markPeriod is the time between two PartEvents.
const markPeriod = 100 * time.Millisecond

// partOfEvents tracks the routers whose routes a member is the authority for.
type partOfEvents struct {
	wanted func(dpid uint64) bool
	speaks map[uint64]bool // announced as such
	given  []uint64        // no longer so, to be announced
}

func newPartOfEvents(c *builtin.Controller, in *EventQuery, routes bool) *partOfEvents {
	named := map[uint64]bool{}
	for _, name := range in.Routes {
		if dpid, ok := c.Map().Find(name); ok {
			named[dpid] = true
		}
	}
	return &partOfEvents{speaks: map[uint64]bool{}, wanted: func(dpid uint64) bool {
		return routes && c.Routing.Routes(dpid) && (in.Into != "" || named[dpid])
	}}
}

// note handles an event about to be sent: a member that is no longer a router's master stops being
// its authority, even if it has become master again.
func (p *partOfEvents) note(e builtin.Event) {
	if x, ok := e.What.(builtin.SwitchChange); ok && !x.Up {
		p.end(x.Switch)
	}
}

func (p *partOfEvents) end(dpid uint64) {
	if p.speaks[dpid] {
		delete(p.speaks, dpid)
		p.given = append(p.given, dpid)
	}
}

// giveUp announces the routers for which the member is no longer the authority. It is called after
// routes were read and before they are sent: an app forgets a router's routes once the router has
// another master.
func (t *teller) giveUp() error {
	if err := t.waiting(); err != nil {
		return err
	}
	for dpid := range t.part.speaks {
		if s := t.c.Switch(dpid); s == nil || !s.Leads() {
			t.part.end(dpid)
		}
	}
	if len(t.part.given) == 0 {
		return nil
	}
	e := PartEvent{Time: time.Now(), CutOff: t.cutOff(), Given: t.names(t.part.given)}
	t.part.given = nil
	return t.send.Data(e)
}

// mark sends a PartEvent, with the routers for which the member becomes the authority.
func (t *teller) mark() error {
	now := time.Now()
	ready := t.ready() // read before the routes: those of these routers are right
	if err := t.routes(); err != nil {
		return err
	}
	var taken []uint64
	for _, dpid := range ready {
		if s := t.c.Switch(dpid); s != nil && s.Leads() {
			t.part.speaks[dpid] = true
			taken = append(taken, dpid)
		}
	}
	return t.send.Data(PartEvent{Time: now, CutOff: t.cutOff(), Taken: t.names(taken)})
}

// ready returns the routers for which the member may become the authority. While a router restarts,
// or its routes are being computed, its routes in use are not known.
func (t *teller) ready() (out []uint64) {
	if len(t.feeds) == 0 {
		return nil
	}
	for _, s := range t.c.Switches() {
		if dpid := s.DPID(); s.Leads() && t.part.wanted(dpid) && !t.part.speaks[dpid] && !t.c.Routing.Restarts(dpid) {
			out = append(out, dpid)
		}
	}
	if len(out) == 0 || t.c.Finding() || !t.c.Routing.Quiet() {
		return nil
	}
	return out
}

func (t *teller) cutOff() bool { return t.c.Member != nil && t.c.Member.CutOff() }

// names returns routers' names, as events of routes have them.
func (t *teller) names(dpids []uint64) (out []string) {
	v := newEventView(t.c)
	for _, dpid := range dpids {
		r, ok := t.c.Router(dpid)
		if !ok {
			r.Name = v.switchName(dpid)
		}
		out = append(out, r.Name)
	}
	slices.Sort(out)
	return out
}

// all sends the member's state.
func (t *teller) all() error {
	now := time.Now()
	tell := func(what any) error {
		return t.send.Data(newEventView(t.c).event(builtin.Event{Time: now, What: what}))
	}
	for _, l := range t.c.Discovery.Links() {
		if err := tell(discovery.LinkChange{Link: l}); err != nil {
			return err
		}
	}
	for _, h := range t.c.Discovery.Hosts() {
		if err := tell(discovery.HostChange{Host: h}); err != nil {
			return err
		}
	}
	if t.c.Member == nil {
		return nil
	}
	s := t.c.Member.Status()
	for _, m := range s.Members {
		what := cluster.ChangeJoined
		if !m.Alive {
			what = cluster.ChangeDead
		}
		if err := tell(cluster.Change{What: what, Member: m.Name}); err != nil {
			return err
		}
	}
	return tell(cluster.Change{What: cluster.ChangeCentre, Member: s.Centre})
}
