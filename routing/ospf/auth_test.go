package ospf

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func withAuth(a Auth) func(*InterfaceConfig) { return func(c *InterfaceConfig) { c.Auth = a } }

func cryptographic(keys ...Key) Auth { return Auth{Type: AuthCryptographic, Keys: keys} }

// With each kind of authentication two routers become Full; with another secret, password, key ID,
// algorithm or kind they do not, and the reason is told (appendix D, RFC 5709).
func TestAuthentication(t *testing.T) {
	simple := func(p string) Auth { return Auth{Type: AuthSimple, Password: p} }
	key := func(id uint8, a Algorithm, secret string) Auth {
		return cryptographic(Key{ID: id, Algorithm: a, Secret: []byte(secret)})
	}
	long := strings.Repeat("long ", 30)
	for _, c := range []struct {
		a, b Auth
		want string // the reason, or nothing
	}{
		{Auth{}, Auth{}, ""},
		{simple("walnut"), simple("walnut"), ""},
		{key(1, KeyedMD5, "walnut"), key(1, KeyedMD5, "walnut"), ""},
		{key(1, HMACSHA1, "walnut"), key(1, HMACSHA1, "walnut"), ""},
		{key(1, HMACSHA256, long), key(1, HMACSHA256, long), ""},
		{key(1, HMACSHA384, "walnut"), key(1, HMACSHA384, "walnut"), ""},
		{key(1, HMACSHA512, "walnut"), key(1, HMACSHA512, "walnut"), ""},
		{simple("walnut"), simple("hazel"), "the password differs"},
		{simple("walnut"), Auth{}, "authentication type"},
		{key(1, KeyedMD5, "walnut"), simple("walnut"), "authentication type"},
		{key(1, KeyedMD5, "walnut"), key(1, KeyedMD5, "hazel"), "the digest with key 1 is wrong"},
		{key(1, KeyedMD5, "walnut"), key(2, KeyedMD5, "walnut"), "is not valid here"},
		{key(1, HMACSHA1, "walnut"), key(1, HMACSHA256, "walnut"), "a digest of"},
	} {
		s := newSim(t, 1)
		a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
		l := s.p2p(0, at(a).with(withAuth(c.a)), at(b).with(withAuth(c.b)))
		s.run(20 * time.Second)
		full := l.state(a, b) == NeighborFull && l.state(b, a) == NeighborFull
		if full != (c.want == "") || !strings.Contains(fmt.Sprint(s.refused), c.want) {
			t.Errorf("%+v and %+v: %v, refused %v", c.a, c.b, l.state(a, b), s.refused)
		}
	}
}

// A packet that is replayed, or changed anywhere, is not taken (sections D.3 and D.4.3).
func TestReplayAndForgery(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	auth := cryptographic(Key{ID: 1, Algorithm: HMACSHA256, Secret: []byte("walnut")})
	l := s.p2p(0, at(a).with(withAuth(auth)), at(b).with(withAuth(auth)))
	var hello []byte
	s.tap = func(g Datagram, p *Packet) {
		if _, ok := p.Body.(*Hello); ok && g.Interface.router == a {
			hello = append([]byte(nil), g.Payload...)
		}
	}
	s.run(20 * time.Second)
	old := hello
	receive := func(p []byte) error {
		return b.domain.Receive(s.now, l.end(b), l.end(a).Address().Addr(), AllSPFRouters, append([]byte(nil), p...))
	}
	for i := range old {
		changed := append([]byte(nil), old...)
		changed[i] ^= 1
		if receive(changed) == nil {
			t.Errorf("with octet %d changed it is taken", i)
		}
	}
	s.run(20 * time.Second)
	if err := receive(old); err == nil || !strings.Contains(err.Error(), "has been used before") {
		t.Errorf("a replayed Hello: %v", err)
	}
	if l.state(b, a) != NeighborFull {
		t.Errorf("after all that the neighbour is %v", l.state(b, a))
	}
}

// What somebody has recorded of a router does not make it a neighbour again when it is gone, by its
// address or by another one; the router itself comes back. One whose numbers have begun anew comes
// back after an hour, or when the interface has been down.
func TestReplayOfTheDead(t *testing.T) {
	for _, typ := range []InterfaceType{PointToPoint, Broadcast} {
		s := newSim(t, 1)
		a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
		auth := withAuth(cryptographic(Key{ID: 1, Algorithm: HMACSHA256, Secret: []byte("walnut")}))
		l := s.link(0, typ, at(a).with(auth), at(b).with(auth))
		var hello []byte // the last one
		s.tap = func(g Datagram, p *Packet) {
			if _, ok := p.Body.(*Hello); ok && g.Interface.router == a {
				hello = append([]byte(nil), g.Payload...)
			}
		}
		s.run(100 * time.Second)
		if l.state(b, a) != NeighborFull {
			t.Fatalf("%v: at first it is %v", typ, l.state(b, a))
		}
		replay := func(p []byte, src netip.Addr) error {
			return b.domain.Receive(s.now, l.end(b), src, AllSPFRouters, append([]byte(nil), p...))
		}
		src := l.end(a).Address().Addr()
		if typ == Broadcast {
			old := hello
			s.run(20 * time.Second)
			if err := replay(old, src.Next().Next()); err == nil {
				t.Error("a Hello is taken again by another address while the router is alive")
			}
		}
		s.run(time.Second) // it has arrived
		recorded := hello
		s.cut(l)
		s.run(60 * time.Second)
		for _, src := range []netip.Addr{src, src.Next().Next()} {
			if err := replay(recorded, src); err == nil || !strings.Contains(err.Error(), "before it went away") || l.state(b, a) != NeighborDown {
				t.Errorf("%v: the last Hello again, from %v: %v; the state is %v", typ, src, err, l.state(b, a))
			}
		}
		l.down = false
		s.run(100 * time.Second)
		if l.state(b, a) != NeighborFull {
			t.Errorf("%v: when it is back it is %v", typ, l.state(b, a))
		}
		// Its clock goes wrong: numbers are smaller.
		p := Packet{RouterID: a.id, Body: &Hello{Mask: l.end(b).mask, HelloInterval: 10, DeadInterval: 40, Options: OptionE}}
		small := func() []byte { return l.end(a).wire.cfg.Auth.Sign(p.encode(), 5, s.now) }
		s.cut(l)
		s.run(60 * time.Second)
		if replay(small(), src) == nil {
			t.Errorf("%v: a small number is taken after a minute", typ)
		}
		s.run(time.Hour)
		if err := replay(small(), src); err != nil {
			t.Errorf("%v: a small number after an hour: %v", typ, err)
		}
		l.down = false
		s.run(100 * time.Second)
		s.cut(l)
		s.run(60 * time.Second)
		l.end(b).Down(s.now)
		l.end(b).Up(s.now)
		if err := replay(small(), src); err != nil {
			t.Errorf("%v: a small number after the interface was down: %v", typ, err)
		}
	}
}

// Keys change while the adjacency stays: for a time both are accepted, the newer one is sent with.
func TestKeyRollover(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	minute := func(n int) time.Time { return simEpoch.Add(time.Duration(n) * time.Minute) }
	auth := cryptographic(
		Key{ID: 1, Secret: []byte("old"), StopGenerate: minute(6), StopAccept: minute(6)},
		Key{ID: 2, Algorithm: HMACSHA1, Secret: []byte("new"), StartAccept: minute(4), StartGenerate: minute(5)})
	l := s.p2p(0, at(a).with(withAuth(auth)), at(b).with(withAuth(auth)))
	keys := map[byte]bool{}
	s.tap = func(g Datagram, _ *Packet) { keys[g.Payload[18]] = true }
	s.run(4 * time.Minute)
	if len(keys) != 1 || !keys[1] {
		t.Errorf("at first the keys %v are sent with", keys)
	}
	s.run(3 * time.Minute)
	clear(keys)
	s.changes = nil
	s.run(3 * time.Minute)
	if len(keys) != 1 || !keys[2] || len(s.changes) > 0 || l.state(a, b) != NeighborFull {
		t.Errorf("at last keys %v, changes %v, state %v", keys, s.changes, l.state(a, b))
	}
}

// Digests of a fixed packet equal those computed by OpenSSL (printf … | openssl dgst) over the
// packet and the padded key, or over the packet and Apad by HMAC.
func TestDigests(t *testing.T) {
	packet := []byte("an OSPF packet")
	for a, want := range digestsOfOpenSSL {
		if got := fmt.Sprintf("%x", Key{Algorithm: a, Secret: []byte("walnut")}.digest(packet)); got != want {
			t.Errorf("algorithm %d: %s, not %s", a, got, want)
		}
	}
}

var digestsOfOpenSSL = map[Algorithm]string{
	KeyedMD5:   "d14da91556e1803a022df5db3449e6a4",
	HMACSHA1:   "2b02f30c91a65da011cd1f7e7f46e922d8ba6e97",
	HMACSHA256: "4ff98ed8dd17406e38bf17132f4e3a06f8add9a512c3b845f52538ee5b813ece",
	HMACSHA384: "49fba3e5c8e3d9506a14e42bc646d2dea946f943b414b48a3e7d875153f62dc6b7b69b8acd5261d12ca94852c7630473",
	HMACSHA512: "92afef781010b429e411e17863a8f11c4a28c325c5aa9627b21cd850e4d8198eb1c3fe518aab30acff4772ed4d1ef535d21caae39ec761cfd29a2d015c66a709",
}

// When no key is to be sent with any more, the last one goes on (RFC 5709 section 3.2): an
// adjacency must not be lost because nobody has brought a new key.
func TestLastKeyGoesOn(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
	auth := cryptographic(Key{ID: 1, Secret: []byte("old"), StopGenerate: simEpoch.Add(time.Minute)},
		Key{ID: 2, Secret: []byte("new"), StopGenerate: simEpoch.Add(2 * time.Minute)})
	l := s.p2p(0, at(a).with(withAuth(auth)), at(b).with(withAuth(auth)))
	s.run(3 * time.Minute)
	keys := map[byte]bool{}
	s.tap = func(g Datagram, _ *Packet) { keys[g.Payload[18]] = true }
	s.run(3 * time.Minute)
	if l.state(a, b) != NeighborFull || len(keys) != 1 || !keys[2] {
		t.Errorf("%v, keys %v", l.state(a, b), keys)
	}
}
