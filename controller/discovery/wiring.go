package discovery

import (
	"maps"
	"time"
)

const (
	// expectTime is how long an expected link may be without a probe before it is probed quickly.
	expectTime = openMost

	// shutTime is how long a port is closed after a probe that makes no link: longer than the next
	// one takes.
	shutTime = 4 * round
)

// wiring is the cabling as described by the one who laid it.
type wiring struct {
	switches map[uint64]bool // nil: no description
	hosts    map[place]bool
	lone     map[place]bool  // the ports of hosts that have no other
	links    map[place]place // in both directions
}

// Expect describes the cabling: all switches, the ports that lead to hosts, those of them (lone)
// whose host has no other port, and the links. A host's port is an edge as soon as it is up, and
// never becomes the end of a link; a link exists as soon as both its ports are up, until probes say
// otherwise. In a cluster each member applies this by itself, whoever is the switches' master: a
// link need not wait for a master that may just have failed. Other ports are discovered. The
// description applies to ports that come up from now on, and to ports not yet classified. A switch
// that is not listed is not expected back when it disconnects: its links are removed.
func (a *App) Expect(switches []uint64, hosts, lone []Port, links []Link) {
	w := wiring{switches: make(map[uint64]bool, len(switches)), hosts: make(map[place]bool, len(hosts)),
		lone:  make(map[place]bool, len(lone)),
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

// lacks reports whether a switch is missing from the description.
func (w *wiring) lacks(dpid uint64) bool { return w.switches != nil && !w.switches[dpid] }

// forgetSwitch removes a disconnected switch that is not expected back. mu must be held.
func (a *App) forgetSwitch(n *node) {
	for _, p := range n.ports {
		a.forget(p)
	}
	a.hosts.keep(n.dpid, nil)
}

// expect classifies a new port as the wiring says. mu must be held, as in what follows.
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

// isShut reports whether a port is closed: neither an edge nor the end of a link, because a probe
// has arrived that makes no link.
func (a *App) isShut(p *port, now time.Time) bool { return now.Before(p.spared) }

// spare keeps a port from being taken for an edge.
func (p *port) spare(until time.Time) {
	if until.After(p.spared) {
		p.spared = until
	}
}

// shut closes a port for a time: a probe has left or arrived there that makes no link, and if the
// port forwarded, packets might loop.
func (a *App) shut(p *port, now time.Time) {
	p.spare(now.Add(shutTime))
	if p.Kind() != Edge {
		return
	}
	p.first = now
	a.setKind(p, Open)
	a.schedule.open = append(a.schedule.open, p)
}

// stray handles a probe from or to a host's port: the host joins two ports, as a bridge between its
// interfaces does. This makes no link, so that packets of others do not cross the host; and one of
// the ports is closed, so that none loop.
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

// half is a direction in which a probe has arrived, while none has in the other.
type half struct {
	at     time.Time
	direct bool
}

// both reports whether a probe has arrived in the other direction, too, without which there is no
// link; if not, it records this one. A port with one direction only is closed: the cable is broken,
// or a host replays what it has received.
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
	maps.DeleteFunc(to.halves, func(_ *port, h half) bool { return now.Sub(h.at) >= shutTime })
	to.halves[from] = half{now, direct}
	a.shut(from, now)
	a.shut(to, now)
	return half{}, false
}

// warnHosts warns when a port with hosts becomes the end of a link.
func (a *App) warnHosts(p *port) {
	if n := p.hosts.Load(); n > 0 {
		a.log.Warn("a link has come up at a port where hosts were", "port", p.place(), "hosts", n)
	}
}
