package pipeline

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/openflow"
)

// ofVLANs are VLANs of a port: the one without a tag (0: none), and those with one.
func ofVLANs(untagged uint16, tagged ...int) *VLANs {
	v := &VLANs{Untagged: untagged}
	for _, n := range tagged {
		v.Tagged[n/64] |= 1 << (n % 64)
	}
	return v
}

// TestVLANs proves of frames with and without tags what becomes of them between access ports,
// trunks and trunks with a VLAN without a tag (IEEE 802.1Q, clauses 6.9, 8.6.1, 8.6.2 and 8.6.4):
// which ports they leave by, and with which bytes; that tables and controllers see each with the
// tag of its VLAN; and that it is the same for a switch that learns and one with entries.
func TestVLANs(t *testing.T) {
	const access10, access20, trunk, native = 1, 2, 3, 4
	body := []gopacket.SerializableLayer{ip4(17, 64), udp(1000, 2000), payload}
	frame := func(tags ...*layers.Dot1Q) []byte {
		stack := []gopacket.SerializableLayer{eth(layers.EthernetTypeDot1Q)}
		if len(tags) == 0 {
			stack[0] = eth(layers.EthernetTypeIPv4)
		}
		for _, tag := range tags {
			stack = append(stack, tag)
		}
		return pack(t, append(stack, body...)...)
	}
	tagged := func(vid uint16, pcp uint8) []byte { return frame(vlan(vid, pcp, layers.EthernetTypeIPv4)) }
	none := frame()
	double := frame(vlan(10, 0, layers.EthernetTypeDot1Q), vlan(20, 0, layers.EthernetTypeIPv4))
	inner := frame(vlan(20, 0, layers.EthernetTypeIPv4))
	lldp := pack(t, &layers.Ethernet{SrcMAC: mustMAC("02:00:00:00:00:01"), DstMAC: mustMAC("01:80:c2:00:00:0e"), EthernetType: 0x88cc}, payload)
	for _, how := range []string{"learning", "flood"} {
		for _, c := range []struct {
			what string
			in   uint32
			in_  []byte
			out  map[uint32][]byte
		}{
			{"no tag at an access port", access10, none, map[uint32][]byte{trunk: tagged(10, 0)}},
			{"no tag at an access port of a native VLAN", access20, none, map[uint32][]byte{trunk: tagged(20, 0), native: none}},
			{"its own tag at an access port", access10, tagged(10, 0), nil},
			{"another tag at an access port", access10, tagged(20, 0), nil},
			{"priority alone at an access port", access10, tagged(0, 5), map[uint32][]byte{trunk: tagged(10, 5)}},
			{"no tag at a trunk", trunk, none, nil},
			{"priority alone at a trunk", trunk, tagged(0, 5), nil},
			{"a tag at a trunk", trunk, tagged(10, 3), map[uint32][]byte{access10: none}},
			{"the native VLAN's tag at a trunk", trunk, tagged(20, 3), map[uint32][]byte{access20: none, native: none}},
			{"a tag that no other port has", trunk, tagged(30, 0), nil},
			{"a tag that the trunk has not", trunk, tagged(31, 0), nil},
			{"no tag at a trunk with a native VLAN", native, none, map[uint32][]byte{access20: none, trunk: tagged(20, 0)}},
			{"two tags", trunk, double, map[uint32][]byte{access10: inner}},
			{"a frame that bridges do not forward, at a trunk", trunk, lldp, map[uint32][]byte{access10: lldp, access20: lldp, native: lldp}},
		} {
			b := newBench(t)
			for port, v := range map[uint32]*VLANs{access10: ofVLANs(10), access20: ofVLANs(20), trunk: ofVLANs(0, 10, 20, 30), native: ofVLANs(20, 40)} {
				b.SetVLANs(port, v)
			}
			if b.SetStandalone(how == "learning"); how == "flood" {
				b.add("actions=all,controller")
			}
			r := b.receive(c.in, c.in_)
			got := map[uint32][]byte{}
			for _, s := range r.Sent {
				got[s.Port.Number()] = slices.Clone(s.Data)
			}
			for port := range uint32(5) {
				if !bytes.Equal(got[port], c.out[port]) {
					t.Errorf("%s, %s: port %d sends\n%x, want\n%x", how, c.what, port, got[port], c.out[port])
				}
			}
			for _, m := range r.PacketIns {
				if len(c.out) > 0 && !bytes.Equal(m.Message.Data[12:14], []byte{0x81, 0}) && !bytes.Equal(c.in_, lldp) {
					t.Errorf("%s: the controller sees %x, which has no tag", c.what, m.Message.Data)
				}
			}
			if how == "flood" && (len(r.PacketIns) > 0) != (len(c.out) > 0 || c.what == "a tag that no other port has") {
				t.Errorf("%s: the controller sees %d packets", c.what, len(r.PacketIns))
			}
		}
	}
}

// TestVLANLearning proves that a switch that learns does so for each VLAN: the same address in two
// of them is two stations, and a frame to one does not leave by the other's port.
func TestVLANLearning(t *testing.T) {
	b := newBench(t)
	for port, v := range map[uint32]*VLANs{1: ofVLANs(10), 2: ofVLANs(10), 3: ofVLANs(20), 4: ofVLANs(20)} {
		b.SetVLANs(port, v)
	}
	b.SetStandalone(true)
	from := func(mac, to string) []byte {
		return pack(t, &layers.Ethernet{SrcMAC: mustMAC(mac), DstMAC: mustMAC(to), EthernetType: 0x0800}, payload)
	}
	same, other := "02:00:00:00:00:05", "02:00:00:00:00:06"
	b.receive(2, from(same, other))
	b.receive(4, from(same, other))
	for in, want := range map[uint32]string{1: "2", 3: "4"} {
		if got := b.ports(in, from(other, same)); !slices.Equal(got, []string{want}) {
			t.Errorf("a frame from port %d leaves by %v, want %s", in, got, want)
		}
	}
}

// TestVLANChange proves that the VLANs of a port can change while frames pass: translations that
// were made before are told to be made anew, and addresses learned there are forgotten.
func TestVLANChange(t *testing.T) {
	b := newBench(t, "actions=flood")
	var k Key
	var o Translation
	ParseKey(&k, plain(t), 1)
	see := func() string {
		NewTranslator(b.net).Translate(&o, b.Port(1), &k, 0)
		var to []string
		for _, out := range o.Outputs {
			to = append(to, fmt.Sprint(out.Port.Number()))
		}
		return fmt.Sprint(to)
	}
	changed := false
	b.net.OnChange(func(_ *Switch, what int) { changed = changed || what == ReadPorts })
	for _, c := range []struct {
		port uint32
		v    *VLANs
		want string
	}{{1, ofVLANs(10), "[2 3 4]"}, {2, ofVLANs(10), "[2 3 4]"}, {3, ofVLANs(20), "[2 4]"}, {3, ofVLANs(10), "[2 3 4]"}, {1, ofVLANs(0, 10), "[]"}, {1, nil, "[2 3 4]"}} {
		changed = false
		if b.SetVLANs(c.port, c.v); !changed {
			t.Errorf("VLANs of port %d: no translation is told", c.port)
		}
		if got := see(); got != c.want {
			t.Errorf("with VLANs %v of port %d a frame leaves by %s, want %s", c.v, c.port, got, c.want)
		}
	}
	changed = false
	if b.SetVLANs(2, ofVLANs(10)); changed {
		t.Error("the same VLANs are a change")
	}
	if _, err := b.proc.PacketOut(b.Switch, &openflow.PacketOut{Buffer: openflow.BufferNone, InPort: openflow.PortController, Data: plain(t),
		Actions: []openflow.Action{openflow.Output(2)}}, 0); err != nil || len(b.proc.result.Sent) != 1 || !bytes.Equal(b.proc.result.Sent[0].Data, plain(t)) {
		t.Errorf("what a controller makes without a tag leaves an access port as %v, %v", b.proc.result.Sent, err)
	}
}
