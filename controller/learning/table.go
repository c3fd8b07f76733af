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

	// Entries of learned addresses and of paths each have a bit of their own in the cookie; all
	// others are the basic entries. Entries of ports carry the port's role there, and those that
	// copy packets for discovery their kind.
	addressCookie = Cookie | 0x100
	pathCookie    = Cookie | 0x200
	frameMask     = apps.CookieMask | 0x300
	kindMask      = 0xf
	kindListen    = 8

	headerLen = 128 // bytes of a packet that the controller gets: includes all headers

	// holdTime is how long a port's state read from a switch's tables is believed while discovery
	// does not know the port: the switch at the other end may connect late.
	holdTime = time.Minute
)

// role is a port's role according to table 0.
type role uint8

const (
	none    role = iota
	edge         // forwards; it leads to hosts
	link         // forwards; it leads to other switches
	blocked      // leads to other switches and does not forward
	trunk        // a link of the tree that paths use, too: nothing is learned there
	bypass       // a link outside the tree that only paths use
)

// inTree reports whether a port in the role is a link of the tree.
func (r role) inTree() bool { return r == link || r == trunk }

// isLink reports whether a port in the role leads to other switches.
func (r role) isLink() bool { return r.inTree() || r == blocked || r == bypass }

// hasPaths reports whether paths may use a port in the role.
func (r role) hasPaths() bool { return r == trunk || r == bypass }

// phase is a port's progress towards forwarding.
type phase uint8

const (
	closed  phase = iota
	open          // forwards: its entries have been sent
	leaving       // no longer forwards, but the switch has not confirmed that
)

// port is a port's state according to what was sent to the switch.
type port struct {
	phase     phase
	role      role
	held      time.Time // adopted, and unknown to discovery since then; believed until then
	opened    time.Time // when this run made it an edge
	closing   int       // the table's count of closings when it was closed
	addresses int       // number learned there
	full      bool      // no more are learned, which has been logged
}

// table is what the app has installed in a switch.
type table struct {
	app   *App
	dpid  uint64
	since time.Time // when it connected
	reign uint64    // in a cluster: the generation of this controller's role

	mu        sync.Mutex
	sw        *controller.Switch // nil: disconnected, and it forwards as before
	other     bool               // in a cluster: another member's
	lost      time.Time          // since when it is disconnected
	rules     *controller.Rules  // the basic entries
	ports     map[uint32]*port   // those that are not closed, or have an entry
	addresses map[openflow.MAC]address
	full      bool // no more addresses are learned, which has been logged
	entries   entries
	closings  int

	waiting waiting // for reactive learning

	fresh bool // roles that paths may use have been sent, and are not confirmed
	stuck bool // it has not confirmed its paths in time, and may have some of them
	// pending are the addresses whose path the switch has yet to confirm.
	pending map[openflow.MAC]bool
	// paths are the output ports of paths by address; dropped: packets are dropped. Once the table
	// is registered with the app, only follow uses it.
	paths map[openflow.MAC]uint32
}

func newTable(a *App, s *controller.Switch) *table {
	reign, _ := s.Reign()
	return &table{app: a, dpid: s.DPID(), reign: reign, since: time.Now(), sw: s, ports: map[uint32]*port{},
		addresses: map[openflow.MAC]address{}, entries: newEntries(),
		pending: map[openflow.MAC]bool{}, paths: map[openflow.MAC]uint32{}}
}

func flow(command openflow.FlowModCommand, table uint8, priority uint16, m openflow.Match,
	i ...openflow.Instruction) *openflow.FlowMod {
	f := openflow.NewFlowMod(command, priority, m, i...)
	f.Table, f.Cookie = table, Cookie
	return f
}

// miss floods packets to unknown destinations.
func miss() *openflow.FlowMod {
	return flow(openflow.FlowAdd, destinationTable, 0, openflow.Match{},
		openflow.ApplyActions(openflow.Group(floodGroup)))
}

// flood is the group that sends to all forwarding ports except the one on which the packet arrived
// (the switch sees to that: OpenFlow 1.3.5, section 5.6.1).
func flood(ports []uint32) *openflow.GroupDesc {
	g := &openflow.GroupDesc{Kind: openflow.GroupTypeAll, Group: floodGroup}
	for _, p := range ports {
		g.Buckets = append(g.Buckets, openflow.NewBucket(openflow.Output(p)))
	}
	return g
}

// portEntries returns the entries of a port in a role.
func portEntries(number uint32, r role) []*openflow.FlowMod {
	in := openflow.InPort(number)
	pass := []openflow.Instruction{openflow.ApplyActions(openflow.OutputController(headerLen)),
		openflow.GotoTable(destinationTable)}
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

// listened matches the packets from which discovery learns hosts: ARP, and neighbour solicitations
// and advertisements.
func listened(in openflow.OXM) []openflow.Match {
	icmp := func(kind uint8) openflow.Match {
		return openflow.NewMatch(in, openflow.EthType(openflow.EthTypeIPv6), openflow.IPProto(openflow.IPProtoICMPv6),
			openflow.ICMPv6Type(kind))
	}
	return []openflow.Match{openflow.NewMatch(in, openflow.EthType(openflow.EthTypeARP)), icmp(135), icmp(136)}
}

// adopt takes over the switch's entries, and reports whether there were any. A port whose entries
// are incomplete stops forwarding.
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
				roles[number] = edge // its change was interrupted
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
			t.open(number, p.role) // adds missing entries and removes others
		}
	}
	if leave {
		t.confirm()
	}
	return len(t.ports) > 0
}

// roles returns the ports' roles from their entries of priority 1.
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

// floods returns the ports of the group.
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

// adoptAddresses takes over the learned addresses, except those at ports that do not forward.
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

// away records the state of a switch whose connection is lost.
func (t *table) away() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sw, t.rules, t.addresses, t.lost = nil, nil, nil, time.Now()
}

// What follows must be called with mu held, for a connected switch.

// numbers returns the forwarding ports, in order.
func (t *table) numbers() []uint32 {
	var out []uint32
	for _, number := range slices.Sorted(maps.Keys(t.ports)) {
		if t.ports[number].phase == open {
			out = append(out, number)
		}
	}
	return out
}

// open makes a port forward. The caller must have set the group before.
func (t *table) open(number uint32, r role) {
	if t.app.reactive {
		return // nothing to send: only the controller needs to know
	}
	for _, f := range portEntries(number, r) {
		_ = t.rules.Set(f)
	}
	if r != edge {
		t.removeEntries(number, 3)
	}
	if r == trunk {
		t.forget(number) // addresses learned there do not apply any more
	}
}

// close stops a port from forwarding in both directions. The caller must have set the group and the
// phase before, and must have them confirmed.
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
	maps.DeleteFunc(t.addresses, func(_ openflow.MAC, a address) bool { return a.port == number })
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

// flush deletes all addresses: they are learned again from the next packets, which are flooded.
func (t *table) flush() {
	m := openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.Match{})
	m.Table, m.Cookie, m.CookieMask = openflow.TableAll, addressCookie, frameMask
	_ = t.sw.Send(m)
	clear(t.addresses)
	for _, p := range t.ports {
		p.addresses = 0
	}
}

// confirm asks the switch to confirm that ports are closed, and then runs follow.
func (t *table) confirm() {
	t.closings++
	sw, closing := t.sw, t.closings
	t.app.done.Go(func() {
		if sw.Barrier(t.app.ctx) != nil {
			return // the switch is disconnected, and the ports may be forwarding
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
