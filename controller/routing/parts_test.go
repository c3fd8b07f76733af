package routing

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
)

// Proves that the entry of each traffic tells which it is; that a packet finds that of its flow
// before that of its part, that before the subnet's, and that of a longer prefix before them all;
// and that each port is in one part.
func TestEntriesOfTraffic(t *testing.T) {
	for _, c := range []struct{ to, from string }{{"10.0.2.0/24", "10.0.1.2"}, {"0.0.0.0/0", "10.0.1.2"}, {"fd00:2::/64", "fd00:1::2"}, {"::/0", "fd00:1::2"}} {
		p := netip.MustParsePrefix(c.to)
		to := p.Addr().Next()
		app := &App{}
		all := append(app.Parts(Traffic{To: p}, false), Traffic{To: p})
		flow := Traffic{p, Part{Proto: openflow.IPProtoUDP, Flow: Flow{netip.MustParseAddr(c.from), to, 40000, 53}}}
		all = append(all, Traffic{p, Part{Proto: openflow.IPProtoTCP, Index: each}}, flow)
		for _, x := range all {
			k := x.key()
			if got, is := trafficOf(&openflow.FlowMod{Table: k.Table, Priority: k.Priority, Match: k.Match}); !is || got != x {
				t.Errorf("the entry of %v is taken for that of %v", x, got)
			}
			if k.Priority >= priorityLocal || k.Match.Len() > 1 && k.Priority%2 != 0 {
				t.Errorf("%v has the priority %d", x, k.Priority)
			}
			if _, missing := k.Match.MissingPrerequisite(); missing {
				t.Errorf("%v: %v lacks something", x, k.Match)
			}
		}
		part, whole := all[0].key().Priority, Traffic{To: p}.key().Priority
		longer := Traffic{To: netip.PrefixFrom(to, p.Bits()+1)}.key().Priority
		if !(whole+1 < part && part+1 < flow.key().Priority && flow.key().Priority+1 < longer) {
			t.Errorf("%v: %d, parts %d, flows %d, a longer prefix %d", p, whole, part, flow.key().Priority, longer)
		}
		for port := range 1 << 16 {
			if n := slices.Collect(func(yield func(Traffic) bool) {
				for _, x := range all[:parts] {
					o, _ := x.key().Match.Get(openflow.FieldTCPSrc)
					if uint64(port)&o.Mask.Lo == o.Value.Lo && !yield(x) {
						return
					}
				}
			}); len(n) != 1 {
				t.Fatalf("port %d is in %v", port, n)
			}
		}
	}
}

// Proves that a router which is to lead flows listens to what has no entry; that each flow gets one
// of its own by its first packet, and no other packet does; that it forgets one whose entry has
// timed out, stops to listen while it has as many as it may, and takes all entries back in the end.
func TestHearsFlows(t *testing.T) {
	app, s, sw := single(t)
	to := netip.MustParsePrefix("10.7.0.0/16")
	config := app.config
	config.Routers = slices.Clone(config.Routers)
	config.Routers[0].Static = []StaticRoute{{To: to, Via: netip.MustParseAddr("10.0.2.9")}}
	config.Routers[0].Distances = nil
	if err := app.Configure(config); err != nil {
		t.Fatal(err)
	}
	n := app.node(1)
	entries := func() (flows, listening int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, m := range n.rules.Flows() {
			if m.Priority%2 != 0 {
				continue // a hairpin
			}
			if x, is := trafficOf(m); is && x.Part.Flow != (Flow{}) {
				flows++
			}
			if m.Cookie == listenCookie {
				listening++
			}
		}
		return flows, listening
	}
	until := func(what string, flows, listening int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			f, l := entries()
			if f == flows && l == listening {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d entries of flows, want %d; %d listen, want %d", what, f, flows, l, listening)
			}
		}
	}
	n.mu.Lock()
	n.learn(n.itf[2], netip.MustParseAddr("10.0.2.9"), openflow.MAC{2, 9, 9, 9, 9, 9}, true)
	n.mu.Unlock()
	app.Refresh("test")
	until("at first", 0, 0)
	app.Steer(map[Traffic]steer.Ways{{to, Part{Index: each}}: nil}, "test")
	until("once flows are led", 0, 2) // TCP and UDP

	send := func(proto uint8, port uint16, to string, more ...byte) {
		body := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, port), 80)
		packet := ip4(netip.MustParseAddr("10.0.1.9"), netip.MustParseAddr(to), proto, 64, append(body, more...))
		p := &controller.Packet{PacketIn: &openflow.PacketIn{Cookie: listenCookie, Reason: openflow.ReasonAction,
			Data: frame(router1, host1, openflow.EthTypeIPv4, packet)[:54-20+len(body)]}, InPort: 1, EtherType: openflow.EthTypeIPv4}
		app.PacketIn(sw, p)
	}
	s.take()
	send(openflow.IPProtoTCP, 1, "10.7.1.1")
	send(openflow.IPProtoTCP, 1, "10.7.1.1", make([]byte, 1000)...)
	send(openflow.IPProtoUDP, 1, "10.7.1.1")
	send(openflow.IPProtoICMPv4, 1, "10.7.1.1")
	send(openflow.IPProtoTCP, 1, "10.0.2.77") // to where flows are not led
	until("after three flows, of which one is none", 2, 2)
	if sent := s.take(); len(sent) > 0 {
		t.Errorf("what has been forwarded already is sent again: %x", sent)
	}
	k := Traffic{to, Part{Proto: openflow.IPProtoUDP, Flow: Flow{netip.MustParseAddr("10.0.1.9"), netip.MustParseAddr("10.7.1.1"), 1, 80}}}.key()
	app.FlowRemoved(sw, &openflow.FlowRemoved{Cookie: Cookie, Priority: k.Priority, Reason: openflow.RemovedIdleTimeout, Table: k.Table, Match: k.Match})
	until("after one has timed out", 1, 2)
	for i := range uint16(maxFlows + 10) {
		send(openflow.IPProtoUDP, i, "10.7.1.2")
	}
	until("with as many as there may be", maxFlows, 0)
	app.Refresh("test")
	until("and when routes are looked at", maxFlows, 0)
	k = Traffic{to, Part{Proto: openflow.IPProtoUDP, Flow: Flow{netip.MustParseAddr("10.0.1.9"), netip.MustParseAddr("10.7.1.2"), 5, 80}}}.key()
	app.FlowRemoved(sw, &openflow.FlowRemoved{Cookie: Cookie, Priority: k.Priority, Reason: openflow.RemovedIdleTimeout, Table: k.Table, Match: k.Match})
	until("when there is room again", maxFlows-1, 2)
	app.Steer(nil, "test")
	until("in the end", 0, 0)
}
