// Package balance is the app that keeps traffic off busy links, as in section 4 of
// "High-performance routing emulation": traffic to subnets between routing nodes, and to hosts
// between switches. Every period it reads the load of links from monitor, and the traffic to each
// destination from the counters of the datapaths' entries; package routing/balance decides what to
// move, and the app responsible for the datapaths, routing or learning, installs it without loops.
//
// As long as no link is busy and nothing has been moved, no datapath's entries are read.
package balance

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/monitor"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
	engine "trivet.dev/trivet/routing/balance"
	"trivet.dev/trivet/topology"
)

// Config says what the app does.
type Config struct {
	On     bool                   // false: it moves nothing, and only answers queries
	Per    topology.BalancePer    // which part of a destination's traffic takes one path
	Choose topology.BalanceChoose // when a path is chosen
	engine.Options
	Period time.Duration

	Names map[uint64]string // of datapaths

	// Incoming returns the bandwidth of the link into a port, in bit/s; 0: unknown. May be nil.
	Incoming func(dpid uint64, port uint32) float64
}

// App is the app balance. Make it with New. Its embedded Balancer is for routing nodes.
type App struct {
	controller.Base
	*Balancer[routing.Traffic]

	// Hosts is the Balancer for switches, by destination Ethernet address; nil: the controller has
	// no app for switches.
	Hosts *Balancer[openflow.MAC]
}

// Balancer moves traffic in one app's domain. K identifies a destination.
type Balancer[K comparable] struct {
	kind     string // of datapaths
	domain   steer.Domain[K]
	compare  func(a, b K) int
	monitor  meter
	switches func(dpid uint64) *controller.Switch
	log      *slog.Logger
	ctx      context.Context
	stop     context.CancelFunc
	done     sync.WaitGroup
	wake     chan struct{} // the configuration has changed
	finding  chan struct{} // a semaphore for path searches, which take long in a large network

	steering sync.Mutex // serializes calls of Steer, so that the last ways win; taken before mu

	mu     sync.Mutex // guards what follows
	config Config
	turn   int // counts changes of the configuration and of users' paths, after which earlier readings are void
	moved  map[K]*Moved[K]
	moves  int // in total
	rests  engine.Rests[K]

	divided map[K]*division[K]
	chosen  map[K]*choice // with choose: once
}

// meter is the part of monitor that is used.
type meter interface {
	Port(dpid uint64, number uint32) (monitor.Port, bool)
	FlowCounts() map[uint64]int
}

// Moved is a destination whose packets do not take the shortest path.
type Moved[K comparable] struct {
	To    K
	ways  steer.Ways
	Paths []Path
	User  bool // installed by a user: it stays until it is removed

	silent int // consecutive readings without traffic
}

// goneSilent is how many consecutive readings without traffic mean that a flow has ended. A single
// one may be wrong: Open vSwitch counts packets up to a second late.
const goneSilent = 3

// Path is a chosen path, and why.
type Path struct {
	Routers []uint64 // or switches, by datapath id
	Edges   []steer.Edge
	Since   time.Time
	Why     string
}

// New returns the app, which needs the others; switches, the app for switches, may be nil.
func New(routers steer.Domain[routing.Traffic], switches steer.Domain[openflow.MAC], m *monitor.App, c Config) *App {
	a := &App{Balancer: newBalancer(kindRouter, routers, routing.Traffic.Compare, m, c)}
	if switches != nil {
		a.Hosts = newBalancer(kindSwitch, switches,
			func(a, b openflow.MAC) int { return bytes.Compare(a[:], b[:]) }, m, c)
	}
	return a
}

func newBalancer[K comparable](kind string, g steer.Domain[K], compare func(a, b K) int, m meter,
	c Config) *Balancer[K] {
	a := &Balancer[K]{kind: kind, domain: g, compare: compare, monitor: m, config: c, wake: make(chan struct{}, 1),
		finding: make(chan struct{}, 1),
		moved:   map[K]*Moved[K]{}, divided: map[K]*division[K]{}, chosen: map[K]*choice{}}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// Name is "balance".
func (*App) Name() string { return "balance" }

// Start starts balancing.
func (a *App) Start(c *controller.Controller) error {
	a.start(c)
	if a.Hosts != nil {
		a.Hosts.start(c)
	}
	return nil
}

func (a *Balancer[K]) start(c *controller.Controller) {
	a.log, a.switches = c.Log(), c.Switch
	a.done.Go(a.run)
}

// Stop stops it. What is installed stays.
func (a *App) Stop() {
	a.end()
	if a.Hosts != nil {
		a.Hosts.end()
	}
}

func (a *Balancer[K]) end() {
	a.stop()
	a.done.Wait()
}

// Configure changes the configuration. Moved traffic returns to its shortest path where balancing
// is now off; paths installed by users stay.
func (a *App) Configure(c Config) {
	a.configure(c)
	if a.Hosts != nil {
		a.Hosts.configure(c)
	}
}

func (a *Balancer[K]) configure(c Config) {
	a.mu.Lock()
	was := a.config
	a.config = c
	a.turn++
	gone := 0
	if !c.On || c.Choose != was.Choose {
		clear(a.chosen)
		a.rests = engine.Rests[K]{}
	}
	if !c.On || c.Per != was.Per {
		for p := range a.divided {
			a.unite(p)
			gone++
		}
	}
	if was.On && !c.On {
		for p, m := range a.moved {
			if !m.User {
				delete(a.moved, p)
				gone++
			}
		}
	}
	a.mu.Unlock()
	if gone > 0 {
		a.steer("what is balanced has changed")
	} else {
		a.anew()
	}
}

// anew discards all readings: they are of another network.
func (a *Balancer[K]) anew() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run makes a reading each period, and acts on it.
func (a *Balancer[K]) run() {
	var before *reading[K]
	for wait := time.Duration(0); ; {
		a.mu.Lock()
		c, turn := a.config, a.turn
		a.mu.Unlock()
		var due <-chan time.Time
		if c.On {
			due = time.After(cmp.Or(wait, c.Period))
		}
		wait = 0
		select {
		case <-a.ctx.Done():
			return
		case <-a.wake:
			before = nil
			continue
		case <-due:
		}
		if !a.domain.Quiet() {
			before = nil // the readings would be of two states of the network
			continue
		}
		if before = a.read(c, before); !before.complete {
			wait = c.Period / 2 // a rate takes two readings
		}
		a.step(c, turn, before)
	}
}

// step moves traffic according to a reading. If the reading is incomplete, it only removes what has
// ended.
func (a *Balancer[K]) step(c Config, turn int, r *reading[K]) {
	now := time.Now()
	a.mu.Lock()
	moved := slices.Collect(maps.Keys(a.moved))
	a.mu.Unlock()
	large := a.large(c, r)
	a.look(r, moved)
	a.look(r, slices.Collect(maps.Keys(large)))
	a.mu.Lock()
	if turn != a.turn {
		a.mu.Unlock()
		return
	}
	a.rests.Tidy(now, c.Period)
	ended := a.prune(r)
	a.void(r)
	if r.complete {
		ended = a.hear(r) || ended
		if c.literal() {
			ended = a.endChoices(r) || ended
		}
	}
	divided := a.divide(c, r, large)
	var list []K
	if !divided && r.complete {
		list = a.candidates(c, r, now)
	}
	a.mu.Unlock()
	if divided {
		a.steer("traffic is divided")
		return
	}
	lines := a.move(c, turn, r, list, now)
	if len(lines) == 0 && !ended {
		return
	}
	for _, l := range lines {
		a.log.LogAttrs(a.ctx, slog.LevelInfo, "traffic moves", l)
	}
	a.steer("links are busy")
}

// move moves traffic of some destinations, and returns log attributes. The search may take long, so
// it is made without mu.
func (a *Balancer[K]) move(c Config, turn int, r *reading[K], list []K, now time.Time) (lines []slog.Attr) {
	a.look(r, list)
	var demands []engine.Demand
	var of []K
	a.mu.Lock()
	kept := map[K][]bool{}
	for _, p := range list {
		kept[p] = a.kept(r, p)
	}
	a.mu.Unlock()
	for _, p := range list {
		if d, ok := a.demand(r, p); ok {
			d.Kept = kept[p]
			demands, of = append(demands, d), append(of, p)
		}
	}
	moves := c.choose(r.network, demands)
	a.mu.Lock()
	defer a.mu.Unlock()
	if turn != a.turn {
		return nil
	}
	for _, m := range moves {
		p := of[m.Demand]
		if c.Choose == topology.ChooseOnce && !a.keep(r, p, m.Path) {
			continue
		}
		a.moves++
		if !c.literal() {
			a.rests.Moved(p, now, c.Period)
		}
		lines = append(lines, a.take(c, r, p, m))
	}
	return lines
}

// maxCandidates limits the destinations, not moved so far, that are considered in a period.
const maxCandidates = 64

// candidates lists the destinations that may be moved or return, sorted. Of those not moved so far,
// only destinations of a datapath with a busy link matter; the ones with most traffic are chosen,
// as few of them fill the links. mu must be held.
func (a *Balancer[K]) candidates(c Config, r *reading[K], now time.Time) (out []K) {
	stays := func(k K) bool { return a.divided[k] != nil || a.rests.Resting(k, now) }
	most := map[K]float64{}
	for dpid := range r.busy(c) {
		for k, rate := range r.carried[dpid] {
			if rate > most[k] && a.moved[k] == nil && !stays(k) && !a.isKept(k, dpid) {
				most[k] = rate
			}
		}
	}
	out = slices.SortedFunc(maps.Keys(most),
		func(x, y K) int { return cmp.Or(-cmp.Compare(most[x], most[y]), a.compare(x, y)) })
	out = out[:min(len(out), maxCandidates)]
	for k, m := range a.moved {
		if !m.User && (m.silent == 0 || m.silent >= goneSilent) && !stays(k) && !a.isUnsure(r, m) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, a.compare)
	return out
}

// isAway reports whether a datapath on a moved destination's path is disconnected. It keeps
// forwarding as before, so the path must stay.
func (a *Balancer[K]) isAway(m *Moved[K]) bool {
	for dpid := range m.ways {
		if a.switches(dpid) == nil {
			return true
		}
	}
	return false
}

// isUnsure reports whether a datapath on a moved destination's path is disconnected, or its traffic
// is unknown.
func (a *Balancer[K]) isUnsure(r *reading[K], m *Moved[K]) bool { return a.isUnheard(r, m.ways) }

func (a *Balancer[K]) isUnheard(r *reading[K], ways steer.Ways) bool {
	for dpid := range ways {
		if r.unheard[dpid] || a.switches(dpid) == nil {
			return true
		}
	}
	return false
}

// hear records which moved destinations have no traffic. A part without traffic has ended: that it
// then takes the common path is no move. mu must be held.
func (a *Balancer[K]) hear(r *reading[K]) (ended bool) {
	for p, m := range a.moved {
		switch {
		case r.sent(p) > 0:
			m.silent = 0
		case !a.isUnsure(r, m):
			m.silent++
		}
		if m.silent >= goneSilent && a.domain.Whole(p) != p {
			delete(a.moved, p)
			a.rests.Forget(p)
			ended = true
		}
	}
	return ended
}

// look adds the paths to destinations to a reading, once each. This takes long in a large network,
// so mu must not be held.
func (a *Balancer[K]) look(r *reading[K], list []K) {
	for _, k := range list {
		if _, known := r.to[k]; known {
			continue
		}
		r.to[k] = nil
		if d, ok := a.domain.Destination(k); ok {
			r.to[k] = &d
		}
	}
}

// demand returns the current traffic to a destination.
func (a *Balancer[K]) demand(r *reading[K], p K) (out engine.Demand, is bool) {
	d := r.to[p]
	if d == nil {
		return out, false
	}
	n := len(r.network.Entries)
	out = engine.Demand{Next: slices.Repeat([]int32{engine.None}, n), Rate: make([]float64, n)}
	for _, o := range d.Owners {
		if i, known := r.index[o]; known {
			out.Ends = append(out.Ends, i)
		}
	}
	out.Home = slices.Clone(out.Next)
	for dpid, i := range r.index {
		if l, known := r.edges[d.Next[dpid]]; known {
			out.Next[i] = l
		}
		if l, known := r.edges[d.Home[dpid]]; known {
			out.Home[i] = l
		}
		if d.Fixed[dpid] {
			out.Next[i], out.Home[i] = engine.Fixed, engine.Fixed
		}
		out.Rate[i] = r.carried[dpid][p]
	}
	return out, len(out.Ends) > 0
}

// prune removes ways over edges that no longer exist: they would take effect again, unexpectedly,
// when a link returns. mu must be held.
func (a *Balancer[K]) prune(r *reading[K]) (dropped bool) {
	for p, m := range a.moved {
		d, known := r.to[p]
		if !known || m.User {
			continue
		}
		for dpid, e := range m.ways {
			if d == nil || d.Next[dpid] != e {
				delete(m.ways, dpid)
				delete(a.chosen, p)
				a.rests.Forget(p)
				dropped = true
			}
		}
		if len(m.ways) == 0 {
			delete(a.moved, p)
		}
	}
	return dropped
}

// take records a move, and returns a log attribute. mu must be held.
func (a *Balancer[K]) take(c Config, r *reading[K], p K, m engine.Move) slog.Attr {
	if len(m.Path) == 0 {
		delete(a.moved, p)
		return slog.Group("", "to", p, "by", "its shortest path again")
	}
	moved := a.moved[p]
	if moved == nil {
		moved = &Moved[K]{To: p, ways: steer.Ways{}}
		a.moved[p] = moved
	}
	path := Path{Since: time.Now(), Why: r.why(c, m)}
	for _, l := range m.Path {
		e := r.order[l]
		moved.ways[e.From] = e
		path.Edges = append(path.Edges, e)
	}
	if r.isHome(p, moved.ways) {
		delete(a.moved, p)
		return slog.Group("", "to", p, "by", "its shortest path again")
	}
	path.Routers = routersOf(path.Edges)
	moved.add(path)
	return slog.Group("", "to", p, "by", c.names(path.Routers), "why", path.Why)
}

// isHome reports whether ways to a destination are those of its shortest paths.
func (r *reading[K]) isHome(k K, ways steer.Ways) bool {
	for dpid, e := range ways {
		if r.to[k].Home[dpid] != e {
			return false
		}
	}
	return true
}

// routersOf lists the datapaths along a path.
func routersOf(path []steer.Edge) (out []uint64) {
	for i, e := range path {
		if i == 0 {
			out = append(out, e.From)
		}
		out = append(out, e.To)
	}
	return out
}

// steer passes the chosen ways to the app.
func (a *Balancer[K]) steer(why string) {
	a.steering.Lock()
	defer a.steering.Unlock()
	a.mu.Lock()
	ways := make(map[K]steer.Ways, len(a.moved))
	for _, d := range a.divided {
		for _, p := range d.parts {
			ways[p] = nil
		}
	}
	for p, m := range a.moved {
		ways[p] = maps.Clone(m.ways)
	}
	a.mu.Unlock()
	a.domain.Steer(ways, why)
	a.anew()
}
