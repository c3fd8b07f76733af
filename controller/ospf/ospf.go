// Package ospf lets routing nodes speak OSPF version 2 (RFC 2328): it is the app between the
// engine, package routing/ospf, and the apps discovery and routing.
//
//	discovery   what joins the routers' ports    → segments, on which routers are Full at once
//	switches    ports that go up and down        → interfaces that do, at once
//	routing     OSPF packets from outside        → the engine
//	the engine  packets                          → routing, which sends them out of a port
//	            routes may have changed          → routing, which asks for each router's
//
// All routers are in one domain of the engine: one database per area. Between routers of the
// controller no packets are exchanged, unless anything else on their layer-2 segment may speak OSPF
// (hosts, routers that forward by themselves, foreign switches): then all exchange packets.
//
// Files: config.go what is to be, network.go what joins whom, packet.go packets, routes.go routes,
// show.go what people see.
package ospf

import (
	"bytes"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/routing/rib"
	"trivet.dev/trivet/topology"
)

const (
	maxQueue = 4096                  // packets waiting for the engine; more are dropped
	maxOfOne = 512                   // from one port, so that flooding one does not silence the others
	atOnce   = 64                    // packets handled in one go
	coalesce = 10 * time.Millisecond // changes in quick succession are handled as one
	maxPause = 300 * time.Millisecond
)

// App is the app ospf. Make it with New. A goroutine handles the engine's deadlines and sends its
// packets; others use the engine briefly, with mu held. mu is never held while another app is
// called: routing queries routes while it holds its own locks.
type App struct {
	controller.Base
	routing   *routing.App
	discovery *discovery.App
	c         *controller.Controller
	queue     chan arrived
	waiting   waiting
	wake      chan struct{}
	stop      chan struct{}
	done      sync.WaitGroup

	news       news
	feed       *routing.Feed // of routers that redistribute
	looksAgain atomic.Bool   // the redistributed routes must be examined later
	lost       atomic.Uint64 // packets dropped because the queue was full

	mu       sync.Mutex // guards what follows
	config   Config
	mine     map[uint64]bool // in a cluster: the switches of this member, whose routers are in the engine; nil: all are
	net      *network
	out      output
	deadline time.Time
	tell     bool // routing must query routes
	busy     int  // work in progress that is no longer dirty or to be told
	watchers []func(any)
}

// arrived is a packet that has arrived.
type arrived struct {
	at   place
	data []byte
}

// New returns the app, which must come before routing in the order of apps.
func New(d *discovery.App, r *routing.App, c Config) (*App, error) {
	a := &App{routing: r, discovery: d, queue: make(chan arrived, maxQueue), wake: make(chan struct{}, 1),
		stop: make(chan struct{}),
		net:  newNetwork(slog.New(slog.DiscardHandler), time.Now())}
	if err := r.Speak(routing.Protocol{Name: topology.SourceOSPF, Distance: rib.OSPF, Paths: [2]bool{true, false},
		Speaker: (*speaker)(a), Restarting: a.restarting,
		Wants: []routing.Wanted{{Protocol: ipProtocol, Groups: []netip.Prefix{allRouters}}}}); err != nil {
		return nil, err
	}
	a.feed = r.Subscribe(topology.SourceOSPF, func() { a.changed() })
	return a, a.Configure(c)
}

// Name is "ospf".
func (a *App) Name() string { return "ospf" }

// Start starts following the network.
func (a *App) Start(c *controller.Controller) error {
	a.mu.Lock()
	a.c, a.net.log, a.net.begun = c, c.Log(), time.Now()
	a.mu.Unlock()
	a.discovery.Watch(func(c discovery.Change) { a.changed(place{c.Switch, c.Port}) })
	a.discovery.WatchLinks(func(c discovery.LinkChange) {
		a.changed(place{c.Link.From, c.Link.FromPort}, place{c.Link.To, c.Link.ToPort})
	})
	a.done.Go(a.run)
	return nil
}

// Stop stops the app. Neighbours notice by themselves; installed entries stay.
func (a *App) Stop() {
	close(a.stop)
	a.done.Wait()
}

// Configure changes the routers or their settings. Adjacencies not affected by the change stay.
func (a *App) Configure(c Config) error {
	if err := a.configure(c); err != nil {
		return err
	}
	a.routing.SetSpeakers(topology.SourceOSPF, c.speakers())
	a.feed.Of(c.redistributes())
	return nil
}

func (a *App) configure(c Config) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if err := a.net.configure(now, c.only(a.mine)); err != nil {
		return err
	}
	a.config = c
	if a.c != nil {
		for dpid, r := range a.net.routers {
			if s := a.c.Switch(dpid); s != nil && !r.connected {
				a.switchUp(now, s)
			}
		}
	}
	a.tell = true
	a.poll(now)
	a.changedAll()
	return nil
}

// changed only takes note: it is called with locks of other apps held.
func (a *App) changed(ports ...place) {
	a.news.at(ports...)
	a.again()
}

// changedAll is the same if it is not known which ports.
func (a *App) changedAll() {
	a.news.everywhere()
	a.again()
}

func (a *App) again() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// SwitchUp records a router's ports.
func (a *App) SwitchUp(s *controller.Switch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// A router that has routes had another master before, or this one: for its neighbours it
	// restarts.
	a.has(s.DPID(), true, len(s.Rules(routing.Cookie, apps.CookieMask, nil).Flows()) > 0)
	a.switchUp(time.Now(), s)
	a.poll(time.Now())
	a.changedAll()
}

func (a *App) switchUp(now time.Time, s *controller.Switch) {
	r := a.net.routers[s.DPID()]
	if r == nil {
		return
	}
	r.connected, r.since = true, now
	if !r.ready {
		a.net.unsettled++
	}
	works := map[uint32]bool{}
	for _, p := range s.Ports() {
		works[p.Number] = p.Works()
	}
	for number := range r.works {
		if !works[number] {
			a.net.portIs(now, s.DPID(), number, false)
		}
	}
	for number, w := range works {
		a.net.portIs(now, s.DPID(), number, w)
	}
}

// Share makes the app part of a cluster. Routers of other members are ordinary neighbours: OSPF
// packets go over the links between them. Call it before Start.
func (a *App) Share() error {
	a.mine, a.net.shared = map[uint64]bool{}, true
	return a.Configure(a.config)
}

// has adds a router that this member has taken over, or removes one that another member has; its
// LSAs stay. restarts: another member had it before. mu must be held.
func (a *App) has(dpid uint64, mine, restarts bool) {
	if a.mine == nil || a.mine[dpid] == mine || !a.config.has(dpid) {
		return
	}
	a.mine[dpid] = mine
	a.net.taken = map[uint64]bool{dpid: mine && restarts}
	now := time.Now()
	if err := a.net.configure(now, a.config.only(a.mine)); err != nil {
		a.net.log.Error("ospf: cannot take over a router", "error", err)
	}
	a.net.taken = nil
	a.tell = true
	a.poll(now)
	a.changedAll()
}

// SwitchDown leaves the router as it is: it keeps forwarding.
func (a *App) SwitchDown(s *controller.Switch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.has(s.DPID(), false, false)
	if r := a.net.routers[s.DPID()]; r != nil {
		r.connected = false
	}
}

// PortChanged handles a port's state at once, before routing queries routes.
func (a *App) PortChanged(s *controller.Switch, reason openflow.PortReason, p openflow.Port) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.net.routers[s.DPID()] == nil {
		return
	}
	now := time.Now()
	a.net.portIs(now, s.DPID(), p.Number, reason != openflow.PortDelete && p.Works())
	a.poll(now)
	a.changed(place{s.DPID(), p.Number})
}

// IP protocol number of OSPF (RFC 2328, appendix A.1).
const ipProtocol = 89

var allRouters = netip.MustParsePrefix("224.0.0.4/30") // AllSPFRouters is .5, AllDRouters .6

// speaker is the app as routing.Speaker.
type speaker App

// Routes returns OSPF's routes for a router.
func (s *speaker) Routes(dpid uint64) []routing.Learned {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.net.routes(dpid)
}

// RouteTo returns OSPF's route for a router to one network.
func (s *speaker) RouteTo(dpid uint64, p netip.Prefix) (routing.Learned, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.net.routeTo(dpid, p)
}

// Networks returns all networks in the databases.
func (s *speaker) Networks() []netip.Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.net.domain != nil && s.net.networks == nil {
		s.net.networks = s.net.domain.Networks()
	}
	return s.net.networks
}

// Settled reports whether the engine reflects what is known of the network.
func (s *speaker) Settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !(*App)(s).following()
}

// Receive queues a packet; if the queue is full it is dropped, and will be retransmitted.
func (s *speaker) Receive(dpid uint64, port uint32, packet []byte) {
	at := place{dpid, port}
	if packet[0]>>4 != 4 { // version 3 is not supported
		return
	}
	if !s.waiting.add(at) {
		s.lost.Add(1)
		return
	}
	select {
	case s.queue <- arrived{at, bytes.Clone(packet)}:
	default:
		s.waiting.done(at)
		s.lost.Add(1)
	}
}

// waiting counts the queued packets by port.
type waiting struct {
	mu    sync.Mutex
	count map[place]int
}

// add counts one more, if there is room.
func (w *waiting) add(at place) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == nil {
		w.count = map[place]int{}
	}
	if w.count[at] >= maxOfOne {
		return false
	}
	w.count[at]++
	return true
}

func (w *waiting) done(at place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[at]--; w.count[at] <= 0 {
		delete(w.count, at)
	}
}

// run handles the engine's deadlines, and sends its output.
func (a *App) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var next time.Time // earliest time to examine the network again
	for {
		select {
		case p := <-a.queue:
			a.receive(p)
		case <-a.wake:
			if rest := time.Until(next); rest > 0 {
				a.pause(rest)
			}
			start := time.Now()
			a.follow()
			// Examining ten thousand routers takes long, and at the start everything changes
			// continuously.
			next = start.Add(min(max(coalesce, 4*time.Since(start)), maxPause))
		case <-timer.C:
			a.mu.Lock()
			a.poll(time.Now())
			a.mu.Unlock()
		case <-a.stop:
			return
		}
		a.send()
		a.mu.Lock()
		deadline := a.deadline
		a.mu.Unlock()
		if deadline.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(deadline))
		}
	}
}

// pause waits for changes in quick succession, but not for packets.
func (a *App) pause(rest time.Duration) {
	select {
	case <-time.After(rest):
	case <-a.stop:
	}
}

// receive passes queued packets to the engine.
func (a *App) receive(p arrived) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for taken := 1; ; taken++ {
		a.waiting.done(p.at)
		a.net.receive(now, p.at, p.data)
		if taken == atOnce || len(a.queue) == 0 {
			break
		}
		p = <-a.queue // no one else takes from it
	}
	a.poll(now)
}

// follow updates the engine's network if something may have changed.
func (a *App) follow() {
	a.mu.Lock()
	any, all, ports := a.news.take()
	if !any || len(a.net.routers) == 0 {
		a.mu.Unlock()
		return
	}
	a.busy++
	a.mu.Unlock()
	updates := a.feed.Take()
	j := a.look(all, ports)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy--
	a.net.used.take(updates)
	now := time.Now()
	if !a.net.join(now, j) {
		a.news.everywhere()
		a.done.Go(func() { a.pause(coalesce); a.again() })
		return
	}
	if again := a.net.redistribute(now); again > 0 && !a.looksAgain.Swap(true) {
		a.done.Go(func() {
			a.pause(again)
			a.looksAgain.Store(false)
			a.changed()
		})
	}
	a.poll(now)
}

// poll runs what is due in the engine; mu must be held. run sends the output.
func (a *App) poll(now time.Time) {
	out, deadline := a.net.poll(now)
	a.deadline = deadline
	a.out.packets = append(a.out.packets, out.packets...)
	a.out.neighbors = append(a.out.neighbors, out.neighbors...)
	a.out.runs = append(a.out.runs, out.runs...)
	a.out.restarts = append(a.out.restarts, out.restarts...)
	a.tell = a.tell || len(out.runs) > 0 || slices.ContainsFunc(out.restarts, Restart.done)
}

// send sends the engine's output and notifies watchers.
func (a *App) send() {
	a.mu.Lock()
	out, tell, watchers := a.out, a.tell, a.watchers
	a.out, a.tell = output{}, false
	a.busy++
	a.mu.Unlock()
	for _, p := range out.packets {
		a.routing.SendIP(p.at.dpid, p.at.port, p.data)
	}
	if tell {
		why := "OSPF was configured"
		if len(out.runs) > 0 {
			why = "OSPF: " + out.runs[0].Cause
		} else if i := slices.IndexFunc(out.restarts, Restart.done); i >= 0 {
			why = "OSPF: " + out.restarts[i].Router + " has restarted"
		}
		a.routing.Refresh(why)
	}
	for _, f := range watchers {
		for _, x := range out.neighbors {
			f(x)
		}
		for _, x := range out.restarts {
			f(x)
		}
		for _, x := range out.runs {
			f(x)
		}
	}
	a.mu.Lock()
	a.busy--
	a.mu.Unlock()
}

// Missing lists what is not ready yet.
func (a *App) Missing() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.following() || len(a.net.routers) > 0 && a.tell {
		return []string{"OSPF"}
	}
	return nil
}

// following reports whether the engine has yet to be updated; mu must be held.
func (a *App) following() bool {
	return len(a.net.routers) > 0 && (a.news.is() || a.busy > 0 || !a.net.started || a.net.domain.Pending())
}

// Speaks reports whether a router speaks OSPF.
func (a *App) Speaks(dpid uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.net.routers[dpid] != nil
}

// restarting reports whether a router is restarting, and hence keeps its routes.
func (a *App) restarting(dpid uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.net.restarts(dpid)
}

// MayRestart reports whether another member of a cluster can take over a router without its
// neighbours noticing, after announcing it to them as needed.
func (a *App) MayRestart(dpid uint64) bool {
	a.mu.Lock()
	r := a.net.routers[dpid]
	if r == nil {
		a.mu.Unlock()
		return true
	}
	now := time.Now()
	may := r.engine.MayRestart(now) && !a.following() && !a.tell
	a.poll(now)
	a.mu.Unlock()
	a.again()
	return may && a.routing.Quiet() // a restarting router keeps its entries
}

// Watch calls f with every Run, Restart and NeighborChange from now on, one after the other. f must
// be quick.
func (a *App) Watch(f func(any)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = append(a.watchers, f)
}
