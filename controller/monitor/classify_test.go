package monitor

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// packet makes of a frame what the controller makes of it.
func packet(frame []byte) (*controller.Packet, bool) {
	p := &controller.Packet{PacketIn: &openflow.PacketIn{Data: frame}}
	for at := 12; at+2 <= len(frame); at += 4 {
		p.EtherType = binary.BigEndian.Uint16(frame[at:])
		if p.EtherType != etherTypeVLAN && p.EtherType != etherTypeQinQ {
			return p, true
		}
	}
	return nil, false
}

func frame(t testing.TB, l ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, l...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ethernet(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2}, EthernetType: t}
}

func ipv4(p layers.IPProtocol) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv4),
		&layers.IPv4{Version: 4, TTL: 1, Protocol: p, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}}, gopacket.Payload("payload")}
}

func ipv6(next layers.IPProtocol, payload string) []gopacket.SerializableLayer {
	b, err := hex.DecodeString(strings.ReplaceAll(payload, " ", ""))
	if err != nil {
		panic(err)
	}
	return []gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv6),
		&layers.IPv6{Version: 6, NextHeader: next, SrcIP: make([]byte, 16), DstIP: make([]byte, 16)}, gopacket.Payload(b)}
}

// Proves what packets are counted as: also behind VLAN tags and IPv6's extension headers, and
// when they end too soon.
func TestClassify(t *testing.T) {
	tagged := func(l []gopacket.SerializableLayer) []gopacket.SerializableLayer {
		e := *l[0].(*layers.Ethernet)
		tag := &layers.Dot1Q{VLANIdentifier: 5, Type: e.EthernetType}
		e.EthernetType = layers.EthernetTypeDot1Q
		return append([]gopacket.SerializableLayer{&e, tag}, l[1:]...)
	}
	for name, c := range map[string]struct {
		layers []gopacket.SerializableLayer
		want   Protocol
	}{
		"arp":                     {[]gopacket.SerializableLayer{ethernet(layers.EthernetTypeARP), gopacket.Payload("x")}, ARP},
		"icmp":                    {ipv4(layers.IPProtocolICMPv4), ICMP},
		"igmp":                    {ipv4(layers.IPProtocolIGMP), IGMP},
		"tcp":                     {ipv4(layers.IPProtocolTCP), TCP},
		"udp":                     {ipv4(layers.IPProtocolUDP), UDP},
		"ospf":                    {ipv4(layers.IPProtocolOSPF), OSPF},
		"sctp":                    {ipv4(layers.IPProtocolSCTP), IPv4},
		"udp in a VLAN":           {tagged(ipv4(layers.IPProtocolUDP)), UDP},
		"neighbour solicitation":  {ipv6(layers.IPProtocolICMPv6, "87 00 00 00"), NDP},
		"router solicitation":     {ipv6(layers.IPProtocolICMPv6, "85 00 00 00"), NDP},
		"the same in a VLAN":      {tagged(ipv6(layers.IPProtocolICMPv6, "85 00 00 00")), NDP},
		"multicast report":        {ipv6(layers.IPProtocolIPv6HopByHop, "3a 00 05 02 00 00 01 00 8f 00"), MLD},
		"echo request":            {ipv6(layers.IPProtocolICMPv6, "80 00 00 00"), IPv6},
		"tcp of IPv6":             {ipv6(layers.IPProtocolTCP, "00 50"), IPv6},
		"headers without end":     {ipv6(layers.IPProtocolIPv6HopByHop, strings.Repeat("00 00 00 00 00 00 00 00", 9)), IPv6},
		"header longer than that": {ipv6(layers.IPProtocolIPv6HopByHop, "3a ff 00 00 00 00 00 00 87"), IPv6},
		"lldp":                    {[]gopacket.SerializableLayer{ethernet(layers.EthernetTypeLinkLayerDiscovery), gopacket.Payload("x")}, LLDP},
		"bddp":                    {[]gopacket.SerializableLayer{ethernet(0x8942), gopacket.Payload("x")}, BDDP},
		"mpls":                    {[]gopacket.SerializableLayer{ethernet(layers.EthernetTypeMPLSUnicast), gopacket.Payload("x")}, Other},
		"short IPv4":              {[]gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv4), gopacket.Payload("x")}, IPv4},
		"short IPv6":              {[]gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv6), gopacket.Payload("x")}, IPv6},
	} {
		p, ok := packet(frame(t, c.layers...))
		if got := Classify(p.Data); !ok || got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Proves that every protocol has a name and a family of its own kind.
func TestProtocolNames(t *testing.T) {
	families := map[Protocol]string{ARP: "arp", ICMP: "ipv4", OSPF: "ipv4", IPv4: "ipv4", NDP: "ipv6", IPv6: "ipv6", LLDP: "lldp", BDDP: "lldp", Other: "other"}
	seen := map[string]bool{}
	for p := range NumProtocols {
		if p.String() == "" || seen[p.String()] {
			t.Errorf("protocol %d is called %q", p, p)
		}
		seen[p.String()] = true
		if want := families[p]; want != "" && p.Family() != want {
			t.Errorf("%v is of the family %s", p, p.Family())
		}
	}
}

// Whatever a host sends is counted as something of its Ethernet type's family.
func FuzzClassify(f *testing.F) {
	for _, l := range [][]gopacket.SerializableLayer{ipv4(layers.IPProtocolUDP), ipv6(layers.IPProtocolIPv6HopByHop, "3a 00 05 02 00 00 01 00 8f 00")} {
		f.Add(frame(f, l...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := packet(b)
		if !ok {
			return
		}
		want := map[uint16]string{etherTypeARP: "arp", etherTypeIPv4: "ipv4", etherTypeIPv6: "ipv6", etherTypeLLDP: "lldp", etherTypeBDDP: "lldp"}[p.EtherType]
		if want == "" {
			want = "other"
		}
		if got := Classify(p.Data); got >= NumProtocols || got.Family() != want {
			t.Errorf("type %#x is counted as %v", p.EtherType, got)
		}
	})
}

// What the monitor costs each packet at the controller, for one switch in each processor.
func BenchmarkPacketIn(b *testing.B) {
	a := New(Options{})
	for range 1000 { // others
		a.counts.Store(&controller.Switch{}, &counts{})
	}
	for name, l := range map[string][]gopacket.SerializableLayer{
		"tcp": ipv4(layers.IPProtocolTCP), "ndp": ipv6(layers.IPProtocolICMPv6, "87 00 00 00"),
	} {
		data := frame(b, l...)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				s := &controller.Switch{}
				a.counts.Store(s, &counts{})
				p, _ := packet(data)
				for pb.Next() {
					if a.PacketIn(s, p) {
						b.Error("handled")
					}
				}
			})
		})
	}
}

// Proves that counting a packet allocates nothing.
func TestPacketInAllocates(t *testing.T) {
	a := New(Options{})
	s := &controller.Switch{}
	a.counts.Store(s, &counts{})
	p, _ := packet(frame(t, ipv4(layers.IPProtocolTCP)...))
	if n := testing.AllocsPerRun(100, func() { a.PacketIn(s, p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	c, _ := a.counts.Load(s)
	if got := c.(*counts).of[TCP].packets.Load(); got != 101 {
		t.Errorf("%d packets counted", got)
	}
}
