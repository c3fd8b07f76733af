package learning

import (
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
)

// With reactive learning, switches are the learning switches of textbooks. A switch begins with a
// table-miss entry only, which sends packets to the controller. The controller learns where a
// packet's source is; if it knows the destination it installs an entry for this flow, otherwise it
// floods the packet itself.
//
//	table 0  priority 1  in_port, addresses, protocol, ports → output      a flow, until it is idle
//	         priority 0                                      → controller
//
// Discovery's probes match the second entry, too. Which ports forward is decided as for other
// switches (follow.go, in a cluster agree.go), but only the controller knows it: it accepts packets
// from forwarding ports, and floods to such ports. When a port stops forwarding, the flows through
// it are removed, and the switch confirms that.
//
// Each switch on a flow's path gets its entry from its own master, when the first packet arrives
// there. The cookie of a flow's entry says what its ports lead to. So a new master of a switch
// takes over the ports of its flows as they are, and the addresses that the flows reveal.

// flowIdle is the number of seconds without a packet after which a flow's entry expires: as with
// Open vSwitch's test controller and OpenFlow's reference controller.
const flowIdle = 60

const (
	flowPriority = 1

	// leadsShift is the position in a flow's cookie of the role of the output port, above that of
	// the input port.
	leadsShift = 4

	// maxWaiting limits the packets that wait at a switch until it is known which ports forward,
	// and waitTime how long they wait.
	maxWaiting = 256
	waitTime   = 3 * time.Second
)

// waiting are packets that arrived before it was known whether their ports forward.
type waiting struct {
	over bool // it is known now
	list []*controller.Packet
	came []time.Time
}

// movedHosts are hosts that discovery has reported since follow last ran.
type movedHosts struct {
	mu   sync.Mutex
	macs map[openflow.MAC]bool
}

// NewReactive returns the app for reactive learning; it needs discovery, started before it.
// Datapaths for which only returns false belong to another app; nil: all are its own.
func NewReactive(d *discovery.App, only func(dpid uint64) bool) *App {
	a := New(d, only)
	a.reactive = true
	d.Brought(a.only)
	return a
}

// Reactive reports whether switches have entries for flows only, installed on their first packets.
func (a *App) Reactive() bool { return a.reactive }

// toController is the table-miss entry.
func toController() *openflow.FlowMod {
	m := flow(openflow.FlowAdd, sourceTable, 0, openflow.Match{},
		openflow.ApplyActions(openflow.OutputController(openflow.MaxLenNoBuffer)))
	m.Flags = openflow.FlowSendFlowRem
	return m
}

// adoptFlows takes over the switch's flows, and reports whether there were any. All other entries
// of the app except the table-miss entry are removed.
func (t *table) adoptFlows() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules = t.sw.Rules(Cookie, frameMask, func(id uint32) bool { return id == floodGroup })
	_ = t.rules.Replace([]*openflow.FlowMod{toController()}, nil)
	_ = t.sw.Rules(pathCookie, frameMask, nil).Replace(nil, nil)
	flows := t.sw.Rules(addressCookie, frameMask, nil)
	held := time.Now().Add(holdTime)
	sources := map[openflow.MAC]uint32{}
	for _, f := range flows.Flows() {
		in, out, ok := flowPorts(f)
		if !ok {
			_ = flows.Remove(controller.KeyOf(f))
			continue
		}
		for number, r := range map[uint32]role{in: role(f.Cookie & kindMask),
			out: role(f.Cookie >> leadsShift & kindMask)} {
			if p := t.ports[number]; p == nil {
				t.ports[number] = &port{phase: open, role: r, held: held}
			} else {
				p.role = max(p.role, r) // a link, if any flow says so
			}
		}
		src, _ := f.Match.Get(openflow.FieldEthSrc)
		dst, _ := f.Match.Get(openflow.FieldEthDst)
		sources[src.MAC()] = in
		t.addresses[dst.MAC()] = address{port: out}
	}
	for mac, number := range sources {
		if _, known := t.addresses[mac]; !known {
			t.addresses[mac] = address{port: number}
		}
	}
	return len(t.ports) > 0
}

// flowPorts returns the ports of a flow's entry; ok is false for any other entry.
func flowPorts(f *openflow.FlowMod) (in, out uint32, ok bool) {
	in, ok = f.Match.InPort()
	_, from := f.Match.Get(openflow.FieldEthSrc)
	_, to := f.Match.Get(openflow.FieldEthDst)
	if !ok || !from || !to || f.Table != sourceTable || f.Priority != flowPriority || len(f.Instructions) != 1 ||
		len(f.Instructions[0].Actions) != 1 {
		return 0, 0, false
	}
	for _, r := range []uint64{f.Cookie & kindMask, f.Cookie >> leadsShift & kindMask} {
		ok = ok && (role(r) == edge || role(r) == link)
	}
	return in, f.Instructions[0].Actions[0].Port, ok
}

// forward learns a packet's source, and forwards the packet.
func (t *table) forward(p *controller.Packet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sw == nil || reserved(p.Dst) {
		return
	}
	if in := t.ports[p.InPort]; in == nil || in.phase != open {
		t.wait(p)
		return
	}
	t.pass(p)
}

// reserved reports whether bridges must not forward frames to an address (IEEE 802.1Q, section
// 8.6.3).
func reserved(a openflow.MAC) bool {
	return [5]byte(a[:5]) == [5]byte{0x01, 0x80, 0xc2, 0x00, 0x00} && a[5] < 16
}

// What follows must be called with mu held, for a connected switch.

// pass forwards a packet that has arrived on a forwarding port.
func (t *table) pass(p *controller.Packet) {
	if p.Src[0]&1 == 0 && p.Src != (openflow.MAC{}) {
		t.seen(p.Src, p.InPort)
	}
	x, known := t.addresses[p.Dst]
	switch {
	case !known:
		var out []openflow.Action
		for _, number := range t.numbers() {
			if number != p.InPort {
				out = append(out, openflow.Output(number))
			}
		}
		t.sendOn(p, out...)
	case x.port != p.InPort: // otherwise it has been there
		m := flow(openflow.FlowAdd, sourceTable, flowPriority, matchFlow(p),
			openflow.ApplyActions(openflow.Output(x.port)))
		m.Cookie, m.IdleTimeout = addressCookie|uint64(t.ports[p.InPort].role)|uint64(t.ports[x.port].role)<<leadsShift,
			flowIdle
		_ = t.sw.Send(m)
		t.sendOn(p, openflow.Output(x.port))
	}
}

func (t *table) sendOn(p *controller.Packet, actions ...openflow.Action) {
	if len(actions) > 0 {
		_ = t.sw.Send(&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: p.InPort, Actions: actions,
			Data: p.Data})
	}
}

// seen records that an address is at a port.
func (t *table) seen(mac openflow.MAC, number uint32) {
	old, known := t.addresses[mac]
	switch {
	case known && old.port == number:
		return
	case known:
		t.unlearnFlows(mac)
	case len(t.addresses) >= maxAddresses:
		t.app.log.Warn("too many addresses at a switch: all are learned again", "switch", t.sw.Name())
		t.flush()
	}
	t.addresses[mac] = address{port: number}
}

// unlearnFlows forgets an address, and removes the flows to it and from it.
func (t *table) unlearnFlows(mac openflow.MAC) {
	for _, match := range []openflow.OXM{openflow.EthDst(mac), openflow.EthSrc(mac)} {
		m := openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.NewMatch(match))
		m.Table, m.Cookie, m.CookieMask = sourceTable, addressCookie, frameMask
		_ = t.sw.Send(m)
	}
	delete(t.addresses, mac)
}

// wait keeps a packet until it is known which ports of a switch forward: one that has just
// connected or changed masters may have more such ports than its flows show.
func (t *table) wait(p *controller.Packet) {
	if t.waiting.over || len(t.waiting.list) >= maxWaiting {
		return
	}
	kept, in := *p, *p.PacketIn
	in.Data = slices.Clone(in.Data)
	kept.PacketIn = &in
	t.waiting.list, t.waiting.came = append(t.waiting.list, &kept), append(t.waiting.came, time.Now())
}

// passWaiting forwards the packets waiting at switches whose ports are now as they should be.
func passWaiting(tables []*table, now time.Time) {
	for _, t := range tables {
		t.mu.Lock()
		list, came := t.waiting.list, t.waiting.came
		t.waiting = waiting{over: true}
		for i, p := range list {
			if in := t.ports[p.InPort]; t.sw != nil && in != nil && in.phase == open && now.Sub(came[i]) < waitTime {
				t.pass(p)
			}
		}
		t.mu.Unlock()
	}
}

// moved makes follow check where a host is. It is called with discovery's locks held.
func (a *App) moved(mac openflow.MAC) {
	a.hosts.mu.Lock()
	if a.hosts.macs == nil {
		a.hosts.macs = map[openflow.MAC]bool{}
	}
	a.hosts.macs[mac] = true
	a.hosts.mu.Unlock()
	a.poke()
}

// followHosts removes the flows to and from hosts that have moved, as seen by any member: at each
// switch of this member that has learned them where the tree does not lead to them.
func (a *App) followHosts(g *graph, tables []*table) {
	a.hosts.mu.Lock()
	macs := a.hosts.macs
	a.hosts.macs = nil
	a.hosts.mu.Unlock()
	ways := map[int][]uint32{}
	for mac := range macs {
		h, known := a.discovery.Host(mac)
		root, ok := g.index[h.Switch]
		if !known || !ok {
			continue
		}
		if ways[root] == nil {
			ways[root] = g.towards(root)
		}
		for i, t := range tables {
			want := ways[root][i]
			if i == root {
				want = h.Port
			}
			t.mu.Lock()
			if x, learned := t.addresses[mac]; learned && t.sw != nil && want != 0 && x.port != want {
				t.unlearnFlows(mac)
			}
			t.mu.Unlock()
		}
	}
}

// towards returns the ports by which the tree leads to a switch, indexed by the other switches'
// vertices; 0: it does not.
func (g *graph) towards(root int) []uint32 {
	out, seen := make([]uint32, g.vertices), make([]bool, g.vertices)
	seen[root] = true
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		u := queue[0]
		for _, e := range g.at[u] {
			to := e.u + e.v - u
			if !e.tree || seen[to] {
				continue
			}
			seen[to] = true
			queue = append(queue, to)
			for _, x := range e.ends {
				if g.index[x.dpid] == to {
					out[to] = x.port
				}
			}
		}
	}
	return out
}

// flowsRemoved detects that someone has deleted the table-miss entry, and so perhaps all entries,
// as ovs-ofctl del-flows does.
func (a *App) flowsRemoved(s *controller.Switch, m *openflow.FlowRemoved) {
	if m.Cookie == Cookie && m.Reason == openflow.RemovedDelete && a.only(s.DPID()) {
		s.Renew()
	}
}
