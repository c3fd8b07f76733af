// Package learning makes a layer-2 switch of every datapath.
//
// The switch forwards by itself; the controller is told of new addresses only. Table 0
// asks whether the source is known at its port, table 1 where the destination is:
//
//	table 0  priority 2  in_port, eth_src      → table 1          a known source
//	         priority 1  in_port               → controller, table 1   a port that takes part
//	                     (no entry)            → drop             one that does not (yet)
//	table 1  priority 1  eth_dst               → output           a known destination
//	         priority 0                        → group 1          all ports that take part
//
// So no packet waits for the controller, and what it answers to a packet is two
// entries, never the packet. A source that shows up at another port matches no
// entry of priority 2, and is learned anew.
//
// Ports that take part are edges and the links of a spanning tree, which follows from the
// links that discovery knows. There is no loop at any time: a port takes part once
// discovery knows what it is, and when the tree changes ports leave before others join.
package learning

import (
	"slices"
	"sync"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
)

const (
	sourceTable, destinationTable = 0, 1

	floodGroup = 1
	cookie     = 0x7472_0002 << 32
	cookieMask = 0xffff_ffff << 32

	// A source is learned anew every sourceHard seconds, which keeps its destination; that
	// is forgotten after destinationIdle seconds without either.
	sourceHard, destinationIdle = 300, 600

	headerLen = 128 // bytes of a packet that the controller gets: all of its headers

	// maxAddresses bounds what a switch full of invented addresses can make the
	// controller install: a further one is flooded, as if it were not known.
	maxAddresses = 100_000
)

// App is the app. Make it with New.
type App struct {
	controller.Base
	c         *controller.Controller
	discovery *discovery.App
	changed   chan struct{}
	stop      chan struct{}
	done      sync.WaitGroup

	mu       sync.Mutex
	switches map[uint64]*table
}

// table is what the app has installed in a switch.
type table struct {
	sw        *controller.Switch
	part      map[uint32]bool // ports that take part
	addresses map[openflow.MAC]uint32
}

// New returns the app, which needs discovery to run beside it, before it.
func New(d *discovery.App) *App {
	return &App{discovery: d, switches: map[uint64]*table{}, changed: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Name is "learning".
func (a *App) Name() string { return "learning" }

// Start begins to follow discovery.
func (a *App) Start(c *controller.Controller) error {
	a.c = c
	a.discovery.Watch(func(discovery.Change) { a.poke() })
	a.done.Go(func() {
		for {
			select {
			case <-a.changed:
				a.follow()
			case <-a.stop:
				return
			}
		}
	})
	return nil
}

// Stop ends it.
func (a *App) Stop() {
	close(a.stop)
	a.done.Wait()
}

// poke asks for follow to run, once however often it is asked.
func (a *App) poke() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// SwitchUp installs the tables' frame. Nothing takes part yet.
func (a *App) SwitchUp(s *controller.Switch) {
	clear := openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.Match{})
	clear.Cookie, clear.CookieMask, clear.Table = cookie, cookieMask, openflow.TableAll
	_ = s.Send(clear)
	_ = s.Send(flood(openflow.GroupDelete, nil))
	_ = s.Send(flood(openflow.GroupAdd, nil))
	miss := flow(openflow.FlowAdd, destinationTable, 0, openflow.Match{}, openflow.ApplyActions(openflow.Group(floodGroup)))
	_ = s.Send(miss)
	a.mu.Lock()
	a.switches[s.DPID()] = &table{sw: s, part: map[uint32]bool{}, addresses: map[openflow.MAC]uint32{}}
	a.mu.Unlock()
	a.poke()
}

// SwitchDown forgets the switch.
func (a *App) SwitchDown(s *controller.Switch) {
	a.mu.Lock()
	if t := a.switches[s.DPID()]; t != nil && t.sw == s {
		delete(a.switches, s.DPID())
	}
	a.mu.Unlock()
	a.poke()
}

func flow(command openflow.FlowModCommand, table uint8, priority uint16, m openflow.Match, i ...openflow.Instruction) *openflow.FlowMod {
	f := openflow.NewFlowMod(command, priority, m, i...)
	f.Table, f.Cookie = table, cookie
	return f
}

// PacketIn learns where the source is.
func (a *App) PacketIn(s *controller.Switch, p *controller.Packet) bool {
	if p.Cookie&cookieMask != cookie {
		return false
	}
	if p.Src[0]&1 == 1 || p.Src == (openflow.MAC{}) {
		return true // nobody's address
	}
	a.mu.Lock()
	t := a.switches[s.DPID()]
	if t == nil || !t.part[p.InPort] {
		a.mu.Unlock()
		return true
	}
	if _, known := t.addresses[p.Src]; !known && len(t.addresses) >= maxAddresses {
		a.mu.Unlock()
		return true
	}
	t.addresses[p.Src] = p.InPort
	a.mu.Unlock()
	to := flow(openflow.FlowAdd, destinationTable, 1, openflow.NewMatch(openflow.EthDst(p.Src)), openflow.ApplyActions(openflow.Output(p.InPort)))
	to.IdleTimeout, to.Flags = destinationIdle, openflow.FlowSendFlowRem
	from := flow(openflow.FlowAdd, sourceTable, 2, openflow.NewMatch(openflow.InPort(p.InPort), openflow.EthSrc(p.Src)), openflow.GotoTable(destinationTable))
	from.HardTimeout = sourceHard
	_ = s.Send(to)
	_ = s.Send(from)
	return true
}

// FlowRemoved forgets an address that was not used any more.
func (a *App) FlowRemoved(s *controller.Switch, m *openflow.FlowRemoved) {
	if m.Cookie&cookieMask != cookie || m.Table != destinationTable || m.Reason != openflow.RemovedIdleTimeout {
		return
	}
	dst, ok := m.Match.Get(openflow.FieldEthDst)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.switches[s.DPID()]; t != nil {
		delete(t.addresses, dst.MAC())
	}
}

// TakesPart says whether a port forwards: whether the entries for it have been sent.
func (a *App) TakesPart(dpid uint64, number uint32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.switches[dpid]
	return t != nil && t.part[number]
}

// follow makes the ports that take part those that discovery's links ask for. First
// ports leave, everywhere, then others join.
func (a *App) follow() {
	links := a.discovery.Links()
	a.mu.Lock()
	tables := make([]*table, 0, len(a.switches))
	for _, t := range a.switches {
		tables = append(tables, t)
	}
	a.mu.Unlock()
	slices.SortFunc(tables, func(x, y *table) int { return int(int64(x.sw.DPID()) - int64(y.sw.DPID())) })
	tree := spanningTree(tables, links)
	want := make([]map[uint32]bool, len(tables))
	for i, t := range tables {
		want[i] = map[uint32]bool{}
		for number, kind := range a.discovery.Ports(t.sw.DPID()) {
			if kind == discovery.Edge || kind == discovery.Inner && tree[end{t.sw.DPID(), number}] {
				want[i][number] = true
			}
		}
	}
	left := false
	for i, t := range tables {
		left = a.set(t, func(number uint32) bool { return t.part[number] && want[i][number] }) || left
	}
	if left { // what was learned may lead where nothing goes any more
		for _, t := range tables {
			a.forget(t)
		}
	}
	for i, t := range tables {
		a.set(t, func(number uint32) bool { return want[i][number] })
	}
}

// flood is the group that sends to all ports that take part, but the one a packet came by
// (the switch sees to that: OpenFlow 1.3.5, section 5.6.1).
func flood(command openflow.GroupModCommand, ports []uint32) *openflow.GroupMod {
	m := &openflow.GroupMod{Command: command, GroupDesc: openflow.GroupDesc{Kind: openflow.GroupTypeAll, Group: floodGroup}}
	for _, p := range ports {
		m.Buckets = append(m.Buckets, openflow.NewBucket(openflow.Output(p)))
	}
	return m
}

// set makes the ports that take part those that want says, and returns whether any left.
func (a *App) set(t *table, want func(uint32) bool) (left bool) {
	numbers := map[uint32]bool{}
	for number := range a.discovery.Ports(t.sw.DPID()) {
		numbers[number] = true
	}
	a.mu.Lock()
	for number := range t.part {
		numbers[number] = true
	}
	var join, leave, all []uint32
	for number := range numbers {
		switch now := want(number); {
		case now && !t.part[number]:
			join = append(join, number)
		case !now && t.part[number]:
			leave = append(leave, number)
		}
	}
	for _, number := range leave {
		delete(t.part, number)
	}
	for _, number := range join {
		t.part[number] = true
	}
	for number := range t.part {
		all = append(all, number)
	}
	a.mu.Unlock()
	if len(join)+len(leave) == 0 {
		return false
	}
	slices.Sort(all)
	for _, number := range leave {
		_ = t.sw.Send(flow(openflow.FlowDelete, sourceTable, 0, openflow.NewMatch(openflow.InPort(number))))
	}
	_ = t.sw.Send(flood(openflow.GroupModify, all))
	for _, number := range join {
		_ = t.sw.Send(flow(openflow.FlowAdd, sourceTable, 1, openflow.NewMatch(openflow.InPort(number)),
			openflow.ApplyActions(openflow.OutputController(headerLen)), openflow.GotoTable(destinationTable)))
	}
	return len(leave) > 0
}

// forget makes a switch forget all addresses: they are learned anew from the next packets.
func (a *App) forget(t *table) {
	a.mu.Lock()
	clear(t.addresses)
	ports := make([]uint32, 0, len(t.part))
	for number := range t.part {
		ports = append(ports, number)
	}
	a.mu.Unlock()
	_ = t.sw.Send(flow(openflow.FlowDelete, destinationTable, 0, openflow.NewMatch()))
	_ = t.sw.Send(flow(openflow.FlowAdd, destinationTable, 0, openflow.Match{}, openflow.ApplyActions(openflow.Group(floodGroup))))
	for _, number := range ports { // deletes the sources, and the entry that asks for new ones with them
		_ = t.sw.Send(flow(openflow.FlowDelete, sourceTable, 0, openflow.NewMatch(openflow.InPort(number))))
		_ = t.sw.Send(flow(openflow.FlowAdd, sourceTable, 1, openflow.NewMatch(openflow.InPort(number)),
			openflow.ApplyActions(openflow.OutputController(headerLen)), openflow.GotoTable(destinationTable)))
	}
}

// end is an end of a link.
type end struct {
	dpid uint64
	port uint32
}

// spanningTree returns the ports of a breadth-first tree from the lowest datapath id of each part.
func spanningTree(tables []*table, links []discovery.Link) map[end]bool {
	out := map[uint64][]discovery.Link{}
	for _, l := range links {
		out[l.From] = append(out[l.From], l)
		out[l.To] = append(out[l.To], discovery.Link{From: l.To, FromPort: l.ToPort, To: l.From, ToPort: l.FromPort})
	}
	tree, seen := map[end]bool{}, map[uint64]bool{}
	for _, t := range tables {
		if seen[t.sw.DPID()] {
			continue
		}
		seen[t.sw.DPID()] = true
		for queue := []uint64{t.sw.DPID()}; len(queue) > 0; queue = queue[1:] {
			next := out[queue[0]]
			slices.SortFunc(next, func(x, y discovery.Link) int { return int(x.FromPort) - int(y.FromPort) })
			for _, l := range next {
				if !seen[l.To] {
					seen[l.To] = true
					tree[end{l.From, l.FromPort}], tree[end{l.To, l.ToPort}] = true, true
					queue = append(queue, l.To)
				}
			}
		}
	}
	return tree
}
