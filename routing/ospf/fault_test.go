package ospf

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// wasRefused tells whether a packet was not taken for a reason that contains a text.
func (s *sim) wasRefused(text string) bool {
	for reason := range s.refused {
		if strings.Contains(reason, text) {
			return true
		}
	}
	return false
}

// Routers whose Hellos differ in what section 10.5 compares do not become neighbours, and say why.
// On point-to-point links masks may differ.
func TestHelloMismatch(t *testing.T) {
	address := func(p string) func(*InterfaceConfig) {
		return func(c *InterfaceConfig) { c.Address = netip.MustParsePrefix(p) }
	}
	for _, c := range []struct {
		name   string
		typ    InterfaceType
		change func(*InterfaceConfig)
		reason string
	}{
		{"hello", PointToPoint, func(c *InterfaceConfig) { c.HelloInterval, c.DeadInterval = 5*time.Second, 40*time.Second }, "HelloInterval is 5 s, ours is 10s"},
		{"dead", PointToPoint, func(c *InterfaceConfig) { c.DeadInterval = 41 * time.Second }, "RouterDeadInterval is 41 s, ours is 40s"},
		{"mask", Broadcast, address("10.0.1.2/25"), "network mask is 255.255.255.128, ours is 255.255.255.0"},
		{"network", Broadcast, address("10.0.2.2/24"), "its source is not in the network 10.0.1.0/24"},
		{"point-to-point mask", PointToPoint, address("10.0.1.2/25"), ""},
		{"area", PointToPoint, func(c *InterfaceConfig) { c.Area = 1 }, "there is no virtual link"},
	} {
		s := newSim(t, 1)
		a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
		l := s.link(0, c.typ, at(a), end{r: b})
		l.end(b).Down(s.now)
		b = s.router("3.3.3.3")
		cfg := InterfaceConfig{Type: c.typ, Address: netip.MustParsePrefix("10.0.1.2/24")}
		c.change(&cfg)
		i, err := b.AddInterface(cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.ends[1], s.on[i] = i, l
		i.Up(s.now)
		s.run(60 * time.Second)
		if full := l.state(a, b) == NeighborFull; full != (c.reason == "") || c.reason != "" && !s.wasRefused(c.reason) {
			t.Errorf("%s: %v, refused %v", c.name, l.state(a, b), s.refused)
		}
	}
}

// A router that takes the area for a stub area is no neighbour of one that does not (section 10.5,
// bit E).
func TestStubMismatch(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	if _, err := a.domain.AddArea(AreaConfig{ID: 1, Stub: true}); err != nil {
		t.Fatal(err)
	}
	l := s.p2p(1, at(a), at(b))
	s.run(30 * time.Second)
	if l.state(a, b) != NeighborDown || !s.wasRefused("it does not treat area 0.0.0.1 as a stub area") {
		t.Errorf("%v, refused %v", l.state(a, b), s.refused)
	}
}

// A neighbour that could send larger packets than we receive does not come out of ExStart (section
// 10.6), unless that is to be ignored.
func TestMTUMismatch(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		s := newSim(t, 1)
		a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
		l := s.p2p(0, at(a).with(func(c *InterfaceConfig) { c.MTUIgnore = ignore }), at(b).with(func(c *InterfaceConfig) { c.MTU = 9000 }))
		s.run(60 * time.Second)
		if full := l.state(a, b) == NeighborFull; full != ignore || !ignore && l.state(a, b) != NeighborExStart {
			t.Errorf("ignore %v: %v", ignore, l.state(a, b))
		}
		if !ignore && !s.wasRefused("its MTU is 9000 octets, ours is 1500") {
			t.Errorf("refused %v", s.refused)
		}
	}
}

// Two routers with one Router ID do not become neighbours, and say why.
func TestOwnRouterID(t *testing.T) {
	s := newSim(t, 1)
	l := s.p2p(0, at(s.router("1.1.1.1")), at(s.router("1.1.1.1")))
	s.run(30 * time.Second)
	if len(l.ends[0].Neighbors()) != 0 || !s.wasRefused("its Router ID 1.1.1.1 is our own") {
		t.Errorf("refused %v", s.refused)
	}
}

// On an unnumbered link routers become Full, and routes have the interface as their next hop.
func TestUnnumbered(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	index := func(n uint32) func(*InterfaceConfig) { return func(c *InterfaceConfig) { c.Index = n } }
	first := s.p2p(0, at(a).with(index(1)), at(b).with(index(1)))
	s.p2p(0, at(a).with(index(2)), at(b).with(index(2)).cost(20))
	s.stub(0, at(b).cost(1), "172.16.1.1/24")
	s.run(30 * time.Second)
	s.wantRoute(a, "172.16.1.0/24 intra-area cost 11 via 2.2.2.2 via 2.2.2.2")
	s.fail(first)
	s.run(10 * time.Second)
	r, _ := a.Routes().Find(netip.MustParsePrefix("172.16.1.0/24"))
	if len(r.NextHops) != 1 || r.NextHops[0].Interface.Index() != 2 {
		t.Errorf("after the first link failed: %v", r)
	}
}

// When nothing is heard for RouterDeadInterval a neighbour is lost, and the path is not used from
// then on; when one end stops hearing, the other falls back to Init by its Hellos (sections 10.2
// and 10.3).
func TestSilence(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	l := s.p2p(0, at(a), at(b))
	s.stub(0, at(b), "172.16.1.1/24")
	s.run(30 * time.Second)
	s.drop = func(g Datagram) bool { return g.Interface.router == b } // a hears nothing, b hears a
	s.run(30 * time.Second)
	if l.state(a, b) != NeighborFull {
		t.Errorf("after 30 s the neighbour is %v", l.state(a, b))
	}
	s.run(25 * time.Second)
	if l.state(a, b) != NeighborDown || l.state(b, a) != NeighborInit {
		t.Errorf("after 55 s the states are %v and %v", l.state(a, b), l.state(b, a))
	}
	s.wantNoRoute(a, "172.16.1.0/24")
	s.drop = nil
	s.run(30 * time.Second)
	if l.state(a, b) != NeighborFull || l.state(b, a) != NeighborFull {
		t.Errorf("at last the states are %v and %v", l.state(a, b), l.state(b, a))
	}
	s.wantSame()
}

// Links that lose a quarter of all packets: databases become equal all the same, by retransmission
// of Database Descriptions, requests and updates; twelve routers, point-to-point and broadcast.
func TestLossyLinks(t *testing.T) {
	for seed := range *seeds {
		s := newSim(t, seed)
		s.loss = 0.25
		routers := s.routers(12)
		for _, r := range routers {
			externals(s, r, External{Prefix: netip.PrefixFrom(r.id.Addr(), 32), Metric: 5})
		}
		// Losing four Hellos in a row must not make a neighbour Down while we wait.
		s.patient = 400 * time.Second
		s.randomNetwork(0, routers)
		s.run(15 * time.Minute)
		s.wantSame()
		s.wantIntraArea(0, routers)
		if n := len(routers[0].domain.Externals()); n != 12 {
			t.Errorf("seed %d: %d AS-external-LSAs", seed, n)
		}
	}
}

// A router that starts again finds its LSAs of before in the network, outdoes those that it still
// originates, and flushes the others (section 13.4).
func TestRestart(t *testing.T) {
	s := newSim(t, 1)
	a, b, c := s.router("1.1.1.1"), s.router("2.2.2.2"), s.router("3.3.3.3")
	s.p2p(0, at(a), at(b))
	l := s.p2p(0, at(b), at(c))
	s.stub(0, at(c), "172.16.3.1/24")
	externals(s, c, External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1}, External{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Metric: 1})
	s.run(60 * time.Second)
	old, _ := a.domain.Area(0).LSA(LSAKey{TypeRouter, c.id, c.id})

	// c loses its memory, and one of its external routes.
	s.domains = slices.DeleteFunc(s.domains, func(d *simDomain) bool { return d.Domain == c.domain })
	c = s.router("3.3.3.3")
	i, err := c.AddInterface(InterfaceConfig{Address: l.ends[1].Address()})
	if err != nil {
		t.Fatal(err)
	}
	delete(s.on, l.ends[1])
	l.ends[1], s.on[i] = i, l
	externals(s, c, External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 2})
	i.Up(s.now)
	s.run(60 * time.Second)
	s.wantSame()
	s.wantRoute(a, "192.0.2.0/24 type 1 external cost 22 via 10.0.1.2")
	s.wantNoRoute(a, "198.51.100.0/24")
	s.wantNoRoute(a, "172.16.3.0/24")
	if now, _ := a.domain.Area(0).LSA(LSAKey{TypeRouter, c.id, c.id}); now.Seq <= old.Seq {
		t.Errorf("the router-LSA's sequence number is %x after %x", now.Seq, old.Seq)
	}
}

// A router that has got another Router ID flushes the network-LSA that its former self left for its
// address (section 13.4).
func TestNetworkLSAOfFormerID(t *testing.T) {
	s := newSim(t, 1)
	a, b, c := s.router("1.1.1.1"), s.router("2.2.2.2"), s.router("3.3.3.3")
	s.p2p(0, at(a), at(b))
	l := s.lan(0, at(b), at(c).with(priority(9)))
	s.run(80 * time.Second)
	s.domains = slices.DeleteFunc(s.domains, func(d *simDomain) bool { return d.Domain == c.domain })
	c2 := s.router("4.4.4.4")
	i, err := c2.AddInterface(InterfaceConfig{Type: Broadcast, Priority: 9, Address: l.ends[1].Address()})
	if err != nil {
		t.Fatal(err)
	}
	delete(s.on, l.ends[1])
	l.ends[1], s.on[i] = i, l
	i.Up(s.now)
	s.run(100 * time.Second)
	if _, ok := a.domain.Area(0).LSA(LSAKey{TypeNetwork, i.addr, c.id}); ok {
		t.Error("the network-LSA of the former ID is still there")
	}
	s.wantSame()
	s.wantIntraArea(0, []*Router{a, b, c2})
}

// A request for an LSA that is not in the database is BadLSReq, and Database Descriptions out of
// order are SeqNumberMismatch: the exchange begins anew, and ends with equal databases (section
// 10.3).
func TestExchangeErrors(t *testing.T) {
	for name, body := range map[string]func(n *neighbor) Body{
		"BadLSReq": func(*neighbor) Body { return &LinkStateRequest{Keys: []LSAKey{{TypeRouter, 9, 9}}} },
		"sequence": func(n *neighbor) Body {
			return &DatabaseDescription{MTU: 1500, Options: OptionE, Flags: FlagMaster, Seq: n.exchange.seq + 5}
		},
		"options": func(n *neighbor) Body {
			return &DatabaseDescription{MTU: 1500, Options: OptionE | OptionDC, Flags: FlagMaster, Seq: n.exchange.seq + 1}
		},
		"both master": func(n *neighbor) Body {
			return &DatabaseDescription{MTU: 1500, Options: OptionE, Flags: 0, Seq: n.exchange.seq + 1}
		},
		"init": func(n *neighbor) Body {
			return &DatabaseDescription{MTU: 1500, Options: OptionE, Flags: FlagInit | FlagMore | FlagMaster, Seq: 7}
		},
		"unknown LSA": func(n *neighbor) Body {
			return &DatabaseDescription{MTU: 1500, Options: OptionE, Flags: FlagMaster, Seq: n.exchange.seq + 1, Headers: []LSAHeader{{LSAKey: LSAKey{Type: 9}}}}
		},
	} {
		s := newSim(t, 1)
		a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
		l := s.p2p(0, at(a), at(b))
		s.run(30 * time.Second)
		s.changes = nil
		n := l.end(a).wire.neighbors[0] // a is the slave
		p := Packet{RouterID: b.id, Body: body(n)}
		if err := a.domain.Receive(s.now, l.end(a), l.end(b).Address().Addr(), AllSPFRouters, p.Encode()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if n.state != NeighborExStart {
			t.Errorf("%s: the state is %v", name, n.state)
		}
		s.run(30 * time.Second)
		if l.state(a, b) != NeighborFull || l.state(b, a) != NeighborFull {
			t.Errorf("%s: at last the states are %v and %v", name, l.state(a, b), l.state(b, a))
		}
		s.wantSame()
	}
}

// A database of some thousand LSAs is exchanged in packets that fit the MTU, a single large LSA
// excepted.
func TestLargeDatabase(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	var list []External
	for i := range 3000 {
		list = append(list, External{Prefix: netip.PrefixFrom(ID(0xc0000000+i<<8).Addr(), 24), Metric: 1})
	}
	externals(s, b, list...)
	s.tap = func(g Datagram, p *Packet) {
		if len(g.Payload)+ipLen > 1500 {
			t.Fatalf("a %v packet of %d octets", p.Body.packetType(), len(g.Payload))
		}
	}
	l := s.p2p(0, at(a), at(b))
	s.run(30 * time.Second)
	if l.state(a, b) != NeighborFull || len(a.Routes().Routes) != 3001 {
		t.Errorf("%v, %d routes", l.state(a, b), len(a.Routes().Routes))
	}
	s.wantSame()
	if n := s.sent[TypeLinkStateUpdate]; n > 3000*36/1400*2 {
		t.Errorf("%d updates for 3000 LSAs of 36 octets", n)
	}
	externals(s, b)
	s.run(30 * time.Second)
	if n := len(a.domain.Externals()); n != 0 {
		t.Errorf("after all were withdrawn %d are left", n)
	}
}

// An LSA that its router flushed and wants again, while another still has it at MaxAge, comes back
// with a sequence number that is newer than that one's, and stays (it went round for ever once,
// beginning with the first number each time).
func TestFlushedAndWantedAgain(t *testing.T) {
	s := newSim(t, 1)
	a, b, c := s.router("1.1.1.1"), s.router("2.2.2.2"), s.router("3.3.3.3")
	s.p2p(0, at(a), at(b))
	deaf := s.p2p(0, at(b), at(c))
	x := External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1}
	externals(s, a, x)
	s.run(60 * time.Second)
	// c acknowledges nothing for a while, so b keeps the flushed LSA at MaxAge.
	s.drop = func(g Datagram) bool { return g.Interface == deaf.end(c) && g.Payload[1] == byte(TypeLinkStateAck) }
	externals(s, a)
	s.run(10 * time.Second)
	key := LSAKey{TypeExternal, IDOf(x.Prefix.Addr()), a.id}
	if lsa, ok := b.domain.external.get(key); !ok || lsa.Age != MaxAge {
		t.Fatalf("b has it: %v, age %d", ok, lsa.Age)
	}
	externals(s, a, x)
	s.run(12 * time.Second)
	if lsa, _ := b.domain.external.get(key); lsa.Age == MaxAge {
		t.Error("b still has it at MaxAge only")
	}
	s.drop = nil
	s.run(10 * time.Second)
	s.wantRoute(c, "192.0.2.0/24 type 1 external cost 21 via 10.0.2.1")
	lsa, _ := c.domain.external.get(key)
	s.run(60 * time.Second)
	if now, _ := c.domain.external.get(key); now.Seq != lsa.Seq || now.Age == MaxAge {
		t.Errorf("it does not come to rest: %x after %x", now.Seq, lsa.Seq)
	}
}

// What is sent to AllDRouters is taken by DR and Backup only (section 8.2).
func TestForDesignatedRouters(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(3)
	l := s.lan(0, at(r[0]).with(priority(9)), at(r[1]).with(priority(8)), at(r[2]))
	s.run(100 * time.Second)
	p := Packet{RouterID: r[0].id, Body: &LinkStateAck{}}
	for i, want := range []bool{false, true, false} { // r[0] is the sender itself
		err := r[i].domain.Receive(s.now, l.ends[i], l.ends[0].Address().Addr(), AllDRouters, p.Encode())
		if (err == nil) != want {
			t.Errorf("router %d: %v", i, err)
		}
	}
}

// Only packets that are for the interface are taken, and none that we have sent ourselves (section
// 8.2): the destination is its address or one of the two groups, the source is nobody's at this
// router.
func TestAddresses(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	l, other := s.p2p(0, at(a), at(b)), s.p2p(0, at(a), at(s.router("3.3.3.3")))
	bare := s.p2p(0, at(a).with(func(c *InterfaceConfig) { c.Index = 9 }), at(s.router("4.4.4.4")).with(func(c *InterfaceConfig) { c.Index = 9 }))
	s.run(30 * time.Second)
	address := func(i *Interface) netip.Addr { return i.Address().Addr() }
	from, to := address(l.end(b)), address(l.end(a))
	for _, c := range []struct {
		what     string
		in       *Interface
		src, dst netip.Addr
		taken    bool
	}{
		{"for all routers", l.end(a), from, AllSPFRouters, true},
		{"for its address", l.end(a), from, to, true},
		{"for another address of the router", l.end(a), from, address(other.end(a)), false},
		{"for another router", l.end(a), from, netip.MustParseAddr("10.9.9.9"), false},
		{"for another group", l.end(a), from, netip.MustParseAddr("224.0.0.9"), false},
		{"for designated routers, on a link without", l.end(a), from, AllDRouters, false},
		{"broadcast", l.end(a), from, netip.MustParseAddr("255.255.255.255"), false},
		{"from its own address", l.end(a), to, AllSPFRouters, false},
		{"from another address of the router", l.end(a), address(other.end(a)), AllSPFRouters, false},
		{"from a group", l.end(a), AllSPFRouters, AllSPFRouters, false},
		{"from 0.0.0.0", l.end(a), netip.IPv4Unspecified(), AllSPFRouters, false},
		{"from everybody", l.end(a), netip.MustParseAddr("255.255.255.255"), AllSPFRouters, false},
		{"unnumbered, for a borrowed address", bare.end(a), from, to, true},
		{"unnumbered, for another router", bare.end(a), from, netip.MustParseAddr("10.9.9.9"), false},
	} {
		p := Packet{RouterID: b.id, Body: &Hello{HelloInterval: 10, DeadInterval: 40, Options: OptionE, Neighbors: []ID{a.id}}}
		if err := a.domain.Receive(s.now, c.in, c.src, c.dst, p.Encode()); (err == nil) != c.taken {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// An LSA that is larger than the MTU goes alone in a packet of that size, which IP cuts (section
// 4.3); all other packets keep to the MTU. One that no IP packet can hold is not sent, which is
// told; the others still are.
func TestLargeLSA(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	large := 0
	s.tap = func(g Datagram, p *Packet) {
		u, ok := p.Body.(*LinkStateUpdate)
		if size := len(g.Payload) + ipLen; size > maxDatagram || size > 1500 && (!ok || len(u.LSAs) != 1) {
			t.Fatalf("a %v packet of %d octets", p.Body.packetType(), size)
		} else if size > 1500 {
			large++
		}
	}
	loopbacks := func(from, to int) {
		for n := from; n < to; n++ {
			i, err := a.AddInterface(InterfaceConfig{Type: Loopback, Address: netip.PrefixFrom(ID(0xac100000+n).Addr(), 32)})
			if err != nil {
				t.Fatal(err)
			}
			i.Up(s.now)
		}
	}
	loopbacks(0, 5000)
	l := s.p2p(0, at(a), at(b))
	s.run(60 * time.Second)
	if n := len(b.Routes().Routes); l.state(a, b) != NeighborFull || l.state(b, a) != NeighborFull || n != 5001 || large == 0 {
		t.Fatalf("with an LSA of 60,000 octets: %v and %v, %d routes, %d large packets", l.state(a, b), l.state(b, a), n, large)
	}
	s.wantSame()
	loopbacks(5000, 5500)
	externals(s, a, External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1})
	s.run(60 * time.Second)
	if len(s.errors) == 0 || !strings.Contains(s.errors[0].Error(), "larger than an IP packet") {
		t.Errorf("with an LSA of 66,000 octets the errors are %v", s.errors)
	}
	if l.state(a, b) != NeighborFull || len(b.domain.Externals()) != 1 {
		t.Errorf("%v, %d external LSAs", l.state(a, b), len(b.domain.Externals()))
	}
	l.end(b).Down(s.now)
	l.end(b).Up(s.now)
	s.run(100 * time.Second)
	if l.state(a, b) != NeighborFull || l.state(b, a) != NeighborFull {
		t.Errorf("a neighbour that begins anew is %v", l.state(a, b))
	}
}

// Packets other than Hellos that come by a neighbour's address but say that they are of another
// router are not taken for the neighbour's: one such would end the exchange of databases (section
// 10.6), another acknowledge LSAs.
func TestForeignRouterID(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(2)
	l := s.lan(0, at(r[0]), at(r[1]))
	s.run(100 * time.Second)
	if l.state(r[0], r[1]) != NeighborFull {
		t.Fatal(l.state(r[0], r[1]))
	}
	for _, body := range []Body{&DatabaseDescription{MTU: 1500, Options: OptionE, Flags: FlagInit | FlagMore | FlagMaster, Seq: 7}, &LinkStateRequest{},
		&LinkStateUpdate{}, &LinkStateAck{}} {
		p := Packet{RouterID: r[1].id + 77, Body: body}
		err := r[0].domain.Receive(s.now, l.end(r[0]), l.end(r[1]).Address().Addr(), l.end(r[0]).Address().Addr(), p.Encode())
		if err == nil || l.state(r[0], r[1]) != NeighborFull {
			t.Errorf("%v: %v; the neighbour is %v", body.packetType(), err, l.state(r[0], r[1]))
		}
	}
}

// A request that names one LSA many times is answered by it once (section 10.7).
func TestRepeatedRequest(t *testing.T) {
	n := neighborIn(t, NeighborFull, true)
	key := n.wire.area.db.typed[TypeRouter][0].LSAKey
	req := &LinkStateRequest{}
	for range 100 {
		req.Keys = append(req.Keys, key)
	}
	if err := n.receiveRequest(req); err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, g := range n.domain().Poll(simEpoch.Add(51 * time.Second)).Datagrams {
		if p, _ := Decode(g.Payload); p != nil {
			if u, ok := p.Body.(*LinkStateUpdate); ok && g.Dst == n.addr.Addr() {
				count += len(u.LSAs)
			}
		}
	}
	if count != 1 {
		t.Errorf("it is answered by %d LSAs", count)
	}
}

// An MTU that is not larger than ours is taken, also none at all; a larger one is not, in ExStart
// as in Full, and changes nothing; on a virtual link, and where it is to be ignored, it does not
// matter (section 10.6).
func TestMTUField(t *testing.T) {
	for _, c := range []struct {
		mtu    uint16
		ignore bool
		taken  bool
	}{{0, false, true}, {576, false, true}, {1500, false, true}, {1501, false, false}, {65535, false, false}, {65535, true, true}} {
		n := neighborIn(t, NeighborExStart, true)
		n.wire.cfg.MTUIgnore = c.ignore
		n.startExchange()
		err := n.receiveDD(&DatabaseDescription{MTU: c.mtu, Options: OptionE, Flags: FlagInit | FlagMore | FlagMaster, Seq: 7})
		if taken := err == nil && n.state == NeighborExchange; taken != c.taken {
			t.Errorf("MTU %d, ignored %v: %v, the state is %v", c.mtu, c.ignore, err, n.state)
		}
	}
	n := neighborIn(t, NeighborFull, true)
	if err := n.receiveDD(&DatabaseDescription{MTU: 9000, Options: OptionE, Flags: FlagInit | FlagMore | FlagMaster, Seq: 7}); err == nil || n.state != NeighborFull {
		t.Errorf("in Full: %v, the state is %v", err, n.state)
	}
}

// The Initialize bit, and a packet that is no duplicate, end Loading and Full (section 10.6); a
// duplicate of the master's last packet is answered for RouterDeadInterval, and is an error
// afterwards (section 10.8).
func TestDescriptionsWhenFull(t *testing.T) {
	for name, c := range map[string]struct {
		flags DDFlags
		seq   uint32
		late  bool
		state NeighborState
	}{
		"duplicate":           {FlagMaster, 8, false, NeighborFull},
		"duplicate, too late": {FlagMaster, 8, true, NeighborExStart},
		"next in sequence":    {FlagMaster, 9, false, NeighborExStart},
		"initialize":          {FlagMaster | FlagInit | FlagMore, 8, false, NeighborExStart},
		"as a slave":          {0, 8, false, NeighborExStart},
	} {
		n := neighborIn(t, NeighborExchange, true)
		n.exchange.seq, n.exchange.options, n.exchange.master = 7, OptionE, false
		if err := n.receiveDD(&DatabaseDescription{MTU: 1500, Options: OptionE, Flags: FlagMaster, Seq: 8}); err != nil || n.state != NeighborFull {
			t.Fatal(err, n.state)
		}
		if c.late {
			n.domain().agenda.stop(&n.inactivity)
			n.domain().Poll(simEpoch.Add(5 * time.Minute))
		}
		before := len(n.domain().out.Datagrams)
		_ = n.receiveDD(&DatabaseDescription{MTU: 1500, Options: OptionE, Flags: c.flags, Seq: c.seq})
		if n.state != c.state || name == "duplicate" && len(n.domain().out.Datagrams) != before+1 {
			t.Errorf("%s: the state is %v, not %v; %d packets are sent", name, n.state, c.state, len(n.domain().out.Datagrams)-before)
		}
	}
}
