package pipeline

import (
	"testing"

	"trivet.dev/trivet/openflow"
)

// TestActivity proves that the number stays the same while nothing happens and statistics are read,
// and is another one after each kind of thing that changes an answer; also when one counter has
// become less and another one more.
func TestActivity(t *testing.T) {
	b := newBench(t, "priority=1,in_port=1,actions=output:2", "priority=1,in_port=3,actions=drop")
	frame := make([]byte, 60)
	seen := map[uint64]string{b.Activity(): "at first"}
	if _, err := b.Multipart(openflow.AllFlows(), b.now); err != nil {
		t.Fatal(err)
	}
	if seen[b.Activity()] == "" {
		t.Error("another number although nothing has happened")
	}
	for _, c := range []struct {
		what    string
		happens func()
	}{
		{"a packet forwarded", func() { b.receive(1, frame) }},
		{"a packet dropped", func() { b.receive(3, frame) }},
		{"a packet of a controller", func() {
			m := &openflow.PacketOut{Buffer: openflow.BufferNone, InPort: openflow.PortController, Actions: []openflow.Action{openflow.Output(4)}, Data: frame}
			if _, err := b.proc.PacketOut(b.Switch, m, b.now); err != nil {
				t.Fatal(err)
			}
		}},
		{"packets dropped by a device", func() { b.Port(2).CountDropped(true, 1, 60, b.now) }},
		{"a flow entry more", func() { b.add("priority=7,in_port=2,actions=drop") }},
		{"a flow entry less", func() { b.mod(openflow.FlowDelete, "in_port=2") }},
		{"counters reset", func() { b.mod(openflow.FlowModify, "reset_counts,in_port=1,actions=output:2") }},
		{"a group", func() {
			if err := b.GroupMod(&openflow.GroupMod{Command: openflow.GroupAdd, GroupDesc: openflow.GroupDesc{Group: 5}}, b.now); err != nil {
				t.Fatal(err)
			}
		}},
		{"a port down", func() { b.SetPortState(4, openflow.PortStateLinkDown) }},
		{"a port that begins anew", func() { b.RemovePort(1); _, _ = b.AddPort(openflow.Port{Number: 1}, b.now) }},
	} {
		c.happens()
		now := b.Activity()
		if before := seen[now]; before != "" {
			t.Errorf("%s: the same number as %s", c.what, before)
		}
		seen[now] = "after " + c.what
	}
}

// TestJoined proves that each end of a virtual link says what the other is, until it is cut, and
// that other ports say nothing.
func TestJoined(t *testing.T) {
	n := NewNetwork()
	a, b := newTestSwitch(t, n, 1, 3), newTestSwitch(t, n, 2, 3)
	joined := func(s *Switch, port uint32, dpid uint64, far uint32) {
		t.Helper()
		gotDPID, got, ok := s.Joined(port)
		if gotDPID != dpid || got != far || ok != (dpid > 0) {
			t.Errorf("port %d of switch %d is joined to %d of %d, %v", port, s.DatapathID(), got, gotDPID, ok)
		}
	}
	if err := n.Join(a, 2, b, 3); err != nil {
		t.Fatal(err)
	}
	joined(a, 2, 2, 3)
	joined(b, 3, 1, 2)
	joined(a, 1, 0, 0)
	joined(a, 77, 0, 0)
	n.Part(b, 3)
	joined(a, 2, 0, 0)
	joined(b, 3, 0, 0)
}
