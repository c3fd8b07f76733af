package pipeline

import (
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/openflow"
)

func refusedWith(t *testing.T, err error, code openflow.ErrorCode) {
	t.Helper()
	if r, ok := err.(*Refusal); !ok || r.Code != code {
		t.Errorf("refused with %v, want %v", err, code)
	}
}

// The highest priority wins whatever the mask, and entries with one mask and different priorities
// live side by side.
func TestPriorities(t *testing.T) {
	b := newBench(t, "priority=1,actions=output:2", "priority=5,ip,nw_dst=10.0.0.0/8,actions=output:3", "priority=4,ip,nw_dst=10.0.0.2,actions=output:4",
		"priority=2,ip,nw_dst=10.0.0.0/8,actions=output:2")
	b.want(1, plain(t), "3")
	b.mod(openflow.FlowDeleteStrict, "priority=5,ip,nw_dst=10.0.0.0/8")
	b.want(1, plain(t), "4")
	b.mod(openflow.FlowDelete, "ip,nw_dst=10.0.0.2")
	b.want(1, plain(t), "2")
}

// ADD replaces an identical entry and keeps its counters, but for RESET_COUNTS; CHECK_OVERLAP
// refuses; MODIFY changes instructions only, of what is there.
func TestAddAndModify(t *testing.T) {
	b := newBench(t, "priority=5,udp,actions=output:2")
	b.receive(1, plain(t))
	b.add("priority=5,udp,actions=output:3")
	equalText(t, b.flows(), "0:5 udp n=1 output:3")
	b.add("priority=5,udp,reset_counts,actions=output:4")
	equalText(t, b.flows(), "0:5 udp n=0 output:4")
	m := parseFlow(t, "priority=5,ip,nw_dst=10.0.0.2,check_overlap,actions=output:2")
	refusedWith(t, b.FlowMod(m, 0), openflow.FlowModFailedOverlap)
	m.Priority = 6
	if err := b.FlowMod(m, 0); err != nil {
		t.Error(err)
	}
	b.mod(openflow.FlowModifyStrict, "priority=5,udp,actions=output:1")
	b.mod(openflow.FlowModifyStrict, "priority=9,udp,actions=output:1") // none: nothing
	equalText(t, b.flows(), "0:6 ip,nw_dst=10.0.0.2 n=0 output:2", "0:5 udp n=0 output:1")
	b.mod(openflow.FlowModify, "ip,actions=drop")
	equalText(t, b.flows(), "0:6 ip,nw_dst=10.0.0.2 n=0 drop", "0:5 udp n=0 drop")
}

// DELETE and MODIFY take those that the match covers, and heed cookie, port and group.
func TestDelete(t *testing.T) {
	flows := []string{"cookie=0x11,priority=3,udp,actions=output:2", "cookie=0x12,priority=2,ip,actions=output:3", "cookie=0x21,table=1,actions=write_actions(output:2)"}
	remove := func(change func(*openflow.FlowMod)) []string {
		b := newBench(t, flows...)
		m := openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.Match{})
		m.Table = openflow.TableAll
		change(m)
		if err := b.FlowMod(m, 0); err != nil {
			t.Fatal(err)
		}
		return b.flows()
	}
	equalText(t, remove(func(m *openflow.FlowMod) { m.Cookie, m.CookieMask = 0x10, 0xf0 }), "1:32768  n=0 write_actions(output:2)")
	equalText(t, remove(func(m *openflow.FlowMod) { m.OutPort = 2 }), "0:2 ip n=0 output:3")
	equalText(t, remove(func(m *openflow.FlowMod) { m.Match = openflow.NewMatch(openflow.EthType(0x800)) }), "1:32768  n=0 write_actions(output:2)")
	equalText(t, remove(func(m *openflow.FlowMod) { m.Table = 1 }), "0:3 udp n=0 output:2", "0:2 ip n=0 output:3")
	equalText(t, remove(func(m *openflow.FlowMod) {}))
}

// Idle and hard timeouts end entries, and FLOW_REMOVED says which, with the counters.
func TestTimeouts(t *testing.T) {
	b := newBench(t, "priority=2,idle_timeout=10,send_flow_rem,cookie=7,udp,actions=output:2", "priority=1,hard_timeout=15,send_flow_rem,actions=output:3",
		"priority=3,hard_timeout=12,tcp,actions=drop")
	if next, ok := b.net.Expire(0); !ok || next != 10*time.Second {
		t.Errorf("the next is due at %v", next)
	}
	b.now = 9 * time.Second
	b.receive(1, plain(t))
	b.now = 14 * time.Second
	if next, _ := b.net.Expire(b.now); next != 15*time.Second {
		t.Errorf("the next is due at %v", next)
	}
	equalText(t, b.flows(), "0:2 udp n=1 output:2", "0:1  n=0 output:3")
	b.now = 19 * time.Second
	b.net.Expire(b.now)
	equalText(t, b.flows())
	if len(b.news) != 2 {
		t.Fatalf("news: %v", b.news)
	}
	hard, idle := b.news[0].(*openflow.FlowRemoved), b.news[1].(*openflow.FlowRemoved)
	if hard.Reason != openflow.RemovedHardTimeout || hard.Duration.Sec != 19 || hard.HardTimeout != 15 {
		t.Errorf("%v", hard)
	}
	if idle.Reason != openflow.RemovedIdleTimeout || idle.Packets != 1 || idle.Bytes != uint64(len(plain(t))) || idle.Cookie != 7 || idle.IdleTimeout != 10 {
		t.Errorf("%v", idle)
	}
	if _, ok := b.net.Expire(b.now); ok {
		t.Error("something is still due")
	}
}

// Who counts hits elsewhere keeps an idle entry alive.
func TestFold(t *testing.T) {
	b := newBench(t, "idle_timeout=10,send_flow_rem,actions=output:2")
	b.net.OnFold(func(f *Flow, _ time.Duration) {
		if f.Packets() == 0 {
			f.Add(5, 500, 8*time.Second)
		}
	})
	b.net.Expire(11 * time.Second)
	equalText(t, b.flows(), "0:32768  n=5 output:2")
	b.net.Expire(18 * time.Second)
	if len(b.news) != 1 || b.news[0].(*openflow.FlowRemoved).Bytes != 500 {
		t.Errorf("news: %v", b.news)
	}
}

// What others have counted of an entry until it is replaced, or reset, belongs to before that: it
// goes on in an equal entry that replaces it, and does not come after a reset.
func TestFoldBeforeReplacing(t *testing.T) {
	b := newBench(t, "actions=output:2")
	elsewhere := uint64(5)
	b.net.OnFold(func(f *Flow, _ time.Duration) {
		f.Add(elsewhere, 100*elsewhere, 0)
		elsewhere = 0
	})
	b.add("actions=output:2")
	equalText(t, b.flows(), "0:32768  n=5 output:2")
	elsewhere = 3
	b.mod(openflow.FlowModify, "reset_counts,actions=output:3")
	if b.flows(); elsewhere != 0 {
		t.Error("nobody asked for what was counted elsewhere")
	}
	equalText(t, b.flows(), "0:32768  n=0 output:3")
}

// Without an entry a packet is dropped; the table-miss entry sends it to the controller with its
// own reason.
func TestTableMiss(t *testing.T) {
	b := newBench(t, "priority=5,tcp,actions=output:2")
	b.want(1, plain(t))
	b.add("priority=0,actions=controller:128")
	b.want(1, plain(t), "NO_MATCH")
	b.add("priority=1,udp,actions=controller:128")
	b.want(1, plain(t), "ACTION")
	body, err := b.Multipart(openflow.NoBody(openflow.MultipartTable), 0)
	if err != nil {
		t.Fatal(err)
	}
	if s := body.(openflow.TableStatsList)[0]; s.Active != 3 || s.Lookups != 3 || s.Matched != 2 {
		t.Errorf("table 0: %+v", s)
	}
}

// Reserved ports, and the configuration of ports.
func TestPorts(t *testing.T) {
	in := plain(t)
	newBench(t, "actions=in_port").want(1, in, "1")
	newBench(t, "actions=output:1").want(1, in) // not back where it came from, unless it is said so
	newBench(t, "actions=all").want(2, in, "1", "3", "4")
	b := newBench(t, "actions=flood")
	b.SetPortState(3, openflow.PortStateBlocked)
	b.want(2, in, "1", "4")
	b.SetPortState(4, openflow.PortStateLinkDown)
	b.want(2, in, "1")
	if len(b.news) != 2 || b.news[1].(*openflow.PortStatus).Port.State != openflow.PortStateLinkDown {
		t.Errorf("news: %v", b.news)
	}
	config := func(number uint32, c openflow.PortConfig) {
		t.Helper()
		if err := b.PortMod(&openflow.PortMod{Port: number, Config: c, Mask: c}); err != nil {
			t.Fatal(err)
		}
	}
	config(1, openflow.PortConfigNoFwd)
	b.want(2, in)
	config(2, openflow.PortConfigNoRecv)
	b.want(2, in)
	b = newBench(t, "actions=controller,output:2")
	config(1, openflow.PortConfigNoPacketIn)
	b.want(1, in, "2", "ACTION") // it is not the table-miss entry
	b = newBench(t, "priority=0,actions=controller,output:2")
	config(1, openflow.PortConfigNoPacketIn)
	b.want(1, in, "2")
	config(2, openflow.PortConfigDown)
	b.want(1, in)
	stats, err := b.Multipart(openflow.PortStatsRequest{Port: openflow.PortAny}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	list := stats.(openflow.PortStatsList)
	if list[0].RxPackets != 2 || list[0].RxBytes != 2*uint64(len(in)) || list[1].TxPackets != 1 || list[1].TxDropped != 1 || list[0].Duration.Sec != 1 {
		t.Errorf("%v", list)
	}
}

// PACKET_OUT sends by its actions, and through the tables when it says so.
func TestPacketOut(t *testing.T) {
	b := newBench(t, "in_port=3,actions=output:4")
	out := func(port uint32, actions ...openflow.Action) (ports []uint32) {
		t.Helper()
		r, err := b.proc.PacketOut(b.Switch, &openflow.PacketOut{Buffer: openflow.BufferNone, InPort: port, Actions: actions, Data: plain(t)}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Sent {
			ports = append(ports, s.Port.Number())
		}
		return ports
	}
	if got := out(openflow.PortController, openflow.Output(2), openflow.Output(1)); len(got) != 2 || got[0] != 2 || got[1] != 1 {
		t.Errorf("it goes to %v", got)
	}
	if got := out(openflow.PortAny, openflow.Output(openflow.PortFlood)); len(got) != 4 {
		t.Errorf("from no port it is flooded to %v", got)
	}
	if got := out(3, openflow.Output(openflow.PortTable)); len(got) != 1 || got[0] != 4 {
		t.Errorf("through the tables it goes to %v", got)
	}
	if got := out(1, openflow.Output(openflow.PortFlood)); len(got) != 3 {
		t.Errorf("flooded it goes to %v", got)
	}
}

// Parts of IP packets: the first has ports, a later one has not, and all are dropped if so
// configured.
func TestFragments(t *testing.T) {
	b := newBench(t, "priority=2,udp,tp_dst=2000,actions=output:2", "priority=1,udp,actions=output:3")
	first := plain(t)
	part := ip4(17, 64)
	part.FragOffset, part.Flags = 4, layers.IPv4MoreFragments
	later := pack(t, eth(0x800), part, payload)
	b.want(1, first, "2")
	b.want(1, later, "3")
	before := string(later)
	b.add("priority=9,udp,actions=set_field:7->udp_src,output:4")
	if r := b.receive(1, later); string(r.Sent[0].Data) != before {
		t.Error("a later part was written to as if it had ports")
	}
	if err := b.SetFragments(openflow.FragDrop); err != nil {
		t.Fatal(err)
	}
	b.want(1, later)
	b.want(1, first, "4")
}

// IPv6 extension headers are passed over to the transport header, and said in their field.
func TestExtensionHeaders(t *testing.T) {
	header := func(next byte, rest ...byte) []byte {
		return append([]byte{next}, append(rest, make([]byte, 7-len(rest))...)...)
	}
	pad := []byte{0, 1, 4}
	for name, test := range map[string]struct {
		first   byte
		headers [][]byte
		want    uint16
		port    bool
	}{
		"none":                {17, nil, 0, true},
		"hop by hop":          {0, [][]byte{header(17, pad...)}, extHop, true},
		"hop, routing":        {0, [][]byte{header(43, pad...), header(17, 0, 0, 0)}, extHop | extRouter, true},
		"out of order":        {43, [][]byte{header(0, 0, 0, 0), header(17, pad...)}, extHop | extRouter | extSequenced, true},
		"twice":               {0, [][]byte{header(0, pad...), header(17, pad...)}, extHop | extRepeated, true},
		"destination":         {60, [][]byte{header(17, pad...)}, extDest, true},
		"fragment, the first": {44, [][]byte{header(17, 0, 0, 1)}, extFrag, true},
		"fragment, a later":   {44, [][]byte{header(17, 0, 1, 1)}, extFrag, false},
		"authentication":      {51, [][]byte{append(header(17, 1), 0, 0, 0, 0)}, extAuth, true},
		"no next":             {59, nil, extNoNext, false},
	} {
		t.Run(name, func(t *testing.T) {
			frame := pack(t, eth(0x86dd), &layers.IPv6{Version: 6, HopLimit: 9, NextHeader: layers.IPProtocol(test.first), SrcIP: addr16(1), DstIP: addr16(2)})[:54]
			length := 8
			for _, h := range test.headers {
				frame = append(frame, h...)
				length += len(h)
			}
			frame = append(frame, 0, 80, 0, 90, 0, 8, 0, 0)
			frame[19] = byte(length)
			var k Key
			if !ParseKey(&k, frame, 1) {
				t.Fatal("not read")
			}
			if got := uint16(k.Field(openflow.FieldIPv6Exthdr).Lo); got != test.want {
				t.Errorf("extension headers %#x, want %#x", got, test.want)
			}
			if got := k.Field(openflow.FieldUDPDst).Lo == 90; got != test.port {
				t.Errorf("the port was found: %v", got)
			}
		})
	}
}
