package discovery

import (
	"slices"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/openflow"
)

const (
	// rememberTime is how long links of an earlier run are believed without a probe, awayTime the
	// same for a link whose switches are both disconnected.
	rememberTime = time.Minute
	awayTime     = time.Hour

	maxFar = 64 // links of one port, through foreign switches; further ones are ignored
)

// node is a known switch, connected or not.
type node struct {
	dpid uint64
	sw   *controller.Switch // nil: disconnected, or another member of the cluster is its master
	seen *controller.Switch // connected, whoever is its master; only in a cluster
	ours atomic.Bool        // sw is not nil

	// ports are the ports that are up, and those of remembered links. Ports of a connected switch
	// are changed only by that switch's goroutine with mu held, so that goroutine may read them
	// without mu.
	ports map[uint32]*port

	phase float64 // 0 to 1: see schedule.calmRound

	heard   map[openflow.MAC]*host // hosts heard by the switch, here or elsewhere; used by the same goroutine only
	cleanAt int
}

// port is a port.
type port struct {
	node   *node
	number uint32
	mac    openflow.MAC
	kind   atomic.Int32
	gone   bool

	first           time.Time // first probe since it became open; zero: none yet
	sent            time.Time // the last probe
	looked          time.Time // its last turn
	soon, scheduled bool      // it is in schedule.due, .order
	calm            bool      // counted in schedule.calm
	doubted         bool      // its broadcast has arrived once without its LLDP
	spared          time.Time // until when it is not taken for an edge, because of an inconclusive probe
	halves          map[*port]half
	out, in         []*way // links on which its probes arrive elsewhere; links on which others' probes arrive here

	hosts atomic.Int32 // number of hosts here
	held  []heard      // what was heard while it was open; guarded by hosts.mu
}

// way is one direction of a link.
type way struct {
	from, to     *port
	indirect     bool
	missed       int       // probes sent since one last arrived, while both switches were connected
	missedDirect int       // those of them that were LLDP
	stale        bool      // not confirmed since one of the switches was disconnected
	until        time.Time // stale: when it ends; zero: no limit
	suspected    bool      // being confirmed
	gone         bool
	pos          int // index in App.ways

	expected  int64 // the epoch since which only the wiring vouches for it, see Expect; 0: it does not
	silent    int   // seconds without a probe, for a link whose other end belongs to another member
	condemned bool  // ends when the store confirms it
}

// own sets whether this controller is the switch's master; nil: it is not.
func (n *node) own(s *controller.Switch) {
	n.sw = s
	n.ours.Store(s != nil)
}

// here reports whether the switch is connected, so that the state of its ports is known.
func (n *node) here() bool { return n.sw != nil || n.seen != nil }

// Kind is what the port leads to.
func (p *port) Kind() Kind { return Kind(p.kind.Load()) }

func (p *port) place() place { return place{p.node.dpid, p.number} }

// ways yields all directions of links that begin or end at the port.
func (p *port) ways(yield func(*way) bool) {
	for _, w := range slices.Concat(p.out, p.in) {
		if !yield(w) {
			return
		}
	}
}

func (p *port) wayTo(to *port) *way {
	return lists.Find(p.out, func(w *way) bool { return w.to == to })
}

func (w *way) link() Link {
	return Link{From: w.from.node.dpid, FromPort: w.from.number, To: w.to.node.dpid, ToPort: w.to.number,
		Indirect: w.indirect, Remembered: w.stale}
}

// connected reports whether both switches are connected, so that a probe should arrive.
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

// remembered returns a port of a remembered link, creating it if needed.
func (a *App) remembered(dpid uint64, number uint32) *port {
	n := a.node(dpid)
	p := n.ports[number]
	if p == nil {
		p = &port{node: n, number: number}
		n.ports[number] = p
	}
	return p
}

// remember adds a direction of a link that no probe has shown yet.
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

// portUp adds a port that is up.
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

// returned re-examines the remembered links of a port whose switch has reconnected: those to
// connected switches must be confirmed now.
func (a *App) returned(p *port) {
	if p.Kind() == Inner { // told again, for watchers that were not told while it was disconnected
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

// newWay adds a direction of a link.
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

// doubt marks a direction of a link as remembered: one of its switches is disconnected.
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

// dormant is a link from a port that is down to a disconnected switch.
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

// lose removes a direction of a link. A port with no other becomes open again, or unknown if its
// switch is disconnected.
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

// forget drops a port and its links. Links to a disconnected switch are remembered again if the
// port comes back: that switch has not noticed that the port was down, and keeps forwarding.
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

// join records that a probe from one port has arrived at another. A link exists when one has
// arrived in the other direction, too; back tells the caller to send that one at once.
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
		case !direct && !from.doubted: // the switch may not have been ready when the LLDP arrived: wait for the next
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

// outdate removes the remembered links of ports that now have a direct link elsewhere.
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
