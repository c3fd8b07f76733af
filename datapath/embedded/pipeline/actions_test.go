package pipeline

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/openflow"
)

// After any rewrite of any packet, its checksums are right: another implementation that computes
// them anew comes to the same bytes. Parts of IP packets are left out, as their checksum is of the
// whole.
func TestChecksums(t *testing.T) {
	g := newGen(t, 1)
	kinds := map[string]int{}
	for range 8000 {
		frame := g.Frame()
		var k Key
		l, _ := parse(frame, &k)
		if l.l4 == 0 || k.shape() != 0 {
			continue
		}
		var r Rewrite
		for range 1 + g.Intn(6) {
			o := g.Settable()
			if o.Field != openflow.FieldTunnelID {
				r.Sets = append(r.Sets, Set{o.Field, o.Value})
			}
		}
		r.DecTTL = uint8(g.Intn(2))
		if g.Intn(3) == 0 {
			r.Push = []Tag{{openflow.EthTypeVLAN, 5}}
		}
		got := r.apply(nil, frame, false)
		p := gopacket.NewPacket(got, layers.LayerTypeEthernet, gopacket.Default)
		var stack []gopacket.SerializableLayer
		var ip gopacket.NetworkLayer
		for _, layer := range p.Layers() {
			if n, ok := layer.(gopacket.NetworkLayer); ok {
				ip = n
			}
			if c, ok := layer.(interface {
				SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
			}); ok && ip != nil {
				g.must(c.SetNetworkLayerForChecksum(ip))
			}
			if s, ok := layer.(gopacket.SerializableLayer); ok {
				stack = append(stack, s)
			}
		}
		if p.ErrorLayer() != nil || p.Metadata().Truncated {
			continue // what gopacket cannot read, or is not whole
		}
		buf := gopacket.NewSerializeBuffer()
		g.must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true}, stack...))
		if want := buf.Bytes(); !bytes.Equal(bytes.TrimRight(got, "\x00"), bytes.TrimRight(want, "\x00")) { // padding apart
			t.Fatalf("%v\n%x becomes\n%x want\n%x", r, frame, got, want)
		}
		kinds[fmt.Sprint(k.ipProto(), l.ip6)]++
	}
	for _, kind := range []string{"6 false", "6 true", "17 false", "17 true", "1 false", "58 true", "132 false", "132 true"} {
		if kinds[kind] < 20 {
			t.Errorf("only %d packets of kind %s: %v", kinds[kind], kind, kinds)
		}
	}
}

// UDP without a checksum stays so; one that is wrong stays wrong.
func TestChecksumKept(t *testing.T) {
	b := newBench(t, "udp,actions=set_field:10.9.9.9->ip_dst,output:2")
	none := plain(t)
	none[40], none[41] = 0, 0
	if got := b.receive(1, none).Sent[0].Data; got[40] != 0 || got[41] != 0 {
		t.Errorf("a checksum of %x where there was none", got[40:42])
	}
	wrong := plain(t)
	right := bytes.Clone(b.receive(1, wrong).Sent[0].Data)
	wrong[41] ^= 1
	if got := b.receive(1, wrong).Sent[0].Data; got[41] == right[41] {
		t.Error("a wrong checksum has become right")
	}
}

// A checksum that a device will complete is changed by the addresses only, and is complete in what
// a controller is sent.
func TestPartialChecksum(t *testing.T) {
	b := newBench(t, "udp,actions=set_field:10.9.9.9->ip_dst,set_field:7->udp_src,output:2,controller:65535")
	whole := plain(t)
	want := bytes.Clone(b.receive(1, whole).Sent[0].Data)
	partial := bytes.Clone(whole)
	var sum uint32 // of the pseudo header
	for i := 26; i < 34; i += 2 {
		sum += uint32(whole[i])<<8 + uint32(whole[i+1])
	}
	sum += 17 + uint32(whole[38])<<8 + uint32(whole[39])
	partial[40], partial[41] = byte(fold(sum)>>8), byte(fold(sum))
	pkt := &Packet{Data: partial, Offload: Offload{Partial: true, ChecksumStart: 34, ChecksumOffset: 6}}
	r := b.proc.Receive(b.Port(1), pkt, 0)
	if got := pkt.Offload.complete(r.Sent[0].Data); !bytes.Equal(got, want) {
		t.Errorf("completed by the device it is\n%x want\n%x", got, want)
	}
	if got := r.PacketIns[0].Message.Data; !bytes.Equal(got, want) {
		t.Errorf("the controller sees\n%x want\n%x", got, want)
	}
}

// VLAN tags are pushed, popped and changed, over tags of the packet's own.
func TestVLAN(t *testing.T) {
	tail := func(t *testing.T, tags ...gopacket.SerializableLayer) []byte {
		stack := append([]gopacket.SerializableLayer{}, tags...)
		return pack(t, append(stack, ip4(17, 64), udp(1, 2), payload)...)
	}
	q, ad, v4 := layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ, layers.EthernetTypeIPv4
	untagged := tail(t, eth(v4))
	one := tail(t, eth(q), vlan(100, 3, v4))
	two := tail(t, eth(ad), vlan(200, 5, q), vlan(100, 3, v4))
	three := tail(t, eth(ad), vlan(300, 1, ad), vlan(200, 5, q), vlan(100, 3, v4))
	for _, test := range []struct {
		actions  string
		in, want []byte
	}{
		{"push_vlan:0x8100,set_field:4196->vlan_vid,set_field:3->vlan_pcp,output:2", untagged, one},
		{"push_vlan:0x8100,output:2", untagged, tail(t, eth(q), vlan(0, 0, v4))},
		{"push_vlan:0x88a8,output:2", one, tail(t, eth(ad), vlan(100, 3, q), vlan(100, 3, v4))},
		{"push_vlan:0x88a8,set_field:4296->vlan_vid,set_field:5->vlan_pcp,output:2", one, two},
		{"pop_vlan,output:2", one, untagged},
		{"pop_vlan,output:2", two, one},
		{"pop_vlan,pop_vlan,output:2", two, untagged},
		{"pop_vlan,pop_vlan,pop_vlan,output:2", three, untagged},
		{"pop_vlan,set_field:4097->vlan_vid,output:2", two, tail(t, eth(q), vlan(1, 3, v4))},
		{"set_field:4097->vlan_vid,pop_vlan,output:2", two, one},
		{"set_field:4097->vlan_vid,push_vlan:0x8100,set_field:4098->vlan_vid,output:2", one, tail(t, eth(q), vlan(2, 3, q), vlan(1, 3, v4))},
		{"push_vlan:0x8100,pop_vlan,pop_vlan,output:2", one, untagged},
		{"set_field:4097->vlan_vid,pop_vlan,output:2", untagged, untagged},
	} {
		t.Run(test.actions, func(t *testing.T) {
			newBench(t, "actions="+test.actions).becomes(test.in, test.want)
		})
	}
}

// What is under a tag is matched in the next table.
func TestMatchAfterPop(t *testing.T) {
	b := newBench(t, "vlan_vid=0x1000/0x1000,actions=pop_vlan,goto_table:1", "table=1,priority=2,dl_vlan=100,actions=output:2",
		"table=1,priority=1,vlan_vid=0,actions=output:3")
	b.want(1, pack(t, eth(0x88a8), vlan(200, 0, 0x8100), vlan(100, 0, 0x800), ip4(17, 9), udp(1, 2), payload), "2")
	b.want(1, pack(t, eth(0x8100), vlan(200, 0, 0x800), ip4(17, 9), udp(1, 2), payload), "3")
}

func mpls(label uint32, tc uint8, bottom bool, ttl uint8) *layers.MPLS {
	return &layers.MPLS{Label: label, TrafficClass: tc, StackBottom: bottom, TTL: ttl}
}

// MPLS labels are pushed, popped and changed; their TTL is copied to and from what is under them.
func TestMPLS(t *testing.T) {
	v4 := func(t *testing.T, ttl uint8, labels ...gopacket.SerializableLayer) []byte {
		next := layers.EthernetTypeIPv4
		if len(labels) > 0 {
			next = layers.EthernetTypeMPLSUnicast
		}
		stack := append([]gopacket.SerializableLayer{eth(next)}, labels...)
		return pack(t, append(stack, ip4(17, ttl), udp(1, 2), payload)...)
	}
	bare := v4(t, 64)
	one := v4(t, 64, mpls(100, 3, true, 32))
	two := v4(t, 64, mpls(200, 5, false, 16), mpls(100, 3, true, 32))
	for _, test := range []struct {
		flow     string
		in, want []byte
	}{
		{"ip,actions=push_mpls:0x8847,output:2", bare, v4(t, 64, mpls(0, 0, true, 64))},
		{"ip,actions=push_mpls:0x8847,set_field:100->mpls_label,set_field:3->mpls_tc,set_mpls_ttl(32),output:2", bare, one},
		{"mpls,actions=push_mpls:0x8847,output:2", one, v4(t, 64, mpls(100, 3, false, 32), mpls(100, 3, true, 32))},
		{"mpls,actions=pop_mpls:0x0800,output:2", one, bare},
		{"mpls,actions=pop_mpls:0x8847,output:2", two, one},
		{"mpls,actions=dec_mpls_ttl,dec_mpls_ttl,output:2", one, v4(t, 64, mpls(100, 3, true, 30))},
		{"mpls,actions=set_field:7->mpls_label,set_field:1->mpls_tc,output:2", two, v4(t, 64, mpls(7, 1, false, 16), mpls(100, 3, true, 32))},
		{"mpls,actions=copy_ttl_out,output:2", one, v4(t, 64, mpls(100, 3, true, 64))},
		{"mpls,actions=copy_ttl_out,output:2", two, v4(t, 64, mpls(200, 5, false, 32), mpls(100, 3, true, 32))},
		{"mpls,actions=copy_ttl_in,output:2", one, v4(t, 32, mpls(100, 3, true, 32))},
		{"mpls,actions=copy_ttl_in,output:2", two, v4(t, 64, mpls(200, 5, false, 16), mpls(100, 3, true, 16))},
		{"actions=pop_mpls:0x0800,output:2", bare, bare},
	} {
		t.Run(test.flow, func(t *testing.T) { newBench(t, test.flow).becomes(test.in, test.want) })
	}
	b := newBench(t, "mpls,actions=pop_mpls:0x0800,goto_table:1", "table=1,udp,tp_dst=2,actions=dec_ttl,output:3")
	b.want(1, one, "3")
}

// Service tags of PBB are pushed before the packet with its addresses, and popped; VLAN tags stay
// where they are (section 7.2.5).
func TestPBB(t *testing.T) {
	inner := pack(t, eth(0x8100), vlan(100, 3, 0x800), ip4(17, 64), udp(1, 2), payload)
	outer := append(append(bytes.Clone(inner[:12]), 0x88, 0xe7, 3<<5, 0, 0, 0), inner...)
	set := bytes.Clone(outer)
	copy(set[15:], []byte{1, 2, 3})
	newBench(t, "actions=push_pbb:0x88e7,output:2").becomes(inner, outer)
	newBench(t, "actions=push_pbb:0x88e7,set_field:0x010203->pbb_isid,output:2").becomes(inner, set)
	newBench(t, "dl_type=0x88e7,pbb_isid=0x010203,actions=pop_pbb,output:2").becomes(set, inner)
	tagged := append(append(bytes.Clone(outer[:12]), 0x88, 0xa8, 0, 7), outer[12:]...)
	popped := append(append(bytes.Clone(inner[:12]), 0x88, 0xa8, 0, 7), inner[12:]...)
	newBench(t, "dl_type=0x88e7,actions=pop_pbb,output:2").becomes(tagged, popped)
}

// TTLs: decremented, set, and refused when they would reach 0.
func TestTTL(t *testing.T) {
	v4 := func(ttl uint8) []byte {
		return pack(t, eth(0x800), ip4(17, ttl), udp(1, 2), payload)
	}
	newBench(t, "ip,actions=dec_ttl,dec_ttl,output:2").becomes(v4(64), v4(62))
	newBench(t, "ip,actions=dec_ttl,mod_nw_ttl:9,dec_ttl,output:2").becomes(v4(64), v4(8))
	b := newBench(t, "priority=7,ip,actions=dec_ttl,dec_ttl,output:2")
	b.want(1, v4(3), "2")
	b.want(1, v4(2), "INVALID_TTL")
	b.want(1, v4(0), "INVALID_TTL")
}

// A packet whose IPv4 header has a wrong checksum is switched as any other, but not routed:
// decrementing the TTL drops it (RFC 1812, section 5.2.2), also where the next packet of the flow
// is right again.
func TestWrongHeaderChecksum(t *testing.T) {
	right := pack(t, eth(0x800), ip4(17, 64), udp(1, 2), payload)
	wrong := bytes.Clone(right)
	wrong[24]++
	newBench(t, "ip,actions=mod_nw_dst:10.9.9.9,output:2").want(1, wrong, "2")
	newBench(t, "ip,actions=output:2").becomes(wrong, wrong)
	b := newBench(t, "ip,actions=dec_ttl,output:2")
	for range 2 {
		b.want(1, wrong)
		b.want(1, right, "2")
	}
	one := pack(t, eth(0x800), ip4(17, 1), udp(1, 2), payload)
	one[25]++
	b.want(1, one) // not INVALID_TTL either: nothing in it can be believed
}

// The action set: one action of a kind, in the order of the specification; the group takes the
// output's place; later tables add to it, clear it.
func TestActionSet(t *testing.T) {
	in := plain(t)
	b := newBench(t, "actions=write_actions(output:2,set_field:02:00:00:00:00:09->eth_dst),goto_table:1",
		"table=1,actions=write_actions(output:3,set_field:02:00:00:00:00:08->eth_dst)")
	r := b.receive(1, in)
	if len(r.Sent) != 1 || r.Sent[0].Port.Number() != 3 || r.Sent[0].Data[5] != 8 {
		t.Errorf("%v", r.Sent)
	}
	b = newBench(t, "actions=output:4,write_actions(output:2),goto_table:1", "table=1,actions=clear_actions")
	b.want(1, in, "4")
	b = newBench(t)
	if err := b.GroupMod(&openflow.GroupMod{GroupDesc: openflow.GroupDesc{Group: 1, Buckets: []openflow.Bucket{openflow.NewBucket(openflow.Output(3))}}}, 0); err != nil {
		t.Fatal(err)
	}
	b.add("actions=write_actions(output:2,group:1)")
	b.want(1, in, "3")
	// The set pops before it pushes, whatever the order in which it was written.
	tagged := pack(t, eth(0x8100), vlan(5, 0, 0x800), ip4(17, 64), udp(1000, 2000), payload)
	newBench(t, "actions=write_actions(output:2,set_field:4102->vlan_vid,push_vlan:0x8100,pop_vlan)").
		becomes(tagged, pack(t, eth(0x8100), vlan(6, 0, 0x800), ip4(17, 64), udp(1000, 2000), payload))
}

// Metadata is written by its mask and matched in later tables.
func TestMetadata(t *testing.T) {
	b := newBench(t, "actions=write_metadata:0xff0/0xff0,goto_table:1", "table=1,actions=write_metadata:0x00f/0x0ff,goto_table:2",
		"table=2,metadata=0xf0f,actions=controller:65535")
	r := b.receive(1, plain(t))
	if len(r.PacketIns) != 1 {
		t.Fatal("no PACKET_IN")
	}
	if o, _ := r.PacketIns[0].Message.Match.Get(openflow.FieldMetadata); o.Value.Lo != 0xf0f {
		t.Errorf("metadata %#x", o.Value.Lo)
	}
}

// ARP, ND and IPv6 fields are set where they belong.
func TestFieldsOfOthers(t *testing.T) {
	arp := func(op uint16, sha, tha string, spa, tpa byte) []byte {
		return pack(t, eth(0x806), &layers.ARP{AddrType: 1, Protocol: 0x800, HwAddressSize: 6, ProtAddressSize: 4, Operation: op,
			SourceHwAddress: mustMAC(sha), DstHwAddress: mustMAC(tha), SourceProtAddress: []byte{10, 0, 0, spa}, DstProtAddress: []byte{10, 0, 0, tpa}})
	}
	newBench(t, "arp,actions=set_field:2->arp_op,set_field:02:00:00:00:00:07->arp_sha,set_field:02:00:00:00:00:08->arp_tha,set_field:10.0.0.7->arp_spa,set_field:10.0.0.8->arp_tpa,output:2").
		becomes(arp(1, "02:00:00:00:00:01", "00:00:00:00:00:00", 1, 2), arp(2, "02:00:00:00:00:07", "02:00:00:00:00:08", 7, 8))
	nd := func(target byte, mac string, label uint32) []byte {
		ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: 58, FlowLabel: label, SrcIP: addr16(1), DstIP: addr16(2)}
		return pack(t, eth(0x86dd), ip, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(135, 0)},
			&layers.ICMPv6NeighborSolicitation{TargetAddress: addr16(target), Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: mustMAC(mac)}}})
	}
	newBench(t, "icmp6,icmp_type=135,nd_target=fd00::5,nd_sll=02:00:00:00:00:01,actions=set_field:fd00::6->nd_target,set_field:02:00:00:00:00:09->nd_sll,set_field:0x12345->ipv6_label,output:2").
		becomes(nd(5, "02:00:00:00:00:01", 0), nd(6, "02:00:00:00:00:09", 0x12345))
}

func addr16(last byte) []byte { return append([]byte{0xfd}, append(make([]byte, 14), last)...) }
