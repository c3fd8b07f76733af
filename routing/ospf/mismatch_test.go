package ospf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// mismatches is in what an interface does not agree with others, as text.
func mismatches(i *Interface) string {
	var out []string
	for _, m := range i.Mismatches() {
		out = append(out, fmt.Sprintf("%v %v %s: %s, %s", m.From, m.Neighbor, m.What, m.Theirs, m.Ours))
	}
	return strings.Join(out, "; ")
}

// Proves that an interface names all in which a router that it hears differs, with both values,
// and tells it once; that it forgets it when the router has fallen silent; and also at once when
// the router comes back as it is to be, when the two become Full.
func TestMismatch(t *testing.T) {
	address := netip.MustParsePrefix("10.0.1.2/24")
	key := func(id uint8, a Algorithm, secret string) Auth {
		return cryptographic(Key{ID: id, Algorithm: a, Secret: []byte(secret)})
	}
	for name, c := range map[string]struct {
		typ  InterfaceType
		ours func(*InterfaceConfig)
		set  func(*InterfaceConfig)
		id   string
		want string
	}{
		"area":     {set: func(c *InterfaceConfig) { c.Area = 7 }, want: "area: 0.0.0.7, 0.0.0.0"},
		"subnet":   {typ: Broadcast, set: func(c *InterfaceConfig) { c.Address = netip.MustParsePrefix("10.0.2.2/24") }, want: "subnet: 10.0.2.2, 10.0.1.0/24"},
		"mask":     {typ: Broadcast, set: func(c *InterfaceConfig) { c.Address = netip.MustParsePrefix("10.0.1.2/25") }, want: "network mask: 255.255.255.128, 255.255.255.0"},
		"dead":     {set: func(c *InterfaceConfig) { c.DeadInterval = 41 * time.Second }, want: "dead: 41 s, 40 s"},
		"no auth":  {ours: withAuth(Auth{Type: AuthSimple, Password: "walnut"}), want: "authentication type: none, simple"},
		"auth":     {set: withAuth(key(1, KeyedMD5, "walnut")), want: "authentication type: cryptographic, none"},
		"password": {ours: withAuth(Auth{Type: AuthSimple, Password: "walnut"}), set: withAuth(Auth{Type: AuthSimple, Password: "hazel"}), want: "authentication key: another password, the link's"},
		"key id":   {ours: withAuth(key(1, KeyedMD5, "walnut")), set: withAuth(key(2, KeyedMD5, "walnut")), want: "authentication key: key 2, key 1 (md5)"},
		"secret":   {ours: withAuth(key(1, KeyedMD5, "walnut")), set: withAuth(key(1, KeyedMD5, "hazel")), want: "authentication key: key 1 with another secret, key 1 (md5)"},
		"digest":   {ours: withAuth(key(1, KeyedMD5, "walnut")), set: withAuth(key(1, HMACSHA256, "walnut")), want: "authentication key: a digest of 32 octets, key 1 (md5)"},
		"id":       {id: "1.1.1.1", want: "router id: 1.1.1.1, 1.1.1.1"},
		"larger":   {set: func(c *InterfaceConfig) { c.MTU = 9000 }, want: "MTU: 9000, 1500"},
		"smaller":  {set: func(c *InterfaceConfig) { c.MTU = 1400 }, want: "MTU: 1400, 1500"},
		"p2p":      {typ: Broadcast, set: func(c *InterfaceConfig) { c.Type = PointToPoint }, want: "network type: point-to-point, broadcast"},
		"lan":      {set: func(c *InterfaceConfig) { c.Type = Broadcast }, want: "network type: broadcast, point-to-point"},
	} {
		for _, theirs := range []string{"3.3.3.3", "0.0.0.3"} { // above ours, and below: who is master
			t.Run(name+" "+theirs, func(t *testing.T) {
				s := newSim(t, 1)
				cfg := InterfaceConfig{Type: c.typ, Address: netip.MustParsePrefix("10.0.1.1/24")}
				if c.ours != nil {
					c.ours(&cfg)
				}
				r := s.router("1.1.1.1")
				i, err := r.AddInterface(cfg)
				if err != nil {
					t.Fatal(err)
				}
				l := &simLink{ends: []*Interface{i}}
				s.on[i] = l
				i.Up(s.now)
				meet := func(id string, cfg InterfaceConfig) *Interface {
					far, err := s.router(id).AddInterface(cfg)
					if err != nil {
						t.Fatal(err)
					}
					l.ends, s.on[far] = []*Interface{i, far}, l
					far.Up(s.now)
					return far
				}
				right := cfg
				right.Address = address
				wrong := right
				wrong.Auth = Auth{}
				if c.set != nil {
					c.set(&wrong)
				}
				id := theirs
				if c.id != "" {
					id = c.id
				}
				told := len(s.mismatches)
				far := meet(id, wrong)
				s.run(100 * time.Second)
				want := wrong.Address.Addr().String() + " " + id + " " + c.want
				if got := mismatches(i); got != want {
					t.Fatalf("it says %q, not %q", got, want)
				}
				count := 0
				for _, m := range s.mismatches[told:] {
					if m.Interface == i {
						count++
					}
				}
				if count != 1 {
					t.Errorf("told %d times", count)
				}
				far.Down(s.now)
				s.run(50 * time.Second)
				if got := mismatches(i); got != "" {
					t.Errorf("when it is silent: %s", got)
				}
				far.Up(s.now)
				s.run(100 * time.Second)
				if got := mismatches(i); got != want {
					t.Errorf("when it speaks again: %q", got)
				}
				far.Down(s.now)
				meet(theirs, right)
				s.run(100 * time.Second)
				if n := i.Neighbors(); len(n) != 1 || n[0].State != NeighborFull || mismatches(i) != "" {
					t.Errorf("when it is right: %v, %q", n, mismatches(i))
				}
			})
		}
	}
}

// Proves that all that differs in a Hello is named, not only the first.
func TestMismatchesOfHello(t *testing.T) {
	s := newSim(t, 1)
	l := s.p2p(0, at(s.router("1.1.1.1")), at(s.router("2.2.2.2")).with(func(c *InterfaceConfig) { c.HelloInterval = 5 * time.Second }))
	s.run(30 * time.Second)
	if got, want := mismatches(l.ends[0]), "10.0.1.2 2.2.2.2 hello: 5 s, 10 s; 10.0.1.2 2.2.2.2 dead: 20 s, 40 s"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

// Proves that a router outside that has the Router ID of another router of the domain is named.
func TestRouterIDOfAnother(t *testing.T) {
	s := newSim(t, 1)
	d := s.domain()
	a, b := s.routerIn(d, "1.1.1.1"), s.routerIn(d, "2.2.2.2")
	s.stub(0, at(b), "172.16.1.1/24")
	l := s.p2p(0, at(a), at(s.router("2.2.2.2")))
	s.run(30 * time.Second)
	if got, want := mismatches(l.ends[0]), "10.0.2.2 2.2.2.2 router id: 2.2.2.2, 2.2.2.2"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

// Proves that routers that agree are never said not to: not while they start, not when one is made
// anew, not on a network with several, not when packets are lost.
func TestNoMismatch(t *testing.T) {
	s := newSim(t, 1)
	s.loss = 0.2
	r := s.routers(4)
	lan := s.lan(0, at(r[0]), at(r[1]), at(r[2]), at(r[3]).with(func(c *InterfaceConfig) { c.NeverDR = true }))
	p2p := s.p2p(0, at(r[0]), at(r[1]))
	for range 5 {
		s.run(90 * time.Second)
		lan.ends[0].Down(s.now)
		s.run(10 * time.Second)
		lan.ends[0].Up(s.now)
		p2p.ends[1].Down(s.now)
		s.run(time.Second)
		p2p.ends[1].Up(s.now)
	}
	if len(s.mismatches) > 0 {
		t.Errorf("%v", s.mismatches)
	}
}

// Proves that forged packets make an interface remember no more than its share, and that they are
// forgotten.
func TestManyStrangers(t *testing.T) {
	s := newSim(t, 1)
	l := s.p2p(0, at(s.router("1.1.1.1")), at(s.router("2.2.2.2")))
	i := l.ends[0]
	for n := range 1000 {
		p := Packet{RouterID: ID(1000 + n), AreaID: 7, Body: &Hello{}}
		_ = i.router.domain.Receive(s.now, i, ID(0x0a000a00+n).Addr(), AllSPFRouters, Auth{}.Sign(p.encode(), 0, s.now))
	}
	if n := len(i.Mismatches()); n != maxMismatches {
		t.Errorf("%d are remembered", n)
	}
	s.run(60 * time.Second)
	if m := i.Mismatches(); len(m) != 0 || l.state(i.router, l.ends[1].router) != NeighborFull {
		t.Errorf("later %v", m)
	}
	if slices.ContainsFunc(s.mismatches, func(m Mismatch) bool { return m.What != DifferArea }) {
		t.Errorf("%v", s.mismatches)
	}
}
