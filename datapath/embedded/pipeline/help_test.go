package pipeline

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/openflow"
)

// bench is one switch with ports 1 to 4, that takes flows in the words of ovs-ofctl and packets
// made of layers.
type testBench struct {
	*Switch
	t    *testing.T
	net  *Network
	proc *Processor
	news []openflow.Message
	now  time.Duration
}

func newBench(t *testing.T, flows ...string) *testBench {
	t.Helper()
	n := NewNetwork()
	b := &testBench{Switch: newTestSwitch(t, n, 1, 4), t: t, net: n, proc: NewProcessor(n)}
	b.SetNotify(func(m openflow.Message) { b.news = append(b.news, m) })
	b.add(flows...)
	return b
}

func (b *testBench) add(flows ...string) {
	b.t.Helper()
	for _, text := range flows {
		b.mod(openflow.FlowAdd, text)
	}
}

func (b *testBench) mod(command openflow.FlowModCommand, text string) {
	b.t.Helper()
	m := parseFlow(b.t, text)
	m.Command = command
	if err := b.FlowMod(m, b.now); err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
}

func parseFlow(t *testing.T, text string) *openflow.FlowMod {
	t.Helper()
	m, err := openflow.ParseFlow(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// flows lists the flows as text, without what the test does not care for.
func (b *testBench) flows() (list []string) {
	b.t.Helper()
	body, err := b.Multipart(openflow.AllFlows(), b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range body.(openflow.FlowStatsList) {
		list = append(list, fmt.Sprintf("%d:%d %v n=%d %s", f.Table, f.Priority, f.Match, f.Packets, openflow.FormatInstructions(f.Instructions)))
	}
	return list
}

func (b *testBench) receive(port uint32, frame []byte) *Result {
	b.t.Helper()
	return b.proc.Receive(b.Port(port), &Packet{Data: frame}, b.now)
}

// out brings in a packet and lists where it goes and what it has become: "2:[Ethernet IPv4 …]".
func (b *testBench) ports(port uint32, frame []byte) (list []string) {
	b.t.Helper()
	r := b.receive(port, frame)
	for _, s := range r.Sent {
		list = append(list, fmt.Sprint(s.Port.Number()))
	}
	for _, m := range r.PacketIns {
		list = append(list, m.Message.Reason.String())
	}
	return list
}

func (b *testBench) want(port uint32, frame []byte, want ...string) {
	b.t.Helper()
	if got := b.ports(port, frame); !slices.Equal(got, want) {
		b.t.Errorf("a packet from port %d goes to %v, want %v", port, got, want)
	}
}

// becomes checks the bytes of the one packet that goes out.
func (b *testBench) becomes(in, want []byte) {
	b.t.Helper()
	r := b.receive(1, in)
	if len(r.Sent) != 1 {
		b.t.Fatalf("%d packets go out, want 1", len(r.Sent))
	}
	if got := r.Sent[0].Data; !bytes.Equal(got, want) {
		b.t.Errorf("a packet\n%s becomes\n%s want\n%s", hex.EncodeToString(in), hex.EncodeToString(got), hex.EncodeToString(want))
	}
}

// make makes a packet of layers, with right lengths and checksums.
func pack(t *testing.T, stack ...gopacket.SerializableLayer) []byte {
	t.Helper()
	var ip gopacket.NetworkLayer
	for _, l := range stack {
		if n, ok := l.(gopacket.NetworkLayer); ok {
			ip = n
		}
		if l, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			if err := l.SetNetworkLayerForChecksum(ip); err != nil {
				t.Fatal(err)
			}
		}
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(buf.Bytes())
}

func mustMAC(s string) []byte {
	m, err := openflow.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m[:]
}

func eth(next layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: mustMAC("02:00:00:00:00:01"), DstMAC: mustMAC("02:00:00:00:00:02"), EthernetType: next}
}

func ip4(proto layers.IPProtocol, ttl uint8) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: ttl, Protocol: proto, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}}
}

func udp(src, dst uint16) *layers.UDP {
	return &layers.UDP{SrcPort: layers.UDPPort(src), DstPort: layers.UDPPort(dst)}
}

func vlan(vid uint16, pcp uint8, next layers.EthernetType) *layers.Dot1Q {
	return &layers.Dot1Q{VLANIdentifier: vid, Priority: pcp, Type: next}
}

var payload = gopacket.Payload("a payload of 26 characters")

// plain is a UDP packet.
func plain(t *testing.T) []byte {
	return pack(t, eth(layers.EthernetTypeIPv4), ip4(17, 64), udp(1000, 2000), payload)
}

func equalText(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
