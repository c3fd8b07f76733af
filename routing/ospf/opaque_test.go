package ospf

import (
	"encoding/binary"
	"testing"
	"time"
)

// opaque has a router originate an opaque LSA on a link.
func (s *sim) opaque(i *Interface, t LSType, number ID, body string) LSAKey {
	key := LSAKey{t, 200<<24 | number, i.router.id}
	i.router.domain.advance(s.now)
	i.wire.database(t).originate(key, OptionE, []byte(body))
	return key
}

// has tells whether a router's domain has an LSA on one of its links.
func has(i *Interface, key LSAKey) bool {
	return i.wire.database(key.Type).entries[key] != nil
}

// Opaque LSAs are flooded over one link, through the area, or through the AS but stub areas (RFC
// 5250, section 3), to neighbours of before and to those that come later; what is in them matters
// to nobody, and when they are flushed they are gone everywhere.
func TestOpaqueLSAs(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(4)
	if _, err := r[2].domain.AddArea(AreaConfig{ID: 1, Stub: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := r[3].domain.AddArea(AreaConfig{ID: 1, Stub: true}); err != nil {
		t.Fatal(err)
	}
	first, second := s.p2p(0, at(r[0]), at(r[1])), s.lan(0, at(r[1]), at(r[2]))
	stub := s.p2p(1, at(r[2]), at(r[3]))
	var keys []LSAKey
	for n := range ID(2) { // before and after they are adjacent
		keys = append(keys, s.opaque(first.end(r[0]), TypeOpaqueLink, n, "link"), s.opaque(first.end(r[0]), TypeOpaqueArea, n, "area"),
			s.opaque(first.end(r[0]), TypeOpaqueAS, n, "AS"))
		s.run(3 * time.Minute)
	}
	want := func(there bool) {
		t.Helper()
		for _, key := range keys {
			for where, c := range map[string]struct {
				i  *Interface
				at bool
			}{
				"the neighbour":               {first.end(r[1]), true},
				"its other link":              {second.end(r[1]), key.Type != TypeOpaqueLink},
				"the next router":             {second.end(r[2]), key.Type != TypeOpaqueLink},
				"the router in the stub area": {stub.end(r[3]), false},
			} {
				if has(c.i, key) != (c.at && there) {
					t.Errorf("%s has %v: %v", where, key, has(c.i, key))
				}
			}
		}
	}
	want(true)
	if got := len(first.end(r[1]).LSAs()); got != 2 {
		t.Errorf("%d LSAs of the link are listed", got)
	}
	for _, key := range keys {
		r[0].domain.advance(s.now)
		first.end(r[0]).wire.database(key.Type).withdraw(key)
	}
	s.run(time.Minute)
	want(false)
	if n := len(s.refused); n > 0 {
		t.Errorf("packets were refused: %v", s.refused)
	}
}

// A neighbour that does not say in its Database Descriptions that it knows opaque LSAs gets none,
// and becomes Full (RFC 5250, section 3.1).
func TestOpaqueLSAsNotWanted(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(3)
	l, other := s.p2p(0, at(r[0]), at(r[1])), s.p2p(0, at(r[0]), at(r[2]))
	s.drop = func(g Datagram) bool {
		if b := g.Payload; g.Interface.router == r[1] && PacketType(b[1]) == TypeDatabaseDescription {
			b[headerLen+2] &^= byte(OptionO)
			binary.BigEndian.PutUint16(b[12:], 0)
			binary.BigEndian.PutUint16(b[12:], onesComplement(b))
		}
		return false
	}
	before := s.opaque(other.end(r[0]), TypeOpaqueArea, 1, "x")
	s.run(time.Minute)
	after := s.opaque(other.end(r[0]), TypeOpaqueArea, 2, "x")
	s.run(time.Minute)
	for _, key := range []LSAKey{before, after} {
		if has(l.end(r[1]), key) || !has(other.end(r[2]), key) {
			t.Errorf("%v: who does not know opaque LSAs has it: %v, who does: %v", key, has(l.end(r[1]), key), has(other.end(r[2]), key))
		}
	}
	if l.state(r[0], r[1]) != NeighborFull || l.state(r[1], r[0]) != NeighborFull {
		t.Errorf("they are %v and %v", l.state(r[0], r[1]), l.state(r[1], r[0]))
	}
}

// The LSAs of a link are gone with it.
func TestOpaqueLSAsOfLinkDown(t *testing.T) {
	s := newSim(t, 1)
	r := s.routers(2)
	l := s.p2p(0, at(r[0]), at(r[1]))
	key := s.opaque(l.end(r[0]), TypeOpaqueLink, 1, "x")
	s.run(time.Minute)
	if !has(l.end(r[1]), key) {
		t.Fatal("it is not there")
	}
	s.fail(l)
	if has(l.end(r[0]), key) || has(l.end(r[1]), key) {
		t.Error("it is there without the link")
	}
	s.run(2 * time.Hour) // no timer of it is left
	for _, i := range l.ends {
		i.Up(s.now)
	}
	s.run(time.Minute)
	if has(l.end(r[1]), key) || l.state(r[0], r[1]) != NeighborFull {
		t.Errorf("it is back; the neighbour is %v", l.state(r[0], r[1]))
	}
}
