// Package learning makes a layer-2 switch of every datapath.
//
// The switch forwards by itself; the controller is told of new addresses only. Table 0
// asks whether the source is known at its port, table 1 where the destination is:
//
//	table 0  priority 3  in_port, ARP or neighbour discovery
//	                              → controller, table 1   what says who a host is, at an edge
//	         priority 2  in_port, eth_src      → table 1          a known source
//	         priority 1  in_port               → controller, table 1   a port that takes part
//	                     in_port               → drop             an end of a link that does not
//	                     (no entry)            → drop             a port of which nothing is known
//	table 1  priority 1  eth_dst               → output           a known destination
//	         priority 0                        → group 1          all ports that take part
//
// So no packet waits for the controller, and what it answers to a packet is two
// entries, never the packet. A source that shows up at another port matches no
// entry of priority 2, and is learned anew.
//
// Ports that take part are edges and the links of a spanning tree, which follows from the
// links that discovery knows (tree.go). There is no loop at any time, as far as the controller can
// know: a port takes part once discovery knows what it is, and a link once no path is left that
// would make a loop of it (follow.go). What it cannot know is in docs/controller.md.
//
// With Spread, packets to hosts take shortest paths over all links (paths.go, spread.go). Nothing
// is learned at links then, and those outside the tree let in what has a path:
//
//	table 0  priority 1  in_port              → table 1                 a link of the tree
//	                     in_port              → metadata 1, table 1     a link outside it
//	table 1  priority 3  eth_dst              → output                  a path's entry
//	         priority 2  metadata 1           → drop
//
// The tables say what a controller must know to go on with a switch that it did not
// see for a while: which ports take part, which are links, what was learned (table.go).
package learning

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
)

// App is the app. Make it with New.
type App struct {
	controller.Base
	log       *slog.Logger
	discovery *discovery.App
	only      func(dpid uint64) bool
	routers   func(dpid uint64, port uint32) (openflow.MAC, bool) // addresses of those that are not learning switches; may be nil
	changed   chan struct{}
	ctx       context.Context // ends with the app
	stop      context.CancelFunc
	done      sync.WaitGroup
	asked     atomic.Uint64 // how often follow was asked for
	settled   atomic.Uint64 // asked, when follow last had nothing left to wait for

	reactive  bool // see reactive.go
	hosts     movedHosts
	bySwitch  sync.Map // *controller.Switch to *table
	spreading spreading
	agreement *agreement // with the other members of a cluster; nil: there is none

	mu       sync.Mutex
	switches map[uint64]*table // also of switches that are away but have links
	former   []*segment        // of the links that follow knew last, and some before
	flushed  time.Time         // when all switches were told to forget all addresses
	stale    time.Time         // since when addresses lead where a link was; zero: they do not. Of follow.
}

// New returns the app, which needs discovery to run beside it, before it. Datapaths for which
// only returns false belong to another app: they are sent nothing, and the ports towards them
// always take part, like those of hosts. A nil only takes all for learning switches.
func New(d *discovery.App, only func(dpid uint64) bool) *App {
	if only == nil {
		only = func(uint64) bool { return true }
	}
	a := &App{discovery: d, only: only, log: slog.New(slog.DiscardHandler), switches: map[uint64]*table{}, changed: make(chan struct{}, 1)}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// Name is "learning".
func (a *App) Name() string { return "learning" }

// Start begins to follow discovery.
func (a *App) Start(c *controller.Controller) error {
	if c != nil {
		a.log = c.Log()
	}
	a.discovery.Watch(func(discovery.Change) { a.poke() })
	a.discovery.WatchLinks(func(discovery.LinkChange) { a.poke() })
	a.discovery.WatchHosts(a.hostChanged)
	if a.agreement != nil {
		if a.spreading.wanted.Load() {
			a.log.Warn("the switches of a cluster's members are one spanning tree; no packet takes other paths")
		}
		if err := a.agree(); err != nil {
			return err
		}
	}
	a.done.Go(a.run)
	return nil
}

// Stop ends it.
func (a *App) Stop() {
	a.stop()
	a.done.Wait()
}

// run follows what changes, and rests between for some times as long as that took: many
// changes at a time are followed at once.
func (a *App) run() {
	for {
		select {
		case <-a.changed:
		case <-a.ctx.Done():
			return
		}
		began := time.Now()
		asked := a.asked.Load()
		if a.follow(began) {
			a.settled.Store(asked)
		}
		select {
		case <-time.After(min(4*time.Since(began), maxRest)):
		case <-a.ctx.Done():
			return
		}
	}
}

const maxRest = 100 * time.Millisecond

// lostTime is how long the loss of a connection may go unnoticed: what is sent meanwhile is lost.
const lostTime = time.Minute

// poke asks for follow to run, once however often it is asked.
func (a *App) poke() {
	a.asked.Add(1)
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// hostChanged asks for follow where packets take paths to hosts, or flows lead to them.
func (a *App) hostChanged(c discovery.HostChange) {
	switch {
	case a.spreading.wanted.Load():
		a.poke()
	case a.reactive && !c.Gone:
		a.moved(c.Host.MAC)
	}
}

// Settled says whether all that discovery knows has been followed: the switches have been
// told, and no change waits for another.
func (a *App) Settled() bool { return a == nil || a.settled.Load() == a.asked.Load() }

// SwitchUp takes over what the switch has, or installs the tables' frame, in which nothing takes
// part yet.
func (a *App) SwitchUp(s *controller.Switch) {
	if !a.only(s.DPID()) {
		return
	}
	t := newTable(a, s)
	adopted := t.adopt()
	if a.reactive {
		a.discovery.Probe(s)
	}
	a.mu.Lock()
	if old := a.switches[s.DPID()]; old != nil {
		old.mu.Lock()
		t.lost = old.lost
		old.mu.Unlock()
	}
	missed := !a.flushed.IsZero() && t.lost.Before(a.flushed.Add(lostTime))
	if a.agreement != nil {
		missed = a.agreement.mayLack(time.Now())
	}
	a.switches[s.DPID()] = t
	a.mu.Unlock()
	if missed {
		t.mu.Lock()
		t.flush()
		t.mu.Unlock()
	}
	a.bySwitch.Store(s, t)
	if adopted {
		time.AfterFunc(holdTime+time.Second, a.poke)
	}
	a.poke()
}

// SwitchDown keeps in mind what the switch does while nobody tells it anything.
func (a *App) SwitchDown(s *controller.Switch) {
	v, ok := a.bySwitch.LoadAndDelete(s)
	if !ok {
		return
	}
	v.(*table).away()
	a.dropShared(v.(*table))
	time.AfterFunc(holdTime+time.Second, a.poke)
	a.poke()
}

// TakesPart says whether a port forwards: whether the entries for it have been sent.
func (a *App) TakesPart(dpid uint64, number uint32) bool {
	a.mu.Lock()
	t := a.switches[dpid]
	a.mu.Unlock()
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.ports[number]
	return p != nil && p.phase == open
}

// PacketIn learns where the source is. Where switches learn reactively it sends the packet on, too.
func (a *App) PacketIn(s *controller.Switch, p *controller.Packet) bool {
	if p.Cookie&apps.CookieMask != Cookie {
		return false
	}
	v, ok := a.bySwitch.Load(s)
	switch {
	case ok && a.reactive:
		v.(*table).forward(p)
	case ok && p.Src[0]&1 == 0 && p.Src != (openflow.MAC{}):
		v.(*table).learn(p.Src, p.InPort, p.Cookie&kindMask == kindListen)
	}
	return true
}

// FlowRemoved forgets an address that was not used any more.
func (a *App) FlowRemoved(s *controller.Switch, m *openflow.FlowRemoved) {
	if a.reactive {
		a.flowsRemoved(s, m)
		return
	}
	if m.Cookie&frameMask != addressCookie || m.Table != destinationTable || m.Reason != openflow.RemovedIdleTimeout {
		return
	}
	dst, ok := m.Match.Get(openflow.FieldEthDst)
	if v, up := a.bySwitch.Load(s); ok && up {
		v.(*table).unlearn(dst.MAC())
	}
}
