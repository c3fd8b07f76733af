package routing

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"trivet.dev/trivet/openflow"
)

// Proves that fragments of random packets, of fragments of them, and of these again, have right
// headers, are no larger than they may be, all but the last as large as they can be, have the
// options that they are to have (RFC 791, section 3.1), and put together are what was cut.
func TestFragments(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	options := [][]byte{nil, {7, 7, 4, 1, 2, 3, 4, 0}, {0x83, 7, 4, 1, 2, 3, 4, 0}, {1, 0x94, 4, 0, 0, 7, 3, 4}} // record route, loose source route, router alert and record route
	for n := range 500 {
		option := options[r.IntN(len(options))]
		payload := make([]byte, r.IntN(4000))
		for i := range payload {
			payload[i] = byte(r.Uint32())
		}
		packet := ip4(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), 17, 64, payload)
		packet = append(append(append([]byte(nil), packet[:20]...), option...), payload...)
		h := header.IPv4(packet)
		h.SetHeaderLength(uint8(20 + len(option)))
		h.SetTotalLength(uint16(len(packet)))
		h.SetID(uint16(n))
		h.SetChecksum(0)
		h.SetChecksum(^h.CalculateChecksum())
		parts := [][]byte{packet}
		for range 1 + r.IntN(3) {
			mtu := 68 + r.IntN(1400)
			var next [][]byte
			for _, p := range parts {
				if len(p) <= mtu {
					next = append(next, p)
					continue
				}
				cut := fragments(p, mtu)
				for i, c := range cut {
					if len(c) > mtu || i < len(cut)-1 && len(c) <= mtu-8 {
						t.Fatalf("packet %d, MTU of %d: fragment %d has %d bytes", n, mtu, i, len(c))
					}
				}
				next = append(next, cut...)
			}
			parts = next
		}
		got := make([]byte, len(payload))
		for i, p := range parts {
			h := header.IPv4(p)
			if !h.IsValid(len(p)) || !h.IsChecksumValid() || h.ID() != uint16(n) || int(h.TotalLength()) != len(p) || h.More() != (i < len(parts)-1) {
				t.Fatalf("packet %d: fragment %d of %d is %x", n, i, len(parts), p)
			}
			copy(got[h.FragmentOffset():], h.Payload())
			want := option
			if i > 0 {
				want = bytes.Clone(option)
				blankOptions(want)
			}
			if !bytes.Equal(p[20:h.HeaderLength()], want) {
				t.Fatalf("packet %d: fragment %d has options %x, want %x", n, i, p[20:h.HeaderLength()], want)
			}
		}
		if !bytes.Equal(got, payload) {
			t.Fatalf("packet %d is another when it is put together", n)
		}
	}
	for from, want := range map[string]string{"\x07\x07\x04\x01\x02\x03\x04\x00": "\x01\x01\x01\x01\x01\x01\x01\x00", "\x94\x04\x00\x00\x07\x03\x04\x00": "\x94\x04\x00\x00\x01\x01\x01\x00",
		"\x07\xff": "\x07\xff", "\x07": "\x07", "": ""} {
		b := []byte(from)
		if blankOptions(b); string(b) != want {
			t.Errorf("options %x become %x, want %x", from, b, want)
		}
	}
}

// Proves what a router with a narrow interface does with packets that are too large for it: those
// of IPv6, and of IPv4 that must not be cut, are answered with what may come (RFC 1191; RFC 4443,
// section 3.2), the rest goes on in fragments; what fits goes on as it is, errors are not answered.
func TestTooLarge(t *testing.T) {
	app, s, sw := single(t)
	n := app.node(1)
	n.mu.Lock()
	n.Interfaces[1].MTU, n.mtus[0] = 1300, 1300
	n.mu.Unlock()
	far := map[bool]netip.Addr{true: netip.MustParseAddr("10.0.2.9"), false: netip.MustParseAddr("fd00:2::9")}
	near := map[bool]netip.Addr{true: netip.MustParseAddr("10.0.1.9"), false: netip.MustParseAddr("fd00:1::9")}
	n.mu.Lock()
	for _, v4 := range []bool{true, false} { // hosts that are known
		n.neighbors[far[v4]] = &neighbor{address: far[v4], itf: n.itf[2], mac: openflow.MAC{2, 0, 0, 0, 2, 9}, installed: true}
		n.neighbors[near[v4]] = &neighbor{address: near[v4], itf: n.itf[1], mac: host1, installed: true}
	}
	n.mu.Unlock()
	send := func(packet []byte) [][]byte {
		receive(app, sw, 1, openflow.ReasonAction, frame(router1, host1, etherTypeOf(packet), packet))
		return s.take()
	}
	four := func(size int, flags uint8, proto uint8) []byte {
		b := ip4(near[true], far[true], proto, 64, make([]byte, size-20))
		h := header.IPv4(b)
		h.SetFlagsFragmentOffset(flags, 0)
		h.SetChecksum(0)
		h.SetChecksum(^h.CalculateChecksum())
		return b
	}
	if got := send(four(1300, header.IPv4FlagDontFragment, 17)); len(got) != 1 || len(got[0]) != 1314 {
		t.Errorf("a packet that fits: %x", got)
	}
	if got := send(four(1301, 0, 17)); len(got) != 2 || len(got[0]) > 1314 || got[0][14+8] != 63 || got[1][14+8] != 63 {
		t.Errorf("a packet that may be cut: %x", got)
	}
	got := send(four(1301, header.IPv4FlagDontFragment, 17))
	if len(got) != 1 || got[0][34] != 3 || got[0][35] != 4 || binary.BigEndian.Uint16(got[0][40:]) != 1300 || openflow.MAC(got[0][:6]) != host1 {
		t.Errorf("a packet that must not be cut: %x", got)
	}
	got = send(ip6(near[false], far[false], 17, 64, make([]byte, 1261)))
	if len(got) != 1 || got[0][54] != 2 || got[0][55] != 0 || binary.BigEndian.Uint32(got[0][58:]) != 1300 {
		t.Errorf("a packet of IPv6: %x", got)
	}
	unreachable := append([]byte{3, 0, 0, 0}, make([]byte, 1300)...)
	b := four(1324, header.IPv4FlagDontFragment, 1)
	copy(b[20:], unreachable)
	if got := send(b); len(got) != 0 {
		t.Errorf("an error that is too large: %x", got)
	}
	// Of what a host's device was to cut, only a part may come: its sender is told all the same.
	long := four(65000, header.IPv4FlagDontFragment, 6)[:64000]
	if got := send(long); len(got) != 1 || got[0][34] != 3 || got[0][35] != 4 {
		t.Errorf("a part of a packet: %x", got)
	}
}

// Proves that an answer fits the link that it goes back by, also where that takes fewer bytes than
// an error may have: it quotes less.
func TestErrorsFit(t *testing.T) {
	app, s, sw := single(t)
	n := app.node(1)
	near, far := netip.MustParseAddr("10.0.1.9"), netip.MustParseAddr("10.0.2.9")
	n.mu.Lock()
	n.Interfaces[0].MTU, n.Interfaces[1].MTU, n.mtus = 500, 400, [2]int{400, 500}
	n.neighbors[far] = &neighbor{address: far, itf: n.itf[2], mac: openflow.MAC{2, 0, 0, 0, 2, 9}, installed: true}
	n.neighbors[near] = &neighbor{address: near, itf: n.itf[1], mac: host1, installed: true}
	n.mu.Unlock()
	packet := ip4(near, far, 17, 64, make([]byte, 480))
	h := header.IPv4(packet)
	h.SetFlagsFragmentOffset(header.IPv4FlagDontFragment, 0)
	h.SetChecksum(0)
	h.SetChecksum(^h.CalculateChecksum())
	receive(app, sw, 1, openflow.ReasonAction, frame(router1, host1, openflow.EthTypeIPv4, packet))
	got := s.take()
	if len(got) != 1 || got[0][34] != 3 || got[0][35] != 4 || len(got[0]) != 14+500 {
		t.Errorf("the answer to %d bytes over a link of 500: %x", len(packet), got)
	}
}
