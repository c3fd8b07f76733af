package api

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// rules makes random tables from few values, so that packets match them.
type rules struct{ *rand.Rand }

func pick[T any](r rules, of ...T) T { return of[r.IntN(len(of))] }

func (r rules) match() openflow.Match {
	var m []openflow.OXM
	add := func(o ...openflow.OXM) {
		if r.IntN(3) == 0 {
			m = append(m, o...)
		}
	}
	add(openflow.InPort(uint32(1 + r.IntN(3))))
	add(openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, byte(r.IntN(2))}))
	add(openflow.Metadata(uint64(r.IntN(4))).WithMask64(3))
	add(pick(r, openflow.VLANNone(), openflow.VLANAny()))
	if r.IntN(2) == 0 {
		m = append(m, openflow.EthType(openflow.EthTypeIPv4))
		add(openflow.IPv4Dst(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(2))})).WithPrefix(pick(r, 8, 31, 32)))
		add(openflow.IPProto(openflow.IPProtoICMPv4), openflow.ICMPv4Type(pick[uint8](r, 0, 8)))
	}
	return openflow.NewMatch(m...)
}

func (r rules) actions(groups bool) (out []openflow.Action) {
	for range r.IntN(4) {
		out = append(out, pick(r, openflow.Output(uint32(1+r.IntN(4))), openflow.Output(openflow.PortInPort), openflow.Output(openflow.PortFlood),
			openflow.Output(openflow.PortAll), openflow.OutputController(64), openflow.DecNwTTL(), openflow.SetNwTTL(1), openflow.PushVLAN(openflow.EthTypeVLAN),
			openflow.PopVLAN(), openflow.SetField(openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, byte(r.IntN(2))}))))
	}
	if groups && r.IntN(3) == 0 {
		out = append(out, openflow.Group(uint32(1+r.IntN(3))))
	}
	return out
}

func (r rules) flow(table uint8) *openflow.FlowMod {
	var i []openflow.Instruction
	if r.IntN(2) == 0 {
		i = append(i, openflow.ApplyActions(r.actions(true)...))
	}
	if r.IntN(6) == 0 {
		i = append(i, openflow.ClearActions())
	}
	if r.IntN(2) == 0 {
		i = append(i, openflow.WriteActions(r.actions(true)...))
	}
	if r.IntN(3) == 0 {
		i = append(i, openflow.WriteMetadata(uint64(r.IntN(4)), uint64(r.IntN(4))))
	}
	if table < 2 && r.IntN(2) == 0 {
		i = append(i, openflow.GotoTable(table+1))
	}
	m := openflow.NewFlowMod(openflow.FlowAdd, uint16(r.IntN(1000)), r.match(), i...)
	m.Table = table
	return m
}

// group is of a type that involves no choice. No TTL expires in it: the specification does not say
// whether that ends the other buckets, too.
func (r rules) group(id uint32) openflow.GroupDesc {
	g := openflow.GroupDesc{Group: id, Kind: pick(r, openflow.GroupTypeAll, openflow.GroupTypeIndirect, openflow.GroupTypeFF)}
	for range 1 + r.IntN(2) {
		b := openflow.NewBucket(slices.DeleteFunc(r.actions(false), func(a openflow.Action) bool { return a.Type == openflow.ActionDecNwTTL })...)
		if g.Kind == openflow.GroupTypeFF {
			b.WatchPort = uint32(1 + r.IntN(4))
		}
		g.Buckets = append(g.Buckets, b)
		if g.Kind == openflow.GroupTypeIndirect {
			break
		}
	}
	return g
}

// Proves that the traced path of a packet through random tables is what the embedded switch does,
// which itself is tested against the specification and Open vSwitch: the same ports, each the same
// number of times.
func TestTraceIsWhatASwitchDoes(t *testing.T) {
	outputs := 0
	for seed := range uint64(3000) {
		r := rules{rand.New(rand.NewPCG(seed, 7))}
		n := pipeline.NewNetwork()
		sw, err := n.Add(pipeline.Config{DatapathID: 1, Name: "s1"})
		if err != nil {
			t.Fatal(err)
		}
		tab := &tables{entries: map[uint8][]*openflow.FlowStats{}, groups: map[uint32]*openflow.GroupDesc{}}
		for i := range uint32(4) {
			p := openflow.Port{Number: i + 1, HWAddr: openflow.MAC{2, 1, 0, 0, 0, byte(i)}}
			if i == 3 {
				p.State = openflow.PortStateLinkDown
			} else {
				tab.ports = append(tab.ports, p.Number)
			}
			if _, err := sw.AddPort(p, 0); err != nil {
				t.Fatal(err)
			}
		}
		for id := range uint32(3) {
			g := r.group(id + 1)
			if err := sw.GroupMod(&openflow.GroupMod{GroupDesc: g}, 0); err != nil {
				continue // the switch has checked it
			}
			tab.groups[g.Group] = &g
		}
		seen := map[string]bool{}
		for range 12 {
			m := r.flow(uint8(r.IntN(3)))
			if key := fmt.Sprint(m.Table, m.Priority); seen[key] || sw.FlowMod(m, 0) != nil {
				continue
			}
			seen[fmt.Sprint(m.Table, m.Priority)] = true
			tab.entries[m.Table] = append(tab.entries[m.Table], &openflow.FlowStats{Table: m.Table, Priority: m.Priority, Match: m.Match, Instructions: m.Instructions})
		}
		in, src, dst := uint32(1+r.IntN(3)), openflow.MAC{2, 0, 0, 0, 0, 9}, openflow.MAC{2, 0, 0, 0, 0, byte(r.IntN(2))}
		from, to := netip.AddrFrom4([4]byte{10, 0, 0, 9}), netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(2))})
		result := pipeline.NewProcessor(n).Receive(sw.Port(in), &pipeline.Packet{Data: echoRequest(src, dst, from, to)}, 0)
		var want, got []string
		for _, s := range result.Sent {
			want = append(want, fmt.Sprint(s.Port.Number()))
		}
		for range result.PacketIns {
			want = append(want, "controller")
		}
		p, _ := newPacket(station{address: from}, station{address: to}, PathQuery{})
		p.fields = p.fields.With(openflow.EthSrc(src)).With(openflow.EthDst(dst)).With(openflow.InPort(in)).With(openflow.Metadata(0))
		x := tab.trace(p)
		for _, o := range x.outputs {
			switch {
			case o.port == openflow.PortController:
				got = append(got, "controller")
			case o.port != 4: // which is down
				got = append(got, fmt.Sprint(o.port))
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		outputs += len(want)
		if !slices.Equal(want, got) {
			for _, table := range tab.entries {
				for _, e := range table {
					t.Log(e)
				}
			}
			for _, g := range tab.groups {
				t.Log(g)
			}
			t.Fatalf("seed %d: %v: the switch sends to %v, path says %v (notes %v)", seed, p.fields, want, got, x.notes)
		}
	}
	if outputs < 3000 {
		t.Errorf("only %d outputs: the tables prove little", outputs)
	}
}
