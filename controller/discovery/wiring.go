package discovery

import "time"

const (
	// expectTime is how long a link that is expected may be without a probe before it is tried
	// quickly.
	expectTime = openMost

	// shutTime is for how long a port is shut at which a probe has come that makes no link: longer
	// than the next one takes.
	shutTime = 4 * round
)

// wiring is what who laid the cables says of them.
type wiring struct {
	switches map[uint64]bool // nil: nobody has said anything
	hosts    map[place]bool
	lone     map[place]bool  // of hosts that have no other port
	links    map[place]place // in both directions
}

// Expect says which switches there are and what ports lead to, for who has laid the cables: these
// to hosts, of which the lone ones have no other port, and these links to each other. A host's port
// is an edge as soon as it is up, and never becomes the end of a link; a link is there as soon as
// both its ports are, until probes say otherwise. In a cluster each member sees that for itself, of
// whomever the switches are: a link need not wait for a master who may just have died. Of other
// ports nothing is taken for granted. It holds for ports that come up from now on, and for those of
// which nothing is known yet. A switch that is none of these does not come back when it is away:
// its links are no more.
func (a *App) Expect(switches []uint64, hosts, lone []Port, links []Link) {
	w := wiring{switches: make(map[uint64]bool, len(switches)), hosts: make(map[place]bool, len(hosts)), lone: make(map[place]bool, len(lone)),
		links: make(map[place]place, 2*len(links))}
	for _, dpid := range switches {
		w.switches[dpid] = true
	}
	for _, p := range hosts {
		w.hosts[place{p.Switch, p.Number}] = true
	}
	for _, p := range lone {
		w.hosts[place{p.Switch, p.Number}], w.lone[place{p.Switch, p.Number}] = true, true
	}
	for _, l := range links {
		from, to := place{l.From, l.FromPort}, place{l.To, l.ToPort}
		w.links[from], w.links[to] = to, from
	}
	a.locked(func() {
		a.wiring = w
		for _, n := range a.nodes {
			if n.sw == nil && w.lacks(n.dpid) {
				a.forgetSwitch(n)
				continue
			}
			for _, p := range n.ports {
				a.expect(p)
			}
		}
	})
}

// lacks says whether a switch is none of those that there are.
func (w *wiring) lacks(dpid uint64) bool { return w.switches != nil && !w.switches[dpid] }

// forgetSwitch forgets all of a switch that is away and does not come back. It must be called with
// mu held.
func (a *App) forgetSwitch(n *node) {
	for _, p := range n.ports {
		a.forget(p)
	}
	a.hosts.keep(n.dpid, nil)
}

// expect makes a port of which nothing is known what the wiring says. It must be called with mu
// held, as what follows.
func (a *App) expect(p *port) {
	if p.Kind() != Open || !p.node.here() || a.isShut(p, time.Now()) {
		return
	}
	if a.wiring.hosts[p.place()] {
		if p.node.sw != nil {
			a.setKind(p, Edge)
		}
		return
	}
	far := a.port(a.wiring.links[p.place()])
	if far == nil || !far.node.here() || far.Kind() == Inner {
		return
	}
	for _, w := range []*way{a.newWay(p, far, false), a.newWay(far, p, false)} {
		a.doubt(w, time.Time{})
		w.expected = a.shared.now()
		a.schedule.suspect(w, time.Now().Add(expectTime))
	}
}

// isShut says whether a port is neither an edge nor the end of a link, because a probe has come
// that makes no link.
func (a *App) isShut(p *port, now time.Time) bool { return now.Before(p.spared) }

// spare keeps a port from being taken for an edge.
func (p *port) spare(until time.Time) {
	if until.After(p.spared) {
		p.spared = until
	}
}

// shut closes a port for a time: a probe has come in or out there that makes no link, and if it
// forwarded, packets might go round.
func (a *App) shut(p *port, now time.Time) {
	p.spare(now.Add(shutTime))
	if p.Kind() != Edge {
		return
	}
	p.first = now
	a.setKind(p, Open)
	a.schedule.open = append(a.schedule.open, p)
}

// stray is a probe that has come from or to a host's port. The hosts join ports, as a bridge
// between two interfaces does. That makes no link, so that nobody's packets go through them; and
// one of the ports is shut, so that none goes round.
func (a *App) stray(from, to *port, now time.Time) {
	p := to
	if x, y := from.place(), to.place(); !a.wiring.hosts[y] || a.wiring.hosts[x] && x.compare(y) > 0 {
		p = from
	}
	if p.Kind() == Edge {
		a.log.Warn("a probe came through hosts that join two ports; one of these is shut as long as probes come",
			"from", from.place(), "to", to.place(), "shut", p.place())
	}
	a.shut(p, now)
}

// half is a probe that has arrived from a port from which none has been seen to arrive there.
type half struct {
	at     time.Time
	direct bool
}

// both says whether a probe has arrived the other way, too, without which there is no link; if not,
// it takes note of this one. One direction alone is closed: it is a cable that is broken, or
// somebody who sends again what a host has received.
func (a *App) both(from, to *port, direct bool, now time.Time) (back half, ok bool) {
	if back, ok = from.halves[to]; ok && now.Sub(back.at) < shutTime {
		delete(from.halves, to)
		from.spared, to.spared = time.Time{}, time.Time{}
		return back, true
	}
	if e, seen := a.shared.has(to.place(), from.place()); seen { // another member has seen it
		from.spared, to.spared = time.Time{}, time.Time{}
		return half{now, !e.Indirect}, true
	}
	if to.halves == nil {
		to.halves = map[*port]half{}
	}
	for p, h := range to.halves {
		if now.Sub(h.at) >= shutTime {
			delete(to.halves, p)
		}
	}
	to.halves[from] = half{now, direct}
	a.shut(from, now)
	a.shut(to, now)
	return half{}, false
}

// warnHosts says it when a port at which hosts live becomes the end of a link.
func (a *App) warnHosts(p *port) {
	if n := p.hosts.Load(); n > 0 {
		a.log.Warn("a link has come up at a port where hosts were", "port", p.place(), "hosts", n)
	}
}
