package ospf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Disagreement is a parameter that two routers on a network must agree on, and do not.
type Disagreement string

const (
	DifferArea     Disagreement = "area"
	DifferSubnet   Disagreement = "subnet"
	DifferMask     Disagreement = "network mask"
	DifferHello    Disagreement = "hello"
	DifferDead     Disagreement = "dead"
	DifferStub     Disagreement = "stub area"
	DifferAuthType Disagreement = "authentication type"
	DifferAuthKey  Disagreement = "authentication key"
	DifferMTU      Disagreement = "MTU"
	DifferNetwork  Disagreement = "network type"
	SameRouterID   Disagreement = "router id" // which both have, and must not
)

// Mismatch is a disagreement with a router that an interface hears. Packets of such a router are
// rejected, except that routers with different network types, or with the same Router ID, can
// become Full and still have no routes.
type Mismatch struct {
	Interface    *Interface
	From         netip.Addr // the source of its packets
	Neighbor     ID         // its Router ID, as it says
	What         Disagreement
	Theirs, Ours string    // as people write it; without passwords and secrets
	Last         time.Time // when it was last received
}

// maxMismatches limits what forged packets can make an interface remember.
const maxMismatches = 64

// point is one thing in which two routers differ.
type point struct {
	what         Disagreement
	theirs, ours string
}

// disagreement is the error for a packet that is rejected for some points.
type disagreement struct {
	points []point
	texts  []string
}

func (e *disagreement) Error() string { return strings.Join(e.texts, "; ") }

// add notes one more point.
func (e *disagreement) add(what Disagreement, theirs, ours, format string, args ...any) {
	e.points = append(e.points, point{what, theirs, ours})
	e.texts = append(e.texts, fmt.Sprintf(format, args...))
}

// or returns the error, or nil if there are no points.
func (e *disagreement) or() error {
	if len(e.points) == 0 {
		return nil
	}
	return e
}

func disagree(what Disagreement, theirs, ours, format string, args ...any) error {
	var e disagreement
	e.add(what, theirs, ours, format, args...)
	return &e
}

// stranger is a router that an interface hears and disagrees with.
type stranger struct {
	id     ID
	points []point
	last   instant
}

// patience is how long a mismatch is remembered: Hellos repeat it within DeadInterval, Database
// Descriptions within RxmtInterval.
func (w *wire) patience() time.Duration { return max(w.cfg.DeadInterval, 3*w.cfg.RxmtInterval) }

// refused records a disagreement for which a packet was rejected.
func (w *wire) refused(id, addr ID, err error) {
	var e *disagreement
	if w != nil && errors.As(err, &e) {
		w.differs(id, addr, e.points...)
	}
}

// differs records the points in which a router differs, and reports new ones.
func (w *wire) differs(id, addr ID, points ...point) {
	d := w.domain()
	w.forgetStrangers()
	s := w.strangers[addr]
	if s == nil {
		if len(w.strangers) >= maxMismatches {
			return
		}
		if w.strangers == nil {
			w.strangers = map[ID]*stranger{}
		}
		s = &stranger{}
		w.strangers[addr] = s
	}
	before := s.points
	*s = stranger{id, points, d.now}
	for _, m := range w.mismatchesOf(addr, s) {
		if !slices.Contains(before, point{m.What, m.Theirs, m.Ours}) {
			d.out.Mismatches = append(d.out.Mismatches, m)
		}
	}
}

// agrees removes points in which the router has just been seen to agree.
func (w *wire) agrees(addr ID, on func(Disagreement) bool) {
	s := w.strangers[addr]
	if s == nil {
		return
	}
	s.points = slices.DeleteFunc(slices.Clone(s.points), func(p point) bool { return on(p.what) })
	if len(s.points) == 0 {
		delete(w.strangers, addr)
	}
}

// forgetStrangers forgets those that are silent.
func (w *wire) forgetStrangers() {
	for addr, s := range w.strangers {
		if w.domain().now-s.last > w.patience() {
			delete(w.strangers, addr)
		}
	}
}

func (w *wire) mismatchesOf(addr ID, s *stranger) (out []Mismatch) {
	for _, p := range s.points {
		out = append(out, Mismatch{w.Interface, addr.Addr(), s.id, p.what, p.theirs, p.ours,
			w.domain().epoch.Add(s.last)})
	}
	return out
}

// Mismatches lists the interface's mismatches, ordered by address. Those that have been resolved
// are removed, and those of routers that have fallen silent.
func (i *Interface) Mismatches() (out []Mismatch) {
	if i.wire == nil {
		return nil
	}
	i.wire.forgetStrangers()
	for addr, s := range i.wire.strangers {
		out = append(out, i.wire.mismatchesOf(addr, s)...)
	}
	slices.SortStableFunc(out, func(a, b Mismatch) int { return cmp.Compare(IDOf(a.From), IDOf(b.From)) })
	return out
}

// compare checks a neighbour's Hello for what the RFC has no check for. On a point-to-point network
// nobody is Designated Router. On a broadcast network a Full neighbour knows that there is one.
func (n *neighbor) compare(h *Hello) {
	w, d := n.wire, n.domain()
	var points []point
	kind := func(t InterfaceType) { points = append(points, point{DifferNetwork, t.String(), w.typ.String()}) }
	switch {
	case w.typ == PointToPoint && h.DR|h.BDR != 0:
		kind(Broadcast)
	case w.typ == Broadcast && n.state == NeighborFull && w.dr != 0 && h.DR == 0:
		kind(PointToPoint)
	}
	if same := d.routers[n.id]; same != nil {
		if i := d.addresses[n.addr]; i == nil || i.router != same {
			points = append(points, point{SameRouterID, n.id.String(), n.id.String()})
		}
	}
	if len(points) == 0 {
		w.agrees(n.addr, func(x Disagreement) bool { return x != DifferMTU })
		return
	}
	if s := w.strangers[n.addr]; s != nil &&
		slices.ContainsFunc(s.points, func(p point) bool { return p.what == DifferMTU }) {
		return // which is why it is not Full
	}
	w.differs(n.id, n.addr, points...)
}

// compareMTU detects a neighbour with a smaller MTU: it rejects our Database Descriptions, and
// repeats its first one for ever (section 10.6).
func (n *neighbor) compareMTU(dd *DatabaseDescription) {
	if n.wire.typ == Virtual || dd.Flags&FlagInit == 0 || dd.MTU == 0 || dd.MTU >= n.wire.cfg.MTU {
		return
	}
	if n.exchange.inits++; n.exchange.inits > 1 {
		n.wire.differs(n.id, n.addr, point{DifferMTU, fmt.Sprint(dd.MTU), fmt.Sprint(n.wire.cfg.MTU)})
	}
}
