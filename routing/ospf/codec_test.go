package ospf

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// one of each body, with all fields set.
func bodies() []Body {
	h := LSAHeader{LSAKey: LSAKey{TypeRouter, 1, 1}, Age: 7, Options: OptionE, Seq: InitialSequence, Checksum: 0x1234, Length: 24}
	return []Body{
		&Hello{Mask: 0xffffff00, HelloInterval: 10, Options: OptionE, Priority: 3, DeadInterval: 40, DR: 5, BDR: 6, Neighbors: []ID{7, 8}},
		&DatabaseDescription{MTU: 1500, Options: OptionE, Flags: FlagInit | FlagMaster, Seq: 99, Headers: []LSAHeader{h}},
		&LinkStateRequest{Keys: []LSAKey{{TypeRouter, 1, 2}, {TypeExternal, 3, 4}}},
		&LinkStateUpdate{LSAs: []LSA{
			NewLSA(LSAKey{TypeRouter, 1, 1}, OptionE, 5, 6, RouterLSA{Flags: FlagBorder, Links: []RouterLink{{LinkStub, 1 << 24, 0xff000000, 10}}}.Encode()),
			NewLSA(LSAKey{TypeNetwork, 9, 1}, OptionE, 5, 6, NetworkLSA{Mask: 0xffffff00, Routers: []ID{1, 2}}.Encode()),
			NewLSA(LSAKey{TypeSummary, 9, 1}, OptionE, 5, 6, SummaryLSA{Mask: 0xffffff00, Metric: 77}.Encode()),
			NewLSA(LSAKey{TypeASBRSummary, 9, 1}, OptionE, 5, 6, SummaryLSA{Metric: 77}.Encode()),
			NewLSA(LSAKey{TypeExternal, 9, 1}, OptionE, 5, 6, ExternalLSA{Mask: 0xffffff00, Type2: true, Metric: 7, Forward: 8, Tag: 9}.Encode()),
			NewLSA(LSAKey{TypeOpaqueLink, 3 << 24, 1}, OptionE, 5, 6, []byte{0, 1, 0, 4, 0, 0, 0, 120}),
			NewLSA(LSAKey{TypeOpaqueArea, 4 << 24, 1}, OptionE, 5, 6, []byte{1, 2, 3, 4}),
		}},
		&LinkStateAck{Headers: []LSAHeader{h, h}},
	}
}

// What is encoded decodes to the same, and one octet less, or a length that lies, is refused.
func TestPacketsRoundTrip(t *testing.T) {
	for _, body := range bodies() {
		p := &Packet{RouterID: 1, AreaID: 2, Body: body}
		b := p.Encode()
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%v: %v, got %+v", body.packetType(), err, got)
		}
		if _, err := (Auth{}).Verify(b, simEpoch); err != nil {
			t.Errorf("%v: %v", body.packetType(), err)
		}
		if _, err := Decode(b[:len(b)-1]); err == nil {
			t.Errorf("%v: one octet less is taken", body.packetType())
		}
		b[3]--
		if _, err := Decode(b); err == nil {
			t.Errorf("%v: a length that is too small is taken", body.packetType())
		}
	}
}

// The body of each LSA decodes to what was encoded, and is valid; changed anywhere but in its age
// it is not.
func TestLSAsRoundTrip(t *testing.T) {
	for _, lsa := range bodies()[3].(*LinkStateUpdate).LSAs {
		if err := lsa.Validate(); err != nil {
			t.Errorf("%v: %v", lsa.LSAKey, err)
		}
		b := lsa.Append(nil)
		for i := 2; i < len(b); i++ {
			c := bytes.Clone(b)
			c[i] ^= 0x10
			changed := LSA{decodeLSAHeader(c), c[lsaHeaderLen:]}
			if i != 18 && i != 19 && changed.ChecksumOK() {
				t.Errorf("%v: octet %d can be changed", lsa.LSAKey, i)
			}
		}
	}
	ext := ExternalLSA{Mask: 0xffff0000, Type2: true, Metric: 0xabcdef, Forward: 1, Tag: 2}
	if got, err := DecodeExternal(ext.Encode()); err != nil || got != ext {
		t.Errorf("%+v, %v", got, err)
	}
}

// Packets that FRR 8.4 sent (captured from a broadcast network with a network-LSA and an external
// route): checksums are right, and encoding what was decoded gives the same octets.
func TestPacketsOfFRR(t *testing.T) {
	for _, dump := range packetsOfFRR {
		b := unhex(t, dump)
		p, err := Decode(b)
		if err != nil {
			t.Errorf("%s: %v", dump, err)
			continue
		}
		if _, err := (Auth{}).Verify(b, simEpoch); err != nil {
			t.Errorf("%v: %v", p.Body.packetType(), err)
		}
		if got := p.Encode(); !bytes.Equal(got, b) {
			t.Errorf("%v: encoded again it is %x, not %x", p.Body.packetType(), got, b)
		}
		if u, ok := p.Body.(*LinkStateUpdate); ok {
			for _, l := range u.LSAs {
				if err := l.Validate(); err != nil {
					t.Errorf("%v: %v", l.LSAKey, err)
				}
				if again := NewLSA(l.LSAKey, l.Options, l.Seq, l.Age, l.Body); again.Checksum != l.Checksum {
					t.Errorf("%v: the checksum is %04x, not %04x", l.LSAKey, again.Checksum, l.Checksum)
				}
			}
		}
	}
}

// LSAs whose lengths or counts lie are refused although their checksum is right.
func TestInvalidLSAs(t *testing.T) {
	for name, lsa := range map[string]LSA{
		"a router-LSA with more links than it has room for": NewLSA(LSAKey{TypeRouter, 1, 1}, 0, 1, 0, []byte{0, 0, 0, 1}),
		"a router-LSA with octets left":                     NewLSA(LSAKey{TypeRouter, 1, 1}, 0, 1, 0, []byte{0, 0, 0, 0, 1}),
		"a router-LSA of another router":                    NewLSA(LSAKey{TypeRouter, 2, 1}, 0, 1, 0, []byte{0, 0, 0, 0}),
		"a network-LSA without routers":                     NewLSA(LSAKey{TypeNetwork, 2, 1}, 0, 1, 0, []byte{255, 0, 0, 0}),
		"a mask with a hole":                                NewLSA(LSAKey{TypeSummary, 2, 1}, 0, 1, 0, []byte{255, 0, 255, 0, 0, 0, 0, 1}),
		"a short summary":                                   NewLSA(LSAKey{TypeSummary, 2, 1}, 0, 1, 0, []byte{255, 0, 0, 0}),
		"a short external":                                  NewLSA(LSAKey{TypeExternal, 2, 1}, 0, 1, 0, []byte{255, 0, 0, 0, 0, 0, 0, 1}),
		"an unknown type":                                   NewLSA(LSAKey{7, 2, 1}, 0, 1, 0, nil),
		"an age above MaxAge":                               NewLSA(LSAKey{TypeRouter, 1, 1}, 0, 1, MaxAge+1, []byte{0, 0, 0, 0}),
	} {
		if !lsa.ChecksumOK() || lsa.Validate() == nil {
			t.Errorf("%s: checksum %v, %v", name, lsa.ChecksumOK(), lsa.Validate())
		}
	}
}

// packetsOfFRR are what ospfd 8.4.4 sent to us on a broadcast network, without authentication.
var packetsOfFRR = []string{
	"020100300202020200000000e0bc00000000000000000000ffffff0000010201000000040a0101020a01010101010101",
	"020200200202020200000000e34b0000000000000000000005dc02073345db65",
	"0202004802020202000000000c7c0000000000000000000005dc02013345db660003020102020202020202028000000378db003000070205c6336400020202028000000123280024",
	"020300240202020200000000f5cf00000000000000000000000000010101010101010101",
	"020400700202020200000000cfa300000000000000000000000000020004020102020202020202028000000378db0030020000020a010100ffffff0003000007c0000202ffffffff0300000300080205c6336400020202028000000123280024ffffff00800000210000000000000000",
	"0204006c0202020200000000bcc40000000000000000000000000002000102010202020202020202800000041f250030020000020a0101020a01010202000007c0000202ffffffff03000003000102020a01010202020202800000011e1a0020ffffff000101010102020202",
	"0205002c02020202000000001eb6000000000000000000000007020101010101010101018000000154e30024",
}
