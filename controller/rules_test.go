package controller_test

import (
	"testing"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

const ruleCookie, ruleMask = 0x7 << 32, 0xff << 32

func rule(dst byte, out uint32) *openflow.FlowMod {
	m := openflow.NewFlowMod(openflow.FlowAdd, 10, openflow.NewMatch(openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, dst})),
		openflow.ApplyActions(openflow.Output(out)))
	m.Cookie = ruleCookie
	return m
}

func had(m *openflow.FlowMod) openflow.FlowStats {
	return openflow.FlowStats{Priority: m.Priority, Cookie: m.Cookie, Match: m.Match, Instructions: m.Instructions}
}

func floodGroup(out uint32) openflow.GroupDesc {
	return openflow.GroupDesc{Kind: openflow.GroupTypeAll, Group: 5, Buckets: []openflow.Bucket{openflow.NewBucket(openflow.Output(out))}}
}

// ruler is an app that wants certain rules in every switch that comes up.
type ruler struct {
	controller.Base
	flows  []*openflow.FlowMod
	groups []*openflow.GroupDesc
	done   chan error
}

func (*ruler) Name() string { return "ruler" }

func (r *ruler) SwitchUp(s *controller.Switch) {
	rules := s.Rules(ruleCookie, ruleMask, func(id uint32) bool { return id == 5 })
	r.done <- rules.Replace(r.flows, r.groups)
}

// Proves that a switch that comes back is sent only what differs from what it has: an entry and a
// group that are right stay as they are, a wrong one is replaced, a foreign one is left alone, and
// a superfluous one is deleted after the new ones have been added.
func TestResync(t *testing.T) {
	foreign := rule(9, 1)
	foreign.Cookie = 0x99
	old := rule(3, 1)
	group := floodGroup(2)
	app := &ruler{flows: []*openflow.FlowMod{rule(1, 1), rule(2, 2), rule(4, 1)}, groups: []*openflow.GroupDesc{&group}, done: make(chan error, 1)}
	c := start(t, app)
	f := connectWith(t, c, 1, []openflow.FlowStats{had(rule(1, 1)), had(rule(2, 1)), had(old), had(foreign)}, []openflow.GroupDesc{floodGroup(2)})
	if err := <-app.done; err != nil {
		t.Fatal(err)
	}
	changed := map[byte]openflow.FlowModCommand{}
	for range 3 {
		m := f.expect(openflow.TypeFlowMod).(*openflow.FlowMod)
		dst, _ := m.Match.Get(openflow.FieldEthDst)
		if changed[dst.MAC()[5]] = m.Command; m.Command == openflow.FlowDeleteStrict && len(changed) != 3 {
			t.Error("an entry is deleted before the others have come")
		}
	}
	want := map[byte]openflow.FlowModCommand{2: openflow.FlowAdd, 4: openflow.FlowAdd, 3: openflow.FlowDeleteStrict}
	for k, v := range want {
		if changed[k] != v {
			t.Errorf("entry %d: %v, want %v", k, changed[k], v)
		}
	}
	f.send(&openflow.EchoRequest{})
	f.expect(openflow.TypeEchoReply) // so nothing else was sent
}
