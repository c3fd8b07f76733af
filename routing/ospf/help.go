package ospf

import (
	"fmt"
	"time"
)

// Helping a restarting neighbour (RFC 3623, section 3): whatever its state, the router announces it
// as adjacent, and keeps it as Designated Router if it was, until the neighbour has restarted, the
// grace period is over, or the network has changed.

// help is the state of helping a neighbour.
type help struct {
	ballot candidate // what it said in its Hellos before
	asked  bool      // it has sent a grace-LSA; false: it is expected to
}

// RestartChange reports that a router of the domain begins or ends a graceful restart (RFC 3623),
// or helping a neighbour with one.
type RestartChange struct {
	Router    *Router
	Interface *Interface // of the neighbour that is helped; nil: the router itself restarts
	Neighbor  ID
	Begins    bool
	Period    time.Duration // of what begins: how long it may take
	Reason    string        // of what ends, or does not begin: why
}

// takeGrace handles a grace-LSA that has come into the link's database (section 3.1). asked: it
// came in the exchange of a new adjacency, which therefore is not the previous one.
func (w *wire) takeGrace(e *entry, asked bool) error {
	g, err := DecodeGrace(e.Body)
	if err != nil {
		return err
	}
	n := w.find(e.AdvRouter, g.Address)
	if n == nil || n.id != e.AdvRouter || asked && n.helped == nil {
		return nil
	}
	// Policy (section 3.1 (4)): for longer than an LSA stays without being refreshed nobody is
	// helped.
	left := min(g.Period, lsRefreshTime) - time.Duration(e.age())*time.Second
	refused := ""
	switch {
	case e.maxAged():
		n.abandon("it has restarted") // section 3.2 (1)
		return nil
	case left <= 0:
		refused = "its grace period is over"
	case n.helped != nil: // the period may be another one
	case n.state != NeighborFull:
		refused = fmt.Sprintf("it is not adjacent, but %v", n.state)
	case n.hasNews():
		refused = "the network has changed since it was last heard"
	case w.router.restarting():
		refused = "this router restarts itself"
	}
	if refused == "" {
		n.support(left, true)
		return nil
	}
	n.abandon(refused)
	n.domain().tellRestart(RestartChange{Router: w.router, Interface: w.Interface, Neighbor: n.id, Reason: refused})
	return nil
}

// hasNews reports whether the neighbour has yet to acknowledge a change of the network (section 3.1
// (2)).
func (n *neighbor) hasNews() bool {
	for e := range n.unacknowledged {
		if e.changed && !e.Type.opaque() {
			return true
		}
	}
	return false
}

// support begins to help the neighbour, or goes on for another time.
func (n *neighbor) support(period time.Duration, asked bool) {
	d := n.domain()
	if n.helped == nil {
		d.helping++
		n.helped = &help{ballot: candidate{n.id, n.addr, n.priority, n.dr, n.bdr}}
		d.tellRestart(RestartChange{Router: n.wire.router, Interface: n.wire.Interface, Neighbor: n.id, Begins: true,
			Period: period})
	}
	n.helped.asked = n.helped.asked || asked
	d.agenda.set(&n.grace, d.now+period)
}

// abandon ends the help (section 3.2): the router's LSAs and the Designated Router follow from the
// neighbour's actual state again. A neighbour that has been silent for too long is removed.
func (n *neighbor) abandon(reason string) {
	if n.helped == nil {
		return
	}
	n.unhelped(reason)
	if n.inactivity.pos == 0 {
		n.event(inactivityTimer)
	}
	n.wire.event(neighborsChanged)
}

func (n *neighbor) unhelped(reason string) {
	n.helped = nil
	n.domain().helping--
	n.domain().agenda.stop(&n.grace)
	n.domain().tellRestart(RestartChange{Router: n.wire.router, Interface: n.wire.Interface, Neighbor: n.id,
		Reason: reason})
	n.wire.router.touch()
}

// topologyChanged ends the help for all neighbours that would be sent a changed LSA (section 3.2
// (3)): packets that they forward by old routes could loop.
func (db *database) topologyChanged(e *entry, from *neighbor) {
	if db.domain.helping == 0 {
		return
	}
	for _, w := range db.wires() {
		if !db.floodsOn(w) {
			continue
		}
		for _, n := range w.list() {
			if n != from {
				n.abandon(fmt.Sprintf("the network has changed: LSA %v", e.LSAKey))
			}
		}
	}
}

func (d *Domain) tellRestart(c RestartChange) { d.out.Restarts = append(d.out.Restarts, c) }

// Separate ends a segment some of whose routers are about to continue in another domain. Those that
// stay exchange packets from now on, and for up to period help the routers that leave, without
// waiting for grace-LSAs. stays reports which interfaces stay, and their configuration.
func (d *Domain) Separate(now time.Time, s *Segment, period time.Duration,
	stays func(*Interface) (InterfaceConfig, bool)) {
	d.advance(now)
	known := map[*Interface][]candidate{}
	for _, i := range s.members {
		for _, m := range s.members {
			if m != i && i.isUp() && s.adjacent(i, m) {
				known[i] = append(known[i], candidate{m.router.id, m.addr, m.priority, m.dr, m.bdr})
			}
		}
	}
	members := s.members
	s.members = nil
	for _, i := range members {
		i.segment = nil
		cfg, ok := stays(i)
		if !ok {
			i.down()
			continue
		}
		cfg.setDefaults()
		i.wire = newWire(i, cfg)
		if !i.isUp() {
			continue
		}
		i.wire.up()
		for _, c := range known[i] {
			n := newNeighbor(i.wire, c.id, c.addr)
			n.priority, n.dr, n.bdr = c.priority, c.dr, c.bdr
			i.wire.neighbors = append(i.wire.neighbors, n)
			n.support(period, false)
			n.event(helloReceived)
		}
	}
}
