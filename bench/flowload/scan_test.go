package flowload

import (
	"math/rand/v2"
	"slices"
	"testing"

	"trivet.dev/trivet/openflow"
)

// Proves that reading by hand finds in messages of 1.3 what the codec has put there.
func TestScan(t *testing.T) {
	dst, src := openflow.MAC{2, 1, 2, 3, 4, 5}, openflow.MAC{2, 9, 8, 7, 6, 5}
	m := openflow.NewFlowMod(openflow.FlowAdd, 3, openflow.NewMatch(openflow.InPort(9), openflow.EthDst(dst), openflow.EthSrc(src), openflow.EthType(0x800), openflow.IPProto(6)),
		openflow.WriteMetadata(1, 1), openflow.ApplyActions(openflow.PopVLAN(), openflow.Output(12), openflow.OutputController(64)), openflow.WriteActions(openflow.Group(5)), openflow.GotoTable(4))
	m.Buffer = 77
	var v said
	if !v.flowMod13(m.AppendTo(nil)) {
		t.Fatal("a well-formed FLOW_MOD is taken for malformed")
	}
	if v.buffer != 77 || v.inPort != 9 || !v.hasDst || v.dst != mac(dst[:]) || !v.hasSrc || v.src != mac(src[:]) || v.outs != 1 || v.out != 12 || !v.toController || !v.hasGroup || v.group != 5 {
		t.Errorf("%+v", v)
	}
	out := openflow.PacketOut{Buffer: 5, InPort: 3, Actions: []openflow.Action{openflow.Output(8), openflow.Output(openflow.PortFlood)}, Data: []byte("frame")}
	if !v.packetOut13(out.AppendTo(nil)) || v.buffer != 5 || v.outs != 2 || v.out != 8 || string(v.frame) != "frame" || v.hasDst || v.inPort != 0 {
		t.Errorf("%+v", v)
	}
}

// Proves that messages of OpenFlow 1.0 are read by their own layout: taken from the specification,
// sections 5.3.3 and 5.3.6.
func TestScan10(t *testing.T) {
	flow := make([]byte, 80)
	copy(flow, []byte{1, 14, 0, 80, 0, 0, 0, 1, 0, 0x38, 0x20, 0xf2, 0, 4, 2, 9, 8, 7, 6, 5, 2, 1, 2, 3, 4, 5}) // dl_dst alone is compared, 0x08 is clear
	be.PutUint32(flow[8:], ^uint32(wildInPort|wildDLSrc|wildDLDst))
	be.PutUint32(flow[64:], 99)
	copy(flow[72:], []byte{0, 0, 0, 8, 0, 3, 0, 0})
	var v said
	if !v.flowMod10(flow) || v.buffer != 99 || v.inPort != 4 || v.src != 0x020908070605 || v.dst != 0x020102030405 || v.outs != 1 || v.out != 3 {
		t.Errorf("%+v", v)
	}
	out := []byte{1, 13, 0, 26, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 8, 0, 0, 0, 8, 0xff, 0xfb, 0, 0, 'h', 'i'}
	if !v.packetOut10(out) || v.buffer != openflow.BufferNone || v.out != openflow.PortFlood || string(v.frame) != "hi" {
		t.Errorf("%+v", v)
	}
}

// Proves that no message of a controller breaks the reader, and that it and the codec agree on what
// is well-formed.
func FuzzScan(f *testing.F) {
	f.Add(openflow.NewFlowMod(openflow.FlowAdd, 3, openflow.NewMatch(openflow.InPort(9)), openflow.ApplyActions(openflow.Output(2))).AppendTo(nil))
	f.Add((&openflow.PacketOut{Buffer: 1, Actions: []openflow.Action{openflow.Output(2)}, Data: []byte("frame")}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, m []byte) {
		var v said
		v.flowMod10(m)
		v.packetOut10(m)
		v.packetOut13(m)
		fine := v.flowMod13(m)
		decoded, err := openflow.Decode(m)
		if err != nil {
			return
		}
		switch want := decoded.(type) {
		case *openflow.FlowMod:
			_, hasDst := want.Match.Get(openflow.FieldEthDst)
			if o, _ := want.Match.Get(openflow.FieldEthDst); !fine || v.buffer != want.Buffer || hasDst != v.hasDst && !o.Masked {
				t.Fatalf("%v is read as %+v, %v", want, v, fine)
			}
			if toController := leads(want, func(a openflow.Action) bool {
				return a.Type == openflow.ActionOutput && a.Port == openflow.PortController
			}); toController != v.toController {
				t.Fatalf("%v is read as %+v", want, v)
			}
		case *openflow.PacketOut:
			if !v.packetOut13(m) || string(v.frame) != string(want.Data) {
				t.Fatalf("%v is read as %+v", want, v)
			}
		}
	})
}

// Proves that a switch survives whatever a controller sends: it answers, or the connection ends.
func FuzzHandle(f *testing.F) {
	f.Add(uint8(4), (&openflow.MultipartRequest{Body: openflow.AllFlows()}).AppendTo(nil))
	f.Add(uint8(1), []byte{1, statsRequest10, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Add(uint8(4), openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.Match{}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, version uint8, m []byte) {
		if len(m) < openflow.HeaderLen || len(m) > openflow.MaxLength {
			return
		}
		r := &run{Config: Config{Version: openflow.Version, Ports: 3, Hosts: 20, Window: 1}}
		if version == version10 {
			r.Version = version10
		}
		n := newNode(r, 0)
		n.load = newLoader(n)
		_ = n.handle(m)
		n.store.publish()
		n.load.prepare()
	})
}

// Proves that a patched frame is a valid packet: its header's checksum holds, and its addresses and
// number are read back.
func TestFrame(t *testing.T) {
	for _, vlan := range []uint16{0, 100} {
		frame := newFrame(vlan)
		for range 1000 {
			src, dst, sequence := rand.Uint64()>>16, rand.Uint64()>>16, rand.Uint32()
			patchFrame(frame, dst, src, sequence)
			ip := frame[len(frame)-46:]
			if onesSum(ip[:20]) != 0xffff {
				t.Fatalf("checksum of % x", ip[:20])
			}
			if got, ok := sequenceOf(frame); !ok || got != sequence || mac(frame) != dst || mac(frame[6:]) != src {
				t.Fatalf("%x → %x, number %d: read back as % x", src, dst, sequence, frame)
			}
		}
		if p, ok := readPacket(1, frame); !ok || p.etherType != openflow.EthTypeIPv4 || (p.vlan == 0) != (vlan == 0) {
			t.Errorf("head %+v", p)
		}
	}
}

// Proves that addresses tell their switch and host, and no other switch's.
func TestHosts(t *testing.T) {
	for _, sw := range []int{0, 1, 255, 256, 1000} {
		for _, host := range []uint32{0, 1, 65535, 0xffffff} {
			if got, ok := hostOf(sw, hostMAC(sw, host)); !ok || got != host {
				t.Errorf("switch %d, host %d: %d, %v", sw, host, got, ok)
			}
			if _, ok := hostOf(sw+1, hostMAC(sw, host)); ok {
				t.Errorf("host %d of switch %d is taken for one of the next", host, sw)
			}
		}
	}
}

// Proves that quantiles of the histogram are those of the sorted times, to 1/64.
func TestHistogram(t *testing.T) {
	var h, other histogram
	var times []int64
	for i := range 10_000 {
		ns := int64(rand.ExpFloat64() * 200_000)
		times = append(times, ns)
		if i%2 == 0 {
			h.add(ns)
		} else {
			other.add(ns)
		}
	}
	h.merge(&other)
	slices.Sort(times)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := float64(times[int(q*float64(len(times)-1))])
		if got := h.quantile(q); got < want*(1-1.0/64)-1 || got > want*(1+1.0/64)+1 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if h.max != times[len(times)-1] || h.total != 10_000 {
		t.Errorf("max %d of %d", h.max, h.total)
	}
}
