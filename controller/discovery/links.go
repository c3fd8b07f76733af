package discovery

import (
	"slices"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

const (
	// rememberTime is for how long links of an earlier run are believed without a probe,
	// and awayTime those between two switches that are both away.
	rememberTime = time.Minute
	awayTime     = time.Hour

	maxFar = 64 // ports that a port is linked to, by foreign switches; more are not looked at
)

// node is a switch of which something is known.
type node struct {
	dpid uint64
	sw   *controller.Switch // nil: not connected, or another member's of a cluster
	seen *controller.Switch // connected, whosever it is; of a cluster only
	ours atomic.Bool        // sw is not nil

	// ports has those that are up, and those of remembered links. That of a connected
	// switch is changed by the switch's own goroutine only (with mu held), which so may
	// read it without.
	ports map[uint32]*port

	phase float64 // 0 to 1: see schedule.calmRound

	heard   map[openflow.MAC]*host // the same goroutine's: hosts that it has heard, here or elsewhere
	cleanAt int
}

// port is a port.
type port struct {
	node   *node
	number uint32
	mac    openflow.MAC
	kind   atomic.Int32
	gone   bool

	first           time.Time // probe since it is open; zero: none yet
	sent            time.Time // the last probe
	looked          time.Time // when it had its turn
	soon, scheduled bool      // it is in schedule.due, .order
	calm            bool      // counted in schedule.calm
	doubted         bool      // its broadcast has come without its LLDP once
	spared          time.Time // until when it is not taken for an edge: something has been heard of it that is not sure
	halves          map[*port]half
	out, in         []*way // where its probes arrive; whose probes arrive here

	hosts atomic.Int32 // how many live here
	held  []heard      // what was heard while it was open; of hosts.mu
}

// way is one direction of a link.
type way struct {
	from, to     *port
	indirect     bool
	missed       int       // probes sent since one arrived, while both switches were connected
	missedDirect int       // those of LLDP
	stale        bool      // not proved since one of the switches was not connected
	until        time.Time // stale: when it ends; zero: it does not by itself
	suspected    bool      // being confirmed
	gone         bool
	pos          int // in App.ways

	expected  int64 // the epoch since which it is believed by the wiring alone, see Expect; 0: it is not
	silent    int   // seconds without a probe, of a link whose other end another member has
	condemned bool  // it ends when the store says so
}

// own makes the switch of a node this controller's, or nobody's.
func (n *node) own(s *controller.Switch) {
	n.sw = s
	n.ours.Store(s != nil)
}

// here says whether the switch is connected, so that its ports' states are known.
func (n *node) here() bool { return n.sw != nil || n.seen != nil }

// Kind is what the port leads to.
func (p *port) Kind() Kind { return Kind(p.kind.Load()) }

func (p *port) place() place { return place{p.node.dpid, p.number} }

// ways yields all directions of links that the port is an end of.
func (p *port) ways(yield func(*way) bool) {
	for _, w := range slices.Concat(p.out, p.in) {
		if !yield(w) {
			return
		}
	}
}

func (p *port) wayTo(to *port) *way {
	for _, w := range p.out {
		if w.to == to {
			return w
		}
	}
	return nil
}

func (w *way) link() Link {
	return Link{From: w.from.node.dpid, FromPort: w.from.number, To: w.to.node.dpid, ToPort: w.to.number,
		Indirect: w.indirect, Remembered: w.stale}
}

// connected says whether both switches are there, so that a probe should arrive.
func (w *way) connected() bool { return w.from.node.sw != nil && w.to.node.sw != nil }

// What follows must be called with mu held.

func (a *App) port(at place) *port {
	if n := a.nodes[at.dpid]; n != nil {
		return n.ports[at.port]
	}
	return nil
}

func (a *App) node(dpid uint64) *node {
	n := a.nodes[dpid]
	if n == nil {
		n = &node{dpid: dpid, ports: map[uint32]*port{}, heard: map[openflow.MAC]*host{}}
		a.nodes[dpid] = n
	}
	return n
}

// drop forgets a switch of which nothing is known any more.
func (a *App) drop(n *node) {
	if !n.here() && len(n.ports) == 0 && a.nodes[n.dpid] == n {
		delete(a.nodes, n.dpid)
	}
}

// remembered returns a port of a remembered link, known or not.
func (a *App) remembered(dpid uint64, number uint32) *port {
	n := a.node(dpid)
	p := n.ports[number]
	if p == nil {
		p = &port{node: n, number: number}
		n.ports[number] = p
	}
	return p
}

// remember makes a direction of a link known that no probe has shown yet.
func (a *App) remember(l Link, until time.Time) {
	if a.wiring.lacks(l.From) || a.wiring.lacks(l.To) {
		return
	}
	from, to := a.remembered(l.From, l.FromPort), a.remembered(l.To, l.ToPort)
	hosts := a.wiring.hosts[from.place()] || a.wiring.hosts[to.place()]
	if from != to && !hosts && from.wayTo(to) == nil && len(from.out) < maxFar && len(to.in) < maxFar {
		a.doubt(a.newWay(from, to, l.Indirect), until)
	}
	a.drop(from.node)
	a.drop(to.node)
}

// portUp makes a port known that is up.
func (a *App) portUp(n *node, d openflow.Port) *port {
	p := n.ports[d.Number]
	if p == nil {
		p = &port{node: n, number: d.Number}
		n.ports[d.Number] = p
		a.awake(p)
		a.expect(p)
	}
	p.mac = d.HWAddr
	a.schedule.add(p)
	return p
}

// returned looks at the remembered links of a port whose switch is there again: those to
// connected switches have to prove themselves now.
func (a *App) returned(p *port) {
	if p.Kind() == Inner { // told again, for those who were told of nothing while it was away
		a.changes = append(a.changes, Change{Switch: p.node.dpid, Port: p.number, Kind: Inner})
	}
	for w := range p.ways {
		if time.Until(w.until) > rememberTime {
			w.until = time.Time{}
		}
		if w.stale && w.connected() {
			a.schedule.soon(w.from)
			a.schedule.suspect(w, time.Now().Add(a.schedule.openFor()))
		}
	}
}

func (a *App) setKind(p *port, k Kind) {
	if p.Kind() == k {
		return
	}
	p.kind.Store(int32(k))
	a.changes = append(a.changes, Change{Switch: p.node.dpid, Port: p.number, Kind: k})
	a.hosts.portIs(p, k)
}

// newWay makes a direction of a link known.
func (a *App) newWay(from, to *port, indirect bool) *way {
	w := &way{from: from, to: to, indirect: indirect, pos: len(a.ways)}
	a.ways = append(a.ways, w)
	from.out, to.in = append(from.out, w), append(to.in, w)
	a.linkChanges = append(a.linkChanges, LinkChange{Link: w.link()})
	a.shared.link(from.place(), to.place())
	a.warnHosts(from)
	a.warnHosts(to)
	a.setKind(from, Inner)
	a.setKind(to, Inner)
	return w
}

// doubt takes a direction of a link as remembered only: a switch of it is away.
func (a *App) doubt(w *way, until time.Time) {
	switch {
	case w.stale && !w.until.IsZero():
		until = w.until
	case until.IsZero() && !w.from.node.here() && !w.to.node.here():
		until = time.Now().Add(awayTime)
	}
	w.stale, w.missed, w.until = true, 0, until
	a.stale[w] = true
	a.linkChanges = append(a.linkChanges, LinkChange{Link: w.link()})
}

// dormant is a link of a port that is down to a switch that is away.
type dormant struct {
	link  Link
	until time.Time
}

func (a *App) clearDormant(f func(place, dormant) bool) {
	for at, list := range a.dormant {
		if list = slices.DeleteFunc(list, func(d dormant) bool { return f(at, d) }); len(list) == 0 {
			delete(a.dormant, at)
		} else {
			a.dormant[at] = list
		}
	}
}

// awake remembers the links that a port had before it went down.
func (a *App) awake(p *port) {
	list := a.dormant[p.place()]
	delete(a.dormant, p.place())
	for _, d := range list {
		if time.Now().Before(d.until) {
			a.remember(d.link, d.until)
		}
	}
}

// lose takes a direction of a link for lost. A port that is an end of none any more is
// open again, or not known at all where its switch is away.
func (a *App) lose(w *way) {
	if w.gone {
		return
	}
	w.gone = true
	last := a.ways[len(a.ways)-1]
	a.ways[w.pos], last.pos = last, w.pos
	a.ways[len(a.ways)-1] = nil
	a.ways = a.ways[:len(a.ways)-1]
	delete(a.stale, w)
	is := func(x *way) bool { return x == w }
	w.from.out, w.to.in = slices.DeleteFunc(w.from.out, is), slices.DeleteFunc(w.to.in, is)
	a.linkChanges = append(a.linkChanges, LinkChange{Link: w.link(), Gone: true})
	a.shared.link(w.from.place(), w.to.place())
	for _, p := range []*port{w.from, w.to} {
		if p.gone || len(p.out)+len(p.in) > 0 {
			continue
		}
		if !p.node.here() {
			a.forget(p)
			continue
		}
		p.first, p.doubted = time.Time{}, false
		a.setKind(p, Open)
		a.schedule.soon(p)
	}
}

// forget drops a port and its links. Those to a switch that is away are remembered again
// should the port come back: that switch does not know that it was gone, and forwards.
func (a *App) forget(p *port) {
	if p.gone {
		return
	}
	for w := range p.ways {
		if p.node.here() && !(w.from.node.here() && w.to.node.here()) {
			at := p.place()
			a.dormant[at] = append(a.dormant[at], dormant{w.link(), time.Now().Add(rememberTime)})
		}
	}
	p.gone = true
	a.shared.down(p.place())
	delete(p.node.ports, p.number)
	for w := range p.ways {
		a.lose(w)
	}
	a.changes = append(a.changes, Change{Switch: p.node.dpid, Port: p.number, Kind: p.Kind(), Gone: true})
	a.drop(p.node)
}

// join takes note that a probe from one port has arrived at another. When one has arrived the other
// way, too, there is a link; back says whether that one shall be sent at once.
func (a *App) join(from, to *port, direct bool) (back bool) {
	w := from.wayTo(to)
	if w == nil {
		if from == to || len(from.out) >= maxFar || len(to.in) >= maxFar {
			return false
		}
		now := time.Now()
		seen, known := to.halves[from]
		known = known && now.Sub(seen.at) < shutTime
		switch {
		case a.wiring.hosts[from.place()] || a.wiring.hosts[to.place()]:
			a.stray(from, to, now)
			return false
		case !direct && known && seen.direct: // the same probe
			return false
		case !direct && !from.doubted: // maybe the LLDP came when the switch was not ready yet: another time
			from.doubted = true
			from.spare(now.Add(doubtTime))
			to.spare(now.Add(doubtTime))
			a.schedule.soon(from)
			return false
		}
		if to.wayTo(from) == nil {
			other, ok := a.both(from, to, direct, now)
			a.shared.link(from.place(), to.place())
			if !ok {
				return !known || now.Sub(to.sent) >= openTime
			}
			a.newWay(to, from, !other.direct)
		}
		w = a.newWay(from, to, !direct)
	}
	w.missed, w.silent = 0, 0
	if w.condemned {
		w.condemned = false
		a.shared.link(from.place(), to.place())
	}
	if direct {
		w.missedDirect = 0
		a.outdate(w)
	}
	indirect := !direct && (w.indirect || w.missedDirect > lost)
	if w.stale || w.indirect != indirect {
		w.stale, w.indirect = false, indirect
		delete(a.stale, w)
		a.linkChanges = append(a.linkChanges, LinkChange{Link: w.link()})
	}
	return back
}

// outdate loses what is remembered of the ports of a direct link that leads elsewhere.
func (a *App) outdate(w *way) {
	for _, p := range []*port{w.from, w.to} {
		for other := range p.ways {
			same := other.from == w.from && other.to == w.to || other.from == w.to && other.to == w.from
			if other.stale && !same {
				a.lose(other)
			}
		}
	}
}
