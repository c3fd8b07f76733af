// Package discovery finds the links between a controller's switches: it sends a
// signed LLDP frame out of every port and sees where it comes in again.
//
// A port is open while nobody knows what is behind it, then a link's end or an
// edge. A link is lost when a port of it goes down, or when several probes in a
// row did not arrive; the count is of probes, not of seconds, so a controller that
// has no time to send does not lose links.
package discovery

import (
	"crypto/rand"
	"sync"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

const (
	// Budget is how many probes a second are sent for all switches together, besides
	// the first ones of a port.
	Budget = 1000

	round    = 5 * time.Second        // between two probes of a port, where the budget allows
	openTime = 250 * time.Millisecond // after its first probe a port without a link is an edge
	lost     = 3                      // probes in a row that a link may lose
	tick     = 10 * time.Millisecond

	// flowPriority is that of the entries that bring probes to the controller, above all others.
	flowPriority = 0xfff0
	cookie       = 0x7472_0001 << 32
)

// Kind is what a port leads to.
type Kind int

const (
	Open  Kind = iota // not known yet
	Edge              // hosts, or what else is no switch of this controller
	Inner             // a link to another switch
)

// Link is one direction of a link: from a port of a switch to one of another.
type Link struct {
	From, To         uint64 // datapath ids
	FromPort, ToPort uint32
}

// App is the app. Make it with New.
type App struct {
	controller.Base
	c    *controller.Controller
	key  [32]byte
	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	ports    map[place]*port
	order    []place // in which probes are sent; may hold some that are gone
	next     int
	open     []place // ports that have been probed and may turn out to be edges, the oldest first
	watchers []func(Change)
}

type port struct {
	sw     *controller.Switch
	mac    openflow.MAC
	first  time.Time // probe sent; zero: none yet
	last   time.Time
	to     place // where its probes arrive; port 0: nowhere
	from   place // whose probes arrive here
	missed int   // probes sent since one arrived
	kind   Kind
}

// Change is a change of what is known: of a port's kind, of a link, of a switch.
type Change struct {
	Switch uint64
	Port   uint32
	Kind   Kind
	Gone   bool // the port or its switch is no more
}

// New returns the app.
func New() *App { return &App{ports: map[place]*port{}, stop: make(chan struct{})} }

// Name is "discovery".
func (a *App) Name() string { return "discovery" }

// Start makes the run's key and begins to send probes.
func (a *App) Start(c *controller.Controller) error {
	a.c = c
	if _, err := rand.Read(a.key[:]); err != nil {
		return err
	}
	a.done.Go(a.run)
	return nil
}

// Stop ends it.
func (a *App) Stop() {
	close(a.stop)
	a.done.Wait()
}

// Watch calls f for every change from now on, one after the other. f must be quick
// and must not call the app.
func (a *App) Watch(f func(Change)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = append(a.watchers, f)
}

func (a *App) tell(changes []Change) {
	for _, c := range changes {
		for _, f := range a.watchers {
			f(c)
		}
	}
}

// Kind says what a port leads to.
func (a *App) Kind(dpid uint64, number uint32) Kind {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.ports[place{dpid, number}]; p != nil {
		return p.kind
	}
	return Open
}

// Ports returns the kinds of a switch's ports.
func (a *App) Ports(dpid uint64) map[uint32]Kind {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[uint32]Kind{}
	for at, p := range a.ports {
		if at.dpid == dpid {
			out[at.port] = p.kind
		}
	}
	return out
}

// Links returns all directions of links, in no order.
func (a *App) Links() []Link {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Link
	for at, p := range a.ports {
		if p.to.port != 0 {
			out = append(out, Link{From: at.dpid, FromPort: at.port, To: p.to.dpid, ToPort: p.to.port})
		}
	}
	return out
}

// SwitchUp brings probes to the controller and probes all ports.
func (a *App) SwitchUp(s *controller.Switch) {
	for _, etherType := range []uint64{etherTypeLLDP, etherTypeBDDP} {
		m := openflow.NewFlowMod(openflow.FlowAdd, flowPriority, openflow.NewMatch(openflow.EthType(uint16(etherType))),
			openflow.ApplyActions(openflow.OutputController(openflow.MaxLenNoBuffer)))
		m.Cookie = cookie
		_ = s.Send(m)
	}
	for _, p := range s.Ports() {
		a.portUp(s, p)
	}
}

// SwitchDown forgets the switch.
func (a *App) SwitchDown(s *controller.Switch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var changes []Change
	for at, p := range a.ports {
		if at.dpid == s.DPID() && p.sw == s {
			changes = append(changes, a.forget(at)...)
		}
	}
	a.tell(changes)
}

// PortChanged probes a port that is new or up again, and loses the links of one that is gone or down.
func (a *App) PortChanged(s *controller.Switch, reason openflow.PortReason, p openflow.Port) {
	if reason != openflow.PortDelete && usable(p) {
		a.portUp(s, p)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tell(a.forget(place{s.DPID(), p.Number}))
}

func usable(p openflow.Port) bool {
	return p.State&openflow.PortStateLinkDown == 0 && p.Config&openflow.PortConfigDown == 0
}

func (a *App) portUp(s *controller.Switch, p openflow.Port) {
	if !usable(p) {
		return
	}
	at := place{s.DPID(), p.Number}
	a.mu.Lock()
	known := a.ports[at]
	if known == nil || known.sw != s {
		known = &port{sw: s, mac: p.HWAddr}
		a.ports[at] = known
		a.order = append(a.order, at)
	}
	a.mu.Unlock()
	a.send(at)
}

// forget drops a port and both directions of its link; the far ends are open again. It must be called with mu held.
func (a *App) forget(at place) (changes []Change) {
	p := a.ports[at]
	if p == nil {
		return nil
	}
	delete(a.ports, at)
	for _, other := range []place{p.to, p.from} {
		if q := a.ports[other]; q != nil && other.port != 0 && q.kind == Inner {
			*q = port{sw: q.sw, mac: q.mac, first: time.Now()} // probed again in its turn, at once
			a.open = append(a.open, other)
			changes = append(changes, Change{Switch: other.dpid, Port: other.port, Kind: Open})
		}
	}
	return append(changes, Change{Switch: at.dpid, Port: at.port, Gone: true})
}

// PacketIn takes probes. One that arrives makes ends of a link of both ports.
func (a *App) PacketIn(s *controller.Switch, p *controller.Packet) bool {
	if p.EtherType != etherTypeLLDP && p.EtherType != etherTypeBDDP {
		return false
	}
	from, ok := a.read(p.Data)
	if !ok {
		return p.EtherType == etherTypeLLDP // somebody else's; no switch forwards it
	}
	to := place{s.DPID(), p.InPort}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tell(a.join(from, to))
	return true
}

// join takes note that a probe from one port has arrived at another. It must be called with mu held.
func (a *App) join(from, to place) (changes []Change) {
	src, dst := a.ports[from], a.ports[to]
	if src == nil || dst == nil || from == to {
		return nil
	}
	src.missed = 0
	if src.to == to && dst.from == from {
		return nil
	}
	src.to, dst.from = to, from
	for _, end := range []place{from, to} {
		if p := a.ports[end]; p.kind != Inner {
			p.kind = Inner
			changes = append(changes, Change{Switch: end.dpid, Port: end.port, Kind: Inner})
		}
	}
	return changes
}

// run sends probes within the budget, and sees which ports are edges and which links are lost.
func (a *App) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			a.step(time.Now())
		case <-a.stop:
			return
		}
	}
}

// step sends what is due, at most the budget's share of a tick, and closes open ports.
func (a *App) step(now time.Time) {
	a.mu.Lock()
	changes := a.closeOpen(now)
	var send []place
	for range min(len(a.order), Budget*int(tick/time.Millisecond)/1000) {
		if a.next >= len(a.order) {
			a.next = 0
		}
		at := a.order[a.next]
		p := a.ports[at]
		if p == nil { // gone since: the last takes its turn
			a.order[a.next] = a.order[len(a.order)-1]
			a.order = a.order[:len(a.order)-1]
			continue
		}
		a.next++
		if p.missed >= lost {
			changes = append(changes, a.lose(at, p)...)
		}
		if now.Sub(p.last) >= round {
			send = append(send, at)
		}
	}
	a.tell(changes)
	a.mu.Unlock()
	for _, at := range send {
		a.send(at)
	}
}

// closeOpen makes edges of ports whose first probe nobody has seen. It must be called with mu held.
func (a *App) closeOpen(now time.Time) (changes []Change) {
	for len(a.open) > 0 {
		at := a.open[0]
		p := a.ports[at]
		if p != nil && p.kind == Open && now.Sub(p.first) < openTime {
			return changes
		}
		a.open = a.open[1:]
		if p != nil && p.kind == Open {
			p.kind = Edge
			changes = append(changes, Change{Switch: at.dpid, Port: at.port, Kind: Edge})
		}
	}
	return changes
}

// lose takes a direction of a link for lost; a port that is an end of neither
// direction any more is an edge. It must be called with mu held.
func (a *App) lose(at place, p *port) (changes []Change) {
	to := p.to
	p.to, p.missed = place{}, 0
	if far := a.ports[to]; far != nil && far.from == at {
		far.from = place{}
	}
	for _, end := range []place{at, to} {
		if q := a.ports[end]; q != nil && q.kind == Inner && q.to.port == 0 && q.from.port == 0 {
			q.kind = Edge
			changes = append(changes, Change{Switch: end.dpid, Port: end.port, Kind: Edge})
		}
	}
	return changes
}

// send probes a port: by LLDP, and by broadcast, for there may be foreign switches between.
func (a *App) send(at place) {
	a.mu.Lock()
	p := a.ports[at]
	if p == nil {
		a.mu.Unlock()
		return
	}
	now := time.Now()
	if p.first.IsZero() {
		p.first = now
		a.open = append(a.open, at)
	}
	p.last = now
	if p.to.port != 0 {
		p.missed++
	}
	sw, mac := p.sw, p.mac
	a.mu.Unlock()
	for _, frame := range [][]byte{a.probe(at, mac, lldpDst, etherTypeLLDP), a.probe(at, mac, bddpDst, etherTypeBDDP)} {
		_ = sw.Send(&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: openflow.PortController,
			Actions: []openflow.Action{openflow.Output(at.port)}, Data: frame})
	}
}
