//go:build linux

package cache

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/datapath/embedded/wire"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// gen makes random tables and packets out of few values, so that they meet.
type gen struct{ *rand.Rand }

func pick[T any](g gen, of ...T) T { return of[g.Intn(len(of))] }

func (g gen) mac() openflow.MAC {
	return openflow.MAC{pick[byte](g, 2, 2, 2, 3), 0, 0, 0, 0, byte(g.Intn(4))}
}
func (g gen) ip4() netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(g.Intn(2)), byte(g.Intn(4))})
}
func (g gen) ip6() netip.Addr {
	return netip.AddrFrom16([16]byte{0xfd, 5: byte(g.Intn(2)), 15: byte(g.Intn(4))})
}
func (g gen) l4() uint16   { return pick[uint16](g, 80, 443, 1000) }
func (g gen) vid() uint16  { return pick[uint16](g, 0, 1, 2) }
func (g gen) proto() uint8 { return pick[uint8](g, 1, 6, 17, 132, 58, 99) }

func (g gen) match(ports int) openflow.Match {
	var m []openflow.OXM
	add := func(odds int, o openflow.OXM) {
		if g.Intn(odds) == 0 {
			m = append(m, o)
		}
	}
	add(3, openflow.InPort(uint32(1+g.Intn(ports))))
	add(6, openflow.EthDst(g.mac()))
	add(6, openflow.EthSrc(g.mac()))
	switch g.Intn(8) {
	case 0:
		m = append(m, openflow.VLANNone())
	case 1:
		m = append(m, openflow.VLANAny())
	case 2:
		m = append(m, openflow.VLANVID(g.vid()))
	}
	v6 := false
	switch g.Intn(5) {
	case 0, 1:
		m = append(m, openflow.EthType(openflow.EthTypeIPv4))
		add(2, openflow.IPv4Src(g.ip4()).WithPrefix(pick(g, 8, 24, 31, 32)))
		add(2, openflow.IPv4Dst(g.ip4()).WithPrefix(pick(g, 8, 24, 31, 32)))
		add(6, openflow.IPDSCP(uint8(g.Intn(3))))
	case 2:
		v6 = true
		m = append(m, openflow.EthType(openflow.EthTypeIPv6))
		add(2, openflow.IPv6Src(g.ip6()).WithPrefix(pick(g, 8, 64, 128)))
		add(2, openflow.IPv6Dst(g.ip6()).WithPrefix(pick(g, 8, 64, 128)))
	case 3:
		m = append(m, openflow.EthType(openflow.EthTypeARP))
		add(2, openflow.ARPOp(uint16(1+g.Intn(2))))
		add(2, openflow.ARPTPA(g.ip4()))
		return openflow.NewMatch(m...)
	default:
		return openflow.NewMatch(m...)
	}
	switch proto := g.proto(); {
	case g.Intn(2) == 0:
	case proto == 6:
		m = append(m, openflow.IPProto(6), openflow.TCPDst(g.l4()))
	case proto == 17:
		m = append(m, openflow.IPProto(17), openflow.UDPSrc(g.l4()))
	case proto == 1 && !v6:
		m = append(m, openflow.IPProto(1), openflow.ICMPv4Type(pick[uint8](g, 0, 8)))
	case proto == 58 && v6:
		m = append(m, openflow.IPProto(58), openflow.ICMPv6Type(pick[uint8](g, 128, 135)))
	default:
		m = append(m, openflow.IPProto(proto))
	}
	return openflow.NewMatch(m...)
}

func (g gen) action(ports int) openflow.Action {
	switch g.Intn(12) {
	case 0, 1, 2, 3:
		return openflow.Output(pick(g, uint32(1+g.Intn(ports)), uint32(1+g.Intn(ports)), openflow.PortInPort, openflow.PortFlood))
	case 4:
		return openflow.PushVLAN(pick[uint16](g, openflow.EthTypeVLAN, openflow.EthTypeQinQ))
	case 5:
		return openflow.PopVLAN()
	case 6, 7:
		return openflow.DecNwTTL()
	case 8:
		return openflow.SetNwTTL(uint8(1 + g.Intn(5)))
	}
	return openflow.SetField(pick(g,
		openflow.EthDst(g.mac()), openflow.EthSrc(g.mac()), openflow.VLANVID(g.vid()), openflow.VLANPCP(uint8(g.Intn(3))),
		openflow.IPDSCP(uint8(g.Intn(3))), openflow.IPECN(uint8(g.Intn(3))), openflow.IPv4Src(g.ip4()), openflow.IPv4Dst(g.ip4()),
		openflow.IPv6Src(g.ip6()), openflow.IPv6Dst(g.ip6()), openflow.TCPSrc(g.l4()), openflow.TCPDst(g.l4()),
		openflow.UDPSrc(g.l4()), openflow.UDPDst(g.l4()), openflow.SCTPDst(g.l4()), openflow.ARPOp(2)))
}

func (g gen) flow(ports, tables int) *openflow.FlowMod {
	table := g.Intn(tables)
	var list []openflow.Action
	for range 1 + g.Intn(5) {
		list = append(list, g.action(ports))
	}
	instructions := []openflow.Instruction{openflow.ApplyActions(list...)}
	if g.Intn(3) == 0 {
		instructions = append(instructions, openflow.WriteActions(g.action(ports), openflow.Output(uint32(1+g.Intn(ports)))))
	}
	if table+1 < tables && g.Intn(2) == 0 {
		instructions = append(instructions, openflow.GotoTable(uint8(table+1)))
	}
	m := openflow.NewFlowMod(openflow.FlowAdd, uint16(g.Intn(5)), g.match(ports), instructions...)
	m.Table = uint8(table)
	return m
}

// frame makes a packet; now and then one that is cut off.
func (g gen) frame(t testing.TB) []byte {
	src, dst := g.mac(), g.mac()
	eth := &layers.Ethernet{SrcMAC: src[:], DstMAC: dst[:]}
	stack, next := []gopacket.SerializableLayer{eth}, &eth.EthernetType
	for g.Intn(3) == 0 && len(stack) < 4 {
		*next = pick(g, layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ)
		tag := &layers.Dot1Q{Priority: uint8(g.Intn(3)), VLANIdentifier: g.vid()}
		stack, next = append(stack, tag), &tag.Type
	}
	switch g.Intn(6) {
	case 0:
		*next = layers.EthernetTypeARP
		stack = append(stack, &layers.ARP{
			AddrType: 1, Protocol: 0x800, HwAddressSize: 6, ProtAddressSize: 4, Operation: uint16(1 + g.Intn(2)),
			SourceHwAddress: src[:], DstHwAddress: dst[:], SourceProtAddress: g.ip4().AsSlice(), DstProtAddress: g.ip4().AsSlice()})
	case 1, 2:
		*next = layers.EthernetTypeIPv6
		ip := &layers.IPv6{Version: 6, TrafficClass: uint8(g.Intn(12)), FlowLabel: uint32(g.Intn(3)), HopLimit: uint8(1 + g.Intn(4)),
			NextHeader: layers.IPProtocol(g.proto()), SrcIP: g.ip6().AsSlice(), DstIP: g.ip6().AsSlice()}
		proto := ip.NextHeader
		stack = append(stack, ip)
		if g.Intn(6) == 0 {
			ip.NextHeader = pick(g, layers.IPProtocolIPv6Fragment, layers.IPProtocolIPv6HopByHop)
			header := []byte{byte(proto), 0, 1, 4, 0, 0, 0, 0}
			if ip.NextHeader == layers.IPProtocolIPv6Fragment {
				header[2], header[3] = 0, pick[byte](g, 1, 9)
			}
			stack = append(stack, gopacket.Payload(header))
		}
		stack = append(stack, g.transport(t, proto, ip)...)
	case 3, 4:
		*next = layers.EthernetTypeIPv4
		ip := &layers.IPv4{Version: 4, TOS: uint8(g.Intn(12)), TTL: uint8(1 + g.Intn(4)), Protocol: layers.IPProtocol(g.proto()),
			SrcIP: g.ip4().AsSlice(), DstIP: g.ip4().AsSlice()}
		if g.Intn(8) == 0 {
			ip.Flags, ip.FragOffset = layers.IPv4MoreFragments, uint16(g.Intn(2))
		}
		if g.Intn(16) == 0 {
			ip.Options = []layers.IPv4Option{{OptionType: 1}}
		}
		stack = append(stack, ip)
		stack = append(stack, g.transport(t, ip.Protocol, ip)...)
	default:
		*next = pick[layers.EthernetType](g, 0x9999, layers.EthernetTypeIPv4, layers.EthernetTypeMPLSUnicast)
		stack = append(stack, gopacket.Payload("what is none of these"))
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(buf.Bytes())
	for _, l := range stack {
		if ip, isIPv4 := l.(*layers.IPv4); isIPv4 && g.Intn(8) == 0 {
			b[bytes.Index(b, ip.SrcIP)-1]++ // the header's checksum
		}
	}
	if g.Intn(16) == 0 { // after the tags and two bytes: the kernel drops what is cut there
		least := 16
		for _, l := range stack[1:] {
			if _, ok := l.(*layers.Dot1Q); ok {
				least += 4
			}
		}
		b = b[:min(least+g.Intn(len(b)), len(b))]
	}
	return b
}

func (g gen) transport(t testing.TB, proto layers.IPProtocol, ip gopacket.NetworkLayer) []gopacket.SerializableLayer {
	data := gopacket.Payload("some payload"[:g.Intn(13)])
	var l interface {
		gopacket.SerializableLayer
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}
	switch proto {
	case layers.IPProtocolTCP:
		l = &layers.TCP{SrcPort: layers.TCPPort(g.l4()), DstPort: layers.TCPPort(g.l4()), SYN: true}
	case layers.IPProtocolUDP:
		l = &layers.UDP{SrcPort: layers.UDPPort(g.l4()), DstPort: layers.UDPPort(g.l4())}
	case layers.IPProtocolICMPv6:
		l = &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(pick[uint8](g, 128, 135), 0)}
		data = make(gopacket.Payload, 20)
	case layers.IPProtocolSCTP:
		return []gopacket.SerializableLayer{&layers.SCTP{SrcPort: layers.SCTPPort(g.l4()), DstPort: layers.SCTPPort(g.l4())}, data}
	case layers.IPProtocolICMPv4:
		return []gopacket.SerializableLayer{&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(pick[uint8](g, 0, 8), 0)}, data}
	default:
		return []gopacket.SerializableLayer{data}
	}
	if err := l.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	return []gopacket.SerializableLayer{l, data}
}

// differ is the same switches twice: with devices and the engine, and as a pipeline alone.
type differ struct {
	*fixture
	g        gen
	switches []*pipeline.Switch
	plain    *pipeline.Network
	proc     *pipeline.Processor
	twins    []*pipeline.Switch
	hosts    map[*pipeline.Port]int // of the pipeline alone
	at       []*pipeline.Port
	devices  []*wire.Device
	got      []chan []byte
}

const differHosts, differSwitches, differPorts = 4, 2, 4

func newDiffer(t testing.TB, seed int64) *differ {
	d := &differ{fixture: newFixture(t, differHosts, Options{Idle: time.Minute}), g: gen{rand.New(rand.NewSource(seed))}, plain: pipeline.NewNetwork()}
	d.proc, d.hosts = pipeline.NewProcessor(d.plain), map[*pipeline.Port]int{}
	for i := range differSwitches {
		d.switches = append(d.switches, d.fixture.add(uint64(i+1), differPorts))
		s, err := d.plain.Add(pipeline.Config{DatapathID: uint64(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		for p := range differPorts {
			if _, err := s.AddPort(openflow.Port{Number: uint32(p + 1)}, 0); err != nil {
				t.Fatal(err)
			}
		}
		d.twins = append(d.twins, s)
		if i == 1 && seed%2 == 1 { // which tells VLANs apart
			for p := range uint32(differPorts) {
				v := &pipeline.VLANs{Untagged: uint16(d.g.Intn(3))}
				v.Tagged[0] = uint64(d.g.Intn(4)) << 1
				d.switches[i].SetVLANs(p+1, v)
				s.SetVLANs(p+1, v)
			}
		}
		for range 12 {
			for {
				m := d.g.flow(differPorts, 3)
				if d.switches[i].FlowMod(m, 0) == nil {
					if err := s.FlowMod(m, 0); err != nil {
						t.Fatal(err)
					}
					break
				}
			}
		}
	}
	for h := range differHosts { // two hosts and two links at each switch
		sw, port := h/2, uint32(h%2+1)
		d.fixture.plug(d.switches[sw], port, h+1, pick(d.g, Auto, Egress))
		d.at = append(d.at, d.twins[sw].Port(port))
		d.hosts[d.twins[sw].Port(port)] = h
		d.listen(h)
	}
	for port := uint32(3); port <= 4; port++ {
		if err := d.Network().Join(d.switches[0], port, d.switches[1], port); err != nil {
			t.Fatal(err)
		}
		if err := d.plain.Join(d.twins[0], port, d.twins[1], port); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// listen makes a host one that says nothing, and hears everything.
func (d *differ) listen(h int) {
	ns := d.fixture.hosts[h]
	d.run("ip", "-n", ns, "addr", "flush", "dev", "eth0")
	d.run("ip", "-n", ns, "link", "set", "eth0", "arp", "off")
	dev, got := d.open(h)
	d.devices, d.got = append(d.devices, dev), append(d.got, got)
}

// open opens the device of a host, counted from 0; frames that it receives come by the channel.
func (b *fixture) open(h int) (dev *wire.Device, got chan []byte) {
	b.Helper()
	b.inside(b.hosts[h], func() (err error) {
		dev, err = wire.Open("eth0")
		return err
	})
	got = make(chan []byte, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = dev.Receive(func(p *pipeline.Packet) {
			select {
			case got <- bytes.Clone(p.Data):
			default: // nobody listens
			}
		})
	}()
	b.Cleanup(func() { dev.Close(); <-done })
	return dev, got
}

// hear returns the frames that a host receives, counted from 0.
func (b *fixture) hear(h int) chan []byte {
	_, got := b.open(h)
	return got
}

// send sends a frame from a host both ways and compares what arrives.
func (d *differ) send(h int, frame []byte) {
	d.Helper()
	if d.storm(h, frame) {
		return
	}
	r := d.proc.Receive(d.at[h], &pipeline.Packet{Data: frame}, 0)
	want := make([][][]byte, differHosts)
	for _, s := range r.Sent {
		if to, ok := d.hosts[s.Port]; ok {
			want[to] = append(want[to], bytes.Clone(s.Data))
		}
	}
	if err := d.devices[h].Send(&pipeline.Sent{Data: frame}, &pipeline.Packet{Data: frame}); err != nil {
		d.Fatal(err)
	}
	for to, list := range want {
		for i, w := range list {
			select {
			case got := <-d.got[to]:
				if !bytes.Equal(padded(got), padded(w)) {
					d.Fatalf("from host %d, output %d of %d to host %d:\n%s came in as\n%s got\n%s want\n%+v", h, i, len(list), to,
						hex.EncodeToString(frame), hex.EncodeToString(got), hex.EncodeToString(w), d.engine.Stats())
				}
			case <-time.After(time.Minute):
				d.Fatalf("from host %d, output %d of %d to host %d does not come:\n%s\n%+v", h, i, len(list), to, hex.EncodeToString(frame), d.engine.Stats())
			}
		}
	}
}

// storm says whether a packet would become so many, or so large by tag upon tag, that devices drop
// them.
func (d *differ) storm(h int, frame []byte) bool {
	var k pipeline.Key
	var o pipeline.Translation
	pipeline.ParseKey(&k, frame, d.at[h].Number())
	pipeline.NewTranslator(d.plain).Translate(&o, d.at[h], &k, 0)
	return o.Slow == "more VLAN tags than a cache knows" || len(o.Outputs) > maxOutputs
}

// padded is a frame as long as it is on a wire: whether a short one is padded does not matter.
func padded(b []byte) []byte {
	for len(b) < 60 {
		b = append(b, 0)
	}
	return b
}

func counters(t testing.TB, s *pipeline.Switch, now time.Duration) (list []string) {
	body, err := s.Multipart(openflow.AllFlows(), now)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range body.(openflow.FlowStatsList) {
		list = append(list, fmt.Sprintf("flow %d %d %v: %d packets, %d bytes", f.Table, f.Priority, f.Match, f.Packets, f.Bytes))
	}
	for _, p := range s.Ports() {
		list = append(list, fmt.Sprintf("port %d: %d/%d in, %d/%d out", p.Number(), p.Received().Packets(), p.Received().Bytes(), p.Sent().Packets(), p.Sent().Bytes()))
	}
	return list
}

var seeds = flag.Int64("seeds", 12, "random tables that TestDiffer tries")

// What the kernel makes of random packets by random tables is what the pipeline makes of them: the
// same packets at the same hosts, the same counters. Each packet is sent until it goes the fast
// way, if it does.
func TestDiffer(t *testing.T) {
	entries, ran := 0, 0
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := newDiffer(t, seed)
			for range 60 {
				frame, h := d.g.frame(t), d.g.Intn(differHosts)
				for range 5 {
					d.send(h, frame)
					time.Sleep(200 * time.Microsecond)
				}
			}
			for i := range d.switches { // what is dropped is waited for by its counters alone
				until.Silent(t, time.Minute, func() string {
					got, want := counters(t, d.switches[i], d.Now()), counters(t, d.twins[i], 0)
					for j := range want {
						if got[j] != want[j] {
							return fmt.Sprintf("switch %d counts\n%s, want\n%s", i, got[j], want[j])
						}
					}
					return ""
				})
			}
			for h, c := range d.got {
				time.Sleep(5 * time.Millisecond)
				if len(c) > 0 {
					t.Errorf("host %d got %d packets too many, the first: %s", h, len(c), hex.EncodeToString(<-c))
				}
			}
			s := d.engine.Stats()
			entries, ran = entries+s.Entries, ran+1
			if s.Failed > 0 {
				t.Errorf("packets failed: %+v", s)
			}
			t.Logf("%+v", s)
		})
	}
	if entries < 8*ran {
		t.Errorf("%d entries only: the fast way is hardly tested", entries)
	}
}
