package pipeline

import (
	"errors"
	"fmt"
	"time"

	"trivet.dev/trivet/openflow"
)

// Saved is a switch's state for storage. Times are the network's: after restoring, its clock must
// continue from there.
type Saved struct {
	DatapathID uint64
	Fragments  openflow.ConfigFlags
	Standalone bool

	Meters, Groups, Flows []SavedEntry
	Tables                []SavedTable // up to the last one that has seen packets
	Ports                 []SavedPort
	Places                []SavedPlace
}

// SavedEntry is an entry of a flow table, of the group table or of the meter table.
type SavedEntry struct {
	Message []byte // the message that makes it (FLOW_MOD, GROUP_MOD, METER_MOD)
	Created time.Duration
	Count   SavedCounter
	Parts   []SavedCounter // of buckets or bands
}

// SavedTable holds the counters of a table.
type SavedTable struct{ Lookups, Misses SavedCounter }

// SavedPort holds the settings and counters of a port.
type SavedPort struct {
	Number               uint32
	Config               openflow.PortConfig
	Created              time.Duration
	Rx, Tx               SavedCounter
	RxDropped, TxDropped SavedCounter
	Looped               SavedCounter
}

// SavedPlace is where an address was learned.
type SavedPlace struct {
	VLAN uint16
	MAC  uint64
	Port uint32
	Seen SavedCounter
}

// SavedCounter is a Counter.
type SavedCounter struct {
	Packets, Bytes uint64
	Used           time.Duration
}

func (c *Counter) save() SavedCounter { return SavedCounter{c.Packets(), c.Bytes(), c.Used()} }

func (c *Counter) restore(s SavedCounter) {
	c.packets.Store(s.Packets)
	c.bytes.Store(s.Bytes)
	c.used.Store(int64(s.Used))
}

// Marks tell which switches have changed since they were saved. They are empty before the first
// Save.
type Marks map[*Switch]mark

type mark struct {
	change uint64
	still  bool // unchanged when the switch was last saved
}

// Save returns, in one snapshot, the switches that have changed since they were saved with these
// marks, and the datapath ids of removed switches. It calls around with the function that takes the
// snapshot, which around must call: so a caller that counts hits elsewhere can record which of them
// are included.
func (n *Network) Save(marks Marks, around func(save func())) (changed []Saved, gone []uint64) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	around(func() {
		for _, s := range n.switches {
			// A packet is counted in several places, one after the other: so a switch that has
			// changed is saved once more when it no longer changes.
			last, marked := marks[s]
			now := mark{change: s.change()}
			if now.still = marked && last.change == now.change; now.still && last.still {
				continue
			}
			marks[s] = now
			changed = append(changed, s.save())
		}
	})
	if len(marks) == len(n.switches) {
		return changed, nil
	}
	for s := range marks {
		id := s.config.DatapathID
		if n.switches[id] == s {
			continue
		}
		delete(marks, s)
		if n.switches[id] == nil {
			gone = append(gone, id)
		}
	}
	return changed, gone
}

// change returns a number that differs once anything that is saved has changed: besides what
// Activity covers, these are learned addresses, and the counters of groups and meters for packets
// that a controller sends and that leave through no port.
func (s *Switch) change() uint64 {
	var counted uint64
	for _, g := range s.groups {
		counted += g.Packets()
	}
	for _, m := range s.meters {
		counted += m.Packets()
	}
	s.learned.mu.Lock()
	version, places := s.learned.version, len(s.learned.places)
	s.learned.mu.Unlock()
	sum := s.activity()
	for _, n := range []uint64{counted, version, uint64(places)} {
		sum = mixed(sum, n)
	}
	return sum
}

func (s *Switch) save() Saved {
	v := Saved{DatapathID: s.config.DatapathID, Fragments: s.frag, Standalone: s.standalone}
	for _, m := range s.meters {
		e := SavedEntry{Message: (&openflow.MeterMod{Command: openflow.MeterAdd, MeterConfig: m.config}).AppendTo(nil),
			Created: m.created, Count: m.save()}
		for i := range m.bands {
			e.Parts = append(e.Parts, m.bands[i].save())
		}
		v.Meters = append(v.Meters, e)
	}
	for _, g := range s.groups {
		e := SavedEntry{Message: (&openflow.GroupMod{Command: openflow.GroupAdd, GroupDesc: g.desc}).AppendTo(nil),
			Created: g.created, Count: g.save()}
		for i := range g.buckets {
			e.Parts = append(e.Parts, g.buckets[i].save())
		}
		v.Groups = append(v.Groups, e)
	}
	for id, t := range s.tables {
		if t == nil {
			continue
		}
		for _, f := range t.list(&Key{}, &Mask{}) {
			v.Flows = append(v.Flows, SavedEntry{Message: f.message(), Created: f.created, Count: f.save()})
		}
		if t.lookups.Packets() > 0 {
			v.Tables = append(v.Tables, make([]SavedTable, id+1-len(v.Tables))...)
			v.Tables[id] = SavedTable{t.lookups.save(), t.misses.save()}
		}
	}
	for _, p := range s.order {
		v.Ports = append(v.Ports, SavedPort{p.desc.Number, p.desc.Config, p.created, p.rx.save(), p.tx.save(),
			p.rxDropped.save(), p.txDropped.save(), p.looped.save()})
	}
	s.learned.mu.Lock()
	defer s.learned.mu.Unlock()
	for at, x := range s.learned.places {
		v.Places = append(v.Places, SavedPlace{at.vlan, at.mac, x.port, x.save()})
	}
	return v
}

// message returns the FLOW_MOD that adds the entry.
func (f *Flow) message() []byte {
	m := openflow.FlowMod{
		Command: openflow.FlowAdd, Table: f.Table, Priority: f.Priority, Cookie: f.Cookie,
		Flags: f.Flags &^ openflow.FlowCheckOverlap, IdleTimeout: f.IdleTimeout, HardTimeout: f.HardTimeout,
		Match: f.Match, Instructions: f.program.instructions, Buffer: openflow.BufferNone, OutPort: openflow.PortAny,
		OutGroup: openflow.GroupAny,
	}
	return m.AppendTo(nil)
}

// Restore restores a switch, whose ports must exist, to a saved state; its current entries are
// removed. Counters continue from the saved values. The error describes what could not be restored;
// everything else has been.
func (s *Switch) Restore(v *Saved) error {
	return s.net.change(func() error {
		s.frag, s.standalone = v.Fragments, v.Standalone
		s.touch(ReadFlags)
		s.removeAllFlows(0)
		var errs []error
		for i := range v.Meters {
			errs = append(errs, s.restoreMeter(&v.Meters[i]))
		}
		errs = append(errs, s.restoreGroups(v.Groups))
		for i := range v.Flows {
			errs = append(errs, s.restoreFlow(&v.Flows[i]))
		}
		for id := range min(len(v.Tables), len(s.tables)) {
			s.table(id).lookups.restore(v.Tables[id].Lookups)
			s.table(id).misses.restore(v.Tables[id].Misses)
		}
		for i := range v.Ports {
			s.restorePort(&v.Ports[i])
		}
		s.learned.restore(v.Places)
		s.touch(ReadPlaces)
		return errors.Join(errs...)
	})
}

// decodeAs decodes a saved message.
func decodeAs[M openflow.Message](b []byte) (m M, err error) {
	any, err := openflow.Decode(b)
	if err != nil {
		return m, err
	}
	m, ok := any.(M)
	if !ok {
		return m, fmt.Errorf("a saved %v is in the place of another message", any.Type())
	}
	return m, nil
}

func (s *Switch) restoreMeter(e *SavedEntry) error {
	m, err := decodeAs[*openflow.MeterMod](e.Message)
	if err != nil {
		return err
	}
	meter, err := newMeter(&m.MeterConfig, e.Created)
	if err != nil {
		return err
	}
	meter.restore(e.Count)
	for i := range min(len(e.Parts), len(meter.bands)) {
		meter.bands[i].restore(e.Parts[i])
	}
	s.meters[m.Meter] = meter
	s.touch(ReadMeters)
	return nil
}

// restoreGroups restores groups, each after those that it refers to.
func (s *Switch) restoreGroups(list []SavedEntry) error {
	for len(list) > 0 {
		var later []SavedEntry
		var errs []error
		for _, e := range list {
			m, err := decodeAs[*openflow.GroupMod](e.Message)
			if err == nil {
				err = s.setGroup(m, e.Created)
			}
			if err != nil {
				later, errs = append(later, e), append(errs, err)
				continue
			}
			g := s.groups[m.Group]
			g.restore(e.Count)
			for i := range min(len(e.Parts), len(g.buckets)) {
				g.buckets[i].restore(e.Parts[i])
			}
		}
		if len(later) == len(list) {
			return errors.Join(errs...)
		}
		list = later
	}
	return nil
}

func (s *Switch) restoreFlow(e *SavedEntry) error {
	m, err := decodeAs[*openflow.FlowMod](e.Message)
	if err != nil {
		return err
	}
	value, mask, err := matchOf(m.Match)
	if err != nil {
		return err
	}
	if err := s.flowMod(m, e.Created); err != nil {
		return err
	}
	s.tables[m.Table].get(&value, mask, m.Priority).restore(e.Count)
	return nil
}

func (s *Switch) restorePort(v *SavedPort) {
	p := s.ports[v.Number]
	if p == nil {
		return
	}
	p.desc.Config, p.created = v.Config, v.Created
	p.settle()
	if p.peer != nil {
		p.peer.setState()
	}
	p.rx.restore(v.Rx)
	p.tx.restore(v.Tx)
	p.rxDropped.restore(v.RxDropped)
	p.txDropped.restore(v.TxDropped)
	p.looped.restore(v.Looped)
	s.touch(ReadPorts)
}

func (l *learned) restore(list []SavedPlace) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places = map[station]*sighting{}
	for _, v := range list {
		x := &sighting{port: v.Port}
		x.restore(v.Seen)
		l.places[station{v.VLAN, v.MAC}] = x
	}
}
