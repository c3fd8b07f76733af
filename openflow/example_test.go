package openflow_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"trivet.dev/trivet/openflow"
)

// A controller tells a switch to send web traffic for 10.0.0.0/8 out by port 3.
func Example() {
	match := openflow.NewMatch(
		openflow.InPort(1), openflow.EthType(openflow.EthTypeIPv4), openflow.IPProto(openflow.IPProtoTCP),
		openflow.IPv4Dst(netip.MustParseAddr("10.0.0.0")).WithPrefix(8), openflow.TCPDst(80))
	flow := openflow.NewFlowMod(openflow.FlowAdd, 100, match,
		openflow.ApplyActions(openflow.DecNwTTL(), openflow.Output(3)))
	flow.Xid = 7

	wire := flow.AppendTo(nil)
	fmt.Println(len(wire), "bytes")

	decoded, err := openflow.Decode(wire)
	fmt.Println(decoded, err)
	// Output:
	// 128 bytes
	// FLOW_MOD ADD priority=100,tcp,in_port=1,nw_dst=10.0.0.0/8,tp_dst=80,actions=dec_ttl,output:3 <nil>
}

// A switch answers a malformed message with the error that the specification has for it.
func ExampleDecodeError() {
	flow := openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.NewMatch(openflow.TCPDst(80))) // of which IP version?
	wire := flow.AppendTo(nil)
	_, err := openflow.Decode(wire)
	fmt.Println(err)
	var bad *openflow.DecodeError
	if errors.As(err, &bad) {
		fmt.Println(bad.Reply(wire))
	}
	// Output:
	// openflow: FLOW_MOD at byte 52: tcp_dst without its prerequisite before it (OFPET_BAD_MATCH/OFPBMC_BAD_PREREQ)
	// openflow: the peer answers OFPET_BAD_MATCH/OFPBMC_BAD_PREREQ to FLOW_MOD
}

// Messages from a stream, one after the other.
func ExampleReader() {
	var conn bytes.Buffer
	w := openflow.NewWriter(&conn)
	w.Write(&openflow.Hello{Versions: openflow.Versions(openflow.Version)})
	w.Write(&openflow.PacketIn{Match: openflow.NewMatch(openflow.InPort(4)), Data: []byte("a packet")})
	w.Flush()

	r := openflow.NewReader(&conn, 0)
	for {
		m, err := r.Read()
		if err != nil {
			fmt.Println(err)
			return
		}
		switch m := m.(type) {
		case *openflow.PacketIn:
			port, _ := m.Match.InPort()
			fmt.Printf("%s came in at port %d\n", m.Data, port)
		default:
			fmt.Println(m)
		}
	}
	// Output:
	// HELLO version=1.3
	// a packet came in at port 4
	// EOF
}

func ExampleParseFlow() {
	flow, err := openflow.ParseFlow("priority=5,ip,nw_dst=10.0.0.0/8,actions=mod_dl_dst:02:00:00:00:00:01,output:2")
	fmt.Println(flow.Match, err)
	fmt.Println(openflow.FormatFlow(flow))
	_, err = openflow.ParseFlow("prority=5,nw_dst=10.0.0.0/40,ip,actions=outptu:2")
	fmt.Println(err)
	// Output:
	// ip,nw_dst=10.0.0.0/8 <nil>
	// priority=5,ip,nw_dst=10.0.0.0/8,actions=set_field:02:00:00:00:00:01->eth_dst,output:2
	// column 1: prority: no such field
	// column 11: /40: a prefix of ipv4_dst has 0 to 32 bits
	// column 41: outptu: no such action
}

// A flow table keyed by priority and match, with the semantics of a DELETE that is not strict.
func ExampleMatch_Covers() {
	type key struct {
		priority uint16
		match    openflow.Match
	}
	table := map[key]string{
		{1, openflow.NewMatch(openflow.InPort(1), openflow.EthType(openflow.EthTypeARP))}: "first",
		{2, openflow.NewMatch(openflow.InPort(2))}:                                        "second",
	}
	remove := openflow.NewMatch(openflow.InPort(1))
	for k, name := range table {
		if remove.Covers(k.match) {
			fmt.Println("deletes the", name)
		}
	}
	// Output: deletes the first
}
