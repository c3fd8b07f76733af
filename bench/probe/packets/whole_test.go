package packets

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// frameOf is packet number of a stream, as it is on the wire: with its checksum of UDP.
func frameOf(number uint64, v6 bool) []byte {
	var b [frameLen6]byte
	to, from := addresses4[1], addresses4[0]
	if v6 {
		to, from = addresses6[1], addresses6[0]
	}
	s := sender{hardware: [6]byte{2, 0, 0, 0, 0, 1}, address: from, port: 4711}
	frame := putFrame(&b, s, []byte{2, 0, 0, 0, 0, 2}, netip.AddrPortFrom(to, 4712), header{7, number, 1_795_300_628_921_456_074 + int64(number)*1e6})
	if !v6 {
		udp := frame[34:]
		pseudo := [4]byte{1: protocolUDP, 2: udp[4], 3: udp[5]}
		binary.BigEndian.PutUint16(udp[6:], checksum(frame[26:34], pseudo[:], udp))
	}
	return frame
}

// A tap takes no whole packet for a damaged one, and finds each bit that is inverted, wherever it
// is, but for those by which it knows what is a stream's, and which; and for what of IPv6 has no
// checksum and no meaning here.
func TestDamaged(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		start := payload4
		if v6 {
			start = payload6
		}
		unread := 0
		size := len(frameOf(0, v6))
		for bit := range 8 * size {
			if v6 && (bit/8 == 14 && bit%8 < 4 || bit/8 > 14 && bit/8 < 18 || bit/8 == 21) {
				continue
			}
			tap := &tap{Tap: Tap{First: 7, Count: 1}, sights: map[sightKey]*sights{}}
			for n := range uint64(200) {
				b := frameOf(n, v6)
				if n == 100 {
					b[bit/8] ^= 1 << (bit % 8)
				}
				tap.take(b, len(b), 3, ancillary{received: int64(n + 1)})
			}
			got := tap.sights[sightKey{3, 7}].sort()
			switch {
			case slices.Contains(got.Numbers, 100):
				t.Errorf("IPv6 %v: bit %d of byte %d is inverted, and the packet is whole", v6, bit%8, bit/8)
			case len(got.Numbers) != 199:
				t.Errorf("IPv6 %v: byte %d of one packet is damaged, and %d others are whole", v6, bit/8, len(got.Numbers))
			case len(got.Damaged) == 0:
				if unread++; bit/8 < start || bit/8 >= start+4 {
					t.Errorf("IPv6 %v: with byte %d damaged it is not seen at all", v6, bit/8)
				}
			}
		}
		if unread != 32 {
			t.Errorf("IPv6 %v: %d bits make a packet another's, not the mark's and the stream's 32", v6, unread)
		}
	}
}

// What is not damaged is not said to be: where no packet has its checksum filled in, where the
// kernel says that of one, and where a stream changes its next hop half-way. Copies are told.
func TestWhole(t *testing.T) {
	for name, change := range map[string]func(n uint64, b []byte, a *ancillary){
		"nothing":  func(uint64, []byte, *ancillary) {},
		"unsummed": func(_ uint64, b []byte, _ *ancillary) { b[40]++ },
		"said so":  func(n uint64, b []byte, a *ancillary) { b[40] += byte(n % 10 / 9); a.unsummed = n%10 == 9 },
		"next hop": func(n uint64, b []byte, _ *ancillary) { b[5] ^= byte(n / 100) },
		"no sum":   func(_ uint64, b []byte, _ *ancillary) { b[40], b[41] = 0, 0 },
		"the other": func(_ uint64, b []byte, _ *ancillary) {
			copy(b, frameOf(uint64(binary.BigEndian.Uint32(b[payload4+6:])), true))
		},
	} {
		s := &sights{}
		for n := range uint64(200) {
			b := frameOf(n, name == "the other")
			a := ancillary{received: int64(n + 1)}
			if name != "the other" {
				change(n, b, &a)
			}
			p, stream, ok := readFrame(b, a)
			if !ok || stream != 7 || p.number != n {
				t.Fatalf("%s: packet %d is not read: %+v, stream %d", name, n, p, stream)
			}
			s.packets = append(s.packets, p)
			if n == 50 {
				s.packets = append(s.packets, p, p)
			}
		}
		if got := s.sort(); len(got.Numbers) != 200 || len(got.Damaged) > 0 || !slices.Equal(got.Again, []uint64{50, 50}) {
			t.Errorf("%s: %d whole, %d damaged, again %v", name, len(got.Numbers), len(got.Damaged), got.Again)
		}
	}
}

// Whatever comes by, a tap reads it or leaves it.
func FuzzFrame(f *testing.F) {
	f.Add(frameOf(3, false))
	f.Add(frameOf(3, true))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, _, ok := readFrame(b, ancillary{received: 1}); ok {
			(&sights{packets: []sighted{p}}).sort()
		}
	})
}

// What a receiver's tap sees of a stream is each of its packets once, and whole, over IPv4 and
// IPv6: those whose checksum the kernel leaves to the device, too.
func TestRaw(t *testing.T) {
	w := newWire(t)
	for i, to := range []netip.Addr{addresses4[1], addresses6[1]} {
		s := Send{To: netip.AddrPortFrom(to, 0), Stream: uint16(10 + rand.IntN(1000)), Size: HeaderLen, Rate: 1000, Count: 100, Whole: true}
		_, got, err := Measure(t.Context(), w.node(0), w.node(1), s, Receive{Record: true, Raw: true}, 200*time.Millisecond)
		must(t, err)
		if got.Tapped == nil || len(got.Tapped.Sights) != 1 {
			t.Fatalf("%d: %+v", i, got.Tapped)
		}
		one := got.Tapped.Sights[0]
		if one.Device != w.devices[1] || len(one.Numbers) != 100 || len(one.Damaged)+len(one.Again) > 0 || got.Received != 100 {
			t.Errorf("%s: %d whole, %d damaged, %d again at %s; %d received", to, len(one.Numbers), len(one.Damaged), len(one.Again), one.Device, got.Received)
		}
	}
}

// A packet that the kernel refuses is gone: it is not sent again, which would hide that. Only what
// may be about an earlier packet is tried once more.
func TestRefusedOnce(t *testing.T) {
	for errno, again := range map[unix.Errno]bool{unix.EPERM: false, unix.ENOBUFS: false, unix.ENETDOWN: false, unix.ECONNREFUSED: true, unix.EHOSTUNREACH: true} {
		if told(errno) != again {
			t.Errorf("%v: tried again: %v", errno, !again)
		}
	}
	if told(nil) {
		t.Error("what was taken is sent again")
	}
}
