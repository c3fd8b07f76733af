// Package monitor is the app that measures: the traffic of every port, the flow entries
// of every switch, and the packets that come to the controller, by protocol.
//
// It is what the controller decides by, as balance does: it knows only what OpenFlow tells, so that
// it works with switches that are no lab's. What the links of a lab carry, whoever controls its
// switches, the lab's daemon says (lab/traffic.go).
//
// It must be the first of the controller's apps. Apps are asked for a packet in turn until
// one has handled it, and monitor, which handles none, counts only those that it sees.
//
// One poller asks all switches, spread evenly over the period. What it may ask in a second,
// and at the same time, is bounded: where that does not suffice for the number of switches
// the period grows (App.Period says to what). A switch that does not answer costs the others
// nothing but, for a short time, one of the places for requests.
package monitor

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// Options of the app. Zero values mean the default.
type Options struct {
	Period     time.Duration // between two readings of a port's counters; default 1 s
	SlowPeriod time.Duration // between two readings of flows, tables and groups; default 10 s

	InFlight  int           // requests that wait for their answers at the same time; default 64
	PerSecond int           // requests per second; default 500
	Timeout   time.Duration // for an answer; default 2 s

	// MaxFlows limits the flow entries, of all switches together, that are read and kept; default
	// 100,000. Entries of a switch beyond that are counted, not read.
	MaxFlows int

	// Capacity returns the rate of a port's link, in bit/s; 0: unknown, then the switch's value is
	// used. May be nil. It must be quick and must not call the app.
	Capacity func(dpid uint64, port uint32) (bitsPerSecond float64)

	// AppOf names the app that a flow entry's cookie belongs to, for the database; may be nil.
	AppOf func(cookie uint64) string

	Store Store // for measurements; nil: none are stored
}

func (o Options) withDefaults() Options {
	defaultTo(&o.Period, time.Second)
	defaultTo(&o.SlowPeriod, 10*time.Second)
	defaultTo(&o.InFlight, 64)
	defaultTo(&o.PerSecond, 500)
	defaultTo(&o.Timeout, 2*time.Second)
	defaultTo(&o.MaxFlows, 100_000)
	if o.Capacity == nil {
		o.Capacity = func(uint64, uint32) float64 { return 0 }
	}
	if o.AppOf == nil {
		o.AppOf = func(uint64) string { return "" }
	}
	return o
}

func defaultTo[N int | time.Duration](n *N, value N) {
	if *n <= 0 {
		*n = value
	}
}

// App is the app monitor. Make it with New.
type App struct {
	controller.Base
	o    Options
	log  *slog.Logger
	ctx  context.Context // cancelled by Stop
	stop context.CancelFunc
	done sync.WaitGroup
	wake chan struct{} // a switch has connected, or an answer has arrived

	counts sync.Map // from *controller.Switch to *counts, for PacketIn
	fresh  fresh

	mu       sync.Mutex // guards what follows, and the nodes
	nodes    map[uint64]*node
	poller   poller
	packets  packets
	requests Requests
	reserved int // part of MaxFlows in use

	watching sync.Mutex
	watchers map[*watcher]bool
}

// node is a connected switch.
type node struct {
	sw     *controller.Switch
	counts *counts
	polled
	ports  map[uint32]*port
	tables openflow.TableStatsList
	flows  FlowTable
	groups []Group

	reserved    int                       // part of MaxFlows in use
	flowsStored time.Time                 // last stored
	seen        [NumProtocols]PacketCount // counts at the last tick
	looked      time.Time                 // the last tick with packets
	last        [numKinds]glance          // activity at the last readings
}

// New returns the app.
func New(o Options) *App {
	a := &App{o: o.withDefaults(), wake: make(chan struct{}, 1), nodes: map[uint64]*node{},
		watchers: map[*watcher]bool{}}
	a.ctx, a.stop = context.WithCancel(context.Background())
	// One pause may be late.
	a.poller.pacer = pacer{perSecond: float64(a.o.PerSecond),
		burst: max(1, float64(a.o.PerSecond)*2*a.o.pace().Seconds())}
	return a
}

// Name is "monitor".
func (a *App) Name() string { return "monitor" }

// Start starts polling.
func (a *App) Start(c *controller.Controller) error {
	a.log = c.Log()
	a.packets.last = time.Now()
	a.done.Go(a.run)
	return nil
}

// Stop stops it.
func (a *App) Stop() {
	a.stop()
	a.done.Wait()
}

// SwitchUp starts measuring a switch.
func (a *App) SwitchUp(s *controller.Switch) {
	n := &node{sw: s, counts: &counts{}, ports: map[uint32]*port{}}
	n.counts.node = n
	a.counts.Store(s, n.counts)
	a.mu.Lock()
	if old := a.nodes[s.DPID()]; old != nil { // its SwitchDown is still to come
		a.forget(old)
	}
	a.nodes[s.DPID()] = n
	a.poller.add(n, time.Now(), a.o)
	a.mu.Unlock()
	a.poke()
	a.storeSwitch(s, true)
	a.storePorts(s)
}

// SwitchDown stops that. Packets received from the switch remain in the totals.
func (a *App) SwitchDown(s *controller.Switch) {
	a.counts.Delete(s)
	a.mu.Lock()
	n := a.nodes[s.DPID()]
	if n == nil || n.sw != s {
		a.mu.Unlock()
		return
	}
	a.forget(n)
	a.mu.Unlock()
	a.storeSwitch(s, false)
}

// forget removes a switch. mu must be held.
func (a *App) forget(n *node) {
	delete(a.nodes, n.sw.DPID())
	a.poller.remove(n)
	a.reserve(n, 0)
	a.packets.leave(n, time.Now())
}

// PortChanged updates the names and states of ports.
func (a *App) PortChanged(s *controller.Switch, reason openflow.PortReason, p openflow.Port) {
	a.mu.Lock()
	if n := a.nodes[s.DPID()]; n != nil && n.sw == s {
		if known := n.ports[p.Number]; known != nil && reason == openflow.PortDelete {
			delete(n.ports, p.Number)
		} else if known != nil {
			known.describe(p)
		}
	}
	a.mu.Unlock()
	a.storePorts(s)
}

// PacketIn counts the packet.
func (a *App) PacketIn(s *controller.Switch, p *controller.Packet) bool {
	if c, ok := a.counts.Load(s); ok && c.(*counts).add(Classify(p.Data), len(p.Data)) {
		a.fresh.add(c.(*counts).node)
	}
	return false
}

// counts are the packets from a switch. Only the goroutine that reads the switch adds to them.
type counts struct {
	of    [NumProtocols]struct{ packets, bytes atomic.Uint64 }
	fresh atomic.Bool // the node is in the list of fresh ones
	node  *node
}

// add counts a packet, and reports whether the node must be added to the fresh ones.
func (c *counts) add(p Protocol, bytes int) bool {
	c.of[p].packets.Add(1)
	c.of[p].bytes.Add(uint64(bytes))
	return !c.fresh.Load() && !c.fresh.Swap(true)
}

// fresh lists the switches with packets since the last tick.
type fresh struct {
	mu   sync.Mutex
	list []*node
}

func (f *fresh) add(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, n)
}

// take returns and clears the list.
func (f *fresh) take() []*node {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.list
	f.list = nil
	for _, n := range list {
		n.counts.fresh.Store(false)
	}
	return list
}

// poke wakes the poller.
func (a *App) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
