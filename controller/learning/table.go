package learning

import (
	"maps"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/openflow"
)

// Cookie is that of the app's entries.
const Cookie = 0x7472_0002 << 32

const (
	sourceTable, destinationTable = 0, 1

	floodGroup = 1

	// Addresses that were learned have a bit of their own in the cookie, and paths to hosts another
	// one; all else is the frame. Entries of ports have their role there, and those that listen for
	// hosts their kind.
	addressCookie = Cookie | 0x100
	pathCookie    = Cookie | 0x200
	frameMask     = apps.CookieMask | 0x300
	kindMask      = 0xf
	kindListen    = 8

	headerLen = 128 // bytes of a packet that the controller gets: all of its headers

	// holdTime is for how long what a switch's tables say of a port is believed while
	// discovery does not know it: the switch at the other end may be late.
	holdTime = time.Minute
)

// role is what an entry of table 0 says of a port.
type role uint8

const (
	none    role = iota
	edge         // takes part; it leads to hosts
	link         // takes part; it leads to other switches
	blocked      // leads to other switches and does not take part
	trunk        // a link of the tree, by which paths lead too: nothing is learned there
	bypass       // a link outside the tree, by which paths lead and nothing else goes
)

// inTree says whether a port in the role is a link that takes part.
func (r role) inTree() bool { return r == link || r == trunk }

// isLink says whether a port in the role leads to other switches.
func (r role) isLink() bool { return r.inTree() || r == blocked || r == bypass }

// hasPaths says whether paths may lead by a port in the role.
func (r role) hasPaths() bool { return r == trunk || r == bypass }

// phase is whether a port forwards.
type phase uint8

const (
	closed  phase = iota
	open          // takes part: the entries for it have been sent
	leaving       // does not take part, but the switch has not said that it knows
)

// port is what the app has told a switch about a port.
type port struct {
	phase     phase
	role      role
	held      time.Time // adopted, and not known to discovery since; believed until then
	opened    time.Time // by this run, as an edge
	closing   int       // of the table, when it was closed
	addresses int       // learned there
	full      bool      // and no more may be, which has been said
}

// table is what the app has installed in a switch.
type table struct {
	app   *App
	dpid  uint64
	since time.Time // connected
	reign uint64    // the generation of this controller's role, where there are several

	mu        sync.Mutex
	sw        *controller.Switch // nil: away, and it goes on as it was
	other     bool               // another member's of a cluster
	lost      time.Time          // since when it is away
	rules     *controller.Rules  // the frame
	ports     map[uint32]*port   // those that are not closed, or have an entry
	addresses map[openflow.MAC]address
	full      bool // no more may be learned, which has been said
	entries   entries
	closings  int

	waiting waiting // of a switch that learns reactively

	fresh bool // roles by which paths may lead have been sent, and are not confirmed
	stuck bool // it has not confirmed its paths in time, and may have some of them
	// pending are the addresses whose path the switch has not confirmed.
	pending map[openflow.MAC]bool
	// paths are the ports by which paths to addresses leave; dropped: packets to them are dropped.
	// Once the table is among the app's it belongs to follow.
	paths map[openflow.MAC]uint32
}

func newTable(a *App, s *controller.Switch) *table {
	reign, _ := s.Reign()
	return &table{app: a, dpid: s.DPID(), reign: reign, since: time.Now(), sw: s, ports: map[uint32]*port{}, addresses: map[openflow.MAC]address{}, entries: newEntries(),
		pending: map[openflow.MAC]bool{}, paths: map[openflow.MAC]uint32{}}
}

func flow(command openflow.FlowModCommand, table uint8, priority uint16, m openflow.Match, i ...openflow.Instruction) *openflow.FlowMod {
	f := openflow.NewFlowMod(command, priority, m, i...)
	f.Table, f.Cookie = table, Cookie
	return f
}

// miss floods what goes to unknown destinations.
func miss() *openflow.FlowMod {
	return flow(openflow.FlowAdd, destinationTable, 0, openflow.Match{}, openflow.ApplyActions(openflow.Group(floodGroup)))
}

// flood is the group that sends to all ports that take part, but the one a packet came by
// (the switch sees to that: OpenFlow 1.3.5, section 5.6.1).
func flood(ports []uint32) *openflow.GroupDesc {
	g := &openflow.GroupDesc{Kind: openflow.GroupTypeAll, Group: floodGroup}
	for _, p := range ports {
		g.Buckets = append(g.Buckets, openflow.NewBucket(openflow.Output(p)))
	}
	return g
}

// portEntries are the entries of a port in a role.
func portEntries(number uint32, r role) []*openflow.FlowMod {
	in := openflow.InPort(number)
	pass := []openflow.Instruction{openflow.ApplyActions(openflow.OutputController(headerLen)), openflow.GotoTable(destinationTable)}
	switch r {
	case blocked:
		pass = nil
	case trunk:
		pass = pass[1:]
	case bypass:
		pass[0] = openflow.WriteMetadata(outsideTree, outsideTree)
	}
	first := flow(openflow.FlowAdd, sourceTable, 1, openflow.NewMatch(in), pass...)
	first.Cookie |= uint64(r)
	out := []*openflow.FlowMod{first}
	if r != edge {
		return out
	}
	for _, m := range listened(in) {
		f := flow(openflow.FlowAdd, sourceTable, 3, m, pass...)
		f.Cookie |= kindListen
		out = append(out, f)
	}
	return out
}

// listened is what tells discovery who a host is: ARP, and neighbour solicitations and
// advertisements.
func listened(in openflow.OXM) []openflow.Match {
	icmp := func(kind uint8) openflow.Match {
		return openflow.NewMatch(in, openflow.EthType(openflow.EthTypeIPv6), openflow.IPProto(openflow.IPProtoICMPv6), openflow.ICMPv6Type(kind))
	}
	return []openflow.Match{openflow.NewMatch(in, openflow.EthType(openflow.EthTypeARP)), icmp(135), icmp(136)}
}

// adopt takes over what the switch has, and says whether there was anything. A port
// that takes part by half leaves.
func (t *table) adopt() bool {
	if t.app.reactive {
		return t.adoptFlows()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules = t.sw.Rules(Cookie, frameMask, func(id uint32) bool { return id == floodGroup })
	learned := t.sw.Rules(addressCookie, frameMask, nil).Flows()
	t.adoptPaths()
	frame := t.rules.Flow(controller.KeyOf(miss())) != nil && t.rules.Group(floodGroup) != nil
	floods, roles, listens := t.floods(), t.roles(), map[uint32]bool{}
	for _, f := range t.rules.Flows() {
		if number, ok := f.Match.InPort(); ok && f.Priority == 3 {
			if listens[number] = true; roles[number] == none || roles[number] == blocked || roles[number].hasPaths() {
				roles[number] = edge // which has begun or ended only
			}
		}
	}
	for number, r := range roles {
		p := &port{role: r, held: time.Now().Add(holdTime)}
		if r != blocked && r != bypass {
			p.phase = leaving
			if frame && floods[number] {
				p.phase = open
			}
		}
		t.ports[number] = p
	}
	for number := range floods {
		if t.ports[number] == nil {
			t.ports[number] = &port{phase: leaving}
		}
	}
	_ = t.rules.SetGroup(flood(t.numbers()))
	_ = t.rules.Set(miss())
	t.adoptAddresses(learned)
	leave := false
	for number, p := range t.ports {
		switch {
		case p.phase == leaving:
			p.closing, leave = t.closings+1, true
			t.close(number, none)
		case p.role == edge || listens[number]:
			t.open(number, p.role) // what is missing, or too much
		}
	}
	if leave {
		t.confirm()
	}
	return len(t.ports) > 0
}

// roles are those of the ports by their entries of priority 1.
func (t *table) roles() map[uint32]role {
	out := map[uint32]role{}
	for _, f := range t.rules.Flows() {
		number, ok := f.Match.InPort()
		if ok && f.Table == sourceTable && f.Priority == 1 && f.Match.Len() == 1 {
			out[number] = max(min(role(f.Cookie&kindMask), bypass), edge)
		}
	}
	return out
}

// floods are the ports of the group.
func (t *table) floods() map[uint32]bool {
	out := map[uint32]bool{}
	if g := t.rules.Group(floodGroup); g != nil {
		for _, b := range g.Buckets {
			for _, action := range b.Actions {
				out[action.Port] = true
			}
		}
	}
	return out
}

// adoptAddresses takes over what was learned, but for ports that do not take part.
func (t *table) adoptAddresses(learned []*openflow.FlowMod) {
	stale := map[uint32]bool{}
	for _, f := range learned {
		if number, ok := f.Match.InPort(); ok {
			if p := t.ports[number]; p == nil || p.phase != open {
				stale[number] = true
			}
			continue
		}
		dst, ok := f.Match.Get(openflow.FieldEthDst)
		if !ok || len(f.Instructions) != 1 || len(f.Instructions[0].Actions) != 1 {
			continue
		}
		number := f.Instructions[0].Actions[0].Port
		if p := t.ports[number]; p != nil && p.phase == open {
			p.addresses++
			t.addresses[dst.MAC()] = address{port: number}
		} else {
			stale[number] = true
		}
	}
	for number := range stale {
		t.forget(number)
	}
}

// away keeps what the switch does when its connection is lost.
func (t *table) away() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sw, t.rules, t.addresses, t.lost = nil, nil, nil, time.Now()
}

// What follows must be called with mu held, for a switch that is connected.

// numbers are the ports that take part, in order.
func (t *table) numbers() []uint32 {
	var out []uint32
	for _, number := range slices.Sorted(maps.Keys(t.ports)) {
		if t.ports[number].phase == open {
			out = append(out, number)
		}
	}
	return out
}

// open makes a port take part. The group is for the caller to set, before.
func (t *table) open(number uint32, r role) {
	if t.app.reactive {
		return // it is for the controller to know
	}
	for _, f := range portEntries(number, r) {
		_ = t.rules.Set(f)
	}
	if r != edge {
		t.removeEntries(number, 3)
	}
	if r == trunk {
		t.forget(number) // what was learned there does not tell where its packets come from now
	}
}

// close ends that a port takes part, wholly: nothing comes in, and nothing goes out. The group and
// the phase are for the caller to set, before, and to have confirmed.
func (t *table) close(number uint32, r role) {
	p := t.ports[number]
	t.removeEntries(number, 3)
	switch {
	case t.app.reactive:
	case r == blocked || r == bypass:
		if r == bypass {
			_ = t.rules.Set(guard())
		}
		_ = t.rules.Set(portEntries(number, r)[0])
	default:
		t.removeEntries(number, 1)
	}
	if p.phase != closed {
		t.forget(number)
	}
	if p.role = r; p.phase == closed && r == none {
		delete(t.ports, number)
	}
}

func (t *table) removeEntries(number uint32, priority uint16) {
	in := openflow.InPort(number)
	matches := []openflow.Match{openflow.NewMatch(in)}
	if priority == 3 {
		matches = listened(in)
	}
	for _, m := range matches {
		_ = t.rules.Remove(controller.RuleKey{Table: sourceTable, Priority: priority, Match: m})
	}
}

// forget deletes the addresses of a port.
func (t *table) forget(number uint32) {
	from := openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.NewMatch(openflow.InPort(number)))
	from.Table = sourceTable
	to := openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.Match{})
	to.Table, to.OutPort = t.leadsIn(), number
	for _, m := range []*openflow.FlowMod{from, to} {
		m.Cookie, m.CookieMask = addressCookie, frameMask
		_ = t.sw.Send(m)
	}
	for mac, a := range t.addresses {
		if a.port == number {
			delete(t.addresses, mac)
		}
	}
	if p := t.ports[number]; p != nil {
		p.addresses = 0
	}
}

// leadsIn is the table whose entries lead to addresses.
func (t *table) leadsIn() uint8 {
	if t.app.reactive {
		return sourceTable
	}
	return destinationTable
}

// flush deletes all addresses: they are learned anew from the next packets, which are flooded.
func (t *table) flush() {
	m := openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.Match{})
	m.Table, m.Cookie, m.CookieMask = openflow.TableAll, addressCookie, frameMask
	_ = t.sw.Send(m)
	clear(t.addresses)
	for _, p := range t.ports {
		p.addresses = 0
	}
}

// confirm asks the switch to say when the ports that were closed are, and follows then.
func (t *table) confirm() {
	t.closings++
	sw, closing := t.sw, t.closings
	t.app.done.Go(func() {
		if sw.Barrier(t.app.ctx) != nil {
			return // the switch is away, and the ports may forward
		}
		t.mu.Lock()
		for number, p := range t.ports {
			if p.phase == leaving && p.closing <= closing {
				if p.phase = closed; p.role == none {
					delete(t.ports, number)
				}
			}
		}
		t.mu.Unlock()
		t.app.poke()
	})
}
