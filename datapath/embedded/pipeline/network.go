package pipeline

import (
	"fmt"
	"sync"
	"time"

	"trivet.dev/trivet/openflow"
)

// Network is a set of switches whose ports may be joined by virtual links. Changes to any of it are
// made one at a time; translations see the network between two changes.
type Network struct {
	mu       sync.RWMutex
	switches map[uint64]*Switch
	births   uint64 // number of entries made so far
	expiries expiries
	news     []func() // notifications to deliver after a change

	foldFlow func(f *Flow, until time.Duration)
	onRead   func(*Switch)
	onChange func(*Switch, int)
	onPower  func(*Port)
}

// NewNetwork returns a network without switches.
func NewNetwork() *Network { return &Network{switches: map[uint64]*Switch{}} }

// OnFold sets a function that is called, within a change, before an entry's counters decide whether
// it has been idle, and before it is removed. A caller that has counted hits elsewhere adds them
// then, at least those up to until. It must not call the network.
func (n *Network) OnFold(f func(f *Flow, until time.Duration)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.foldFlow = f
}

// OnRead sets a function that is called before statistics of a switch are read; a caller that has
// counted hits elsewhere adds them then.
func (n *Network) OnRead(f func(*Switch)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onRead = f
}

// OnChange sets a function that is called when a part of a switch has changed: a table, or
// ReadPorts, …. It is called within a change or, for ReadPlaces, while a packet is carried, and
// must not call the network.
func (n *Network) OnChange(f func(s *Switch, what int)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onChange = f
}

// OnPower sets a function that is called after a port's configuration has changed to down or up
// (OFPPC_PORT_DOWN), so that its device can follow.
func (n *Network) OnPower(f func(*Port)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onPower = f
}

// touch raises the version of a part of the switch, which has changed.
func (s *Switch) touch(what int) {
	switch {
	case what >= 0:
		s.tables[what].version++
	case what == ReadPlaces: // which has a lock of its own
		s.learned.mu.Lock()
		s.learned.version++
		s.learned.mu.Unlock()
	default:
		s.versions[-what-1]++
	}
	if s.net.onChange != nil {
		s.net.onChange(s, what)
	}
}

func (n *Network) fold(f *Flow, until time.Duration) {
	if n.foldFlow != nil {
		n.foldFlow(f, until)
	}
}

// change calls f while nobody else uses the network, and then delivers the notifications.
func (n *Network) change(f func() error) error {
	n.mu.Lock()
	err := f()
	list := n.news
	n.news = nil
	n.mu.Unlock()
	for _, tell := range list {
		tell()
	}
	return err
}

func (n *Network) tell(s *Switch, m openflow.Message) {
	if notify := s.config.Notify; notify != nil {
		n.news = append(n.news, func() { notify(m) })
	}
}

// Config configures a switch. Zero values mean the defaults.
type Config struct {
	DatapathID uint64
	Name       string // for descriptions
	Tables     int    // default 64, at most 254
	MaxFlows   int    // of a table; default 1,000,000

	// Notify gets FLOW_REMOVED and PORT_STATUS messages, after the change that caused them and in
	// the goroutine that made it.
	Notify func(openflow.Message)
}

// Switch is one switch of a network. Its methods may be called by several goroutines.
type Switch struct {
	net      *Network
	config   Config
	tables   []*table // nil until used, as most are not
	programs map[string]*program
	room     []byte

	versions [-ReadFlags]uint64 // of other parts than tables: see Read

	ports      map[uint32]*Port
	order      []*Port // by number
	groups     map[uint32]*Group
	meters     map[uint32]*Meter
	learned    learned
	frag       openflow.ConfigFlags
	standalone bool
}

// Add adds a switch; its datapath id must be free.
func (n *Network) Add(c Config) (*Switch, error) {
	if c.Tables == 0 {
		c.Tables = 64
	}
	if c.MaxFlows == 0 {
		c.MaxFlows = 1_000_000
	}
	if c.Tables < 1 || c.Tables > int(openflow.TableMax) {
		return nil, fmt.Errorf("switch %016x: %d tables; a switch has 1 to %d", c.DatapathID, c.Tables,
			openflow.TableMax)
	}
	s := &Switch{
		net: n, config: c, tables: make([]*table, c.Tables), programs: map[string]*program{},
		ports: map[uint32]*Port{}, groups: map[uint32]*Group{}, meters: map[uint32]*Meter{},
	}
	s.table(0) // which every packet uses
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.switches[c.DatapathID] != nil {
		return nil, fmt.Errorf("there is already a switch %016x", c.DatapathID)
	}
	n.switches[c.DatapathID] = s
	return s, nil
}

// table returns a table, which it makes if necessary.
func (s *Switch) table(id int) *table {
	if s.tables[id] == nil {
		s.tables[id] = &table{}
	}
	return s.tables[id]
}

// Remove removes a switch from the network; its virtual links are cut.
func (n *Network) Remove(s *Switch, now time.Duration) {
	_ = n.change(func() error {
		s.removeAllFlows(now)
		for _, p := range s.order {
			p.part()
			p.gone = true
		}
		s.touch(ReadPorts)
		if n.switches[s.config.DatapathID] == s {
			delete(n.switches, s.config.DatapathID)
		}
		return nil
	})
}

// Switch returns the switch with that datapath id, or nil.
func (n *Network) Switch(dpid uint64) *Switch {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.switches[dpid]
}

// Join joins two ports by a virtual link. Both must exist and be free.
func (n *Network) Join(a *Switch, port uint32, b *Switch, peer uint32) error {
	return n.change(func() error {
		p, q := a.ports[port], b.ports[peer]
		switch {
		case p == nil || q == nil || p == q:
			return fmt.Errorf("port %d of %016x and port %d of %016x cannot be joined: they must be two ports", port,
				a.config.DatapathID, peer, b.config.DatapathID)
		case p.peer != nil || q.peer != nil:
			return fmt.Errorf("port %d of %016x or port %d of %016x has a virtual link already", port,
				a.config.DatapathID, peer, b.config.DatapathID)
		}
		p.peer, q.peer = q, p
		a.touch(ReadPorts)
		b.touch(ReadPorts)
		p.setState()
		q.setState()
		return nil
	})
}

// Part cuts the virtual link of a port, if it has one.
func (n *Network) Part(s *Switch, port uint32) {
	_ = n.change(func() error {
		if p := s.ports[port]; p != nil {
			p.part()
		}
		return nil
	})
}

// DatapathID returns the datapath id.
func (s *Switch) DatapathID() uint64 { return s.config.DatapathID }

// Name returns the name, for display.
func (s *Switch) Name() string { return s.config.Name }

// Network returns the network that the switch is in.
func (s *Switch) Network() *Network { return s.net }

// SetNotify sets Config.Notify.
func (s *Switch) SetNotify(f func(openflow.Message)) {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	s.config.Notify = f
}

// SetFragments sets how fragments of IP packets are handled: FragNormal or FragDrop.
func (s *Switch) SetFragments(flags openflow.ConfigFlags) error {
	if flags != openflow.FragNormal && flags != openflow.FragDrop {
		return refuse(openflow.SwitchConfigFailedBadFlags, "flags %#x: IP fragments are not reassembled here",
			uint16(flags))
	}
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	if s.frag != flags {
		s.frag = flags
		s.touch(ReadFlags)
	}
	return nil
}

// Fragments returns how fragments of IP packets are handled.
func (s *Switch) Fragments() openflow.ConfigFlags {
	s.net.mu.RLock()
	defer s.net.mu.RUnlock()
	return s.frag
}

// SetStandalone makes the switch forward by learning whatever its tables say, or by its tables
// again (section 6.4).
func (s *Switch) SetStandalone(on bool) {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	if s.standalone != on {
		s.standalone = on
		s.touch(ReadFlags)
	}
}

// Clear removes all flow entries, groups and meters, as when a switch starts.
func (s *Switch) Clear(now time.Duration) {
	_ = s.net.change(func() error {
		s.removeAllFlows(now)
		clear(s.groups)
		clear(s.meters)
		s.touch(ReadGroups)
		s.touch(ReadMeters)
		return nil
	})
}

func (s *Switch) removeAllFlows(now time.Duration) {
	s.deleteFlows(&openflow.FlowMod{
		Command: openflow.FlowDelete, Table: openflow.TableAll, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny,
	}, &Key{}, &Mask{}, now)
}
