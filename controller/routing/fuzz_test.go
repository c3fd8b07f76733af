package routing

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"testing"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// silent is a router's datapath that keeps what it is told to send.
type silent struct {
	peer *controller.Memory

	mu     sync.Mutex
	frames [][]byte
	flows  []*openflow.FlowMod
}

func (s *silent) Handle(m openflow.Message) {
	reply := func(r openflow.Message) {
		r.SetTransaction(m.Transaction())
		s.peer.Reply(r)
	}
	switch m := m.(type) {
	case *openflow.FeaturesRequest:
		reply(&openflow.FeaturesReply{DatapathID: 1, Tables: 4})
	case *openflow.MultipartRequest:
		bodies := map[openflow.MultipartType]openflow.MultipartBody{
			openflow.MultipartPortDesc:  openflow.PortDescList{{Number: 1, Name: "r1-eth0"}, {Number: 2, Name: "r1-eth1"}},
			openflow.MultipartGroupDesc: openflow.GroupDescList{}, openflow.MultipartFlow: openflow.FlowStatsList{}}
		reply(&openflow.MultipartReply{Body: bodies[m.Body.MultipartType()]})
	case *openflow.BarrierRequest:
		reply(&openflow.BarrierReply{})
	case *openflow.PacketOut:
		s.mu.Lock()
		s.frames = append(s.frames, m.Data)
		s.mu.Unlock()
	case *openflow.FlowMod:
		copied := *m // it may be used again
		s.mu.Lock()
		s.flows = append(s.flows, &copied)
		s.mu.Unlock()
	}
}

func (s *silent) Close() {}

// takeFlows returns what has been said of entries.
func (s *silent) takeFlows() (out []*openflow.FlowMod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, s.flows = s.flows, nil
	return out
}

// take returns the frames that have been sent, LLDP and its like left out.
func (s *silent) take() (out [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.frames {
		if t := binary.BigEndian.Uint16(f[12:]); t < 0x8900 && t != 0x88cc && t != 0x8942 {
			out = append(out, f)
		}
	}
	s.frames = nil
	return out
}

var (
	host1   = openflow.MAC{2, 0, 0, 0, 1, 1}
	router1 = openflow.MAC{2, 0, 0, 0, 0, 1}
	router2 = openflow.MAC{2, 0, 0, 0, 0, 2}
)

// single is one router with two subnets, 10.0.1.0/24 and 10.0.2.0/24 (and fd00:1::/64,
// fd00:2::/64).
func single(t testing.TB) (*App, *silent, *controller.Switch) { return singleOf(t) }

// singleOf is the same, which speaks protocols.
func singleOf(t testing.TB, protocols ...Protocol) (*App, *silent, *controller.Switch) {
	t.Helper()
	return singleWith(t, func(*Config) {}, protocols...)
}

// singleWith is the same with a changed configuration.
func singleWith(t testing.TB, change func(*Config), protocols ...Protocol) (*App, *silent, *controller.Switch) {
	t.Helper()
	found := discovery.New()
	config := Config{Routers: []Router{{DPID: 1, Name: "r1", Interfaces: []Interface{
		{Port: 1, Name: "r1-eth0", MAC: router1, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.1.1/24"), netip.MustParsePrefix("fd00:1::1/64")}},
		{Port: 2, Name: "r1-eth1", MAC: router2, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.2.1/24"), netip.MustParsePrefix("fd00:2::1/64")}},
	}}}}
	change(&config)
	app, err := New(found, config)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range protocols {
		if err := app.Speak(p); err != nil {
			t.Fatal(err)
		}
		app.SetSpeakers(p.Name, []uint64{1})
	}
	c, err := controller.New(slog.New(slog.NewTextHandler(io.Discard, nil)), found, app)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s := &silent{peer: c.NewMemory("r1")}
	if err := s.peer.Join(s); err != nil {
		t.Fatal(err)
	}
	until.True(t, "nothing is missing", func() bool { return len(app.Missing()) == 0 })
	s.take()
	return app, s, c.Switch(1)
}

// receive gives the app a frame from the switch.
func receive(app *App, sw *controller.Switch, port uint32, reason openflow.PacketInReason, data []byte) {
	p := &controller.Packet{PacketIn: &openflow.PacketIn{Cookie: Cookie, Reason: reason, Data: data}, InPort: port}
	if len(data) >= 14 {
		p.EtherType = binary.BigEndian.Uint16(data[12:])
	}
	app.PacketIn(sw, p)
}

// Proves that a router answers ARP for its own addresses only and on the interface that has them,
// learns who asks, and forwards a packet with a TTL one less and the right MACs.
func TestRouterOnTheWire(t *testing.T) {
	app, s, sw := single(t)
	ask := func(port uint32, mac openflow.MAC, from, to string) {
		m := arp{op: 1, sha: mac, spa: netip.MustParseAddr(from), tpa: netip.MustParseAddr(to)}
		receive(app, sw, port, openflow.ReasonAction, frame(broadcast, mac, openflow.EthTypeARP, m.bytes()))
	}
	ask(1, host1, "10.0.1.9", "10.0.1.1")
	got := s.take()
	if len(got) != 1 {
		t.Fatalf("%d answers to ARP", len(got))
	}
	if m, ok := parseARP(got[0][14:]); !ok || m.op != 2 || m.sha != router1 || m.tha != host1 || m.spa != netip.MustParseAddr("10.0.1.1") {
		t.Errorf("answer %+v", m)
	}
	ask(2, host1, "10.0.2.9", "10.0.1.1") // another interface's address
	ask(1, host1, "10.0.1.9", "10.0.1.7") // somebody else's
	if got := s.take(); len(got) != 0 {
		t.Errorf("%d answers for what is not its own", len(got))
	}
	host2 := openflow.MAC{2, 0, 0, 0, 2, 9}
	ask(2, host2, "10.0.2.9", "10.0.2.1")
	s.take()
	packet := ip4(netip.MustParseAddr("10.0.1.9"), netip.MustParseAddr("10.0.2.9"), 17, 9, []byte("12345678"))
	receive(app, sw, 1, openflow.ReasonAction, frame(router1, host1, openflow.EthTypeIPv4, packet))
	got = s.take()
	if len(got) != 1 || openflow.MAC(got[0][:6]) != host2 || openflow.MAC(got[0][6:12]) != router2 || got[0][14+8] != 8 {
		t.Fatalf("forwarded %x", got)
	}
	if p, ok := parseIP(openflow.EthTypeIPv4, got[0][14:]); !ok || ^checksumOf(p.data[:20]) != 0 {
		t.Error("the header's checksum is wrong")
	}
	packet[11]++ // the header's checksum
	receive(app, sw, 1, openflow.ReasonAction, frame(router1, host1, openflow.EthTypeIPv4, packet))
	if got = s.take(); len(got) != 0 {
		t.Errorf("a packet with a wrong checksum is forwarded: %x", got)
	}
	packet = ip4(netip.MustParseAddr("10.0.1.9"), netip.MustParseAddr("10.0.2.9"), 17, 1, []byte("12345678"))
	receive(app, sw, 1, openflow.ReasonInvalidTTL, frame(router1, host1, openflow.EthTypeIPv4, packet))
	if got = s.take(); len(got) != 1 || got[0][14+9] != 1 || got[0][34] != 11 || openflow.MAC(got[0][:6]) != host1 {
		t.Errorf("a TTL of 1 is answered by %x", got)
	}
}

func checksumOf(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// Proves that no sequence of frames makes the app fail, keep more than its bounds, or send more
// than a few frames for each that came.
func FuzzFrames(f *testing.F) {
	question := arp{op: 1, sha: host1, spa: netip.MustParseAddr("10.0.1.9"), tpa: netip.MustParseAddr("10.0.1.1")}
	target := netip.MustParseAddr("fd00:1::1")
	group, mac := solicitedNode(target)
	solicitation := ndp{kind: neighborSolicitation, target: target, mac: host1, src: netip.MustParseAddr("fd00:1::9"), dst: group}
	echo := ip4(netip.MustParseAddr("10.0.1.9"), netip.MustParseAddr("10.0.2.1"), 1, 64, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0})
	packet := ping("fe80::9", "ff02::2")
	ask := ip6(netip.MustParseAddr("fe80::9"), groups6[1], openflow.IPProtoICMPv6, 255, []byte{routerSolicitation, 7: 0})
	for _, frames := range [][][]byte{
		{frame(multicastMAC(groups6[1]), host1, openflow.EthTypeIPv6, packet)},
		{frame(multicastMAC(groups6[1]), host1, openflow.EthTypeIPv6, ask)},
		{frame(broadcast, host1, openflow.EthTypeARP, question.bytes())},
		{frame(mac, host1, openflow.EthTypeIPv6, solicitation.bytes())},
		{frame(router1, host1, openflow.EthTypeIPv4, echo), frame(broadcast, host1, openflow.EthTypeARP, question.bytes())},
	} {
		var seed []byte
		for _, b := range frames {
			seed = append(seed, 1, byte(openflow.ReasonAction), byte(len(b)>>8), byte(len(b)))
			seed = append(seed, b...)
		}
		f.Add(seed)
	}
	app, s, sw := single(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		frames := 0
		for len(data) >= 4 {
			n := min(int(binary.BigEndian.Uint16(data[2:])), len(data)-4)
			receive(app, sw, uint32(data[0]&3), openflow.PacketInReason(data[1]%3), data[4:4+n])
			data = data[4+n:]
			frames++
		}
		n := app.node(1)
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.neighbors) > maxNeighbors || n.asking > maxAsking || n.asking < 0 {
			t.Fatalf("%d neighbours, %d of them asked for", len(n.neighbors), n.asking)
		}
		if sent := len(s.take()); sent > 100*(frames+10) {
			t.Fatalf("%d frames lead to %d", frames, sent)
		}
	})
}
