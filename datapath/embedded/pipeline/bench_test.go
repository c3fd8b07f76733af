package pipeline

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/openflow"
)

func addr(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// routeTo is an entry of a routing node: the next hop's addresses, TTL, output.
func routeTo(prefix netip.Addr, bits int, neighbour byte, port uint32) *openflow.FlowMod {
	return openflow.NewFlowMod(openflow.FlowAdd, uint16(100+bits),
		openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv4), openflow.IPv4Dst(prefix).WithPrefix(bits)),
		openflow.ApplyActions(
			openflow.SetField(openflow.EthSrc(openflow.MAC{2, 0, 0, 0, 1, neighbour})),
			openflow.SetField(openflow.EthDst(openflow.MAC{2, 0, 0, 0, 2, neighbour})),
			openflow.DecNwTTL(), openflow.Output(port)))
}

func newTestSwitch(tb testing.TB, n *Network, dpid uint64, ports int) *Switch {
	tb.Helper()
	s, err := n.Add(Config{DatapathID: dpid, Name: fmt.Sprintf("s%d", dpid)})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range ports {
		if _, err := s.AddPort(openflow.Port{Number: uint32(i + 1), Name: fmt.Sprintf("s%d-eth%d", dpid, i+1)}, 0); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func add(tb testing.TB, s *Switch, flows ...*openflow.FlowMod) {
	tb.Helper()
	for _, m := range flows {
		if err := s.FlowMod(m, 0); err != nil {
			tb.Fatal(err)
		}
	}
}

func udpFrame(tb testing.TB, dst netip.Addr) []byte {
	tb.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 200, Protocol: 17, SrcIP: addr(0x0a000001).AsSlice(), DstIP: dst.AsSlice()}
	udp := &layers.UDP{SrcPort: 1000, DstPort: 2000}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		tb.Fatal(err)
	}
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	buf := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, options, eth, ip, udp, gopacket.Payload("22 bytes of a payload!")); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// routes adds routes of the lengths that a routing table has, most of them /24.
func routes(tb testing.TB, s *Switch, count int) {
	for i := range count {
		bits := 24
		if i%10 == 0 {
			bits = 8 + i/10%25
		}
		add(tb, s, routeTo(addr(0x0a000000+uint32(i)<<8), bits, byte(i), 2))
	}
}

func benchTranslate(b *testing.B, n *Network, p *Port) {
	tr := NewTranslator(n)
	var keys [256]Key
	for i := range keys {
		ParseKey(&keys[i], udpFrame(b, addr(0x0a000001+uint32(i)<<8)), p.Number())
	}
	var o Translation
	tr.Translate(&o, p, &keys[0], 0)
	if len(o.Outputs) != 1 || o.Slow != "" {
		b.Fatalf("not one output: %+v", o)
	}
	b.ReportAllocs()
	defer reportCPU(b)()
	for i := 0; b.Loop(); i++ {
		tr.Translate(&o, p, &keys[i%len(keys)], 0)
	}
}

// reportCPU reports the time on a processor per operation, which other programs of the machine
// change less.
func reportCPU(b *testing.B) func() {
	used := func() int64 {
		var r unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return r.Utime.Nano() + r.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

// A translation through one table of 100,000 routes.
func BenchmarkTranslateOneTable(b *testing.B) {
	n := NewNetwork()
	s := newTestSwitch(b, n, 1, 2)
	routes(b, s, 100_000)
	benchTranslate(b, n, s.Port(1))
}

// A translation through five tables: ports, VLANs, access lists, 10,000 routes, neighbours.
func BenchmarkTranslateFiveTables(b *testing.B) {
	n := NewNetwork()
	s := newTestSwitch(b, n, 1, 2)
	table := func(id uint8, m *openflow.FlowMod) *openflow.FlowMod { m.Table = id; return m }
	add(b, s,
		openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.NewMatch(openflow.InPort(1)), openflow.GotoTable(1)),
		table(1, openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.NewMatch(openflow.VLANNone()), openflow.WriteMetadata(7, 0xff), openflow.GotoTable(2))),
		table(2, openflow.NewFlowMod(openflow.FlowAdd, 0, openflow.Match{}, openflow.GotoTable(3))),
		table(4, openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.NewMatch(openflow.Metadata(9).WithMask64(0xff)),
			openflow.ApplyActions(openflow.SetField(openflow.EthDst(openflow.MAC{2})), openflow.DecNwTTL(), openflow.Output(2)))),
	)
	for i := range 1000 {
		add(b, s, table(2, openflow.NewFlowMod(openflow.FlowAdd, 5, openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv4), openflow.IPProto(6),
			openflow.IPv4Src(addr(0xc0a80000+uint32(i))), openflow.TCPDst(uint16(i))))))
	}
	for i := range 10_000 {
		add(b, s, table(3, openflow.NewFlowMod(openflow.FlowAdd, 24, openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv4),
			openflow.IPv4Dst(addr(0x0a000000+uint32(i)<<8)).WithPrefix(24)), openflow.WriteMetadata(9, 0xff), openflow.GotoTable(4))))
	}
	benchTranslate(b, n, s.Port(1))
}

// chain joins switches in a line; each routes by 1,000 entries.
func chain(tb testing.TB, count int) (*Network, *Port) {
	n := NewNetwork()
	var before *Switch
	var first *Port
	for i := range count {
		s := newTestSwitch(tb, n, uint64(i+1), 2)
		routes(tb, s, 1000)
		if before == nil {
			first = s.Port(1)
		} else if err := n.Join(before, 2, s, 1); err != nil {
			tb.Fatal(err)
		}
		before = s
	}
	return n, first
}

// A translation through ten routing nodes.
func BenchmarkTranslateTenSwitches(b *testing.B) {
	n, p := chain(b, 10)
	benchTranslate(b, n, p)
}

// A packet that goes the slow way through ten routing nodes, bytes and counters included.
func BenchmarkProcessTenSwitches(b *testing.B) {
	n, p := chain(b, 10)
	proc := NewProcessor(n)
	pkt := &Packet{Data: udpFrame(b, addr(0x0a000101))}
	if r := proc.Receive(p, pkt, 0); len(r.Sent) != 1 || r.Sent[0].Data[22] != 190 {
		b.Fatalf("it does not come through: %+v", r)
	}
	b.ReportAllocs()
	defer reportCPU(b)()
	for b.Loop() {
		proc.Receive(p, pkt, 0)
	}
}

// Entries put into a table, from the encoded message on, and the memory that each takes.
func BenchmarkFlowMod(b *testing.B) {
	n := NewNetwork()
	s := newTestSwitch(b, n, 1, 2)
	mods := make([][]byte, 100_000)
	for i := range mods {
		mods[i] = routeTo(addr(0x0a000000+uint32(i)), 32, byte(i%16), 2).AppendTo(nil)
	}
	var m openflow.FlowMod
	install := func(i int) {
		if err := openflow.DecodeInto(mods[i%len(mods)], &m); err != nil {
			b.Fatal(err)
		}
		add(b, s, &m)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range mods {
		install(i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	defer reportCPU(b)()
	for i := 0; b.Loop(); i++ {
		install(i)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(mods)), "B/flow")
	runtime.KeepAlive(s)
}
