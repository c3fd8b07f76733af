package api

import (
	"slices"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/discovery"
)

// A member of a cluster that is asked for its part of the events tells first what it knows: links,
// hosts, members, as events of them. Then it tells what happens and, again and again, how far it
// has told that, by PartEvent. So who joins the parts knows what has changed while it did not hear
// the member, and which event was the earlier one.

// PartEvent is sent to who joins what the members of a cluster tell: all before this time has been
// told.
type PartEvent struct {
	Time   time.Time `json:"time"`
	CutOff bool      `json:"cut_off,omitempty" doc:"The member cannot use the store: what it knows of others may be old"`
	Taken  []string  `json:"taken,omitempty" doc:"Routers whose routes are from now on those that the member tells: it is the master, and none of them restarts"`
	Given  []string  `json:"given,omitempty" doc:"Routers of which that does not hold any more"`
}

// markPeriod is how often a member says how far it has told.
const markPeriod = 100 * time.Millisecond

// partOfEvents is whose routes a member speaks for.
type partOfEvents struct {
	wanted func(dpid uint64) bool
	speaks map[uint64]bool // it has said so
	given  []uint64        // and has yet to say that this has ended
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

// note minds what is about to be told: who is master no longer does not speak for a router, and may
// be the master again by now.
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

// giveUp says for whom the member speaks no longer. It is called after routes were taken and before
// they are told: an app forgets what it knew of a router after that has another master.
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

// mark says how far the member has told, and for whom it speaks from now on.
func (t *teller) mark() error {
	now := time.Now()
	ready := t.ready() // before routes are taken: those of these routers are right
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

// ready are the routers that the member may speak for, and does not yet. While a router restarts,
// or its routes are being computed, what it uses is not known.
func (t *teller) ready() (out []uint64) {
	if len(t.feeds) == 0 {
		return nil
	}
	for _, s := range t.c.Switches() {
		if dpid := s.DPID(); s.Leads() && t.part.wanted(dpid) && !t.part.speaks[dpid] && !t.c.Routing.Restarts(dpid) {
			out = append(out, dpid)
		}
	}
	if len(out) == 0 || t.c.OSPF != nil && len(t.c.OSPF.Missing()) > 0 || !t.c.Routing.Quiet() {
		return nil
	}
	return out
}

func (t *teller) cutOff() bool { return t.c.Member != nil && t.c.Member.CutOff() }

// names are those of routers, as events of routes have them.
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

// all tells what the member knows at first.
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
