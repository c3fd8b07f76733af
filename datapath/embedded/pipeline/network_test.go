package pipeline

import (
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/openflow"
)

// A packet goes through ten routing nodes in one translation: one output, the rewrites of the last
// hop, a TTL decremented by ten, and every entry and port on the way credited.
func TestChain(t *testing.T) {
	n, p := chain(t, 10)
	frame := udpFrame(t, addr(0x0a000101))
	var k Key
	ParseKey(&k, frame, 1)
	var o Translation
	NewTranslator(n).Translate(&o, p, &k, 0)
	if o.Slow != "" || len(o.Outputs) != 1 || o.Hops != 10 || o.Outputs[0].Rewrite.DecTTL != 10 || o.TTLMin != 11 || o.TTLMax != 255 {
		t.Fatalf("%+v", o)
	}
	if sets := o.Outputs[0].Rewrite.Sets; len(sets) != 2 {
		t.Errorf("sets %v, want the two addresses of the last hop", sets)
	}
	if bits := o.Mask.Field(openflow.FieldEthDst).Or(o.Mask.Field(openflow.FieldUDPDst)); !bits.IsZero() {
		t.Errorf("looked at %v", &o.Mask)
	}
	NewProcessor(n).Apply(&o, &Packet{Data: frame}, 0)
	for dpid := uint64(1); dpid <= 10; dpid++ {
		s := n.Switch(dpid)
		if rx, tx := s.Port(1).Received(), s.Port(2).Sent(); rx.Packets() != 1 || tx.Bytes() != uint64(len(frame)) {
			t.Errorf("switch %d has received %d and sent %d bytes", dpid, rx.Packets(), tx.Bytes())
		}
		sum, err := s.Multipart(openflow.AggregateStatsRequest(openflow.AllFlows()), 0)
		if err != nil || sum.(openflow.AggregateStats).Packets != 1 {
			t.Errorf("switch %d: %v, %v", dpid, sum, err)
		}
	}
	if got := n.Trace(p, frame, 0); got != "10 hops, looked at in_port,in_phy_port,eth_type,ipv4_dst/0xffffff00,shape; out by s10-eth2 of s10" {
		t.Errorf("in words: %s", got)
	}
}

// A field that a switch on the way has set says nothing of the packet that came in.
func TestMaskOfOverwritten(t *testing.T) {
	n := NewNetwork()
	s1, s2 := newTestSwitch(t, n, 1, 2), newTestSwitch(t, n, 2, 2)
	if err := n.Join(s1, 2, s2, 1); err != nil {
		t.Fatal(err)
	}
	add(t, s1, parseFlow(t, "ip,actions=set_field:10.5.5.5->ip_dst,output:2"))
	add(t, s2, parseFlow(t, "ip,nw_dst=10.5.5.5,nw_src=10.0.0.0/8,actions=output:2"))
	var k Key
	ParseKey(&k, plain(t), 1)
	var o Translation
	NewTranslator(n).Translate(&o, s1.Port(1), &k, 0)
	if len(o.Outputs) != 1 || !o.Mask.Field(openflow.FieldIPv4Dst).IsZero() || o.Mask.Field(openflow.FieldIPv4Src).Lo != 0xff000000 {
		t.Errorf("looked at %v", &o.Mask)
	}
}

// A loop of switches that flood ends, is counted, and the packet has gone out by every port of the
// edge once; one that decrements the TTL ends by that.
func TestLoop(t *testing.T) {
	n := NewNetwork()
	var ring []*Switch
	for i := range uint64(5) {
		s := newTestSwitch(t, n, i+1, 3)
		add(t, s, parseFlow(t, "actions=flood"))
		ring = append(ring, s)
	}
	for i, s := range ring {
		if err := n.Join(s, 2, ring[(i+1)%5], 1); err != nil {
			t.Fatal(err)
		}
	}
	p := NewProcessor(n)
	r := p.Receive(ring[0].Port(3), &Packet{Data: plain(t)}, 0)
	edges := map[*Port]int{}
	for _, s := range r.Sent {
		edges[s.Port]++
	}
	// Both ways round come to each switch; the ingress port is not sent to from the first arrival
	// only.
	for _, s := range ring[1:] {
		if edges[s.Port(3)] != 2 {
			t.Errorf("%s sends it out %d times, want 2: once from each side", s.Name(), edges[s.Port(3)])
		}
	}
	if r.Loop == nil || p.out.Hops > 20 {
		t.Errorf("loop %v, %d hops", r.Loop, p.out.Hops)
	}

	n = NewNetwork()
	a, b := newTestSwitch(t, n, 1, 2), newTestSwitch(t, n, 2, 2)
	if err := n.Join(a, 2, b, 1); err != nil {
		t.Fatal(err)
	}
	add(t, a, parseFlow(t, "priority=40000,in_port=1,actions=output:2"), parseFlow(t, "ip,actions=dec_ttl,in_port"))
	add(t, b, parseFlow(t, "ip,actions=dec_ttl,in_port"))
	p = NewProcessor(n)
	r = p.Receive(a.Port(1), &Packet{Data: plain(t)}, 0)
	if len(r.Sent) != 0 || len(r.PacketIns) != 1 || r.PacketIns[0].Message.Reason != openflow.ReasonInvalidTTL || p.out.Hops < 60 {
		t.Errorf("%+v, %d hops", r, p.out.Hops)
	}
}

// A switch that learns forgets who was behind a port whose link goes down: packets for him are
// flooded, until he is heard at another one.
func TestLinkDownForgets(t *testing.T) {
	n := NewNetwork()
	s := newTestSwitch(t, n, 1, 3)
	add(t, s, openflow.NewFlowMod(openflow.FlowAdd, 0, openflow.Match{}, openflow.ApplyActions(openflow.Output(openflow.PortNormal))))
	p := NewProcessor(n)
	there := pack(t, eth(layers.EthernetTypeIPv4), ip4(17, 64), udp(1000, 2000), payload)
	answer := append(append(slices.Clone(there[6:12]), there[:6]...), there[12:]...)
	goes := func(port uint32, frame []byte) (out []uint32) {
		for _, s := range p.Receive(s.Port(port), &Packet{Data: frame}, 0).Sent {
			out = append(out, s.Port.Number())
		}
		return out
	}
	goes(2, answer)
	if out := goes(1, there); !slices.Equal(out, []uint32{2}) {
		t.Errorf("to whom was heard at port 2 it goes by %v", out)
	}
	s.Port(2).SetCarrier(false)
	s.Port(2).SetCarrier(true)
	if out := goes(1, there); !slices.Equal(out, []uint32{2, 3}) {
		t.Errorf("after port 2 was down it goes by %v", out)
	}
	goes(3, answer)
	if out := goes(1, there); !slices.Equal(out, []uint32{3}) {
		t.Errorf("to whom was heard at port 3 it goes by %v", out)
	}
}

// Copies of a packet that come to one port, from one switch or by two ways, are no loop: each goes
// on.
func TestCopies(t *testing.T) {
	n := NewNetwork()
	a, b := newTestSwitch(t, n, 1, 2), newTestSwitch(t, n, 2, 2)
	if err := n.Join(a, 2, b, 1); err != nil {
		t.Fatal(err)
	}
	add(t, a, parseFlow(t, "actions=output:2,output:2"))
	add(t, b, parseFlow(t, "actions=output:2"))
	if r := NewProcessor(n).Receive(a.Port(1), &Packet{Data: plain(t)}, 0); len(r.Sent) != 2 || r.Loop != nil {
		t.Errorf("sent twice over a link it comes out %d times; loop %v", len(r.Sent), r.Loop)
	}

	n = NewNetwork()
	var s []*Switch
	for i := range uint64(5) {
		s = append(s, newTestSwitch(t, n, i+1, 3))
	}
	for _, l := range [][4]uint32{{0, 2, 1, 1}, {0, 3, 2, 1}, {1, 2, 3, 1}, {2, 2, 3, 2}, {3, 3, 4, 1}} { // two ways from s1 to s4, and on to s5
		if err := n.Join(s[l[0]], l[1], s[l[2]], l[3]); err != nil {
			t.Fatal(err)
		}
	}
	for i, actions := range []string{"output:2,output:3", "output:2", "output:2", "output:3", "output:2"} {
		add(t, s[i], parseFlow(t, "actions="+actions))
	}
	if r := NewProcessor(n).Receive(s[0].Port(1), &Packet{Data: plain(t)}, 0); len(r.Sent) != 2 || r.Loop != nil {
		t.Errorf("by two ways it comes out %d times; loop %v", len(r.Sent), r.Loop)
	}
}

// A flood over a full mesh ends, and one over a long line is whole.
func TestFloods(t *testing.T) {
	const size = 12
	n := NewNetwork()
	var mesh []*Switch
	for i := range uint64(size) {
		s := newTestSwitch(t, n, i+1, size)
		add(t, s, parseFlow(t, "actions=flood"))
		mesh = append(mesh, s)
	}
	for i := range uint32(size) {
		for j := i + 1; j < size; j++ {
			if err := n.Join(mesh[i], j, mesh[j], i+1); err != nil { // port size is the edge of each
				t.Fatal(err)
			}
		}
	}
	p := NewProcessor(n)
	if r := p.Receive(mesh[0].Port(size), &Packet{Data: plain(t)}, 0); r.Loop == nil || p.out.Hops > size*size*size {
		t.Errorf("in a mesh of %d: %d hops", size, p.out.Hops)
	}

	n = NewNetwork()
	var before *Switch
	for i := range uint64(1000) {
		s := newTestSwitch(t, n, i+1, 3)
		add(t, s, parseFlow(t, "actions=flood"))
		if before != nil {
			if err := n.Join(before, 2, s, 1); err != nil {
				t.Fatal(err)
			}
		}
		before = s
	}
	p = NewProcessor(n)
	if r := p.Receive(n.Switch(1).Port(1), &Packet{Data: plain(t)}, 0); len(r.Sent) != 1001 || r.Loop != nil {
		t.Errorf("along a line of 1000 it goes out by %d ports, want 1001; loop %v", len(r.Sent), r.Loop)
	}
}

// A link that is cut, a port that is down, a switch that is removed: packets stop, translations are
// not fresh.
func TestLinkChanges(t *testing.T) {
	for name, change := range map[string]func(n *Network, a, b *Switch){
		"cut":             func(n *Network, a, b *Switch) { n.Part(a, 2) },
		"down here":       func(n *Network, a, b *Switch) { a.SetPortState(2, openflow.PortStateLinkDown) },
		"down there":      func(n *Network, a, b *Switch) { b.SetPortState(1, openflow.PortStateLinkDown) },
		"port removed":    func(n *Network, a, b *Switch) { b.RemovePort(1) },
		"switch removed":  func(n *Network, a, b *Switch) { n.Remove(b, 0) },
		"ingress removed": func(n *Network, a, b *Switch) { a.RemovePort(1) },
		"all removed":     func(n *Network, a, b *Switch) { n.Remove(a, 0) },
		"flow changed": func(n *Network, a, b *Switch) {
			add(t, b, parseFlow(t, "actions=drop"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := NewNetwork()
			a, b := newTestSwitch(t, n, 1, 2), newTestSwitch(t, n, 2, 2)
			if err := n.Join(a, 2, b, 1); err != nil {
				t.Fatal(err)
			}
			add(t, a, parseFlow(t, "actions=output:2"))
			add(t, b, parseFlow(t, "actions=output:2"))
			edge := b.Port(2)
			var o Translation
			var k Key
			ParseKey(&k, plain(t), 1)
			tr, in := NewTranslator(n), a.Port(1)
			tr.Translate(&o, in, &k, 0)
			if len(o.Outputs) != 1 || o.Outputs[0].Port != edge || !o.Fresh() {
				t.Fatalf("before: %+v", o)
			}
			told := 0
			n.OnChange(func(s *Switch, what int) {
				for _, r := range o.Reads {
					if r.Switch == s && r.What == what {
						told++
					}
				}
			})
			change(n, a, b)
			if told == 0 {
				t.Error("nobody is told of the change")
			}
			if o.Fresh() {
				t.Error("the translation of before counts as fresh")
			}
			tr.Translate(&o, in, &k, 0)
			if len(o.Outputs) == 1 && o.Outputs[0].Port == edge {
				t.Error("it still comes through")
			}
		})
	}
}

// A drop meter in the middle of a chain is a stage of the translation: what is before it is
// credited whatever the meter says.
func TestMeteredStage(t *testing.T) {
	n := NewNetwork()
	a, b := newTestSwitch(t, n, 1, 2), newTestSwitch(t, n, 2, 2)
	if err := n.Join(a, 2, b, 1); err != nil {
		t.Fatal(err)
	}
	if err := b.MeterMod(&openflow.MeterMod{MeterConfig: openflow.MeterConfig{Meter: 1, Flags: openflow.MeterFlagPktps | openflow.MeterFlagBurst,
		Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: 1, Burst: 3}}}}, 0); err != nil {
		t.Fatal(err)
	}
	add(t, a, parseFlow(t, "actions=output:2"))
	add(t, b, parseFlow(t, "actions=meter:1,output:2"))
	var o Translation
	var k Key
	ParseKey(&k, plain(t), 1)
	NewTranslator(n).Translate(&o, a.Port(1), &k, 0)
	if !o.Metered() || o.Slow != "" {
		t.Fatalf("%+v", o)
	}
	p, out := NewProcessor(n), 0
	for range 10 {
		out += len(p.Apply(&o, &Packet{Data: plain(t)}, 0).Sent)
	}
	if got := b.Port(1).Received().Packets(); out != 3 || got != 10 || b.Port(2).Sent().Packets() != 3 {
		t.Errorf("%d of 10 come through; %d came to the second switch", out, got)
	}
}
