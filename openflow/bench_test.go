package openflow

import (
	"bytes"
	"testing"
)

// Messages of the sizes that a controller and a switch exchange most.
var (
	benchMatch = NewMatch(InPort(1), EthDst(MAC{2, 0, 0, 0, 0, 1}), EthSrc(MAC{2, 0, 0, 0, 0, 2}), EthType(EthTypeIPv4),
		IPProto(IPProtoTCP), IPv4Src(addr("10.0.0.1")), IPv4Dst(addr("10.0.0.2")), TCPSrc(1234), TCPDst(80))
	benchShort     = NewFlowMod(FlowAdd, 1, NewMatch(InPort(1), EthDst(MAC{2, 0, 0, 0, 0, 1})), ApplyActions(Output(2)))
	benchFlowMod   = NewFlowMod(FlowAdd, 1, benchMatch, ApplyActions(SetField(EthDst(MAC{2, 0, 0, 0, 0, 3})), DecNwTTL(), Output(2)))
	benchPacketIn  = &PacketIn{Buffer: BufferNone, TotalLen: 64, Match: NewMatch(InPort(1)), Data: make([]byte, 64)}
	benchPacketOut = &PacketOut{Buffer: BufferNone, InPort: PortController, Actions: []Action{Output(2)}, Data: make([]byte, 64)}
)

var benchMessages = []struct {
	name string
	Message
}{
	{"FLOW_MOD", benchShort}, {"FLOW_MOD-9-fields-3-actions", benchFlowMod},
	{"PACKET_IN", benchPacketIn}, {"PACKET_OUT", benchPacketOut}, {"ECHO_REQUEST", &EchoRequest{}},
}

func BenchmarkAppend(b *testing.B) {
	buf := make([]byte, 0, 4096)
	for _, m := range benchMessages {
		b.Run(m.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = m.AppendTo(buf[:0])
			}
		})
	}
}

// What a learning controller does for a new flow: a match of a few fields, a FLOW_MOD, its bytes.
func BenchmarkBuildFlowMod(b *testing.B) {
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for port := uint32(0); b.Loop(); port++ {
		match := NewMatch(InPort(port), EthDst(MAC{2, 0, 0, 0, 0, 1}), EthSrc(MAC{2, 0, 0, 0, 0, 2}))
		m := FlowMod{
			Priority: 1, Match: match, Buffer: BufferNone, OutPort: PortAny, OutGroup: GroupAny,
			Instructions: []Instruction{ApplyActions(Output(port))},
		}
		buf = m.AppendTo(buf[:0])
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, m := range benchMessages {
		wire := m.AppendTo(nil)
		b.Run(m.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(wire); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeInto(b *testing.B) {
	for _, m := range benchMessages {
		wire := m.AppendTo(nil)
		into := newMessage(m.Type())
		b.Run(m.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := DecodeInto(wire, into); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Per message of a stream that comes in pieces of 64 KB, with decoding.
func BenchmarkReader(b *testing.B) {
	wire := bytes.Repeat(benchPacketIn.AppendTo(nil), 1000)
	b.ReportAllocs()
	for i := 0; i < b.N; {
		r := NewReader(bytes.NewReader(wire), 0)
		for ; i < b.N && (r.Buffered() > 0 || i%1000 == 0); i++ {
			if _, err := r.Read(); err != nil {
				break
			}
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := benchMatch.Get(FieldTCPDst); !ok {
				b.Fatal()
			}
		}
	})
	b.Run("map", func(b *testing.B) {
		flows := map[Match]int{benchMatch: 1}
		b.ReportAllocs()
		for b.Loop() {
			if flows[benchMatch] != 1 {
				b.Fatal()
			}
		}
	})
	b.Run("covers", func(b *testing.B) {
		wide := NewMatch(EthType(EthTypeIPv4), IPv4Src(addr("10.0.0.0")).WithPrefix(8))
		b.ReportAllocs()
		for b.Loop() {
			if !wide.Covers(benchMatch) {
				b.Fatal()
			}
		}
	})
}
