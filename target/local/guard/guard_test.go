package guard

import (
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// passes says whether a frame without a tag that the kernel holds apart would be let out.
func (g *Guard) passes(frame []byte) (bool, error) {
	verdict, err := g.program.Run(&ebpf.RunOptions{Data: frame})
	return int32(verdict) == next, err
}

// TestRules proves, frame by frame in the kernel, what may leave a guarded machine and what not:
// answers of its SSH server and what keeps it reachable may; whatever else it begins may not.
func TestRules(t *testing.T) {
	g, err := New(Rules{VLANs: []uint16{101, 1000}, Port: 22})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	eth := func(kind layers.EthernetType) *layers.Ethernet {
		return &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: kind}
	}
	v4 := func(p layers.IPProtocol) *layers.IPv4 {
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: p, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
	}
	options := func(ip *layers.IPv4) *layers.IPv4 {
		ip.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 1}}
		return ip
	}
	fragment := func(ip *layers.IPv4) *layers.IPv4 { ip.FragOffset = 100; return ip }
	v6 := func(p layers.IPProtocol) *layers.IPv6 {
		return &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: p, SrcIP: net.ParseIP("fe80::1"), DstIP: net.ParseIP("fe80::2")}
	}
	tcp := func(from uint16, syn, ack bool) *layers.TCP {
		return &layers.TCP{SrcPort: layers.TCPPort(from), DstPort: 5000, SYN: syn, ACK: ack}
	}
	udp := func(from, to uint16) *layers.UDP {
		return &layers.UDP{SrcPort: layers.UDPPort(from), DstPort: layers.UDPPort(to)}
	}
	icmp4 := func(kind uint8) *layers.ICMPv4 {
		return &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, 0)}
	}
	icmp6 := func(kind uint8) *layers.ICMPv6 {
		return &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
	}
	report := gopacket.Payload{58, 0, 5, 2, 0, 0, 0, 0, 143, 0, 0, 0, 0, 0, 0, 0}
	for _, c := range []struct {
		what   string
		passes bool
		frame  []gopacket.SerializableLayer
	}{
		{"ARP", true, []gopacket.SerializableLayer{eth(layers.EthernetTypeARP), gopacket.Payload(make([]byte, 28))}},
		{"LLDP", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeLinkLayerDiscovery), gopacket.Payload(make([]byte, 46))}},
		{"a segment of sshd", true, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), v4(layers.IPProtocolTCP), tcp(22, false, true)}},
		{"sshd's answer to a SYN", true, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), v4(layers.IPProtocolTCP), tcp(22, true, true)}},
		{"a segment of sshd behind options", true, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), options(v4(layers.IPProtocolTCP)), tcp(22, false, true)}},
		{"a connection from sshd's port", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), v4(layers.IPProtocolTCP), tcp(22, true, false)}},
		{"a connection", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), v4(layers.IPProtocolTCP), tcp(40000, true, false)}},
		{"a segment of an older connection", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), v4(layers.IPProtocolTCP), tcp(40000, false, true)}},
		{"a later fragment", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), fragment(v4(layers.IPProtocolTCP)), tcp(22, false, true)}},
		{"DHCP", true, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), v4(layers.IPProtocolUDP), udp(68, 67)}},
		{"DNS", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), v4(layers.IPProtocolUDP), udp(40000, 53)}},
		{"UDP from sshd's number", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), v4(layers.IPProtocolUDP), udp(22, 53)}},
		{"an echo reply", true, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), v4(layers.IPProtocolICMPv4), icmp4(0)}},
		{"an echo request", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), v4(layers.IPProtocolICMPv4), icmp4(8)}},
		{"GRE", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), v4(layers.IPProtocolGRE), gopacket.Payload(make([]byte, 40))}},
		{"sshd over IPv6", true, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv6), v6(layers.IPProtocolTCP), tcp(22, false, true)}},
		{"a connection over IPv6", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv6), v6(layers.IPProtocolTCP), tcp(40000, true, false)}},
		{"a neighbour solicitation", true, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv6), v6(layers.IPProtocolICMPv6), icmp6(135), gopacket.Payload(make([]byte, 20))}},
		{"a multicast listener report", true, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv6), v6(layers.IPProtocolIPv6HopByHop), report}},
		{"an echo request over IPv6", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv6), v6(layers.IPProtocolICMPv6), icmp6(128), gopacket.Payload(make([]byte, 20))}},
		{"DHCPv6", true, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv6), v6(layers.IPProtocolUDP), udp(546, 547)}},
		{"mDNS over IPv6", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv6), v6(layers.IPProtocolUDP), udp(5353, 5353)}},
		{"a fragment over IPv6", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv6), v6(layers.IPProtocolIPv6Fragment), gopacket.Payload(make([]byte, 40))}},
		{"a tag of the sender's own making", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeDot1Q), &layers.Dot1Q{VLANIdentifier: 101, Type: layers.EthernetTypeIPv4}, v4(layers.IPProtocolUDP), udp(1, 2)}},
		{"a cut frame", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), gopacket.Payload{0x45, 0, 0, 20}}},
		{"a lying header length", false, []gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), gopacket.Payload{0x4f, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 22, 0, 0}}},
	} {
		b := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, c.frame...); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		before := g.Dropped()
		got, err := g.passes(b.Bytes())
		if err != nil || got != c.passes {
			t.Errorf("%s passes: %t, %v", c.what, got, err)
		}
		if counted := g.Dropped() > before; counted == got {
			t.Errorf("%s passes: %t, and is counted as dropped: %t", c.what, got, counted)
		}
	}
}
