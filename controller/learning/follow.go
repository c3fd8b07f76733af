package learning

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/internal/disjoint"
)

// staleTime is how long addresses may lead over a removed link, because a switch has not confirmed
// that it no longer uses it, before they are flushed anyway.
const staleTime = time.Second

// newTime is how long a switch must have been connected before another is lost, for discovery to
// have seen the links between them: longer than its probes may be in transit.
const newTime = 10 * time.Second

// change is what to change at a switch.
type change struct {
	close map[uint32]role // none, blocked or bypass
	open  map[uint32]role
}

// follow makes ports forward as discovery's links require, and reports whether nothing is left to
// do. Ports are closed first; a link of the new tree is opened once it makes no loop with anything
// that may still be forwarding, which is known when a switch has confirmed that a port is closed.
func (a *App) follow(now time.Time) (settled bool) {
	a.mu.Lock()
	nothing := len(a.switches) == 0 // none to learn for: all are routers
	a.mu.Unlock()
	if nothing && a.agreement == nil {
		return true
	}
	ports, links := a.discovery.Snapshot()
	far := map[uint64]bool{}
	for _, l := range links {
		far[l.From], far[l.To] = true, true
	}
	tables := a.tables(far)
	if a.agreement != nil {
		return a.followShared(tables, ports, links, now)
	}
	g := a.build(tables, ports, links, now)
	spread, routed := a.route(g, tables, links, now)
	g.plan()
	changes := map[*table]*change{}
	of := func(t *table) *change {
		if changes[t] == nil {
			changes[t] = &change{close: map[uint32]role{}, open: map[uint32]role{}}
		}
		return changes[t]
	}
	g.closings(tables, of, spread, now)
	a.former = g.former(a.former, tables)
	waits := g.openings(of, spread, a.former)
	a.followHosts(g, tables)
	a.former = append(a.former, g.segments...)
	if !routed { // an opening port may flood packets that others send along a path
		waits = true
		for _, c := range changes {
			maps.DeleteFunc(c.open, func(_ uint32, r role) bool { return r.isLink() })
		}
	}
	for t, c := range changes {
		if a.tell(t, c) && !spread && a.stale.IsZero() { // otherwise nothing is learned at links
			a.stale = now
		}
	}
	if !waits {
		passWaiting(tables, now)
	}
	return a.flush(tables, now) && !waits
}

// tables returns the tables by datapath id, and drops those of disconnected switches without links.
// So a switch that is lost before discovery has seen a link of it is not waited for; otherwise
// every new switch would have to wait after one without links has left.
func (a *App) tables(far map[uint64]bool) []*table {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*table
	for dpid, t := range a.switches {
		t.mu.Lock()
		away := t.sw == nil
		t.mu.Unlock()
		if away && !far[dpid] {
			delete(a.switches, dpid)
			continue
		}
		out = append(out, t)
	}
	if a.agreement != nil {
		return a.others(out, far)
	}
	slices.SortFunc(out, func(x, y *table) int { return cmp.Compare(x.dpid, y.dpid) })
	return out
}

// closings collects the ports that must not forward: ends of links outside the tree, which are
// marked as such, ports that are not classified yet, and ports that are gone.
func (g *graph) closings(tables []*table, of func(*table) *change, spread bool, now time.Time) {
	outside := blocked
	if spread {
		outside = bypass
	}
	here := make(map[end]bool, len(g.leaves)+2*len(g.edges))
	for _, l := range g.leaves {
		if here[l.end] = true; l.want == closed {
			of(l.table).close[l.port] = none
		}
	}
	for _, e := range g.edges {
		for _, x := range e.ends {
			if here[x.end] = true; !e.fixed && !e.tree {
				of(x.table).close[x.port] = outside
			}
		}
	}
	for _, t := range tables {
		t.mu.Lock()
		for number, p := range t.ports {
			switch {
			case here[end{t.dpid, number}]:
			case now.Before(p.held) && p.role.isLink():
				of(t).close[number] = outside // it may come back before it is known what it leads to
			default:
				of(t).close[number] = none
			}
		}
		t.mu.Unlock()
	}
}

// former returns the links unknown to discovery that may still be forwarding at both ends; they
// count as forwarding.
func (g *graph) former(old []*segment, tables []*table) (out []*segment) {
	for _, s := range old {
		var ends []end
		for _, at := range s.ends {
			if i, ok := g.index[at.dpid]; ok && !g.inLink[at] && tables[i].mayForward(at.port) {
				ends = append(ends, at)
			}
		}
		if len(ends) > 1 {
			out = append(out, &segment{ends: ends})
		}
	}
	return out
}

// mayForward reports whether a port may be forwarding, as that of a link.
func (t *table) mayForward(number uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.ports[number]
	return p != nil && (p.phase == leaving || p.phase == open && p.role.inTree())
}

// openings collects the ports that are to forward and may, and reports whether others must wait.
func (g *graph) openings(of func(*table) *change, spread bool, former []*segment) (waits bool) {
	within := link
	if spread {
		within = trunk
	}
	for _, l := range g.leaves {
		switch {
		case l.want != open:
		case l.phase != open && (g.unseen || g.dark && l.table.since.Add(newTime).After(g.lost)):
			waits = true // it may lead to a switch that is not connected now
		default:
			of(l.table).open[l.port] = edge
		}
	}
	parts := disjoint.Sets[int]{}
	for _, e := range g.edges {
		if e.forwards {
			parts.Join(e.u, e.v)
		}
	}
	for _, s := range former {
		for _, e := range s.ends[1:] {
			parts.Join(g.index[s.ends[0].dpid], g.index[e.dpid])
		}
	}
	for _, e := range g.edges {
		if !e.tree || e.fixed {
			continue
		}
		if !e.forwards && !parts.Join(e.u, e.v) {
			waits = true
			continue
		}
		for _, x := range e.ends {
			of(x.table).open[x.port] = within
		}
	}
	return waits
}

// tell sends the differences to a switch, and reports whether they change the tree.
func (a *App) tell(t *table, c *change) (tree bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sw == nil {
		return false
	}
	for number, r := range c.close {
		if p := t.ports[number]; p == nil && r == none || p != nil && p.role == r && p.phase != open {
			delete(c.close, number)
		}
	}
	for number, r := range c.open {
		if p := t.ports[number]; p != nil && p.phase == open && p.role == r {
			delete(c.open, number)
		}
	}
	if len(c.close)+len(c.open) == 0 {
		return false
	}
	return t.change(c)
}

// change closes and opens ports.
func (t *table) change(c *change) (tree bool) {
	leave := false
	for number := range c.close {
		p := t.ports[number]
		if p == nil {
			p = &port{}
			t.ports[number] = p
		}
		if p.phase == open {
			leave, tree = true, tree || p.role.inTree()
			p.phase, p.closing = leaving, t.closings+1
		}
	}
	for number, r := range c.open {
		p := t.ports[number]
		if p == nil {
			p = &port{}
			t.ports[number] = p
		}
		if p.phase != open && r == edge {
			p.opened = time.Now()
		}
		tree = tree || r.inTree() && (p.phase != open || p.role.hasPaths())
		t.fresh = t.fresh || r.hasPaths() && p.role != r
		if t.app.reactive && p.phase == open {
			t.forget(number) // its flows depend on what it leads to
		}
		p.phase, p.role = open, r
	}
	if !t.app.reactive {
		_ = t.rules.SetGroup(flood(t.numbers()))
	}
	for number, r := range c.close {
		t.fresh = t.fresh || r.hasPaths() && t.ports[number].role != r
		t.close(number, r)
	}
	for number, r := range c.open {
		t.open(number, r)
	}
	if !t.bypasses() {
		_ = t.rules.Remove(controller.KeyOf(guard()))
	}
	if leave {
		t.confirm()
	}
	if t.fresh {
		t.app.poke() // paths may use it once that is confirmed
	}
	return tree
}

// flush makes all switches forget all addresses after the tree has changed, because they may lead
// to where nothing forwards any more. It reports whether nothing is left to flush.
func (a *App) flush(tables []*table, now time.Time) bool {
	leaving := false
	for _, t := range tables {
		leaving = t.isLeaving() || leaving
	}
	if a.stale.IsZero() {
		return !leaving
	}
	if leaving && now.Sub(a.stale) < staleTime {
		time.AfterFunc(staleTime, a.poke)
		return false
	}
	for _, t := range tables {
		t.mu.Lock()
		if t.sw != nil && len(t.addresses) > 0 {
			t.flush()
		}
		t.mu.Unlock()
	}
	a.mu.Lock()
	a.flushed = now
	a.mu.Unlock()
	if a.stale = (time.Time{}); leaving {
		a.stale = now // flush again
	}
	return !leaving
}

// isLeaving reports whether a connected switch has yet to confirm that a port is closed.
func (t *table) isLeaving() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sw == nil {
		return false
	}
	for _, p := range t.ports {
		if p.phase == leaving {
			return true
		}
	}
	return false
}
