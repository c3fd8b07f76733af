// Package discovery finds the links between a controller's switches, and the hosts at their edges.
// It sends a signed LLDP frame out of every port, and detects where it arrives.
//
// A port is open until it is known what is behind it; then it is an edge, or the end of a link. A
// link is lost when one of its ports goes down, or when probes no longer arrive. What counts is the
// number of probes sent, not time, and before a link is given up, both its switches must have
// answered a request. So a controller or a switch that is overloaded does not lose links
// (probe.go).
//
// A switch without a connection still forwards. Its links are remembered, as long as
// the ports at their other ends are up, until it comes back and probes say otherwise;
// Remember does the same for links that an earlier run of the controller knew.
package discovery

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/openflow"
)

// Cookie is that of the app's entries.
const Cookie = 0x7472_0001 << 32

// flowPriority is the priority of the entries that send probes to the controller, above all others.
const flowPriority = 0xfff0

// Kind is what a port leads to.
type Kind int32

const (
	Open  Kind = iota // not known yet
	Edge              // hosts, or anything else that is not a switch of this controller
	Inner             // a link to another switch
)

// String is the kind's name.
func (k Kind) String() string { return [...]string{"open", "edge", "inner"}[k] }

// Link is one direction of a link: from a port of a switch to one of another.
type Link struct {
	From, To         uint64 // datapath ids
	FromPort, ToPort uint32
	Indirect         bool // foreign switches are in between, and possibly other ports
	Remembered       bool // not confirmed since one of its switches was disconnected
}

// Port is what is known of a port.
type Port struct {
	Switch uint64
	Number uint32
	Kind   Kind
}

// Change is a change of a port's kind.
type Change struct {
	Switch uint64
	Port   uint32
	Kind   Kind
	Gone   bool // the port or its switch no longer exists
}

// LinkChange reports a direction of a link that is new, different or gone.
type LinkChange struct {
	Link Link
	Gone bool
}

// App is the app discovery. Make it with New.
type App struct {
	controller.Base
	log   *slog.Logger
	key   [32]byte
	macs  sync.Pool       // hash.Hash values for the key
	began time.Time       // origin of the time in probes
	ctx   context.Context // cancelled by Stop
	stop  context.CancelFunc
	done  sync.WaitGroup
	now   atomic.Int64 // time of the last tick, ns since 1970: accurate enough for hosts
	hosts hostTable

	bySwitch sync.Map // from *controller.Switch to *node, for connected switches

	brought func(dpid uint64) bool // see Brought; may be nil
	shared  *shared                // with the other members of a cluster; nil: there is none

	mu       sync.Mutex // guards what follows
	nodes    map[uint64]*node
	schedule schedule
	ways     []*way        // all directions of links, in no order
	stale    map[*way]bool // those with Remembered
	dormant  map[place][]dormant
	wiring   wiring

	changes      []Change // reported when mu is released
	linkChanges  []LinkChange
	watchers     []func(Change)
	linkWatchers []func(LinkChange)

	trusting bool // links are not given up for missing probes
	trusted  int  // number of times that trusting has ended
}

// New returns the app.
func New() *App {
	a := &App{began: time.Now(), nodes: map[uint64]*node{}, stale: map[*way]bool{}, dormant: map[place][]dormant{},
		log: slog.New(slog.DiscardHandler)}
	a.schedule.wake = make(chan struct{}, 1)
	a.macs.New = func() any { return hmac.New(sha256.New, a.key[:]) }
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.hosts = hostTable{app: a, byMAC: map[openflow.MAC]*host{}, byAddress: map[netip.Addr]*owner{},
		bySwitch: map[uint64]map[*host]bool{}}
	return a
}

// Name is "discovery".
func (a *App) Name() string { return "discovery" }

// Start makes this run's key and begins to send probes.
func (a *App) Start(c *controller.Controller) error {
	if c != nil {
		a.log = c.Log()
	}
	a.now.Store(time.Now().UnixNano())
	if a.shared != nil {
		if err := a.share(); err != nil {
			return err
		}
	} else if _, err := rand.Read(a.key[:]); err != nil {
		return err
	}
	a.done.Go(a.run)
	return nil
}

// Stop stops the app.
func (a *App) Stop() {
	a.stop()
	a.done.Wait()
}

// Watch calls f for every change of a port from now on, one after the other. f must be
// quick and must not call the app.
func (a *App) Watch(f func(Change)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = append(a.watchers, f)
}

// WatchLinks calls f for every change of a link's direction from now on, like Watch.
func (a *App) WatchLinks(f func(LinkChange)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.linkWatchers = append(a.linkWatchers, f)
}

// locked calls f with mu held, then releases it. It does so even if f panics, as a lock left behind
// would stop the other apps, too.
func (a *App) locked(f func()) {
	a.mu.Lock()
	defer a.release()
	f()
}

// release reports the changes in their order and unlocks mu, even if a watcher panics.
func (a *App) release() {
	defer func() {
		a.changes, a.linkChanges = a.changes[:0], a.linkChanges[:0]
		a.mu.Unlock()
	}()
	for _, c := range a.changes {
		for _, f := range a.watchers {
			f(c)
		}
	}
	for _, c := range a.linkChanges {
		for _, f := range a.linkWatchers {
			f(c)
		}
	}
}

// Kind returns what a port leads to; Open if there is no such port.
func (a *App) Kind(dpid uint64, number uint32) Kind {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.port(place{dpid, number}); p != nil {
		return p.Kind()
	}
	return Open
}

// Ports returns the kinds of a switch's ports.
func (a *App) Ports(dpid uint64) map[uint32]Kind {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[uint32]Kind{}
	if n := a.nodes[dpid]; n != nil {
		for number, p := range n.ports {
			out[number] = p.Kind()
		}
	}
	return out
}

// Links returns all directions of links, in no order. A port joined to several others by foreign
// switches has a link to each.
func (a *App) Links() []Link {
	a.mu.Lock()
	defer a.mu.Unlock()
	links := make([]Link, len(a.ways))
	for i, w := range a.ways {
		links[i] = w.link()
	}
	return links
}

// LinksFrom returns the directions of links that begin at a port.
func (a *App) LinksFrom(dpid uint64, number uint32) (out []Link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.port(place{dpid, number}); p != nil {
		for _, w := range p.out {
			out = append(out, w.link())
		}
	}
	return out
}

// Snapshot returns all ports and all directions of links at one instant, in no order.
func (a *App) Snapshot() (ports []Port, links []Link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for dpid, n := range a.nodes {
		for number, p := range n.ports {
			ports = append(ports, Port{Switch: dpid, Number: number, Kind: p.Kind()})
			for _, w := range p.out {
				links = append(links, w.link())
			}
		}
	}
	return ports, links
}

// Around returns the part of Snapshot that concerns the given ports of routers and all ports that
// links join them to. ok is false if a link leads to a switch that is no router.
func (a *App) Around(at []Port, router func(dpid uint64) bool) (ports []Port, links []Link, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := map[*port]bool{}
	var queue []*port
	visit := func(p *port) {
		if p != nil && !seen[p] {
			seen[p] = true
			queue = append(queue, p)
		}
	}
	for _, x := range at {
		if !router(x.Switch) {
			return nil, nil, false
		}
		visit(a.port(place{x.Switch, x.Number}))
	}
	for ; len(queue) > 0; queue = queue[1:] {
		p := queue[0]
		if !router(p.node.dpid) {
			return nil, nil, false
		}
		ports = append(ports, Port{Switch: p.node.dpid, Number: p.number, Kind: p.Kind()})
		for _, w := range p.out {
			links = append(links, w.link())
			visit(w.to)
		}
		for _, w := range p.in {
			visit(w.from)
		}
	}
	return ports, links, true
}

// Brought sets a function that reports for which switches another app sends table misses, and hence
// probes, to the controller. That app calls Probe once it has installed its entry. Brought must be
// called before Start.
func (a *App) Brought(by func(dpid uint64) bool) { a.brought = by }

// SwitchUp installs the entry that sends probes to the controller, and probes all ports.
func (a *App) SwitchUp(s *controller.Switch) {
	var flows []*openflow.FlowMod
	brought := a.brought != nil && a.brought(s.DPID())
	for _, etherType := range []uint16{etherTypeLLDP, etherTypeBDDP} {
		if brought {
			break
		}
		m := openflow.NewFlowMod(openflow.FlowAdd, flowPriority, openflow.NewMatch(openflow.EthType(etherType)),
			openflow.ApplyActions(openflow.OutputController(openflow.MaxLenNoBuffer)))
		m.Cookie, m.Flags = Cookie, openflow.FlowSendFlowRem
		flows = append(flows, m)
	}
	_ = s.Rules(Cookie, apps.CookieMask, nil).Replace(flows, nil)

	a.locked(func() {
		n := a.node(s.DPID())
		n.own(s)
		a.bySwitch.Store(s, n)
		a.clearDormant(func(at place, d dormant) bool {
			return at.dpid != n.dpid && (d.link.From == n.dpid || d.link.To == n.dpid)
		})
		here := a.portsUp(n, s)
		for number, p := range n.ports {
			if here[number] {
				a.returned(p)
			} else {
				a.forget(p) // it was removed while the switch was disconnected
			}
		}
		a.taken(n)
	})
	if !brought {
		a.Probe(s)
	}
}

// Probe probes all ports of a switch that has come up.
func (a *App) Probe(s *controller.Switch) {
	var probe []*port
	a.locked(func() {
		if n := a.nodes[s.DPID()]; n != nil && n.sw == s {
			probe = slices.Collect(maps.Values(n.ports))
		}
	})
	slices.SortFunc(probe, func(x, y *port) int { return cmp.Compare(x.number, y.number) })
	for _, p := range probe {
		a.send(p)
	}
}

// portsUp records the ports of a switch that are up, and returns them; hosts at other ports are
// forgotten. mu must be held.
func (a *App) portsUp(n *node, s *controller.Switch) map[uint32]bool {
	here := map[uint32]bool{}
	for _, p := range s.Ports() {
		if p.Works() {
			here[p.Number] = true
			a.portUp(n, p)
		}
	}
	a.hosts.keep(n.dpid, here)
	return here
}

// SwitchDown remembers the switch's links and forgets its other ports.
func (a *App) SwitchDown(s *controller.Switch) {
	a.bySwitch.Delete(s)
	a.mu.Lock()
	defer a.release()
	n := a.nodes[s.DPID()]
	if n == nil || n.sw != s && n.seen != s {
		return // it has reconnected already
	}
	n.own(nil)
	n.seen = nil
	if a.wiring.lacks(n.dpid) {
		a.forgetSwitch(n)
	}
	for _, p := range n.ports {
		if len(p.out)+len(p.in) == 0 {
			a.forget(p)
			continue
		}
		for w := range p.ways {
			a.doubt(w, time.Time{})
		}
	}
	a.drop(n)
}

// FlowRemoved detects that someone has deleted the entry for probes, and so perhaps all entries, as
// ovs-ofctl del-flows does: the app itself never deletes it.
func (a *App) FlowRemoved(s *controller.Switch, m *openflow.FlowRemoved) {
	if m.Cookie == Cookie && m.Reason == openflow.RemovedDelete {
		s.Renew()
	}
}

// PortChanged probes a port that is new or up again, and removes the links of one that is gone or
// down.
func (a *App) PortChanged(s *controller.Switch, reason openflow.PortReason, p openflow.Port) {
	var late *port
	a.locked(func() {
		n := a.nodes[s.DPID()]
		switch {
		case n == nil || n.sw != s && n.seen != s:
		case reason != openflow.PortDelete && p.Works():
			known := a.portUp(n, p)
			a.mirrorAt(n, p.Number)
			if n.sw == nil {
				return // its master probes it
			}
			if time.Since(known.sent) >= openTime { // a flapping port is not probed more often than that
				late = known
			} else {
				a.schedule.soon(known)
			}
		default:
			a.hosts.drop(place{n.dpid, p.Number})
			if known := n.ports[p.Number]; known != nil {
				a.forget(known)
			}
		}
	})
	if late != nil {
		a.send(late)
	}
}

// PacketIn handles probes, and learns hosts from other packets.
func (a *App) PacketIn(s *controller.Switch, p *controller.Packet) bool {
	if p.EtherType == etherTypeLLDP || p.EtherType == etherTypeBDDP {
		return a.probeIn(s, p)
	}
	a.hear(s, p)
	return false
}

// Trust with true stops links from being given up for missing probes, until Trust with false: while
// switches forward by their entries but cannot report to the controller, as during the takeover
// from a program that has died, missing probes mean nothing.
func (a *App) Trust(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.trusting && !on {
		a.trusted++
	}
	a.trusting = on
}

// Remember adds links of an earlier run of the controller, before switches connect: until probes
// say otherwise, a port of theirs goes down, or a minute has passed, their ports count as ends of
// these links.
func (a *App) Remember(links []Link) {
	a.mu.Lock()
	defer a.release()
	until := time.Now().Add(rememberTime)
	for _, l := range links {
		a.remember(l, until)
	}
}
