package pipeline

import (
	"fmt"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// The check of a packet's size compares the frame as it is then, a pushed tag included and, of what
// a device is to cut, its longest segment. A translation holds for packets that are not larger, and
// says how large they may be as they come in, which is of packets with as many tags. It cannot be a
// part of what happens at the end.
func TestCheckLarger(t *testing.T) {
	b := newBench(t, "actions=check_pkt_larger(100)->OXM_OF_METADATA[3],goto_table:1", "table=1,metadata=8/8,actions=output:2", "table=1,actions=output:3",
		"priority=40000,dl_type=0x88b5,actions=push_vlan:0x8100,check_pkt_larger(100)->OXM_OF_METADATA[0],goto_table:2",
		"table=2,metadata=1,actions=output:2", "table=2,metadata=0,actions=output:3")
	for size, want := range map[int]string{60: "3", 100: "3", 101: "2", 1514: "2"} {
		frame := append(pack(t, eth(0x800), ip4(17, 64), udp(1, 2)), make([]byte, 1500)...)[:size]
		b.want(1, frame, want)
	}
	for size, want := range map[int]string{96: "3", 97: "2"} {
		b.want(1, append(pack(t, eth(0x88b5)), make([]byte, 1500)...)[:size], want)
	}
	headers := pack(t, eth(0x800), ip4(6, 64), &layers.TCP{DataOffset: 5})
	whole := append(headers, make([]byte, 400)...)
	for segment, want := range map[int]string{100 - len(headers): "3", 101 - len(headers): "2"} {
		segments := (400 + segment - 1) / segment
		r := b.proc.Receive(b.Port(1), &Packet{Data: whole, Segments: uint64(segments), WireBytes: uint64(segments*len(headers) + 400),
			Offload: Offload{Segment: 1, SegmentSize: uint16(segment)}}, b.now)
		if len(r.Sent) != 1 || fmt.Sprint(r.Sent[0].Port.Number()) != want {
			t.Errorf("segments of %d bytes go to %v, want %s", segment, r.Sent, want)
		}
	}
	for kind, largest := range map[uint16]int{0x800: 100, 0x88b5: 96} {
		var o Translation
		var k Key
		ParseKey(&k, append(pack(t, eth(layers.EthernetType(kind))), make([]byte, 1500)...), 1)
		NewTranslator(b.net).Translate(&o, b.Port(1), &k, 0)
		if o.Largest != largest || len(o.Outputs) != 1 || o.Outputs[0].Port.Number() != 3 {
			t.Errorf("type %#x: the translation holds for %d bytes, want %d, and leads to %v", kind, o.Largest, largest, o.Outputs)
		}
	}
	var o Translation
	var k, tagged Key
	ParseKey(&k, append(pack(t, eth(0x800)), make([]byte, 1500)...), 1)
	NewTranslator(b.net).Translate(&o, b.Port(1), &k, 0)
	if tagged = k; o.Holds(&k, &tagged) != true || k.Tags() != 0 {
		t.Errorf("%d tags, the translation holds for the same: %v", k.Tags(), o.Holds(&k, &tagged))
	}
	if tagged.setTag(tagPresent | 7); o.Holds(&k, &tagged) || tagged.Tags() != 1 {
		t.Errorf("the translation of a packet without tags holds for one with %d", tagged.Tags())
	}
	if err := b.FlowMod(parseFlow(t, "actions=write_actions(check_pkt_larger(100)->OXM_OF_METADATA[3])"), b.now); err == nil {
		t.Error("an action set with a check is taken")
	}
}
