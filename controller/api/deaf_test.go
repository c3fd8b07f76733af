package api

import (
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// Proves that a switch that does not read, with thousands of ports that need probes, does not delay
// repairs elsewhere when a link of a ring fails: the rest of the network is repaired, and packets
// arrive, while messages to that switch are still queued.
func TestRepairBesideADeafSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "ring,4", topology.Switch, "")
		b.hello("h1")
		b.hello("h3")
		l := listen()
		defer l.Close()
		go func() { _ = b.c.Serve(l) }()
		const dpid = 0xdeaf
		say := b.deaf(l, dpid, 2_000)
		b.wait("its port forwards", func() bool { return b.c.Learning.TakesPart(dpid, 1) })
		frame := make([]byte, 60) // from a host there, so that the switch is told when the tree changes
		copy(frame, []byte{2, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 0, 0xff, 8, 0})
		say(&openflow.PacketIn{Buffer: openflow.BufferNone, TotalLen: 60, Cookie: 0x7472_0002<<32 | 8, Match: openflow.NewMatch(openflow.InPort(1)), Data: frame})
		b.wait("its host is known", func() bool { _, ok := b.c.Discovery.Host(openflow.MAC{2, 0, 0, 0, 0, 0xff}); return ok })
		// More is queued for it than socket buffers hold, as when many hosts are learned or many
		// links change.
		flooded, deaf := make(chan bool), b.c.Switch(dpid)
		go func() {
			defer close(flooded)
			for range 400 {
				_ = deaf.Send(&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: 1, Data: make([]byte, 50_000)})
			}
		}()
		select { // a program that waits for the switch never gets past this
		case <-flooded:
		case <-time.After(2 * time.Second):
		}

		before := 0
		for range 2 {
			b.cutAndMend(func() {
				if s := b.c.Switch(dpid); s != nil && s.Send(&openflow.EchoRequest{}) == nil {
					before++
				}
			})
		}
		if before < 2 { // the first time it may happen to be told last
			t.Errorf("the ring is repaired %d times before the switch that does not read is given up", before)
		}
		t.Logf("repaired %d times before that", before)
	})
}

// cutAndMend makes each link between switches fail in turn and come back, and each time waits until
// the remaining ones forward, which is when repaired is called.
func (b *fixture) cutAndMend(repaired func()) {
	for _, link := range b.topology.Links {
		set := func(state openflow.PortState) {
			for _, e := range link.Ends {
				b.agents[e.Node].Switch().SetPortState(b.topology.Node(e.Node).OpenFlowPort(e), state)
			}
		}
		if b.agents[link.Ends[0].Node] == nil || b.agents[link.Ends[1].Node] == nil {
			continue
		}
		set(openflow.PortStateLinkDown)
		b.wait("the link is gone and the ring forwards again", func() bool { return len(b.c.Discovery.Links()) == 2*(b.inner()-1) && b.forwarding() == b.inner()-1 })
		repaired()
		set(openflow.PortStateLive)
		b.wait("the link is back", func() bool { return len(b.c.Discovery.Links()) == 2*b.inner() && b.c.Learning.Settled() })
	}
}

// deaf is a switch with so many ports that answers the handshake, sends what it is told to send
// after that, and reads nothing more.
func (b *fixture) deaf(at *inMemory, dpid uint64, ports int) (say func(openflow.Message)) {
	b.t.Helper()
	conn, err := at.dial(b.t.Context(), "", "")
	b.must(err)
	b.t.Cleanup(func() { conn.Close() })
	r, w := openflow.NewReader(conn, 0), openflow.NewWriter(conn)
	list := make(openflow.PortDescList, ports)
	for i := range list {
		list[i] = openflow.Port{Number: uint32(i + 1), HWAddr: openflow.MAC{2, 0xde, 0xaf, 0, byte(i >> 8), byte(i)}}
	}
	b.must(w.Write(&openflow.Hello{Versions: openflow.Versions(openflow.Version)}))
	b.must(w.Flush())
	for answered := 0; answered < 3; {
		m, err := r.Read()
		b.must(err)
		switch m := m.(type) {
		case *openflow.FeaturesRequest:
			b.must(w.Write(&openflow.FeaturesReply{Xid: m.Xid, DatapathID: dpid, Tables: 4}))
		case *openflow.MultipartRequest:
			answered++
			body := map[openflow.MultipartType]openflow.MultipartBody{openflow.MultipartPortDesc: list,
				openflow.MultipartGroupDesc: openflow.GroupDescList{}, openflow.MultipartFlow: openflow.FlowStatsList{}}[m.Body.MultipartType()]
			b.must(w.WriteReply(&openflow.MultipartReply{Xid: m.Xid, Body: body}))
		}
		b.must(w.Flush())
	}
	return func(m openflow.Message) {
		b.must(w.Write(m))
		b.must(w.Flush())
	}
}

// forwarding is the number of links between switches that forward.
func (b *fixture) forwarding() (n int) {
	for _, l := range b.c.Discovery.Links() {
		if l.From < l.To && b.c.Learning.TakesPart(l.From, l.FromPort) && b.c.Learning.TakesPart(l.To, l.ToPort) {
			n++
		}
	}
	return n
}
