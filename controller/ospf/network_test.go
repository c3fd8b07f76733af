package ospf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/controller/discovery"
	engine "trivet.dev/trivet/routing/ospf"
	"trivet.dev/trivet/topology"
)

// Proves that routers whose links are known are Full at once, without a packet; that a port that
// goes down takes its routes with it at that moment, and that they are back when the link is.
func TestFullAtOnce(t *testing.T) {
	s := newSim(t, 4)
	for i := range 4 { // a ring
		s.link(i+1, (i+1)%4+1)
	}
	s.must(s.configure(s.now, s.config))
	for _, r := range s.routers {
		r.connected, r.since = true, s.now
		for _, p := range r.ports {
			s.portIs(s.now, r.DPID, p.Port, true)
		}
	}
	s.join(s.now, s.joined)
	out, _ := s.poll(s.now)
	if len(out.runs) != 1 || len(out.packets) != 0 || s.full(1) != 2 {
		t.Fatalf("at once: %d calculations, %d packets, %d neighbours Full", len(out.runs), len(out.packets), s.full(1))
	}
	s.wantRoute(1, "10.100.2.0/24", "2 172.16.0.2@2")
	s.wantRoute(1, "10.100.3.0/24", "3 172.16.0.2@2 172.16.0.13@3")
	s.run(time.Second)

	s.portIs(s.now, 1, 2, false)
	out, _ = s.poll(s.now)
	if len(out.runs) != 1 || out.runs[0].Cause != "r1-eth1 of r1 went down" {
		t.Errorf("calculations %+v", out.runs)
	}
	s.wantRoute(1, "10.100.2.0/24", "4 172.16.0.13@3")
	s.known(1, 2, discovery.Open)
	s.known(2, 2, discovery.Open)
	links := s.joined.links
	s.joined.links = links[2:]
	s.portIs(s.now, 2, 2, false)
	s.rejoin()
	s.wantRoute(3, "10.100.1.0/24", "3 172.16.0.10@3")

	s.portIs(s.now, 1, 2, true)
	s.portIs(s.now, 2, 2, true)
	s.rejoin()
	if s.full(1) != 1 {
		t.Error("a link that is not known yet is used")
	}
	s.joined.links = links
	s.known(1, 2, discovery.Inner)
	s.known(2, 2, discovery.Inner)
	s.rejoin()
	s.wantRoute(1, "10.100.2.0/24", "2 172.16.0.2@2")
}

// Proves that routers on a switch are one broadcast network with one designated router; that they
// exchange packets as soon as a port of the switch may lead to others, and still do when the switch
// is away; and that they are one network again when that port is gone.
func TestSwitchedNetwork(t *testing.T) {
	const sw = 1_000_001
	s := newSim(t, 3)
	for i := range 3 {
		n := s.port(i+1, engine.InterfaceConfig{Type: engine.Broadcast, Cost: 1}, fmt.Sprintf("10.9.0.%d/24", i+1))
		s.cable(uint64(i+1), n, sw, uint32(i+1))
	}
	s.start()
	dr := map[netip.Addr]bool{}
	for _, r := range s.routers {
		p := r.ports[1]
		d, _ := p.engine.DR()
		dr[d] = true
		if p.segment == nil {
			t.Errorf("%s exchanges packets", r.Name)
		}
	}
	if len(dr) != 1 || !dr[netip.MustParseAddr("10.9.0.3")] {
		t.Errorf("designated routers %v, want 10.9.0.3", dr)
	}
	s.wantRoute(1, "10.100.2.0/24", "2 10.9.0.2@2")

	s.known(sw, 9, discovery.Edge)
	s.rejoin()
	wires := func() (count int) {
		for _, r := range s.routers {
			if r.ports[1].segment == nil && r.ports[1].up() {
				count++
			}
		}
		return count
	}
	if wires() != 3 {
		t.Errorf("%d of 3 routers exchange packets when a host is at the switch", wires())
	}
	s.joined.connected = func(dpid uint64) bool { return dpid != sw }
	s.joined.ports = s.joined.ports[:len(s.joined.ports)-1]
	s.rejoin()
	if wires() != 3 {
		t.Error("the host was forgotten with the switch's connection")
	}
	s.joined.connected = func(uint64) bool { return true }
	s.rejoin()
	if wires() != 0 {
		t.Errorf("%d routers exchange packets on a network that is all the controller's", wires())
	}
	s.wantRoute(1, "10.100.2.0/24", "2 10.9.0.2@2")
}

// Proves that routers that would not become neighbours by packets do not become neighbours without.
func TestMismatch(t *testing.T) {
	for what, change := range map[string]func(*engine.InterfaceConfig){
		"hello": func(c *engine.InterfaceConfig) { c.HelloInterval = 5 * time.Second },
		"area":  func(c *engine.InterfaceConfig) { c.Area = 7 },
		"auth":  func(c *engine.InterfaceConfig) { c.Auth = engine.Auth{Type: engine.AuthSimple, Password: "x"} },
	} {
		s := newSim(t, 2)
		s.link(1, 2)
		change(&s.config.Routers[0].Interfaces[1].Settings)
		s.start()
		if s.full(1) != 0 || s.routers[1].ports[1].segment != nil {
			t.Errorf("%s differs, and they are neighbours", what)
		}
	}
}

// outsideOf joins a router outside to r1 by a point-to-point link, and waits until it is Full.
func outsideOf(s *sim) *outsider {
	c := engine.InterfaceConfig{Type: engine.PointToPoint, Cost: 1}
	n := s.port(1, c, "10.8.0.1/30")
	s.known(1, n, discovery.Edge)
	s.start()
	o := s.outsider(1, n, c, "10.8.0.2/30")
	s.run(30 * time.Second)
	return o
}

// Proves that a router outside becomes Full by packets and has the routes of all; and that a change
// of the configuration (a router more, another cost, a network less) is heard by it without the
// adjacency ending.
func TestConfigureKeepsAdjacencies(t *testing.T) {
	s := newSim(t, 2)
	s.link(1, 2)
	o := outsideOf(s)
	if s.full(1) != 2 {
		t.Fatalf("%d neighbours of r1 are Full, not 2: %+v", s.full(1), s.changes)
	}
	has := func(to string) string {
		r, _ := o.router.Routes().Find(netip.MustParsePrefix(to))
		return fmt.Sprint(r)
	}
	if got := has("10.100.2.0/24"); got != "10.100.2.0/24 intra-area cost 3 via 10.8.0.1" {
		t.Errorf("outside: %s", got)
	}
	before := len(s.changes)
	s.config.Routers = append(s.config.Routers, Router{DPID: 3, Name: "r3", ID: 3})
	s.lan(3, "10.100.3.1/24")
	s.link(2, 3)
	r1, r2 := s.config.Routers[0], s.config.Routers[1]
	r1.Interfaces = append([]Interface{}, r1.Interfaces...)
	r1.Interfaces[1].Settings.Cost = 10
	r2.Interfaces = append([]Interface{}, r2.Interfaces[1:]...) // without its LAN
	s.config.Routers[0], s.config.Routers[1] = r1, r2
	s.must(s.configure(s.now, s.config))
	for _, r := range s.routers {
		r.connected = true
		for _, p := range r.ports {
			s.portIs(s.now, r.DPID, p.Port, true)
		}
	}
	s.rejoin()
	s.run(10 * time.Second)
	if len(s.changes) != before {
		t.Errorf("the adjacency changed: %+v", s.changes[before:])
	}
	if got := has("10.100.3.0/24"); got != "10.100.3.0/24 intra-area cost 13 via 10.8.0.1" {
		t.Errorf("outside, of the new router: %s", got)
	}
	if _, found := o.router.Routes().Find(netip.MustParsePrefix("10.100.2.0/24")); found {
		t.Error("outside, the network that was taken away is still there")
	}
	s.config.Routers = s.config.Routers[:1] // r2 and r3 go: their LSAs are flushed
	s.must(s.configure(s.now, s.config))
	s.rejoin()
	s.run(10 * time.Second)
	if _, found := o.domain.Area(0).LSA(engine.LSAKey{Type: engine.TypeRouter, ID: 2, AdvRouter: 2}); found || len(s.changes) != before {
		t.Errorf("after routers were removed: LSA there: %v; changes %+v", found, s.changes[before:])
	}
}

// Proves that a thousand routers from a topology become a network in which the farthest of them has
// the networks of all, and that a link that fails is gone round. The log has how long it took.
func TestThousandRouters(t *testing.T) {
	const n = 1000
	top := &topology.Topology{}
	for i := range n {
		top.AddNode(topology.Router, fmt.Sprintf("r%d", i+1)).Protocols.Set(&topology.OSPF{})
		top.AddNode(topology.Host, fmt.Sprintf("h%d", i+1))
		top.AddLink(fmt.Sprintf("r%d", i+1), fmt.Sprintf("h%d", i+1))
	}
	for i := range n { // a ring with chords
		top.AddLink(fmt.Sprintf("r%d", i+1), fmt.Sprintf("r%d", (i+1)%n+1))
		if i%10 == 0 {
			top.AddLink(fmt.Sprintf("r%d", i+1), fmt.Sprintf("r%d", (i+n/2)%n+1))
		}
	}
	resolved, problems := topology.Resolve(top, topology.Defaults{Datapath: topology.Embedded, Controlled: topology.Embedded, Controller: topology.ControllerTrivet})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	begin := time.Now()
	s := newSim(t, 0)
	s.config = ConfigOf(resolved)
	for _, l := range resolved.Links {
		a, b := resolved.Node(l.Ends[0].Node), resolved.Node(l.Ends[1].Node)
		if b.Kind == topology.Host {
			s.known(uint64(a.DPID), a.OpenFlowPort(l.Ends[0]), discovery.Edge)
			continue
		}
		s.cable(uint64(a.DPID), a.OpenFlowPort(l.Ends[0]), uint64(b.DPID), b.OpenFlowPort(l.Ends[1]))
	}
	t.Logf("the network is made after %v", time.Since(begin))
	begin = time.Now()
	s.start()
	t.Logf("%d routers are joined, and the first calculation is done, after %v", len(s.routers), time.Since(begin))
	begin = time.Now()
	for dpid := range s.routers {
		if got := len(s.network.routes(dpid)); got < n {
			t.Fatalf("router %d has %d routes", dpid, got)
		}
	}
	t.Logf("all routes of all routers after %v", time.Since(begin))
	before := s.route(1, s.config.Routers[1].Interfaces[0].Settings.Address.Masked().String())
	down := s.config.Routers[0].Interfaces[1].Port
	begin = time.Now()
	s.portIs(s.now, s.config.Routers[0].DPID, down, false)
	out, _ := s.poll(s.now)
	t.Logf("a port down: %d calculation after %v", len(out.runs), time.Since(begin))
	after := s.route(1, s.config.Routers[1].Interfaces[0].Settings.Address.Masked().String())
	if before == after || after == "" || len(out.runs) != 1 {
		t.Errorf("the route to r2 was %q and is %q after %d calculations", before, after, len(out.runs))
	}
}

// Proves that a header is what a router expects, that what is wrapped comes out again, and that
// other protocols and cut packets are refused.
func TestWrap(t *testing.T) {
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("224.0.0.5")
	b := wrap(src, dst, 1, 7, []byte("hello"), 1500)[0]
	want := []byte{0x45, 0xc0, 0, 25, 0, 7, 0, 0, 1, 89, 0xce, 0xbf, 10, 0, 0, 1, 224, 0, 0, 5}
	if !bytes.Equal(b[:20], want) {
		t.Errorf("header % x, want % x", b[:20], want)
	}
	h, err := unwrap(append(b, 0, 0, 0)) // padded by Ethernet
	if err != nil || h.src != src || h.dst != dst || h.id != 7 || h.more || h.offset != 0 || string(h.payload) != "hello" {
		t.Errorf("%+v %v", h, err)
	}
	for what, change := range map[string]func([]byte){
		"another protocol": func(b []byte) { b[9] = 6 }, "a long length": func(b []byte) { b[3] = 200 }, "a short header": func(b []byte) { b[0] = 0x44 },
	} {
		bad := bytes.Clone(b)
		change(bad)
		if _, err := unwrap(bad); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// Proves that the last packets are kept, no more than there is room for, and that the file has them
// in order.
func TestCapture(t *testing.T) {
	var c capture
	at := time.Unix(1_900_000_000, 5)
	for i := range maxCaptured + 10 {
		c.add(at.Add(time.Duration(i)), place{uint64(i & 1), 1}, []byte{byte(i), byte(i >> 8)})
	}
	list := c.of(0, true)
	if len(list) != maxCaptured || binary.LittleEndian.Uint16(list[0].data) != 10 || binary.LittleEndian.Uint16(list[maxCaptured-1].data) != maxCaptured+9 {
		t.Fatalf("%d packets, from %v to %v", len(list), list[0].data, list[len(list)-1].data)
	}
	if one := c.of(1, false); len(one) != maxCaptured/2 || one[0].data[0] != 11 {
		t.Errorf("of one router %d, the first %v", len(one), one[0].data)
	}
	var b bytes.Buffer
	s := write(&b, list[:2])
	if want := 24 + 2*(16+2); s != nil || b.Len() != want || b.Bytes()[20] != 101 {
		t.Errorf("the file has %d bytes, want %d: %v", b.Len(), want, s)
	}
}

// FuzzReceive gives a router that has a Full neighbour packets by the port it is at: it must not
// fail, and must not send without bound.
func FuzzReceive(f *testing.F) {
	for _, b := range wrap(netip.MustParseAddr("10.8.0.2"), engine.AllSPFRouters, 1, 1, make([]byte, 44), 60) {
		f.Add(b)
	}
	f.Add([]byte{0x45})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newSim(t, 1)
		outsideOf(s)
		s.receive(s.now, place{1, 2}, b)
		if out, _ := s.poll(s.now); len(out.packets) > 100 {
			t.Errorf("%d packets in answer to one", len(out.packets))
		}
		s.run(time.Second)
	})
}

// Proves that who floods a port with packets does not take the places of those that come by others,
// and that the places are free again when the packets have been taken, of which none is lost.
func TestFloodedPort(t *testing.T) {
	a := &App{queue: make(chan arrived, maxQueue), net: newNetwork(slog.New(slog.DiscardHandler), time.Now())}
	s, ipv4 := (*speaker)(a), []byte{0x45}
	for round := range 3 {
		for range 2 * maxQueue {
			s.Receive(1, 1, ipv4)
		}
		lost := a.lost.Load()
		for port := uint32(2); port < 6; port++ {
			s.Receive(1, port, ipv4)
		}
		if a.lost.Load() != lost || len(a.queue) != maxOfOne+4 {
			t.Fatalf("round %d: %d packets wait, %d of other ports were lost", round, len(a.queue), a.lost.Load()-lost)
		}
		for len(a.queue) > 0 {
			a.receive(<-a.queue)
		}
	}
	if want := uint64(3 * (maxOfOne + 4)); a.net.unknown != want {
		t.Errorf("%d of %d packets came to the network", a.net.unknown, want)
	}
	if len(a.waiting.count) != 0 {
		t.Errorf("in the end there wait %v", a.waiting.count)
	}
}

// Proves that a neighbour that brings more than its port lets it is dropped with a reason in the
// log and the event, and that the routes of the others stay.
func TestTooManyLSAs(t *testing.T) {
	s := newSim(t, 2)
	var log bytes.Buffer
	s.network.log = slog.New(slog.NewTextHandler(&log, nil))
	s.link(1, 2)
	n := s.port(1, engine.InterfaceConfig{Type: engine.PointToPoint, Cost: 1, MaxLSAs: 100}, "10.8.0.1/30")
	s.known(1, n, discovery.Edge)
	s.start()
	o := s.outsider(1, n, engine.InterfaceConfig{Type: engine.PointToPoint}, "10.8.0.2/30")
	s.run(30 * time.Second)
	if s.full(1) != 2 {
		t.Fatalf("%d neighbours of r1 are Full", s.full(1))
	}
	var list []engine.External
	for i := range 1000 {
		list = append(list, engine.External{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, byte(i >> 8), byte(i), 0}), 24), Metric: 1})
	}
	s.must(o.router.SetExternals(s.now, list))
	before := len(s.network.routes(2))
	s.run(20 * time.Second)
	if s.full(1) != 1 || !strings.Contains(log.String(), "more than 100 LSAs") {
		t.Errorf("%d neighbours of r1 are Full; the log says %q", s.full(1), log.String())
	}
	if last := s.changes[len(s.changes)-1]; last.To != "Down" || !strings.Contains(last.Reason, "more than 100 LSAs") {
		t.Errorf("the last event is %+v", last)
	}
	if after := len(s.network.routes(2)); after > before {
		t.Errorf("r2 has %d routes, it had %d", after, before)
	}
}
