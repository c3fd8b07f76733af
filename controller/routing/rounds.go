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

// Routers of several members of a cluster change in one order, too: a router's new next hop has its
// own way before, whosever it is. Each member computes the routes of all routers, those before and
// those after a change; so it knows which routers of others have another way, and in which round
// each router may change. Before a round with changes that follow another member's it waits until
// the others have said that they are past the rounds before:
//
//	view/routes/NAME    of which picture of the network, and which rounds the switches have confirmed
//
// Members whose pictures differ learn the same before long; what is left is then computed anew.
// Nobody waits for long: a member that has said nothing for as long as it takes to miss a dead one
// is not waited for until it says something new.
const routesPrefix = "view/routes/"

// others is what members know of each other's rounds. Only the goroutine that follows changes uses
// it.
type others struct {
	member string
	board  *announce.Board[progress]
	news   chan struct{}

	said progress
	odd  map[string]int64 // members that were waited for in vain, and when they had said something last
	late context.Context  // ends when nobody is waited for any more; nil: nobody is
	done context.CancelFunc

	net     *network   // that is followed now, or was last
	picture string     // its name
	before  []*network // of those before it, by which other members' routers may still forward
}

// progress is what a member says.
type progress struct {
	Picture string `json:"picture"`
	Round   int    `json:"round"` // the switches have confirmed those before
}

const (
	allRounds = math.MaxInt32
	maxBefore = 3
)

// Share makes the app that of a member of a cluster. It must be called before Start.
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

// rounds are those of one change. Nil ones are those of a controller without others.
type rounds struct {
	*others
	app *App
	own map[int]bool // routers of this member
}

// rounds begins to follow a picture of the network.
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

// owns notes whose a router is.
func (r *rounds) owns(router int, mine bool) {
	if r != nil {
		r.own[router] = mine
	}
}

// picture names what the routes of a network follow from, but for what one member alone knows, as
// protocols' routes.
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
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.FromPort, y.FromPort), cmp.Compare(x.To, y.To), cmp.Compare(x.ToPort, y.ToPort))
	})
	for _, l := range links {
		b = binary.BigEndian.AppendUint64(b[:0], l.From)
		b = binary.BigEndian.AppendUint64(b, l.To)
		b = binary.BigEndian.AppendUint32(b, l.FromPort)
		h.Write(binary.BigEndian.AppendUint32(b, l.ToPort))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:12])
}

// digest names a configuration.
func (c *Config) digest() string {
	h := sha256.New()
	fmt.Fprintln(h, c.Reactive, c.Balance)
	for i := range c.Routers {
		r := &c.Routers[i]
		fmt.Fprintln(h, r.DPID, r.Interfaces, r.Loopback, r.Static, r.Distances)
	}
	return string(h.Sum(nil))
}

// isFirst says whether nobody else can have routers that forward in another way.
func (r *rounds) isFirst() bool { return r == nil || len(r.before) == 0 }

// changes says whether another member may still have to give a router its way for some traffic.
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

// leadsAs says whether packets take the same ways by two routes.
func (r *Route) leadsAs(o *Route) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Drop == o.Drop && slices.EqualFunc(r.Hops, o.Hops, func(x, y Hop) bool { return x.Port == y.Port && x.Via == y.Via && x.dst == y.dst })
}

// begin says in which round this member has changes first.
func (r *rounds) begin(list [][]change) { r.passed(list, -1) }

// passed says that the switches have confirmed all up to a round: which one they are to have next.
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
		r.board.Say(next)
	}
}

// past says whether all others are past the rounds before one, as far as they are waited for.
func (o *others) past(round int) bool { return len(o.behind(round)) == 0 }

// behind are the members that are waited for, and are not past the rounds before one, each with
// when it has said something last.
func (o *others) behind(round int) map[string]int64 {
	out := map[string]int64{}
	members, heard := o.board.Heard()
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

// wait returns when the others are past the rounds before one, or are not waited for any longer;
// false: the network has changed meanwhile, and what is left is to be computed anew.
func (r *rounds) wait(round int) bool {
	for !r.past(round) {
		if r.late == nil { // of changes in quick succession it is the first that counts
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

// giveUp waits no more for those that are not past the rounds before one.
func (r *rounds) giveUp(round int) {
	for name, said := range r.behind(round) {
		r.odd[name] = said
		if r.app.ctx.Err() == nil {
			r.app.c.Log().Info("routes do not wait for a member that has not followed", "member", name)
		}
	}
}

// end ends a change that was followed to its end.
func (r *rounds) end() {
	if r != nil && r.late != nil {
		r.done()
		r.late, r.done = nil, nil
	}
}
