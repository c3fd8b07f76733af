package pipeline_test

import (
	"fmt"
	"net"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// A packet goes through two switches that a virtual link joins, in one step and without a device.
func Example() {
	network := pipeline.NewNetwork()
	var switches []*pipeline.Switch
	for dpid, flow := range []string{"ip,nw_dst=10.0.0.0/8,actions=dec_ttl,output:2", "in_port=1,actions=output:3"} {
		s, err := network.Add(pipeline.Config{DatapathID: uint64(dpid + 1), Name: fmt.Sprintf("s%d", dpid+1)})
		if err != nil {
			panic(err)
		}
		for number := range uint32(3) {
			if _, err := s.AddPort(openflow.Port{Number: number + 1}, 0); err != nil {
				panic(err)
			}
		}
		mod, err := openflow.ParseFlow(flow)
		if err != nil {
			panic(err)
		}
		if err := s.FlowMod(mod, 0); err != nil {
			panic(err)
		}
		switches = append(switches, s)
	}
	if err := network.Join(switches[0], 2, switches[1], 1); err != nil {
		panic(err)
	}

	frame := gopacket.NewSerializeBuffer()
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4(10, 0, 0, 1), DstIP: net.IPv4(10, 0, 0, 2)}
	err := gopacket.SerializeLayers(frame, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: make(net.HardwareAddr, 6), DstMAC: make(net.HardwareAddr, 6), EthernetType: layers.EthernetTypeIPv4}, ip)
	if err != nil {
		panic(err)
	}
	result := pipeline.NewProcessor(network).Receive(switches[0].Port(1), &pipeline.Packet{Data: frame.Bytes()}, 0)
	for _, s := range result.Sent {
		fmt.Printf("out of port %d of %s, TTL %d\n", s.Port.Number(), s.Port.Switch().Name(), s.Data[14+8])
	}
	// Output: out of port 3 of s2, TTL 63
}
