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
	monitor  *monitor.App
	switches func(dpid uint64) *controller.Switch
	log      *slog.Logger
	ctx      context.Context
	stop     context.CancelFunc
	done     sync.WaitGroup
	wake     chan struct{} // the configuration is another

	mu     sync.Mutex // of what follows
	config Config
	moved  map[K]*Moved[K]
	moves  int // ever
	rests  engine.Rests[K]

	divided map[K]*division[K]
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

func newBalancer[K comparable](kind string, g steer.Ground[K], compare func(a, b K) int, m *monitor.App, c Config) *Balancer[K] {
	a := &Balancer[K]{kind: kind, ground: g, compare: compare, monitor: m, config: c, wake: make(chan struct{}, 1), moved: map[K]*Moved[K]{},
		divided: map[K]*division[K]{}}
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
		c := a.config
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
		now := a.read(c, before)
		if before = now; !now.complete {
			wait = c.Period / 2 // rates take two readings
		} else {
			a.step(c, now)
		}
	}
}

// step moves what should move.
func (a *Balancer[K]) step(c Config, r *reading[K]) {
	now := time.Now()
	a.mu.Lock()
	a.rests.Tidy(now, c.Period)
	ended := a.prune()
	ended = a.hear(r) || ended
	if a.divide(c, r) {
		a.mu.Unlock()
		a.steer("traffic is divided")
		return
	}
	var demands []engine.Demand
	var of []K
	for _, p := range a.largest(r, r.destinations(a.moved, a.compare)) {
		if m := a.moved[p]; m != nil && (m.User || m.silent > 0 && m.silent < goneSilent) || a.divided[p] != nil || a.rests.Resting(p, now) {
			continue
		}
		if d, is := a.demand(r, p); is {
			demands, of = append(demands, d), append(of, p)
		}
	}
	var lines []slog.Attr
	for _, m := range engine.Step(r.network, demands, c.Options) {
		a.moves++
		a.rests.Moved(of[m.Demand], now, c.Period)
		lines = append(lines, a.take(c, r, of[m.Demand], m))
	}
	a.mu.Unlock()
	if len(lines) == 0 && !ended {
		return
	}
	for _, l := range lines {
		a.log.LogAttrs(a.ctx, slog.LevelInfo, "traffic moves", l)
	}
	a.steer("links are busy")
}

// hear notes to which of those that have moved nothing goes. A part of which that is so has ended:
// it is no move that it is where all goes then. mu must be held.
func (a *Balancer[K]) hear(r *reading[K]) (ended bool) {
	for p, m := range a.moved {
		if m.silent++; r.sent(p) > 0 {
			m.silent = 0
		}
		if m.silent >= goneSilent && a.ground.Whole(p) != p {
			delete(a.moved, p)
			a.rests.Forget(p)
			ended = true
		}
	}
	return ended
}

// demand is what goes to a destination now. mu must be held.
func (a *Balancer[K]) demand(r *reading[K], p K) (out engine.Demand, is bool) {
	d, is := a.ground.Destination(p)
	if !is {
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
func (a *Balancer[K]) prune() (dropped bool) {
	for p, m := range a.moved {
		d, _ := a.ground.Destination(p)
		for dpid, e := range m.ways {
			if d.Next[dpid] != e && !m.User {
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
