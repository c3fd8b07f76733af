package openflow

import (
	"testing"

	"pgregory.net/rapid"
)

// smallMatch draws a match over two fields of 12 bits together, so that all packets can be tried.
func smallMatch(t *rapid.T) Match {
	var list []OXM
	if rapid.Bool().Draw(t, "pcp") {
		list = append(list, VLANPCP(upTo[uint8](t, 7)))
	}
	if rapid.Bool().Draw(t, "exthdr") {
		o := IPv6Exthdr(upTo[uint16](t, 0x1ff))
		if rapid.Bool().Draw(t, "masked") {
			o = o.WithMask64(uint64(upTo[uint16](t, 0x1ff)))
		}
		list = append(list, o)
	}
	return NewMatch(list...)
}

func (m Match) matchesSmall(packet uint64) bool {
	for o := range m.All() {
		value := packet >> 9 // VLAN_PCP
		if o.Field == FieldIPv6Exthdr {
			value = packet & 0x1ff
		}
		if value&o.EffectiveMask().Lo != o.Value.Lo {
			return false
		}
	}
	return true
}

// Covers and Overlaps say what trying every packet says; and == holds exactly for matches that
// match the same packets.
func TestMatchCoversOverlaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := smallMatch(t), smallMatch(t)
		covers, overlaps, same := true, false, true
		for packet := range uint64(1 << 12) {
			inA, inB := a.matchesSmall(packet), b.matchesSmall(packet)
			covers = covers && (inA || !inB)
			overlaps = overlaps || inA && inB
			same = same && inA == inB
		}
		if got := a.Covers(b); got != covers {
			t.Errorf("%v covers %v: %v, want %v", a, b, got, covers)
		}
		if got := a.Overlaps(b); got != overlaps {
			t.Errorf("%v overlaps %v: %v, want %v", a, b, got, overlaps)
		}
		if got := a == b; got != same {
			t.Errorf("%v == %v: %v, want %v", a, b, got, same)
		}
	})
}

// The order in which fields are given, or added, makes no difference; each can be got and taken
// away again.
func TestMatchBuild(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genMatch(t)
		var list []OXM
		for o := range m.All() {
			list = append(list, o)
		}
		if m.Len() != len(list) {
			t.Fatalf("%d fields in %v", m.Len(), m)
		}
		var added Match
		for _, o := range rapid.Permutation(list).Draw(t, "order") {
			added = added.With(o).With(o)
		}
		if added != m {
			t.Fatalf("%v\n%v", added, m)
		}
		for _, o := range list {
			if o.opaque() {
				continue
			}
			if got, ok := m.Get(o.Field); !ok || got != o {
				t.Fatalf("%v: %v", o, got)
			}
			without := m.Without(o.Field)
			if _, ok := without.Get(o.Field); ok || without.With(o) != m {
				t.Fatalf("%v without %v: %v", m, o, without)
			}
		}
		if _, missing := m.MissingPrerequisite(); missing {
			t.Fatalf("%v lacks a prerequisite", m)
		}
	})
}

// Masks of all ones and of zeros are the same as none, and no field.
func TestMatchCanonical(t *testing.T) {
	exact := NewMatch(EthDst(MAC{1, 2, 3, 4, 5, 6}))
	if m := NewMatch(EthDst(MAC{1, 2, 3, 4, 5, 6}).WithMask(ones(48))); m != exact {
		t.Errorf("%v", m)
	}
	if m := NewMatch(EthDst(MAC{1, 2, 3, 4, 5, 6}).WithMask64(0)); m != (Match{}) {
		t.Errorf("%v", m)
	}
	if m := exact.With(EthDst(MAC{}).WithMask64(0)); m != (Match{}) {
		t.Errorf("%v", m)
	}
	if m := NewMatch(InPort(1), InPort(2)); m != NewMatch(InPort(2)) {
		t.Errorf("of two values the last: %v", m)
	}
	// On the wire, both forms and any order of fields without prerequisites are taken.
	b := NewFlowMod(FlowAdd, 1, Match{}).AppendTo(nil)[:48]
	b = append(b, 0, 1, 0, 4+8+16+16, // the match
		0x80, 0x00, 0x09, 12, 2, 0, 0, 0, 0, 2, 255, 255, 255, 255, 255, 255, // eth_src with mask
		0x80, 0x00, 0x07, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // eth_dst with a mask of zeros
		0x80, 0x00, 0x00, 4, 0, 0, 0, 3, // in_port
		0, 0, 0, 0)
	put16(b, 2, uint16(len(b)))
	m, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.(*FlowMod).Match, NewMatch(InPort(3), EthSrc(MAC{2, 0, 0, 0, 0, 2})); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// Getters of typed values.
func TestOXMValues(t *testing.T) {
	o := IPv6Src(addr("2001:db8::1")).WithPrefix(64)
	if p, ok := o.Prefix(); !ok || p.String() != "2001:db8::/64" {
		t.Errorf("%v %v", p, ok)
	}
	if _, ok := IPv4Src(addr("10.0.0.0")).WithMask64(0xff00ff00).Prefix(); ok {
		t.Error("255.0.255.0 is no prefix")
	}
	if m := EthSrc(MAC{1, 2, 3, 4, 5, 6}).MAC(); m != (MAC{1, 2, 3, 4, 5, 6}) {
		t.Error(m)
	}
	if port, ok := NewMatch(InPort(7), EthType(1)).InPort(); !ok || port != 7 {
		t.Error(port, ok)
	}
	if _, ok := NewMatch(InPhyPort(7)).InPort(); ok {
		t.Error("in_phy_port is taken for in_port")
	}
	if id, ok := (OXM{Class: ClassExperimenter, Payload: "ONF\x00\x01"}).Experimenter(); !ok || id != 0x4f4e4600 {
		t.Errorf("%#x", id)
	}
}
