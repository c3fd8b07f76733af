package pipeline

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"trivet.dev/trivet/openflow"
)

// A switch that is restored is what it was: entries of all tables, groups that lead to groups,
// meters, ports, places of addresses, and what all have counted and when they were made.
func TestSave(t *testing.T) {
	make2 := func() *Switch {
		s, err := NewNetwork().Add(Config{DatapathID: 7})
		if err != nil {
			t.Fatal(err)
		}
		for n := uint32(1); n <= 3; n++ {
			if _, err := s.AddPort(openflow.Port{Number: n}, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	s, now := make2(), 3*time.Second
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.MeterMod(&openflow.MeterMod{Command: openflow.MeterAdd, MeterConfig: openflow.MeterConfig{
		Meter: 4, Flags: openflow.MeterFlagPktps, Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: 10}}}}, now))
	group := func(id uint32, a openflow.Action) {
		must(s.GroupMod(&openflow.GroupMod{Command: openflow.GroupAdd, GroupDesc: openflow.GroupDesc{Group: id, Kind: openflow.GroupTypeIndirect,
			Buckets: []openflow.Bucket{{WatchPort: openflow.PortAny, WatchGroup: openflow.GroupAny, Actions: []openflow.Action{a}}}}}, now))
	}
	group(9, openflow.Output(2))
	group(1, openflow.Action{Type: openflow.ActionGroup, Group: 9})
	for table, m := range []*openflow.FlowMod{
		openflow.NewFlowMod(openflow.FlowAdd, 5, openflow.NewMatch(openflow.InPort(1)), openflow.GotoTable(1)),
		openflow.NewFlowMod(openflow.FlowAdd, 6, openflow.NewMatch(), openflow.ApplyActions(openflow.Action{Type: openflow.ActionGroup, Group: 1})),
	} {
		m.Table, m.IdleTimeout, m.Cookie, m.Flags = uint8(table), 60, 77, openflow.FlowSendFlowRem
		must(s.FlowMod(m, now))
	}
	s.meters[4].pass(3, 300, now)
	must(s.PortMod(&openflow.PortMod{Port: 3, Config: openflow.PortConfigNoFwd, Mask: openflow.PortConfigNoFwd}))
	s.learned.learn(station{5, 0xabcdef}, 2, now)
	p := NewProcessor(s.net)
	for range 4 {
		p.Receive(s.Port(1), &Packet{Data: make([]byte, 60)}, 5*time.Second)
	}
	save := func(s *Switch) Saved {
		list, _ := s.net.Save(Marks{}, func(save func()) { save() })
		v := list[0]
		slices.SortFunc(v.Groups, func(a, b SavedEntry) int { return slices.Compare(a.Message, b.Message) })
		return v
	}
	was := save(s)
	if len(was.Flows) != 2 || was.Flows[1].Count.Packets != 4 || len(was.Groups) != 2 || len(was.Meters) != 1 || len(was.Places) != 1 {
		t.Fatalf("not all is there: %+v", was)
	}
	for range 8 { // groups come in any order
		next := make2()
		must(next.Restore(&was))
		if is := save(next); !reflect.DeepEqual(is, was) {
			t.Fatalf("restored:\n%+v\nwas:\n%+v", is, was)
		}
		slices.Reverse(was.Groups)
		list := slices.Clone(was.Groups)
		slices.SortFunc(was.Groups, func(a, b SavedEntry) int { return slices.Compare(a.Message, b.Message) })
		flipped := was
		flipped.Groups = list
		must(make2().Restore(&flipped))
	}
}

// TestSaveChanged proves that a switch is saved again after anything that is saved has changed, and
// until it is still, that no other switch is, and that one that is gone is told once.
func TestSaveChanged(t *testing.T) {
	b := newBench(t, "priority=1,in_port=1,actions=output:2")
	other := newTestSwitch(t, b.net, 2, 4)
	marks := Marks{}
	save := func() (changed []Saved, gone []uint64) {
		return b.net.Save(marks, func(save func()) { save() })
	}
	still := func(what string) {
		t.Helper()
		if changed, gone := save(); len(changed)+len(gone) > 0 {
			t.Fatalf("%s: switches %+v are saved though none has changed, and %v are gone", what, changed, gone)
		}
	}
	frame := make([]byte, 60)
	frame[11] = 9 // who has sent it
	out := func(inPort uint32, actions ...openflow.Action) {
		t.Helper()
		if _, err := b.proc.PacketOut(b.Switch, &openflow.PacketOut{Buffer: openflow.BufferNone, InPort: inPort, Actions: actions, Data: frame}, b.now); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if changed, _ := save(); len(changed) != 2 {
		t.Fatalf("%d switches are saved at first", len(changed))
	}
	save()
	still("at first")
	var before Saved
	for _, c := range []struct {
		what    string
		happens func()
	}{
		{"a packet", func() { b.receive(1, frame) }},
		{"a flow entry", func() { b.add("priority=7,in_port=2,actions=drop") }},
		{"counters reset", func() { b.mod(openflow.FlowModify, "reset_counts,in_port=1,actions=output:2") }},
		{"a group", func() {
			must(b.GroupMod(&openflow.GroupMod{Command: openflow.GroupAdd, GroupDesc: openflow.GroupDesc{Group: 5, Kind: openflow.GroupTypeIndirect,
				Buckets: []openflow.Bucket{{WatchPort: openflow.PortAny, WatchGroup: openflow.GroupAny}}}}, b.now))
		}},
		{"a packet of a controller that a group drops", func() { out(openflow.PortController, openflow.Action{Type: openflow.ActionGroup, Group: 5}) }},
		{"a meter", func() {
			must(b.MeterMod(&openflow.MeterMod{Command: openflow.MeterAdd, MeterConfig: openflow.MeterConfig{Meter: 4, Flags: openflow.MeterFlagPktps,
				Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: 10}}}}, b.now))
		}},
		{"an address seen", func() { out(3, openflow.Output(openflow.PortNormal)) }},
		{"an address seen elsewhere", func() { out(2, openflow.Output(openflow.PortNormal)) }},
		{"addresses forgotten", func() { b.ForgetAddresses() }},
		{"a port that does not forward", func() {
			must(b.PortMod(&openflow.PortMod{Port: 3, Config: openflow.PortConfigNoFwd, Mask: openflow.PortConfigNoFwd}))
		}},
		{"a port less", func() { b.RemovePort(4) }},
		{"parts of packets", func() { must(b.SetFragments(openflow.FragDrop)) }},
		{"without a controller", func() { b.SetStandalone(true) }},
		{"nothing left", func() { b.Clear(b.now) }},
	} {
		c.happens()
		for turn := range 2 {
			changed, gone := save()
			if len(changed) != 1 || changed[0].DatapathID != 1 || len(gone) != 0 {
				t.Fatalf("%s: switches %+v are saved in turn %d, and %v are gone", c.what, changed, turn, gone)
			}
			if turn == 0 && reflect.DeepEqual(changed[0], before) {
				t.Errorf("%s: nothing of what is saved has changed: the test is wrong", c.what)
			}
			before = changed[0]
		}
		still(c.what)
	}
	b.net.Remove(other, b.now)
	if changed, gone := save(); len(changed) != 0 || !slices.Equal(gone, []uint64{2}) {
		t.Errorf("without switch 2: %d are saved and %v are gone", len(changed), gone)
	}
	still("without switch 2")
	newTestSwitch(t, b.net, 2, 4)
	if changed, gone := save(); len(changed) != 1 || changed[0].DatapathID != 2 || len(gone) != 0 {
		t.Errorf("with another switch 2: %+v are saved and %v are gone", changed, gone)
	}
}
