package ospf

import (
	"fmt"
	"slices"
	"time"
)

// Graceful restart (RFC 3623, section 2, and 5 for unplanned outages): a router that takes over
// from another process leaves its previous LSAs in the area, and its routes in the forwarding
// plane, until it is adjacent to all its previous neighbours.

// A grace-LSA is sent several times before the first Hello, which would end the adjacency at a
// neighbour that has missed it: it cannot be acknowledged yet.
const (
	graceCopies  = 3
	graceSpacing = 100 * time.Millisecond
)

// staleTime is how long after a restart previous LSAs stay that are no longer originated: what the
// router redistributes may become known later than its neighbours.
const staleTime = 5 * time.Second

type restartPhase uint8

const (
	restartWaits   restartPhase = iota // waiting for the previous adjacencies
	restartEnds                        // LSAs are originated again; routes are not calculated yet
	restartCleared                     // normal operation, except for previous LSAs that are no longer originated
)

// restart is a router that restarts.
type restart struct {
	router *Router
	phase  restartPhase
	until  instant
	reason string // why it has ended
	timer  timer  // of the grace period, then of staleTime
}

// Restart makes the router take over from another process whose routes are still in use. It must be
// called before the router's interfaces are up. period is the longest that the restart may take;
// the RFC allows 30 min. The router's routes must not be used until Restarting reports the end.
func (r *Router) Restart(now time.Time, period time.Duration) {
	d := r.domain
	d.advance(now)
	period = min(max(period.Truncate(time.Second), time.Second), lsRefreshTime)
	x := &restart{router: r, until: d.now + period}
	x.timer = timer{what: timerRestart, of: x}
	d.agenda.set(&x.timer, x.until)
	r.restart = x
	d.restarts = append(d.restarts, r)
	d.tellRestart(RestartChange{Router: r, Begins: true, Period: period})
	for _, w := range d.wires { // neighbours of the same domain need not be asked
		for _, n := range w.neighbors {
			if n.id == r.id && n.state == NeighborFull && !w.router.restarting() {
				n.support(period, true)
			}
		}
	}
}

// MayRestart reports whether another process can take over the router now such that its neighbours
// help: all exchanges with them are complete and acknowledged (RFC 3623, section 3.1), and routes
// are calculated. It sends pending acknowledgments at once, so that a call soon afterwards may
// succeed.
func (r *Router) MayRestart(now time.Time) bool {
	d := r.domain
	d.advance(now)
	_, restarts := r.Restarting()
	may := !restarts && !d.Pending()
	for _, w := range d.wires {
		if w.router != r {
			continue
		}
		if len(w.delayed) > 0 {
			w.sendDelayedAcks()
			may = false
		}
		may = may && !slices.ContainsFunc(w.neighbors, func(n *neighbor) bool {
			return n.helped != nil || n.state >= NeighborExStart && n.state < NeighborFull || n.hasNews()
		})
	}
	return may
}

// Restarting reports whether the router is restarting, and the time left for that.
func (r *Router) Restarting() (left time.Duration, is bool) {
	if r.restart == nil || r.restart.phase == restartCleared {
		return 0, false
	}
	return max(0, r.restart.until-r.domain.now), true
}

// restarting reports whether the router waits for its previous adjacencies.
func (r *Router) restarting() bool { return r.restart != nil && r.restart.phase == restartWaits }

func (x *restart) expire(timerKind) {
	if x.phase == restartWaits {
		x.end("the grace period is over") // section 2.2 (3)
		return
	}
	x.router.forgetRestart()
	x.router.flushStale()
}

// end implements section 2.3: LSAs are originated, routes calculated, and grace-LSAs flushed.
func (x *restart) end(reason string) {
	r := x.router
	d := r.domain
	x.phase, x.reason = restartEnds, reason
	d.agenda.set(&x.timer, d.now+staleTime)
	r.table = nil // calculated even if no area has changed
	r.touch()
	d.scheduleCalculation()
}

// endGrace flushes the grace-LSAs, after a Hello: a neighbour that ends its help uses the last
// Hello to elect the Designated Router.
func (r *Router) endGrace() {
	all := slices.Clone(r.interfaces)
	for _, v := range r.virtual {
		all = append(all, v.iface)
	}
	key := LSAKey{TypeOpaqueLink, graceID, r.id}
	for _, i := range all {
		if w := i.wire; w != nil && w.link != nil && w.link.own[key] != nil && w.link.own[key].wanted {
			r.domain.agenda.set(&w.hello, r.domain.now)
			w.link.withdraw(key)
		}
	}
}

// forgetRestart ends the restart completely.
func (r *Router) forgetRestart() {
	if r.restart != nil {
		r.domain.agenda.stop(&r.restart.timer)
		r.domain.restarts = slices.DeleteFunc(r.domain.restarts, func(o *Router) bool { return o == r })
		r.restart = nil
	}
}

// flushStale flushes LSAs of the router from before that it does not originate (section 2.3 (5)).
func (r *Router) flushStale() {
	for _, db := range r.domain.databases() {
		var stale []LSAKey
		for key, e := range db.entries {
			if o := db.own[key]; r.domain.owner(key) == r && (o == nil || !o.wanted) && !e.maxAged() {
				stale = append(stale, key)
			}
		}
		sortKeys(stale)
		for _, key := range stale {
			db.entries[key].prematurelyAge()
		}
	}
}

// sendGrace sends the grace-LSA to whoever is on the link (section 5).
func (w *wire) sendGrace() {
	d, db, key := w.domain(), w.database(TypeOpaqueLink), LSAKey{TypeOpaqueLink, graceID, w.router.id}
	o := db.own[key]
	if o == nil {
		g := GraceLSA{Period: (w.router.restart.until - d.now + time.Second - 1).Truncate(time.Second),
			Reason: RestartUnknown}
		if w.typ == Broadcast {
			g.Address = w.addr
		}
		// A neighbour may have one of a restart that did not come to its end: this is newer.
		o = &origin{db: db, key: key, options: w.area.options(), body: g.Encode(), wanted: true,
			next: InitialSequence + int32(uint32(d.clock().Unix())>>1)}
		o.timer = timer{what: timerOriginate, of: o}
		db.own[key] = o
		o.emit()
	}
	to := AllSPFRouters
	if w.typ == Virtual {
		to = w.virtual.remote.Addr()
	}
	w.sendUpdates([]*entry{db.entries[key]}, func(u *LinkStateUpdate) { w.send(to, u) })
}

// holdOffice resumes the role on a broadcast network that a neighbour says the router had before it
// restarted (section 2.1 (3); the RFC has this for the Designated Router only).
func (w *wire) holdOffice(h *Hello) {
	if !w.router.restarting() || w.state != InterfaceWaiting || h.DR != w.addr && h.BDR != w.addr {
		return
	}
	w.domain().agenda.stop(&w.wait)
	w.dr, w.bdr = h.DR, h.BDR
	w.setState(w.role(w.dr, w.bdr))
	for _, n := range w.list() {
		if n.state >= NeighborTwoWay {
			n.event(adjOK)
		}
	}
}

// resumes ends the restart if it is complete (section 2.2), and reports whether LSAs may be
// originated.
func (r *Router) resumes() bool {
	if !r.restarting() {
		return true
	}
	over := len(r.areas) > 0
	for _, at := range r.areas {
		there, contradiction := r.isBack(at.area)
		if contradiction != "" {
			r.restart.end(contradiction)
			return true
		}
		over = over && there
	}
	if over {
		r.restart.end("all neighbours of before are adjacent")
	}
	return over
}

// isBack reports whether the router is adjacent to all its previous neighbours in an area,
// according to its previous router-LSA. contradiction says which LSA of another router contradicts
// that; "": none does.
func (r *Router) isBack(a *Area) (back bool, contradiction string) {
	before := a.db.entries[LSAKey{TypeRouter, r.id, r.id}]
	if before == nil || before.maxAged() {
		return false, r.isUnknown(a)
	}
	back = true
	for l := range before.links() {
		switch l.Type {
		case LinkPointToPoint, LinkVirtual:
			if other := a.db.entries[LSAKey{TypeRouter, l.ID, l.ID}]; other != nil && !other.leadsTo(l.Type, r.id) {
				return false, fmt.Sprintf("router %v has no link to it any more", l.ID)
			}
			back = back && r.isAdjacent(a, l, func(p peer) bool { return p.id == l.ID })
		case LinkTransit:
			there, contradiction := r.isOnNetwork(a, l)
			if contradiction != "" {
				return false, contradiction
			}
			back = back && there
		}
	}
	return back, ""
}

// isUnknown says why the router's previous LSAs cannot be learned in an area; "": they still may
// be.
func (r *Router) isUnknown(a *Area) (why string) {
	for _, w := range a.wires {
		if slices.ContainsFunc(w.neighbors, func(n *neighbor) bool { return n.state == NeighborFull }) {
			return fmt.Sprintf("area %v has no router-LSA of it", a.id)
		}
	}
	speaks, up := false, false
	for _, i := range r.interfaces {
		if i.area == a && !i.passive && i.typ != Loopback {
			speaks, up = true, up || i.isUp()
		}
	}
	if len(a.wires) == 0 && r.attached(a) && (up || !speaks) {
		return fmt.Sprintf("nobody outside is in area %v", a.id)
	}
	return ""
}

// isOnNetwork is isBack for a broadcast network.
func (r *Router) isOnNetwork(a *Area, l RouterLink) (back bool, contradiction string) {
	var network *entry
	for _, e := range a.db.typed[TypeNetwork] {
		if e.ID == l.ID && !e.maxAged() {
			network = e
		}
	}
	var on []ID
	if network != nil {
		lsa, _ := DecodeNetwork(network.Body)
		if on = lsa.Routers; !slices.Contains(on, r.id) {
			return false, fmt.Sprintf("network %v has it not on it any more", network.Prefix())
		}
	}
	if l.ID != l.Data {
		return r.isAdjacent(a, l, func(p peer) bool { return p.addr == l.ID }), ""
	}
	// It was the Designated Router: all others on the network were adjacent.
	for _, id := range on {
		if id == r.id {
			continue
		}
		if other := a.db.entries[LSAKey{TypeRouter, id, id}]; other != nil && !other.leadsTo(LinkTransit, l.ID) {
			return false, fmt.Sprintf("router %v does not take it for the Designated Router of %v any more", id,
				network.Prefix())
		}
		if !r.isAdjacent(a, l, func(p peer) bool { return p.id == id }) {
			return false, ""
		}
	}
	return len(on) > 1 || r.isAdjacent(a, l, func(peer) bool { return true }), ""
}

// leadsTo reports whether a router-LSA has a link of a type with an ID.
func (e *entry) leadsTo(t LinkType, id ID) bool {
	if e.maxAged() {
		return false
	}
	for l := range e.links() {
		if l.Type == t && l.ID == id {
			return true
		}
	}
	return false
}

// isAdjacent reports whether, on the interface that a link of the router's router-LSA stands for,
// the router is fully adjacent to a peer for which to is true.
func (r *Router) isAdjacent(a *Area, l RouterLink, to func(peer) bool) bool {
	if l.Type == LinkVirtual {
		return slices.ContainsFunc(r.virtual,
			func(v *virtualLink) bool { return slices.ContainsFunc(v.iface.peers(), to) })
	}
	return slices.ContainsFunc(r.interfaces, func(i *Interface) bool {
		is := i.addr == l.Data || i.addr == 0 && i.index == uint32(l.Data)
		return is && i.area == a && slices.ContainsFunc(i.peers(), to)
	})
}
