package learning

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/internal/disjoint"
	"trivet.dev/trivet/openflow"
)

// flowIdle is after how many seconds without a packet a flow's entry goes: as with Open vSwitch's
// test controller and OpenFlow's reference controller.
const flowIdle = 60

// Reactive is the app in labs that learn reactively: the learning switch of textbooks. A switch has
// nothing but an entry that sends the controller what matches no other. The controller learns where
// a packet's source is; where it knows the destination it installs an entry for this flow, and
// otherwise floods the packet itself.
//
//	table 0  priority 1  in_port, addresses, protocol, ports → output      a flow, until it is idle
//	         priority 0                                      → controller
//
// Discovery's probes come by the second entry, too. So the links are known, and it floods along a
// spanning tree of them: a loop is one more link that nothing takes, and no storm.
type Reactive struct {
	controller.Base
	log       *slog.Logger
	discovery *discovery.App
	only      func(dpid uint64) bool
	changed   atomic.Bool // what discovery knows, since tree was made

	mu      sync.Mutex
	learned map[*controller.Switch]map[openflow.MAC]uint32
	blocked map[end]bool // ends of links that are not in the tree
}

// NewReactive returns the app, which needs discovery to run beside it, before it. Datapaths for
// which only returns false belong to another app; nil: all are its own.
func NewReactive(d *discovery.App, only func(dpid uint64) bool) *Reactive {
	if only == nil {
		only = func(uint64) bool { return true }
	}
	d.Brought(only)
	return &Reactive{discovery: d, only: only, log: slog.New(slog.DiscardHandler), learned: map[*controller.Switch]map[openflow.MAC]uint32{}}
}

// Name is "learning".
func (a *Reactive) Name() string { return "learning" }

// Start begins to follow discovery.
func (a *Reactive) Start(c *controller.Controller) error {
	if c != nil {
		a.log = c.Log()
	}
	a.discovery.Watch(func(discovery.Change) { a.changed.Store(true) })
	a.discovery.WatchLinks(func(discovery.LinkChange) { a.changed.Store(true) })
	return nil
}

// toController is the entry for what matches no other.
func toController() *openflow.FlowMod {
	m := flow(openflow.FlowAdd, sourceTable, 0, openflow.Match{}, openflow.ApplyActions(openflow.OutputController(openflow.MaxLenNoBuffer)))
	m.Flags = openflow.FlowSendFlowRem
	return m
}

// SwitchUp makes that entry the only one. What the switch was told before may not suit the tree any
// more, and is learned anew from the next packets.
func (a *Reactive) SwitchUp(s *controller.Switch) {
	if !a.only(s.DPID()) {
		return
	}
	a.mu.Lock()
	a.learned[s] = map[openflow.MAC]uint32{}
	a.mu.Unlock()
	rules := s.Rules(Cookie, apps.CookieMask, func(id uint32) bool { return id == floodGroup })
	_ = rules.Replace([]*openflow.FlowMod{toController()}, nil)
}

// SwitchDown forgets what was learned there.
func (a *Reactive) SwitchDown(s *controller.Switch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.learned, s)
}

// FlowRemoved notices that somebody has deleted the entry that makes it a learning switch, and so
// maybe all, as ovs-ofctl del-flows does.
func (a *Reactive) FlowRemoved(s *controller.Switch, m *openflow.FlowRemoved) {
	if m.Cookie == Cookie && m.Reason == openflow.RemovedDelete && a.only(s.DPID()) {
		s.Renew()
	}
}

// PortChanged forgets what was learned at a port that is gone or down.
func (a *Reactive) PortChanged(s *controller.Switch, reason openflow.PortReason, p openflow.Port) {
	if reason != openflow.PortDelete && p.Works() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for mac, port := range a.learned[s] {
		if port == p.Number {
			a.forget(s, mac)
		}
	}
}

// PacketIn learns where the source is, and sends the packet on.
func (a *Reactive) PacketIn(s *controller.Switch, p *controller.Packet) bool {
	if p.Cookie&apps.CookieMask != Cookie {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	learned := a.learned[s]
	if a.follow(); learned == nil || reserved(p.Dst) || !a.takesPart(s.DPID(), p.InPort) {
		return true
	}
	if p.Src[0]&1 == 0 && p.Src != (openflow.MAC{}) {
		a.learn(s, p.Src, p.InPort)
	}
	out, known := learned[p.Dst]
	switch {
	case !known:
		a.flood(s, p)
	case out != p.InPort: // else it has been there
		m := flow(openflow.FlowAdd, sourceTable, 1, matchFlow(p), openflow.ApplyActions(openflow.Output(out)))
		m.Cookie, m.IdleTimeout = addressCookie, flowIdle
		_ = s.Send(m)
		a.send(s, p, openflow.Output(out))
	}
	return true
}

// reserved says whether no bridge forwards frames to an address (IEEE 802.1Q, section 8.6.3).
func reserved(a openflow.MAC) bool {
	return [5]byte(a[:5]) == [5]byte{0x01, 0x80, 0xc2, 0x00, 0x00} && a[5] < 16
}

// TakesPart says whether what comes by a port is forwarded, and what is flooded goes there.
func (a *Reactive) TakesPart(dpid uint64, number uint32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.follow()
	return a.takesPart(dpid, number)
}

// Settled is true: it follows discovery before each packet.
func (a *Reactive) Settled() bool { return true }

// What follows must be called with mu held.

func (a *Reactive) takesPart(dpid uint64, number uint32) bool {
	return a.discovery.Kind(dpid, number) != discovery.Open && !a.blocked[end{dpid, number}]
}

// maxLearned bounds what the controller keeps for a switch.
const maxLearned = 1 << 16

func (a *Reactive) learn(s *controller.Switch, mac openflow.MAC, number uint32) {
	learned := a.learned[s]
	old, known := learned[mac]
	if known && old != number {
		a.forget(s, mac)
	}
	if len(learned) >= maxLearned && !known {
		a.log.Warn("too many addresses at a switch: all are learned anew", "switch", s.Name())
		a.flush(s)
	}
	learned[mac] = number
}

// forget deletes an address and the entries that lead to it.
func (a *Reactive) forget(s *controller.Switch, mac openflow.MAC) {
	a.remove(s, openflow.NewMatch(openflow.EthDst(mac)))
	delete(a.learned[s], mac)
}

// flush deletes all of a switch.
func (a *Reactive) flush(s *controller.Switch) {
	a.remove(s, openflow.Match{})
	clear(a.learned[s])
}

func (a *Reactive) remove(s *controller.Switch, match openflow.Match) {
	m := openflow.NewFlowMod(openflow.FlowDelete, 0, match)
	m.Table, m.Cookie, m.CookieMask = sourceTable, addressCookie, frameMask
	_ = s.Send(m)
}

func (a *Reactive) flood(s *controller.Switch, p *controller.Packet) {
	var out []openflow.Action
	for number := range a.discovery.Ports(s.DPID()) {
		if number != p.InPort && a.takesPart(s.DPID(), number) {
			out = append(out, openflow.Output(number))
		}
	}
	if len(out) > 0 {
		a.send(s, p, out...)
	}
}

func (a *Reactive) send(s *controller.Switch, p *controller.Packet, actions ...openflow.Action) {
	_ = s.Send(&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: p.InPort, Actions: actions, Data: p.Data})
}

// follow makes the tree anew where discovery knows other links. All addresses are forgotten then:
// they may lead where nothing goes any more.
func (a *Reactive) follow() {
	if !a.changed.Swap(false) {
		return
	}
	was := a.blocked
	a.blocked = a.outside(a.discovery.Links())
	same := len(a.blocked) == len(was)
	for e := range a.blocked {
		same = same && was[e]
	}
	if same {
		return
	}
	for s := range a.learned {
		a.flush(s)
	}
}

// outside are the ends of links that a spanning tree has no use for. Foreign networks join any
// number of ports; a datapath of another app forwards nothing that would come back, so each link
// there leads to a network of its own.
func (a *Reactive) outside(links []discovery.Link) map[end]bool {
	type vertex struct {
		dpid    uint64
		foreign int // 1 and up: not a switch
	}
	out, parts := map[end]bool{}, disjoint.Sets[vertex]{}
	for i, s := range segmentsOf(links) {
		if len(s.ends) == 2 && !slices.ContainsFunc(s.ends, func(e end) bool { return !a.only(e.dpid) }) {
			if !parts.Join(vertex{dpid: s.ends[0].dpid}, vertex{dpid: s.ends[1].dpid}) {
				out[s.ends[0]], out[s.ends[1]] = true, true
			}
			continue
		}
		for _, e := range s.ends {
			if a.only(e.dpid) && !parts.Join(vertex{dpid: e.dpid}, vertex{foreign: i + 1}) {
				out[e] = true
			}
		}
	}
	return out
}
