// Package balance is the app that keeps traffic off busy links, as in section 4 of
// "High-performance routing emulation": what goes to subnets between routing nodes, and what goes
// to hosts between switches. Every period it takes what links carry from monitor, and what goes to
// each destination from the datapaths' entries; package routing/balance says what is to move, and
// the app whose datapaths they are, routing or learning, takes it there without a loop on the way.
//
// As long as no link is busy and nothing has moved, it asks no datapath for its entries.
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
	On  bool                // else it moves nothing, and only answers
	Per topology.BalancePer // what of that which goes to a destination takes one path
	engine.Options
	Period time.Duration

	Names map[uint64]string // of datapaths

	// Incoming returns how much comes to a port by its link, in bit/s; 0: it is not known. May be
	// nil.
	Incoming func(dpid uint64, port uint32) float64
}

// App is the app. Make it with New. What it does itself is between routing nodes.
type App struct {
	controller.Base
	*Balancer[routing.Traffic]

	// Hosts does the same between switches, for what goes to each Ethernet address. It is nil where
	// the controller has no app for switches.
	Hosts *Balancer[openflow.MAC]
}

// Balancer moves traffic in one app's part of the network. K names its destinations.
type Balancer[K comparable] struct {
	kind     string // of datapaths
	ground   steer.Ground[K]
	compare  func(a, b K) int
	monitor  meter
	switches func(dpid uint64) *controller.Switch
	log      *slog.Logger
	ctx      context.Context
	stop     context.CancelFunc
	done     sync.WaitGroup
	wake     chan struct{} // the configuration is another
	finding  chan struct{} // has room for who looks for paths: in a large network that takes long

	steering sync.Mutex // while the ground is given ways, so that the last ones come last; before mu

	mu     sync.Mutex // of what follows
	config Config
	turn   int // of the configuration, and of what users have installed: nothing follows from what was read before
	moved  map[K]*Moved[K]
	moves  int // ever
	rests  engine.Rests[K]

	divided map[K]*division[K]
}

// meter is what the app monitor knows.
type meter interface {
	Port(dpid uint64, number uint32) (monitor.Port, bool)
	FlowCounts() map[uint64]int
}

// Moved is a destination whose packets take other ways than the shortest.
type Moved[K comparable] struct {
	To    K
	ways  steer.Ways
	Paths []Path
	User  bool // installed by a request: it stays until it is taken back

	silent int // readings in a row in which nothing went there
}

// goneSilent is how many readings in a row say that nothing goes to a destination any more. One may
// be wrong: Open vSwitch counts its entries' packets up to a second late.
const goneSilent = 3

// Path is a way that was chosen, and why.
type Path struct {
	Routers []uint64 // or switches, by datapath id
	Edges   []steer.Edge
	Since   time.Time
	Why     string
}

// New returns the app, which needs the others to run beside it; switches, the app that forwards for
// switches, may be nil.
func New(routers steer.Ground[routing.Traffic], switches steer.Ground[openflow.MAC], m *monitor.App, c Config) *App {
	a := &App{Balancer: newBalancer(kindRouter, routers, routing.Traffic.Compare, m, c)}
	if switches != nil {
		a.Hosts = newBalancer(kindSwitch, switches, func(a, b openflow.MAC) int { return bytes.Compare(a[:], b[:]) }, m, c)
	}
	return a
}

func newBalancer[K comparable](kind string, g steer.Ground[K], compare func(a, b K) int, m meter, c Config) *Balancer[K] {
	a := &Balancer[K]{kind: kind, ground: g, compare: compare, monitor: m, config: c, wake: make(chan struct{}, 1), finding: make(chan struct{}, 1),
		moved: map[K]*Moved[K]{}, divided: map[K]*division[K]{}}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// Name is "balance".
func (*App) Name() string { return "balance" }

// Start begins to look.
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

// Stop ends that. What is installed stays.
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

// Configure makes the app do something else. What it has moved goes home where it is to balance no
// more; what users have installed stays.
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

// anew makes the app forget what it has measured: that was another network.
func (a *Balancer[K]) anew() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run looks once in a period.
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
		if !a.ground.Quiet() {
			before = nil // what was measured is of two states of the network
			continue
		}
		if before = a.read(c, before); !before.complete {
			wait = c.Period / 2 // rates take two readings
		}
		a.step(c, turn, before)
	}
}

// step moves what should move, by a reading of a turn. When that is not complete, it only drops
// what has come to an end.
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
	if r.complete {
		ended = a.hear(r) || ended
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

// move moves of some destinations those that should move, and returns what the log says of that.
// That may take long, so it is found without mu.
func (a *Balancer[K]) move(c Config, turn int, r *reading[K], list []K, now time.Time) (lines []slog.Attr) {
	a.look(r, list)
	var demands []engine.Demand
	var of []K
	for _, p := range list {
		if d, ok := a.demand(r, p); ok {
			demands, of = append(demands, d), append(of, p)
		}
	}
	moves := engine.Step(r.network, demands, c.Options)
	a.mu.Lock()
	defer a.mu.Unlock()
	if turn != a.turn {
		return nil
	}
	for _, m := range moves {
		a.moves++
		a.rests.Moved(of[m.Demand], now, c.Period)
		lines = append(lines, a.take(c, r, of[m.Demand], m))
	}
	return lines
}

// maxCandidates is how many destinations that have not moved are looked at in a period.
const maxCandidates = 64

// candidates lists what may move or go home, sorted: of what has not moved only what passes a busy
// link can, so what is sent by a datapath that has one; those to which most goes, as the few that
// fill links are worth looking at. mu must be held.
func (a *Balancer[K]) candidates(c Config, r *reading[K], now time.Time) (out []K) {
	stays := func(k K) bool { return a.divided[k] != nil || a.rests.Resting(k, now) }
	most := map[K]float64{}
	for dpid := range r.busy(c) {
		for k, rate := range r.carried[dpid] {
			if rate > most[k] && a.moved[k] == nil && !stays(k) {
				most[k] = rate
			}
		}
	}
	out = slices.SortedFunc(maps.Keys(most), func(x, y K) int { return cmp.Or(-cmp.Compare(most[x], most[y]), a.compare(x, y)) })
	out = out[:min(len(out), maxCandidates)]
	for k, m := range a.moved {
		if !m.User && (m.silent == 0 || m.silent >= goneSilent) && !stays(k) && !a.isUnsure(r, m) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, a.compare)
	return out
}

// isAway says whether a datapath by which a destination is led is not connected. It goes on as it
// was told last, so what is led there stays.
func (a *Balancer[K]) isAway(m *Moved[K]) bool {
	for dpid := range m.ways {
		if a.switches(dpid) == nil {
			return true
		}
	}
	return false
}

// isUnsure says whether a datapath by which a destination is led is away, or has not said what it
// sends.
func (a *Balancer[K]) isUnsure(r *reading[K], m *Moved[K]) bool {
	for dpid := range m.ways {
		if r.unheard[dpid] {
			return true
		}
	}
	return a.isAway(m)
}

// hear notes to which of those that have moved nothing goes. A part of which that is so has ended:
// it is no move that it is where all goes then. mu must be held.
func (a *Balancer[K]) hear(r *reading[K]) (ended bool) {
	for p, m := range a.moved {
		switch {
		case r.sent(p) > 0:
			m.silent = 0
		case !a.isUnsure(r, m):
			m.silent++
		}
		if m.silent >= goneSilent && a.ground.Whole(p) != p {
			delete(a.moved, p)
			a.rests.Forget(p)
			ended = true
		}
	}
	return ended
}

// look notes how packets get to destinations in a reading, once of each. In a large network that
// takes long, so mu must not be held.
func (a *Balancer[K]) look(r *reading[K], list []K) {
	for _, k := range list {
		if _, known := r.to[k]; known {
			continue
		}
		r.to[k] = nil
		if d, ok := a.ground.Destination(k); ok {
			r.to[k] = &d
		}
	}
}

// demand is what goes to a destination now.
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

// prune drops ways that the network does not have any more: they would come back to life with a
// link, when nobody expects them. mu must be held.
func (a *Balancer[K]) prune(r *reading[K]) (dropped bool) {
	for p, m := range a.moved {
		d, known := r.to[p]
		if !known || m.User {
			continue
		}
		for dpid, e := range m.ways {
			if d == nil || d.Next[dpid] != e {
				delete(m.ways, dpid)
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

// take notes a move, and returns what the log says of it. mu must be held.
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
	path.Routers = routersOf(path.Edges)
	moved.add(path)
	return slog.Group("", "to", p, "by", c.names(path.Routers), "why", path.Why)
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

// steer gives the datapaths the ways that are chosen now.
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
	a.ground.Steer(ways, why)
	a.anew()
}
