package openflow

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "record the bytes of other implementations in testdata")

const oskenGolden = "testdata/osken-encoded.jsonl"

// osken runs the script of that name with os-ken, which Debian's own Python has.
func osken(t *testing.T, mode, input string) []byte {
	t.Helper()
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import os_ken.ofproto.ofproto_v1_3_parser").Run(); err != nil {
		t.Skip("os-ken is not installed (Debian: python3-os-ken)")
	}
	cmd := exec.Command(python, "testdata/osken.py", mode)
	cmd.Stdin = strings.NewReader(input)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &problems)
	}
	return out
}

// What os-ken encodes is decoded to what was meant, and encoded to the same bytes: of messages
// recorded earlier.
func TestOSKenRecorded(t *testing.T) {
	recorded, err := os.ReadFile(oskenGolden)
	if err != nil {
		t.Fatal(err)
	}
	checkOSKen(t, recorded)
}

// The same with the os-ken of this machine, which may be another version.
func TestOSKenEncodes(t *testing.T) {
	encoded := osken(t, "encode", "")
	checkOSKen(t, encoded)
	if *update {
		if err := os.WriteFile(oskenGolden, encoded, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func checkOSKen(t *testing.T, lines []byte) {
	want := oskenMeant()
	for line := range bytes.Lines(lines) {
		var encoded struct{ Name, Hex string }
		if err := json.Unmarshal(line, &encoded); err != nil {
			t.Fatal(err)
		}
		b, err := hex.DecodeString(encoded.Hex)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Decode(b)
		if err != nil {
			t.Errorf("%s: %v", encoded.Name, err)
			continue
		}
		if again := m.AppendTo(nil); !bytes.Equal(again, b) {
			t.Errorf("%s:\nos-ken % x\nwe     % x", encoded.Name, b, again)
		}
		meant := want[encoded.Name]
		if meant == nil {
			t.Errorf("%s: the test does not know what os-ken means", encoded.Name)
			continue
		}
		delete(want, encoded.Name)
		meant.SetTransaction(m.Transaction())
		if !reflect.DeepEqual(m, meant) {
			t.Errorf("%s:\nread  %v\nmeant %v", encoded.Name, m, meant)
		}
	}
	for name := range want {
		t.Errorf("%s: os-ken does not send it", name)
	}
}

// os-ken understands what we encode: each message that it has a parser for, field by field.
func TestOSKenParses(t *testing.T) {
	var input strings.Builder
	var asked []sample
	for _, s := range samples() {
		if s.osken != nil {
			asked = append(asked, s)
			fmt.Fprintf(&input, "%x\n", s.AppendTo(nil))
		}
	}
	parsed := slices.Collect(bytes.Lines(osken(t, "parse", input.String())))
	if len(parsed) != len(asked) {
		t.Fatalf("%d answers to %d messages", len(parsed), len(asked))
	}
	for i, s := range asked {
		var v any
		decoder := json.NewDecoder(bytes.NewReader(parsed[i]))
		decoder.UseNumber()
		if err := decoder.Decode(&v); err != nil {
			t.Fatal(err)
		}
		facts := leaves(nil, "", v)
		for _, fact := range s.osken {
			if !slices.Contains(facts, fact) {
				t.Errorf("%v: os-ken does not find %s:\n%s", s, fact, parsed[i])
			}
		}
	}
}

// Codes of errors have the names that os-ken has for their numbers, and none is missing.
func TestOSKenErrors(t *testing.T) {
	var constants map[string]uint64
	if err := json.Unmarshal(osken(t, "constants", ""), &constants); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for kind, n := range errorNames {
		if got := constants["OFPET_"+n.name]; got != uint64(kind) {
			t.Errorf("OFPET_%s is %d at os-ken, %d here", n.name, got, kind)
		}
		for name, code := range constants {
			if !strings.HasPrefix(name, n.prefix) {
				continue
			}
			checked++
			if got, want := MakeErrorCode(ErrorType(kind), uint16(code)).String(), "OFPET_"+n.name+"/"+name; got != want {
				t.Errorf("%s, os-ken says %s", got, want)
			}
		}
	}
	if checked < 100 {
		t.Errorf("os-ken has %d codes of errors", checked)
	}
}

// leaves lists the values of a JSON document as key=value.
func leaves(list []string, key string, v any) []string {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			list = leaves(list, k, inner)
		}
	case []any:
		for _, inner := range v {
			list = leaves(list, key, inner)
		}
	default:
		list = append(list, fmt.Sprintf("%s=%v", key, v))
	}
	return list
}

// oskenMeant holds what testdata/osken.py sends.
func oskenMeant() map[string]Message {
	mac := func(last byte) MAC { return MAC{2, 0, 0, 0, 0, last} }
	actions := []Action{
		Output(1), OutputController(128), Group(7), SetQueue(3), SetMPLSTTL(64), DecMPLSTTL(), SetNwTTL(63), DecNwTTL(),
		CopyTTLOut(), CopyTTLIn(), PushVLAN(0x8100), PopVLAN(), PushMPLS(0x8847), PopMPLS(0x800), PushPBB(0x88e7), PopPBB(),
		SetField(EthDst(mac(9))), SetField(VLANVID(5)), SetField(IPv4Src(addr("192.0.2.1"))), SetField(IPv6Dst(addr("2001:db8::2"))),
		SetField(TCPDst(8080)), SetField(TunnelID(9)), ExperimenterAction(0xff000001, "12345678"),
	}
	for i := range actions[:1] {
		actions[i].MaxLen = MaxLenMax // os-ken's default
	}
	ip, ip6 := EthType(EthTypeIPv4), EthType(EthTypeIPv6)
	matches := map[string]Match{
		"empty":    {},
		"ports":    NewMatch(InPort(1), InPhyPort(2), Metadata(0x10).WithMask64(0xf0)),
		"ethernet": NewMatch(EthDst(MAC{1}).WithMask64(1<<40), EthSrc(mac(1)), EthType(EthTypeLLDP)),
		"vlan":     NewMatch(VLANVID(100), VLANPCP(5)),
		"vlan any": NewMatch(VLANAny()), "vlan none": NewMatch(VLANNone()),
		"tcp": NewMatch(InPort(3), ip, IPDSCP(46), IPECN(1), IPProto(6), IPv4Src(addr("10.0.0.0")).WithPrefix(8),
			IPv4Dst(addr("10.1.2.3")), TCPSrc(1000), TCPDst(80)),
		"udp":  NewMatch(ip, IPProto(17), UDPSrc(68), UDPDst(67)),
		"sctp": NewMatch(ip, IPProto(132), SCTPSrc(1), SCTPDst(2)),
		"icmp": NewMatch(ip, IPProto(1), ICMPv4Type(8), ICMPv4Code(0)),
		"arp": NewMatch(EthType(EthTypeARP), ARPOp(1), ARPSPA(addr("10.0.0.1")), ARPTPA(addr("10.0.0.0")).WithMask64(0xffff00ff),
			ARPSHA(mac(1)), ARPTHA(MAC{})),
		"ipv6": NewMatch(ip6, IPv6Src(addr("2001:db8::")).WithPrefix(32), IPv6Dst(addr("2001:db8::1")),
			IPv6Flabel(5).WithMask64(0xf), IPv6Exthdr(0).WithMask64(0x1fe)),
		"nd":           NewMatch(ip6, IPProto(58), ICMPv6Type(135), ICMPv6Code(0), IPv6NDTarget(addr("fe80::1")), IPv6NDSLL(mac(1))),
		"na":           NewMatch(ip6, IPProto(58), ICMPv6Type(136), IPv6NDTarget(addr("fe80::1")), IPv6NDTLL(mac(2))),
		"mpls":         NewMatch(EthType(EthTypeMPLS), MPLSLabel(16), MPLSTC(3), MPLSBOS(1)),
		"pbb":          NewMatch(EthType(EthTypePBB), PBBISID(0x10000).WithMask64(0xff0000)),
		"tunnel":       NewMatch(TunnelID(7).WithMask64(0xff)),
		"experimenter": NewMatch(OXM{Class: ClassExperimenter, Field: 42, Masked: true, Payload: "ONF\x00\x00\x02\x00\x02"}),
	}
	flows := FlowStatsRequest{TableAll, PortAny, GroupAny, 1, 1, NewMatch(InPort(1))}
	meant := map[string]Message{
		"hello":              &Hello{0, Version, 0},
		"error":              &Error{0, BadRequestBadLen, 0, []byte("01234567")},
		"echo request":       &EchoRequest{0, []byte("data")},
		"echo reply":         &EchoReply{0, []byte("data")},
		"experimenter":       &Experimenter{0, 0xff000001, 5, []byte("data")},
		"features request":   &FeaturesRequest{},
		"get config request": &GetConfigRequest{},
		"set config":         &SetConfig{0, SwitchConfig{FragDrop, 128}},
		"packet out": &PacketOut{0, BufferNone, PortController, []Action{{Type: ActionOutput, Port: 2, MaxLen: MaxLenMax}},
			bytes.Repeat([]byte{1}, 60)},
		"flow mod with instructions": &FlowMod{
			0, 0x1234, 0xffff, 1, FlowModifyStrict, 10, 20, 300, BufferNone, 4, 5, FlowSendFlowRem, matches["tcp"],
			[]Instruction{Meter(1), ApplyActions(actions...), ClearActions(), WriteActions(actions[:3]...), WriteMetadata(1, 0xff), GotoTable(2)},
		},
		"group mod": &GroupMod{0, GroupAdd, GroupDesc{GroupTypeFF, 9, []Bucket{{1, 2, GroupAny, actions[:2]}, {2, PortAny, 8, nil}}}},
		"port mod":  &PortMod{0, 3, mac(3), PortConfigDown, PortConfigDown | PortConfigNoFwd, PortFeature1GbFD},
		"table mod": &TableMod{0, TableAll, 3},
		"meter mod": &MeterMod{0, MeterAdd, MeterConfig{MeterFlagKbps | MeterFlagBurst, 1, []MeterBand{
			{Type: BandDrop, Rate: 1000, Burst: 100}, {Type: BandDSCPRemark, Rate: 500, Burst: 50, PrecLevel: 1},
			{Type: BandExperimenter, Rate: 1, Burst: 2, Experimenter: 3},
		}}},
		"desc request":                   request(NoBody(MultipartDesc)),
		"flow stats request":             request(flows),
		"aggregate stats request":        request(AggregateStatsRequest(flows)),
		"table stats request":            request(NoBody(MultipartTable)),
		"port stats request":             request(PortStatsRequest{PortAny}),
		"queue stats request":            request(QueueStatsRequest{1, QueueAll}),
		"group stats request":            request(GroupStatsRequest{GroupAll}),
		"group desc request":             request(NoBody(MultipartGroupDesc)),
		"group features request":         request(NoBody(MultipartGroupFeatures)),
		"meter stats request":            request(MeterStatsRequest{1}),
		"meter config request":           request(MeterConfigRequest{MeterAll}),
		"meter features request":         request(NoBody(MultipartMeterFeatures)),
		"port desc request":              request(NoBody(MultipartPortDesc)),
		"experimenter multipart request": request(ExperimenterMultipart{0xff000001, 2, []byte("data")}),
		"table features request": &MultipartRequest{0, MultipartMore, TableFeaturesList{{1, "one", 0xff, 0xf0, 3, 100, []TableProperty{
			{Type: TableInstructions, Instructions: []InstructionID{{InstructionGotoTable, 0}, {InstructionApplyActions, 0}}},
			{Type: TableNextTables, NextTables: []uint8{2, 3, 4}},
			{Type: TableApplyActions, Actions: []ActionID{{ActionOutput, 0}, {ActionSetField, 0}}},
			{Type: TableMatch, Fields: []FieldID{{ClassBasic, FieldInPort, false, 0, 0}, {ClassBasic, FieldEthDst, true, 0, 0}}},
		}}}},
		"barrier request":          &BarrierRequest{},
		"barrier reply":            &BarrierReply{},
		"queue get config request": &QueueGetConfigRequest{0, 1},
		"role request":             &RoleRequest{0, ControllerRole{RoleMaster, 0x1234567890}},
		"get async request":        &GetAsyncRequest{},
		"set async":                &SetAsync{0, AsyncMasks{[2]uint32{1, 2}, [2]uint32{3, 4}, [2]uint32{5, 6}}},
	}
	for name, match := range matches {
		m := NewFlowMod(FlowAdd, DefaultPriority, match)
		m.OutPort, m.OutGroup = 0, 0 // os-ken's default
		meant["flow mod with match "+name] = m
	}
	return meant
}
