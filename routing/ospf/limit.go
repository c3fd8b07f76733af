package ospf

import (
	"fmt"
	"slices"
	"time"
)

// A neighbour can flood LSAs without end. The RFC sets no limit; RFC 1765 is about routers that run
// out of memory, and relies on originators to withdraw LSAs, which an attacker does not. Here a
// neighbour that sends too many is dropped, and rejected for a while; LSAs received from it are
// removed, unless they are reachable through someone else.

// Defaults of AreaConfig.MaxLSAs and InterfaceConfig.MaxLSAs.
const (
	DefaultMaxLSAsOfArea     = 50_000
	DefaultMaxLSAsOfNeighbor = 20_000
)

// shunTime is how long a neighbour that has sent too many LSAs is rejected.
const shunTime = 5 * time.Minute

// maxLSAs is the area's limit.
func (a *Area) maxLSAs() int {
	if a.cfg.MaxLSAs > 0 {
		return a.cfg.MaxLSAs
	}
	return DefaultMaxLSAsOfArea
}

// foreign counts the LSAs of routers outside of the domain that the area's routers keep, with the
// AS-external-LSAs.
func (a *Area) foreign() int {
	if a.cfg.Stub {
		return a.db.foreign
	}
	return a.db.foreign + a.domain.external.foreign
}

// share is the number of LSAs received from a neighbour: of its area, of the AS, and of the link.
type share struct{ area, external, link int }

func (s share) all() int { return s.area + s.external + s.link }

// of counts those of a database.
func (s *share) of(db *database) *int {
	switch {
	case db.link != nil:
		return &s.link
	case db.area == nil:
		return &s.external
	}
	return &s.area
}

// shareOf returns how many of the LSAs kept by an area's routers are from a neighbour, which may be
// in another area.
func (a *Area) shareOf(n *neighbor) (count int) {
	if n.wire.area == a {
		count = n.brought.area
	}
	if !a.cfg.Stub {
		count += n.brought.external
	}
	return count
}

// attribute records the neighbour that an entry is from; nil: the domain itself.
func (e *entry) attribute(n *neighbor) {
	if e.from != nil {
		*e.from.brought.of(e.db)--
		e.db.foreign--
	}
	if e.from = n; n != nil {
		*n.brought.of(e.db)++
		e.db.foreign++
	}
}

// admit reports whether another LSA of the neighbour is accepted. A neighbour above its own limit
// is dropped; if the area is full, the neighbour with the most LSAs is.
func (n *neighbor) admit() error {
	w := n.wire
	if most := w.cfg.MaxLSAs; n.brought.all() >= most {
		n.shun(fmt.Sprintf("it has brought more than %d LSAs", most))
		return fmt.Errorf("it brings more than %d LSAs: it is not taken as a neighbour for %v", most, shunTime)
	}
	most := w.area.maxLSAs()
	if w.area.foreign() < most {
		return nil
	}
	worst, gone := n, w.area.foreign() // LSAs from former neighbours
	for _, x := range n.domain().wires {
		for _, o := range x.neighbors {
			if gone -= w.area.shareOf(o); w.area.shareOf(o) > w.area.shareOf(worst) {
				worst = o
			}
		}
	}
	if gone < w.area.shareOf(worst) {
		worst.shun(fmt.Sprintf("area %v has %d LSAs from outside, and it has brought the most", w.area.id, most))
	}
	n.domain().makeRoom()
	return fmt.Errorf("area %v is full: there are %d LSAs from outside", w.area.id, most)
}

// shun drops the neighbour, and rejects it for a while.
func (n *neighbor) shun(reason string) {
	d, w := n.domain(), n.wire
	for key, until := range w.shunned {
		if until <= d.now {
			delete(w.shunned, key)
		}
	}
	if w.shunned == nil {
		w.shunned = map[ID]instant{}
	}
	if len(w.shunned) < maxNeighbors {
		w.shunned[w.nameOf(n.id, n.addr)] = d.now + shunTime
	}
	d.makeRoom()
	n.reason = reason
	n.event(killNbr)
}

// makeRoom begins to remove the LSAs of former neighbours.
func (d *Domain) makeRoom() {
	d.relief = d.now + shunTime
	d.scheduleCalculation()
}

// nameOf returns the key by which find knows a neighbour.
func (w *wire) nameOf(id, addr ID) ID {
	if w.typ == Broadcast {
		return addr
	}
	return id
}

// isShunned returns how long a router will still be rejected.
func (w *wire) isShunned(id, addr ID) time.Duration {
	return w.shunned[w.nameOf(id, addr)] - w.domain().now
}

// relieve removes LSAs received from former neighbours whose originators are unreachable, so that
// no route depends on them. It does so only while a neighbour is being rejected. Otherwise LSAs
// stay until MaxAge, so that they need not be sent again when a link returns.
func (d *Domain) relieve() {
	if d.now >= d.relief {
		return
	}
	everywhere := map[ID]bool{} // whose AS-external-LSAs count
	for _, a := range d.Areas() {
		here := a.graph.reachable(d)
		for id := range here {
			everywhere[id] = true
		}
		for _, e := range a.db.typed[TypeASBRSummary] {
			if here[e.AdvRouter] {
				everywhere[e.ID] = true
			}
		}
		a.db.prune(here)
	}
	d.external.prune(everywhere)
	for _, w := range d.wires {
		if w.link != nil {
			w.link.prune(nil)
		}
	}
}

// prune removes LSAs that came from former neighbours and whose originators are not reachable.
func (db *database) prune(reachable map[ID]bool) {
	for t := range db.typed {
		for _, e := range slices.Clone(db.typed[t]) {
			if e.from != nil && e.from.state == NeighborDown && !reachable[e.AdvRouter] {
				db.changed(e.Type)
				db.remove(e)
			}
		}
	}
}

// reachable lists the routers that some router of the domain reaches within the area.
func (g *graph) reachable(d *Domain) map[ID]bool {
	first := make([]int32, len(g.lsas)+1) // of each vertex's edges, which are consecutive
	for _, e := range g.edges {
		first[e.from+1]++
	}
	for v := range g.lsas {
		first[v+1] += first[v]
	}
	seen, todo := make([]bool, len(g.lsas)), []int32(nil)
	visit := func(v int32) {
		if !seen[v] {
			seen[v] = true
			todo = append(todo, v)
		}
	}
	for id := range d.routers {
		if v, ok := g.routers[id]; ok {
			visit(v)
		}
	}
	for len(todo) > 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, e := range g.edges[first[v]:first[v+1]] {
			visit(e.to)
		}
	}
	out := map[ID]bool{}
	for id, v := range g.routers {
		if seen[v] {
			out[id] = true
		}
	}
	return out
}
