package ospf

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"
)

// FuzzDecode: no octets make the decoder panic, and what it takes encodes to what was read.
func FuzzDecode(f *testing.F) {
	for _, body := range bodies() {
		f.Add((&Packet{RouterID: 1, AreaID: 2, Body: body}).Encode())
	}
	for _, dump := range packetsOfFRR {
		f.Add(unhex(f, dump))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Decode(b)
		if err != nil {
			return
		}
		for _, a := range []Auth{{}, {Type: AuthSimple, Password: "x"}, cryptographic(Key{ID: 1}, Key{ID: 2, Algorithm: HMACSHA256})} {
			_, _ = a.Verify(b, simEpoch)
		}
		length := int(binary.BigEndian.Uint16(b[2:]))
		if _, lossy := p.Body.(*LinkStateRequest); !lossy && !bytes.Equal(p.Encode()[headerLen:], b[headerLen:length]) {
			t.Errorf("%x encodes to %x", b[headerLen:length], p.Encode()[headerLen:])
		}
		if u, ok := p.Body.(*LinkStateUpdate); ok {
			for _, l := range u.LSAs {
				if g, err := DecodeGrace(l.Body); err == nil {
					if again, err := DecodeGrace(g.Encode()); err != nil || again != g {
						t.Errorf("%+v becomes %+v, %v", g, again, err)
					}
				}
				l = NewLSA(l.LSAKey, l.Options, l.Seq, l.Age, l.Body) // get past the checksum
				if l.Validate() == nil && l.Type == TypeRouter {
					for range l.links() {
					}
				}
			}
		}
	})
}

// FuzzReceive feeds a domain with a neighbour in each state of the exchange packets of any
// contents, whose checksums are put right so that they get in: it neither panics, nor runs for
// ever, nor keeps more than came in, and it becomes Full with an honest neighbour afterwards.
func FuzzReceive(f *testing.F) {
	for _, body := range bodies() {
		b := (&Packet{RouterID: 0x02020202, Body: body}).Encode()
		f.Add(uint8(12), b, b)
	}
	for _, dump := range packetsOfFRR {
		f.Add(uint8(20), unhex(f, dump), unhex(f, packetsOfFRR[0]))
	}
	for _, age := range []uint16{1, MaxAge} {
		grace := NewLSA(LSAKey{TypeOpaqueLink, graceID, 0x02020202}, OptionE, InitialSequence, age, GraceLSA{Period: time.Hour, Address: 0x0a000202}.Encode())
		b := (&Packet{RouterID: 0x02020202, Body: &LinkStateUpdate{LSAs: []LSA{grace}}}).Encode()
		hello := (&Packet{RouterID: 0x02020202, Body: &Hello{Mask: 0xffffff00, HelloInterval: 10, DeadInterval: 40, Options: OptionE, Priority: 1}}).Encode()
		f.Add(uint8(120), b, hello)
	}
	f.Fuzz(func(t *testing.T, seconds uint8, first, second []byte) {
		s := newSim(t, 1)
		a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
		l := s.p2p(0, at(a), at(b))
		lan := s.lan(0, at(a), at(b))
		externals(s, a, External{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Metric: 1})
		s.run(time.Duration(seconds) * time.Second / 2)
		for i, packet := range [][]byte{first, second, first} {
			for _, link := range []*simLink{l, lan} {
				packet := repaired(packet, b.id)
				dst := AllSPFRouters
				if i == 1 {
					dst = link.end(a).Address().Addr()
				}
				_ = a.domain.Receive(s.now, link.end(a), link.end(b).Address().Addr(), dst, packet)
			}
			s.run(time.Second)
		}
		if n := len(a.domain.Area(0).LSAs()) + len(a.domain.Externals()) + len(l.end(a).LSAs()) + len(lan.end(a).LSAs()); n > 20+(2*len(first)+len(second))/20 {
			t.Errorf("%d LSAs are in the database", n)
		}
		if n := len(l.end(a).Neighbors()) + len(lan.end(a).Neighbors()); n > 8 {
			t.Errorf("%d neighbours", n)
		}
		s.drop = func(g Datagram) bool { return s.count > 200000 } // a storm would not end
		s.run(5 * time.Minute)
		if s.count > 20000 {
			t.Errorf("%d packets were sent", s.count)
		}
		if l.state(a, b) != NeighborFull {
			t.Errorf("the honest neighbour is %v", l.state(a, b))
		}
	})
}

// repaired returns the packet with the lengths and checksums that let it in: those of the packet
// and of the LSAs in it.
func repaired(packet []byte, from ID) []byte {
	b := bytes.Clone(packet)
	if len(b) < headerLen {
		return b
	}
	b[0] = 2
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint32(b[4:], uint32(from))
	clear(b[8:headerLen])
	if p, err := Decode(b); err == nil {
		if u, ok := p.Body.(*LinkStateUpdate); ok {
			for i, l := range u.LSAs {
				u.LSAs[i] = NewLSA(l.LSAKey, l.Options, l.Seq, min(l.Age, MaxAge), l.Body)
			}
			b = p.encode()
		}
	}
	clear(b[12:14])
	binary.BigEndian.PutUint16(b[12:], onesComplement(b))
	return b
}
