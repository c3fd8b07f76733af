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
		list := s.net.Save(func(save func()) { save() })
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
