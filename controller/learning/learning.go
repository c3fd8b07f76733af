// Package learning makes every datapath a layer-2 switch.
//
// The switch forwards by itself; only packets from new addresses go to the controller. Table 0
// checks whether the source is known at its port, table 1 looks up the destination:
//
//	table 0  priority 3  in_port, ARP or neighbour discovery
//	                              → controller, table 1   identifies a host, at an edge
//	         priority 2  in_port, eth_src      → table 1          a known source
//	         priority 1  in_port               → controller, table 1   a forwarding port
//	                     in_port               → drop             an end of a link that does not forward
//	                     (no entry)            → drop             an unclassified port
//	table 1  priority 1  eth_dst               → output           a known destination
//	         priority 0                        → group 1          all forwarding ports
//
// So no packet waits for the controller, which answers a packet with two entries, never with the
// packet. A source that appears at another port matches no entry of priority 2, and is learned
// anew.
//
// Forwarding ports are edges and the links of a spanning tree, which is computed from discovery's
// links (tree.go). There are no loops at any time, as far as the controller can know: a port
// forwards once discovery has classified it, and a link once it would close no loop with anything
// that may be forwarding (follow.go). What the controller cannot know is in docs/controller.md.
//
// With Spread, packets to hosts take shortest paths over all links (paths.go, spread.go). Then
// nothing is learned at links, and links outside the tree accept only packets that have a path:
//
//	table 0  priority 1  in_port              → table 1                 a link of the tree
//	                     in_port              → metadata 1, table 1     a link outside it
//	table 1  priority 3  eth_dst              → output                  a path's entry
//	         priority 2  metadata 1           → drop
//
// The tables hold everything that a controller needs to resume with a switch that was disconnected:
// which ports forward, which are links, what was learned (table.go).
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

// App is the app learning. Make it with New.
type App struct {
	controller.Base
	log       *slog.Logger
	discovery *discovery.App
	only      func(dpid uint64) bool
	// Addresses of datapaths that are not learning switches; may be nil.
	routers func(dpid uint64, port uint32) (openflow.MAC, bool)
	changed chan struct{}
	ctx     context.Context // cancelled by Stop
	stop    context.CancelFunc
	done    sync.WaitGroup
	asked   atomic.Uint64 // number of requests for follow
	settled atomic.Uint64 // value of asked when follow last had nothing left to do

	reactive  bool // see reactive.go
	hosts     movedHosts
	bySwitch  sync.Map // from *controller.Switch to *table
	spreading spreading
	agreement *agreement // with the other members; nil: no cluster

	mu       sync.Mutex
	switches map[uint64]*table // including disconnected ones that have links
	former   []*segment        // of the links that follow knew last, and some earlier ones
	flushed  time.Time         // when all switches last had to forget all addresses
	stale    time.Time         // since when addresses may lead over a removed link; zero: none do. Used by follow only
}

// New returns the app, which needs discovery, started before it. Datapaths for which only returns
// false belong to another app: they are sent nothing, and ports towards them always forward, like
// those of hosts. With a nil only all are learning switches.
func New(d *discovery.App, only func(dpid uint64) bool) *App {
	if only == nil {
		only = func(uint64) bool { return true }
	}
	a := &App{discovery: d, only: only, log: slog.New(slog.DiscardHandler), switches: map[uint64]*table{},
		changed: make(chan struct{}, 1)}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// Name is "learning".
func (a *App) Name() string { return "learning" }

// Start starts following discovery.
func (a *App) Start(c *controller.Controller) error {
	if c != nil {
		a.log = c.Log()
	}
	a.discovery.Watch(func(discovery.Change) { a.poke() })
	a.discovery.WatchLinks(func(discovery.LinkChange) { a.poke() })
	a.discovery.WatchHosts(a.hostChanged)
	if a.agreement != nil {
		if a.spreading.wanted.Load() {
			a.log.Warn("in a cluster all switches form one spanning tree; no packet takes other paths")
		}
		if err := a.agree(); err != nil {
			return err
		}
	}
	a.done.Go(a.run)
	return nil
}

// Stop stops the app.
func (a *App) Stop() {
	a.stop()
	a.done.Wait()
}

// run applies changes, and then pauses for a multiple of the time that this took: so many changes
// in quick succession are applied together.
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

// lostTime is how long the loss of a connection may go unnoticed: messages sent meanwhile are lost.
const lostTime = time.Minute

// poke requests a run of follow. Requests are merged.
func (a *App) poke() {
	a.asked.Add(1)
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// hostChanged requests follow if packets take paths to hosts, or flows lead to them.
func (a *App) hostChanged(c discovery.HostChange) {
	switch {
	case a.spreading.wanted.Load():
		a.poke()
	case a.reactive && !c.Gone:
		a.moved(c.Host.MAC)
	}
}

// Settled reports whether everything that discovery knows has been applied: the switches have
// confirmed it, and no change waits for another.
func (a *App) Settled() bool { return a == nil || a.settled.Load() == a.asked.Load() }

// SwitchUp adopts the switch's entries, or installs the basic ones, with which no port forwards
// yet.
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

// SwitchDown keeps track of what the switch does while it is disconnected.
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

// TakesPart reports whether a port forwards: whether its entries have been sent.
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

// PacketIn learns the packet's source. With reactive learning it also forwards the packet.
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

// FlowRemoved forgets an address that has expired.
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
