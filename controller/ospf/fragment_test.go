package ospf

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"trivet.dev/trivet/controller/discovery"
	engine "trivet.dev/trivet/routing/ospf"
)

// Proves that a router with more networks than fit into one packet, and a real one with as many
// beside it, become Full and learn all of them: their router-LSAs go in fragments that the link
// carries.
func TestLargeLSAs(t *testing.T) {
	const loopbacks = 130
	s := newSim(t, 2)
	s.link(1, 2)
	for i := range loopbacks {
		s.port(1, engine.InterfaceConfig{Type: engine.Loopback}, fmt.Sprintf("10.1.%d.1/32", i))
		list := s.config.Routers[0].Interfaces
		list[len(list)-1].Port = 0
	}
	n := s.port(1, engine.InterfaceConfig{Type: engine.PointToPoint, Cost: 1}, "10.8.0.1/30")
	s.known(1, n, discovery.Edge)
	o := s.outsider(1, n, engine.InterfaceConfig{Type: engine.PointToPoint}, "10.8.0.2/30")
	for i := range loopbacks {
		l, err := o.router.AddInterface(engine.InterfaceConfig{Type: engine.Loopback, Address: netip.MustParsePrefix(fmt.Sprintf("10.2.%d.1/32", i))})
		s.must(err)
		l.Up(s.now)
	}
	s.start()
	s.run(30 * time.Second)
	if s.full(1) != 2 {
		t.Fatalf("%d neighbours of r1 are Full, not r2 and the one outside: %s", s.full(1), s.routers[1].ports[len(s.routers[1].ports)-1].counts.reason)
	}
	ours, theirs := 0, 0
	for _, r := range o.router.Routes().Routes {
		if netip.MustParsePrefix("10.1.0.0/16").Contains(r.Prefix.Addr()) {
			ours++
		}
	}
	for _, l := range s.network.routes(2) {
		if netip.MustParsePrefix("10.2.0.0/16").Contains(l.Prefix.Addr()) {
			theirs++
		}
	}
	if ours != loopbacks || theirs != loopbacks {
		t.Errorf("the one outside has %d routes to r1's networks, r2 has %d to those outside; there are %d each", ours, theirs, loopbacks)
	}
}

// Proves that a packet of any size, cut for any MTU, comes out whole, in whatever order its
// fragments arrive and if some arrive twice; that each fits the MTU and has a right checksum.
func TestFragments(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	src, dst := netip.MustParseAddr("10.0.0.1"), engine.AllSPFRouters
	now := time.Unix(1_900_000_000, 0)
	var f fragments
	for id := range uint16(500) {
		payload := make([]byte, 1+rnd.IntN(65515))
		for i := range payload {
			payload[i] = byte(rnd.Uint32())
		}
		mtu := 256 + rnd.IntN(1300)
		list := wrap(src, dst, 1, id, payload, mtu)
		for _, b := range list {
			if len(b) > mtu || !header.IPv4(b).IsChecksumValid() || int(header.IPv4(b).TotalLength()) != len(b) {
				t.Fatalf("a packet of %d octets for an MTU of %d: % x", len(b), mtu, b[:20])
			}
		}
		if len(list) == 1 {
			continue
		}
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = append(list[:1:1], list...) // one twice
		for i, b := range list {
			h, err := unwrap(b)
			got, err2 := f.add(now, fragmentKey{src: h.src, dst: h.dst, id: h.id}, h)
			switch last := i == len(list)-1; {
			case err != nil || err2 != nil:
				t.Fatal(err, err2)
			case (got != nil) != last || last && !bytes.Equal(got, payload):
				t.Fatalf("packet %d: after %d of %d fragments there are %d of %d octets", id, i+1, len(list), len(got), len(payload))
			}
		}
		if f.octets != 0 || len(f.packets) != 0 {
			t.Fatalf("afterwards %d packets with %d octets are kept", len(f.packets), f.octets)
		}
	}
}

// Proves that fragments that contradict each other give no packet, not even when the missing ones
// come.
func TestContradictingFragments(t *testing.T) {
	type part struct {
		start, size int
		more        bool
		fill        byte
	}
	for what, list := range map[string][]part{
		"overlap with the one before":     {{0, 16, true, 0}, {8, 16, true, 0}, {24, 8, false, 0}, {16, 8, true, 0}},
		"overlap with the one after":      {{16, 16, true, 0}, {0, 24, true, 0}, {0, 16, true, 0}, {32, 8, false, 0}},
		"the same place, other contents":  {{0, 16, true, 0}, {0, 16, true, 1}, {16, 8, false, 0}},
		"inside of another":               {{0, 24, true, 0}, {8, 8, true, 0}, {24, 8, false, 0}},
		"after the end":                   {{16, 8, false, 0}, {24, 8, true, 0}, {0, 16, true, 0}},
		"two ends":                        {{16, 8, false, 0}, {8, 8, false, 0}, {0, 16, true, 0}, {0, 8, true, 0}},
		"an end before what is there":     {{16, 8, true, 0}, {8, 8, false, 0}, {0, 8, true, 0}},
		"not a multiple of 8, not last":   {{0, 12, true, 0}, {12, 8, false, 0}},
		"more than an IP packet can have": {{65528, 8, false, 0}, {0, 65528, true, 0}},
		"empty":                           {{0, 0, true, 0}, {0, 8, true, 0}, {8, 8, false, 0}},
	} {
		var f fragments
		refused := false
		for _, p := range list {
			h := ipHeader{offset: p.start, more: p.more, payload: bytes.Repeat([]byte{p.fill}, p.size)}
			got, err := f.add(time.Unix(0, 0), fragmentKey{}, h)
			refused = refused || err != nil
			if got != nil {
				t.Errorf("%s: a packet of %d octets", what, len(got))
			}
		}
		if !refused {
			t.Errorf("%s: nothing is refused", what)
		}
		if f.octets != 0 {
			t.Errorf("%s: %d octets are kept", what, f.octets)
		}
	}
}

// Proves that what never becomes complete is given up, that it is bounded, and that it does not
// stand in the way of packets that arrive at another port.
func TestFragmentsAreBounded(t *testing.T) {
	var f fragments
	now := time.Unix(1_900_000_000, 0)
	flood := func(port uint32, id uint16) {
		for start := 0; start < 60_000; start += 1480 {
			_, _ = f.add(now, fragmentKey{at: place{1, port}, id: id}, ipHeader{offset: start, more: true, payload: make([]byte, 1480)})
		}
	}
	good := fragmentKey{at: place{1, 2}}
	_, _ = f.add(now, good, ipHeader{more: true, payload: make([]byte, 1480)})
	for id := range uint16(1000) {
		now = now.Add(time.Millisecond)
		flood(1, id)
	}
	if len(f.packets) != maxIncomplete+1 {
		t.Errorf("%d packets are kept", len(f.packets))
	}
	if got, err := f.add(now, good, ipHeader{offset: 1480, payload: make([]byte, 8)}); len(got) != 1488 || err != nil {
		t.Errorf("the packet at the other port: %d octets, %v", len(got), err)
	}
	for port := range uint32(100) {
		for id := range uint16(maxIncomplete) {
			now = now.Add(time.Millisecond)
			flood(port, id)
		}
	}
	if f.octets > maxWaiting {
		t.Errorf("%d octets are kept", f.octets)
	}
	sum := 0
	for _, p := range f.packets {
		sum += p.size
	}
	if sum != f.octets {
		t.Errorf("%d octets are kept, %d are counted", sum, f.octets)
	}
	f.expire(now.Add(fragmentTime))
	if len(f.packets) != 0 || f.octets != 0 {
		t.Errorf("in the end %d packets with %d octets are kept", len(f.packets), f.octets)
	}
}

// FuzzFragments gives the fragments of packets in any order, size and place: whatever comes out has
// been put in without a gap, and what is kept is counted.
func FuzzFragments(f *testing.F) {
	f.Add([]byte{0, 2, 1, 0, 2, 1, 0, 0})
	f.Add([]byte{0, 2, 1, 0, 1, 2, 1, 0, 3, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var parts fragments
		now := time.Unix(1_900_000_000, 0)
		put := map[byte]int{} // octets of good size, by packet
		for ; len(b) >= 4; b = b[4:] {
			id := b[3] & 3
			h := ipHeader{offset: int(b[0]) * 8, more: b[2]&1 == 1, payload: bytes.Repeat([]byte{id}, int(b[1])*8+int(b[2]>>5))}
			put[id] += len(h.payload)
			now = now.Add(time.Duration(b[3]>>4) * time.Second)
			got, err := parts.add(now, fragmentKey{at: place{port: uint32(id & 1)}, id: uint16(id)}, h)
			if err != nil && got != nil || len(got) > put[id] || bytes.Count(got, []byte{id}) != len(got) {
				t.Fatalf("%d octets (%v) of %d that were put in", len(got), err, put[id])
			}
			sum := 0
			for _, p := range parts.packets {
				sum += p.size
				end := 0
				for _, x := range p.parts {
					if x.start < end {
						t.Fatal("parts overlap")
					}
					end = x.end()
				}
			}
			if sum != parts.octets {
				t.Fatalf("%d octets are kept, %d are counted", sum, parts.octets)
			}
		}
	})
}
