//go:build linux

package cache

import (
	"net/netip"
	"testing"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// The words that this package reads of a pipeline.Key are those that the pipeline puts the fields
// in.
func TestWords(t *testing.T) {
	for f, at := range map[openflow.Field][2]int{ // word of the key, of ours; -1: none
		openflow.FieldEthDst: {fullDst, 0}, openflow.FieldEthType: {fullDst, 0}, openflow.FieldEthSrc: {fullSrc, 1},
		openflow.FieldVLANVID: {fullSrc, 1}, openflow.FieldMPLSLabel: {fullTags, 2}, openflow.FieldIPProto: {fullIP, 3},
		openflow.FieldIPDSCP: {fullIP, 3}, openflow.FieldIPv6Flabel: {fullIP, 3}, openflow.FieldTCPDst: {fullPorts, 4},
		openflow.FieldICMPv6Type: {fullPorts, 4}, openflow.FieldIPv4Src: {fullIPv4, 5}, openflow.FieldARPTPA: {fullIPv4, 5},
		openflow.FieldIPv6Src: {fullIPv6, 5}, openflow.FieldIPv6Dst: {fullIPv6 + 2, 7}, openflow.FieldARPSHA: {fullSHA, -1},
		openflow.FieldARPTHA: {fullTHA, -1}, openflow.FieldIPv6NDTarget: {fullTarget, -1},
	} {
		class := classIPv4
		if at[0] >= fullIPv6 && at[0] < fullPorts {
			class = classIPv6
		}
		var k pipeline.Key
		k.SetField(f, openflow.Value{Hi: 1, Lo: 1})
		if k[at[0]] == 0 {
			t.Errorf("%v is not in word %d", f, at[0])
		}
		w := wordsOf((*[pipeline.Words]uint64)(&k), class)
		if at[1] >= 0 && w[at[1]] == 0 || at[1] < 0 && w != (words{}) {
			t.Errorf("%v is not where it should be: %x", f, w)
		}
	}
	var k pipeline.Key
	if k.SetTTL(255); wordsOf((*[pipeline.Words]uint64)(&k), classIPv4) != (words{}) {
		t.Error("the TTL is a part of the key")
	}
}

// A mask that counts what the program does not read is refused, but where no packet of its class
// has that.
func TestMask(t *testing.T) {
	key := func(fields ...openflow.OXM) (k pipeline.Key) {
		for _, o := range fields {
			k.SetField(o.Field, o.Value)
		}
		return k
	}
	v6 := netip.MustParseAddr("fd00::1")
	arp := key(openflow.EthType(openflow.EthTypeARP))
	udp := key(openflow.EthType(openflow.EthTypeIPv6), openflow.IPProto(17))
	ping := key(openflow.EthType(openflow.EthTypeIPv6), openflow.IPProto(58), openflow.ICMPv6Type(128))
	solicitation := key(openflow.EthType(openflow.EthTypeIPv6), openflow.IPProto(58), openflow.ICMPv6Type(135), openflow.IPv6NDTarget(v6))
	var m pipeline.Mask
	for f := range openflow.NumFields {
		m.Set(f, openflow.OXM{Class: openflow.ClassBasic, Field: f}.EffectiveMask())
	}
	for name, c := range map[string]struct {
		key *pipeline.Key
		ok  bool
	}{"ARP": {&arp, false}, "UDP": {&udp, true}, "ping": {&ping, true}, "solicitation": {&solicitation, false}} {
		if _, ok := maskOf(&m, c.key, classOf(c.key)); ok != c.ok {
			t.Errorf("%s: %v, want %v", name, ok, c.ok)
		}
	}
}

// Processors are named as the kernel names them.
func TestCPUs(t *testing.T) {
	got, err := parseCPUs("0-2,5")
	if err != nil || len(got) != 4 || got[2] != 2 || got[3] != 5 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseCPUs("a"); err == nil {
		t.Error("a letter is a processor")
	}
}

// Whatever comes through the miss channel is taken apart or left, and a frame is a part of it.
func FuzzMissed(f *testing.F) {
	head := make([]byte, vnetLen+missedLen+4+20)
	head[vnetLen], head[vnetLen+1] = missMagic&0xff, missMagic>>8
	f.Add(head)
	tagged := append([]byte(nil), head...)
	tagged[vnetLen+9] = 1
	f.Add(tagged)
	cut := append([]byte(nil), head...)
	cut[0], cut[1], cut[4] = 1, 1, 100
	f.Add(cut)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := parseMissed(b)
		if ok && (len(m.pkt.Data) < 14 || len(m.pkt.Data) > len(b)) {
			t.Errorf("a frame of %d bytes out of %d", len(m.pkt.Data), len(b))
		}
		if ok && m.pkt.Segments > uint64(len(b)) {
			t.Errorf("%d segments", m.pkt.Segments)
		}
	})
}
