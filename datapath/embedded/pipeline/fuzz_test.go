package pipeline

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/openflow"
)

// Packets of any bytes through random networks: nothing fails, the translation is what happens, and
// it is that of the packet's own key.
func FuzzPacket(f *testing.F) {
	g := newGen(f, 1)
	for range 40 {
		f.Add(g.Frame(), uint8(g.Intn(256)))
	}
	type place struct {
		n    *Network
		port *Port
	}
	var places []place
	for seed := range 16 {
		g := newGen(f, int64(seed))
		n, list := g.network(3, 40)
		places = append(places, place{n, list[0].Port(1)})
	}
	f.Fuzz(func(t *testing.T, frame []byte, which uint8) {
		p := places[int(which)%len(places)]
		var k Key
		live, apply := NewProcessor(p.n), NewProcessor(p.n)
		pkt := &Packet{Data: frame}
		got := fmt.Sprint(live.Receive(p.port, pkt, 0).frames())
		if !ParseKey(&k, frame, 1) {
			return
		}
		var o Translation
		NewTranslator(p.n).Translate(&o, p.port, &k, 0)
		if !o.Holds(&k, &k) {
			t.Error("the translation does not hold for its own packet")
		}
		if o.Slow == "" && !o.Metered() {
			if want := fmt.Sprint(apply.Apply(&o, pkt, 0).frames()); got != want {
				t.Errorf("%x becomes\n%s\nthe translation says\n%s", frame, got, want)
			}
		}
	})
}

// FLOW_MODs of any bytes that can be decoded are taken or refused, and packets go on.
func FuzzFlowMod(f *testing.F) {
	g := newGen(f, 2)
	_, list := g.network(1, 1)
	for range 40 {
		m := g.flow(list[0], 4, 3, 2)
		m.Command = openflow.FlowModCommand(g.Intn(5))
		f.Add(m.AppendTo(nil), int64(g.Intn(100)))
	}
	f.Fuzz(func(t *testing.T, b []byte, seed int64) {
		m := new(openflow.FlowMod)
		if openflow.DecodeInto(b, m) != nil {
			return
		}
		g := newGen(t, seed)
		n, list := g.network(2, 20)
		if err := list[0].FlowMod(m, 0); err != nil {
			if _, ok := err.(*Refusal); !ok {
				t.Errorf("refused with %v", err)
			}
		}
		p := NewProcessor(n)
		for range 5 {
			p.Receive(list[0].Port(g.Port()), &Packet{Data: g.Frame()}, time.Second)
		}
		n.Expire(time.Hour)
	})
}

// Packets, changes and statistics at the same time: what the race detector would see, and the
// tables are whole afterwards: every entry is found by its own match.
func TestConcurrent(t *testing.T) {
	g := newGen(t, 3)
	n, list := g.network(3, 40)
	var group sync.WaitGroup
	stop := make(chan struct{})
	for i := range 2 {
		group.Go(func() {
			g := newGen(t, int64(10+i))
			p := NewProcessor(n)
			for now := time.Duration(0); ; now += time.Millisecond {
				select {
				case <-stop:
					return
				default:
					p.Receive(list[g.Intn(3)].Port(g.Port()), &Packet{Data: g.Frame()}, now)
				}
			}
		})
	}
	for i := range 1500 {
		s := list[g.Intn(3)]
		m := openflow.NewFlowMod(openflow.FlowModCommand(g.Intn(5)), uint16(g.Intn(6)), g.Match(), g.Instructions(0, 4, 3, 2)...)
		m.IdleTimeout = uint16(g.Intn(2))
		_ = s.FlowMod(m, time.Duration(i)*time.Millisecond)
		if i%50 == 0 {
			s.SetPortState(g.Port(), openflow.PortState(g.Intn(2)))
			_, _ = s.Multipart(openflow.AllFlows(), 0)
			n.Expire(time.Duration(i) * time.Millisecond)
		}
	}
	close(stop)
	group.Wait()
	for _, s := range list {
		for id, tab := range s.tables {
			if tab == nil {
				continue
			}
			all := tab.list(&Key{}, &Mask{})
			for _, f := range all {
				value, mask := matchBits(f.Match)
				if tab.get(&value, mask, f.Priority) != f {
					t.Fatalf("table %d of %s loses %v", id, s.Name(), f.Match)
				}
			}
			if len(all) != tab.count {
				t.Errorf("table %d counts %d entries and has %d", id, tab.count, len(all))
			}
		}
	}
}
