package routing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"trivet.dev/trivet/cluster/announce"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/patience"
)

// Routers are updated in one order across the members of a cluster, too: a router's new next hop is
// updated first, whoever is its master. Each member computes the routes of all routers before and
// after a change, so it knows which routers of others change, and in which round each router may be
// updated. Before a round with changes that follow another member's, it waits until the others have
// published that they are past the earlier rounds:
//
//	view/routes/NAME    for which snapshot of the network, which rounds the switches have confirmed
//
// Members whose snapshots differ will soon have the same one; the rest is then computed anew. The
// wait is bounded: a member that publishes nothing for as long as it takes to detect a failure is
// not waited for until it publishes something new.
const routesPrefix = "view/routes/"

// others is what members know of each other's rounds. Used only by the goroutine that updates
// routes.
type others struct {
	member string
	board  *announce.Board[progress]
	news   chan struct{}

	said progress
	odd  map[string]int64 // members waited for in vain, and when they last published something
	late context.Context  // done when waiting is over; nil: not waiting
	done context.CancelFunc

	net     *network   // being installed, or the last one installed
	picture string     // its name
	before  []*network // earlier ones, which other members' routers may still follow
}

// progress is what a member publishes.
type progress struct {
	Picture string `json:"picture"`
	Round   int    `json:"round"` // the switches have confirmed those before it
}

const (
	allRounds = math.MaxInt32
	maxBefore = 3
)

// Share makes the app part of a cluster. Call it before Start.
func (a *App) Share(member string, s store.Store) {
	o := &others{member: member, news: make(chan struct{}, 1), odd: map[string]int64{}}
	o.board = announce.New[progress](s, routesPrefix, member, func() {
		select {
		case o.news <- struct{}{}:
		default:
		}
	})
	a.others = o
}

// rounds are the rounds of one change; nil without a cluster.
type rounds struct {
	*others
	app *App
	own map[int]bool // routers of this member
}

// rounds begins an update to a snapshot of the network.
func (a *App) rounds(net *network, configured string) *rounds {
	o := a.others
	if o == nil {
		return nil
	}
	if o.past(allRounds) {
		o.before = nil
	}
	picture := net.picture(configured)
	if o.net != nil && picture != o.picture {
		o.before = append(o.before, o.net)
		o.before = o.before[max(0, len(o.before)-maxBefore):]
	}
	o.net, o.picture = net, picture
	return &rounds{others: o, app: a, own: map[int]bool{}}
}

// owns records whether a router is this member's.
func (r *rounds) owns(router int, mine bool) {
	if r != nil {
		r.own[router] = mine
	}
}

// picture names a snapshot: members with the same name compute the same routes, except those that
// one member alone knows, such as protocols' routes.
func (n *network) picture(configured string) string {
	h := sha256.New()
	h.Write([]byte(configured))
	var b []byte
	for i, r := range n.routers {
		b = binary.BigEndian.AppendUint64(b[:0], r.DPID)
		for _, port := range slices.Sorted(maps.Keys(n.up[i])) {
			if n.up[i][port] {
				b = binary.BigEndian.AppendUint32(b, port)
			}
		}
		h.Write(b)
	}
	links := slices.Clone(n.links)
	slices.SortFunc(links, func(x, y discovery.Link) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.FromPort, y.FromPort), cmp.Compare(x.To, y.To),
			cmp.Compare(x.ToPort, y.ToPort))
	})
	for _, l := range links {
		b = binary.BigEndian.AppendUint64(b[:0], l.From)
		b = binary.BigEndian.AppendUint64(b, l.To)
		b = binary.BigEndian.AppendUint32(b, l.FromPort)
		h.Write(binary.BigEndian.AppendUint32(b, l.ToPort))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:12])
}

// digest is a hash of a configuration.
func (c *Config) digest() string {
	h := sha256.New()
	fmt.Fprintln(h, c.Reactive, c.Balance)
	for i := range c.Routers {
		r := &c.Routers[i]
		fmt.Fprintln(h, r.DPID, r.Interfaces, r.Loopback, r.Static, r.Distances)
	}
	return string(h.Sum(nil))
}

// isFirst reports whether no other member can have routers with other routes.
func (r *rounds) isFirst() bool { return r == nil || len(r.before) == 0 }

// changes reports whether another member may still have to update a router's way for some traffic.
func (r *rounds) changes(router int, t Traffic) bool {
	if r == nil || r.own[router] {
		return false
	}
	now := r.net.wayOf(router, t)
	for _, before := range r.before {
		i, ok := before.index[r.net.routers[router].DPID]
		if !ok || !now.leadsAs(before.wayOf(i, t)) {
			return true
		}
	}
	return false
}

// leadsAs reports whether packets take the same path by two routes.
func (r *Route) leadsAs(o *Route) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Drop == o.Drop && slices.EqualFunc(r.Hops, o.Hops, func(x, y Hop) bool {
		return x.Port == y.Port && x.Via == y.Via && x.dst == y.dst
	})
}

// begin publishes the first round in which this member has changes.
func (r *rounds) begin(list [][]change) { r.passed(list, -1) }

// passed publishes that the switches have confirmed all rounds up to one, and hence which round is
// next.
func (r *rounds) passed(list [][]change, round int) {
	if r == nil {
		return
	}
	next := progress{r.picture, allRounds}
	for i := round + 1; i < len(list); i++ {
		if len(list[i]) > 0 {
			next.Round = i
			break
		}
	}
	if r.said != next {
		r.said = next
		r.board.Publish(next)
	}
}

// past reports whether all other members still waited for are past the rounds before one.
func (o *others) past(round int) bool { return len(o.behind(round)) == 0 }

// behind lists the members waited for that are not past the rounds before one, with the time at
// which each last published something.
func (o *others) behind(round int) map[string]int64 {
	out := map[string]int64{}
	members, heard := o.board.Values()
	for name := range members {
		said, ok := heard[name]
		vain, odd := o.odd[name]
		switch {
		case name == o.member, odd && vain == said.Revision:
		case !ok, said.Value.Picture != o.picture, said.Value.Round < round:
			out[name] = said.Revision
		}
	}
	return out
}

// wait returns when the other members are past the rounds before one, or are no longer waited for;
// false: the network has changed meanwhile, and the rest must be computed anew.
func (r *rounds) wait(round int) bool {
	for !r.past(round) {
		if r.late == nil { // for changes in quick succession the first one counts
			r.late, r.done = patience.Rounds.Context(r.app.ctx)
		}
		select {
		case <-r.news:
		case <-r.app.changed:
			r.app.again()
			if r.late.Err() == nil {
				return false
			}
			r.giveUp(round)
		case <-r.late.Done():
			r.giveUp(round)
		}
	}
	return true
}

// giveUp stops waiting for members that are not past the rounds before one.
func (r *rounds) giveUp(round int) {
	for name, said := range r.behind(round) {
		r.odd[name] = said
		if r.app.ctx.Err() == nil {
			r.app.c.Log().Info("a member has not updated its routes in time; no longer waiting for it", "member", name)
		}
	}
}

// end records that a change is complete.
func (r *rounds) end() {
	if r != nil && r.late != nil {
		r.done()
		r.late, r.done = nil, nil
	}
}
