package openflow_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	of "trivet.dev/trivet/openflow"
)

// serve is a switch that answers ovs-ofctl's questions from a table, until the connection ends.
func serve(conn net.Conn, answers map[of.MultipartType]of.MultipartBody, got func(of.Message)) {
	defer conn.Close()
	r, w := of.NewReader(conn, 0), of.NewWriter(conn)
	w.Write(&of.Hello{Versions: of.Versions(of.Version)})
	w.Flush()
	for {
		m, err := r.Read()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *of.Hello:
		case *of.EchoRequest:
			w.Write(m.Reply())
		case *of.FeaturesRequest:
			w.Write(&of.FeaturesReply{Xid: m.Xid, DatapathID: 0xbb, Tables: 254, Capabilities: of.CapabilityFlowStats | of.CapabilityPortStats})
		case *of.GetConfigRequest:
			w.Write(&of.GetConfigReply{Xid: m.Xid, SwitchConfig: of.SwitchConfig{Flags: of.FragDrop, MissSendLen: 321}})
		case *of.BarrierRequest:
			w.Write(&of.BarrierReply{Xid: m.Xid})
		case *of.MultipartRequest:
			if body := answers[m.Body.MultipartType()]; body != nil {
				w.WriteReply(&of.MultipartReply{Xid: m.Xid, Body: body})
			} else {
				w.Write(&of.Error{Xid: m.Xid, Code: of.BadRequestBadMultipart, Data: m.AppendTo(nil)})
			}
		default:
			got(m)
		}
		w.Flush()
	}
}

// ovs-ofctl, as the controller of a switch that speaks by this package, reads what the switch
// says, a reply of many parts included, and the switch reads what ovs-ofctl tells it.
func TestSwitchForOfctl(t *testing.T) {
	if _, err := exec.LookPath("ovs-ofctl"); err != nil {
		t.Skip("ovs-ofctl is not installed")
	}
	dir, err := os.MkdirTemp("", "of") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })

	var entries of.FlowStatsList
	for i := range 3000 {
		flow, err := of.ParseFlow(fmt.Sprintf("tcp,in_port=1,nw_dst=10.0.%d.%d,tp_dst=80,actions=dec_ttl,output:2", i>>8, i&255))
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, of.FlowStats{Priority: 9, Cookie: 0xc0ffee, Packets: uint64(i), Match: flow.Match, Instructions: flow.Instructions})
	}
	bucket := of.NewBucket(of.PushVLAN(of.EthTypeVLAN), of.SetField(of.VLANVID(7)), of.Output(3))
	bucket.Weight = 4
	answers := map[of.MultipartType]of.MultipartBody{
		of.MultipartFlow:      entries,
		of.MultipartAggregate: of.AggregateStats{Packets: 11, Bytes: 12, Flows: 13},
		of.MultipartDesc:      of.Desc{Manufacturer: "Trivet", Datapath: "campus"},
		of.MultipartTable:     of.TableStatsList{{Table: 0, Active: 14, Lookups: 15, Matched: 16}},
		of.MultipartPortDesc:  of.PortDescList{{Number: 1, Name: "eth1", HWAddr: of.MAC{2, 0, 0, 0, 0, 1}, Config: of.PortConfigNoFwd, Current: of.PortFeature10GbFD}},
		of.MultipartPortStats: of.PortStatsList{{Port: 1, RxPackets: 21, TxBytes: 22, RxCRCErr: 23, Duration: of.Duration{Sec: 24}}},
		of.MultipartQueue:     of.QueueStatsList{{Port: 1, Queue: 31, TxBytes: 32, TxPackets: 33}},
		of.MultipartGroupDesc: of.GroupDescList{{Kind: of.GroupTypeSelect, Group: 41, Buckets: []of.Bucket{bucket}}},
		of.MultipartGroup:     of.GroupStatsList{{Group: 41, RefCount: 42, Packets: 43, Buckets: []of.Counter{{Packets: 44, Bytes: 45}}}},
		of.MultipartGroupFeatures: of.GroupFeatures{Types: 1 << of.GroupTypeSelect, Capabilities: of.GroupSelectWeight,
			MaxGroups: [4]uint32{0, 46}, Actions: [4]uint32{0, 1 << of.ActionOutput}},
		of.MultipartMeterConfig: of.MeterConfigList{{Flags: of.MeterFlagKbps, Meter: 51, Bands: []of.MeterBand{
			{Type: of.BandDrop, Rate: 52}, {Type: of.BandDSCPRemark, Rate: 53, PrecLevel: 2},
		}}},
		of.MultipartMeter:         of.MeterStatsList{{Meter: 51, Flows: 54, Packets: 55, Bands: []of.Counter{{Packets: 56}}}},
		of.MultipartMeterFeatures: of.MeterFeatures{MaxMeters: 57, BandTypes: 1 << of.BandDrop, Capabilities: uint32(of.MeterFlagKbps), MaxBands: 8},
		of.MultipartTableFeatures: of.TableFeaturesList{{Table: 0, Name: "ingress", MaxEntries: 61, MetadataMatch: 0xff, Properties: []of.TableProperty{
			{Type: of.TableInstructions, Instructions: []of.InstructionID{{Type: of.InstructionApplyActions}, {Type: of.InstructionGotoTable}}},
			{Type: of.TableNextTables, NextTables: []uint8{1, 2}},
			{Type: of.TableWriteActions, Actions: []of.ActionID{{Type: of.ActionOutput}}},
			{Type: of.TableApplyActions, Actions: []of.ActionID{{Type: of.ActionOutput}, {Type: of.ActionGroup}}},
			{Type: of.TableMatch, Fields: []of.FieldID{of.BasicFieldID(of.FieldInPort, false), of.BasicFieldID(of.FieldEthDst, true)}},
			{Type: of.TableWildcards, Fields: []of.FieldID{of.BasicFieldID(of.FieldInPort, false), of.BasicFieldID(of.FieldEthDst, false)}},
			{Type: of.TableWriteSetField, Fields: []of.FieldID{of.BasicFieldID(of.FieldEthDst, false)}},
			{Type: of.TableApplySetField, Fields: []of.FieldID{of.BasicFieldID(of.FieldEthDst, false)}},
		}}},
	}
	received := make(chan of.Message, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn, answers, func(m of.Message) { received <- m })
		}
	}()

	ofctl := func(args ...string) string {
		command := append([]string{"ovs-ofctl", "-O", "OpenFlow13", "-vwarn", "-t", "10", args[0], "unix:" + filepath.Join(dir, "s")}, args[1:]...)
		return run(t, command...)
	}
	for command, want := range map[string][]string{
		"show":                {"dpid:00000000000000bb", "n_tables:254", "1(eth1): addr:02:00:00:00:00:01", "NO_FWD", "10GB-FD", "frags=drop miss_send_len=321"},
		"dump-aggregate":      {"packet_count=11 byte_count=12 flow_count=13"},
		"dump-desc":           {"Manufacturer: Trivet", "DP Description: campus"},
		"dump-tables":         {"active=14, lookup=15, matched=16"},
		"dump-ports":          {"rx pkts=21", "bytes=22", "crc=23", "duration=24"},
		"queue-stats":         {"queue 31: bytes=32, pkts=33"},
		"dump-groups":         {"group_id=41,type=select", "weight:4", "push_vlan:0x8100", "set_field:4103->vlan_vid", "output:3"},
		"dump-group-stats":    {"ref_count=42", "packet_count=43", "bucket0:packet_count=44,byte_count=45"},
		"dump-group-features": {"max_groups=0x2e"},
		"dump-meters":         {"meter=51 kbps", "type=drop rate=52", "type=dscp_remark rate=53 prec_level=2"},
		"meter-stats":         {"flow_count:54", "packet_in_count:55", "packet_count:56"},
		"meter-features":      {"max_meter:57", "max_bands:8"},
		"dump-table-features": {`("ingress")`, "max_entries=61"},
	} {
		out := ofctl(command)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("ovs-ofctl %s does not say %q:\n%s", command, w, out)
			}
		}
	}
	dump := ofctl("dump-flows")
	if n := strings.Count(dump, "cookie=0xc0ffee"); n != len(entries) {
		t.Errorf("ovs-ofctl finds %d flows of %d", n, len(entries))
	}
	if want := "priority=9,tcp,in_port=1,nw_dst=10.0.11.183,tp_dst=80 actions=dec_ttl,output:2"; !strings.Contains(dump, want) {
		t.Errorf("ovs-ofctl finds no %s", want)
	}

	for _, c := range []struct {
		command []string
		want    string
	}{
		{[]string{"add-flow", flows[1]}, "FLOW_MOD ADD " + flows[1]},
		{[]string{"--strict", "del-flows", "in_port=1,priority=5"}, "FLOW_MOD DELETE_STRICT table=all,priority=5,in_port=1,actions=drop"},
		{[]string{"add-group", "group_id=3,type=ff,bucket=watch_port:1,actions=output:1"}, "GROUP_MOD ADD group_id=3,type=ff,bucket=watch_port:1,actions=output:1"},
		{[]string{"add-meter", "meter=1,kbps,burst,band=type=drop,rate=1000,burst_size=5"}, "METER_MOD ADD meter=1,kbps burst,band=type=drop,rate=1000,burst_size=5"},
		{[]string{"mod-port", "1", "down"}, "PORT_MOD port=1 addr=02:00:00:00:00:01 config=PORT_DOWN mask=PORT_DOWN advertise=0x0"},
		{[]string{"packet-out", "in_port=1,packet=0200000000010200000000028100,actions=output:2"}, "PACKET_OUT buffer=none in_port=1 actions=output:2 14 bytes"},
	} {
		args := c.command
		var options []string
		if args[0] == "--strict" {
			options, args = args[:1], args[1:]
		}
		run(t, append(append([]string{"ovs-ofctl", "-O", "OpenFlow13", "-vwarn", "-t", "10"}, options...),
			append([]string{args[0], "unix:" + filepath.Join(dir, "s")}, args[1:]...)...)...)
		select {
		case m := <-received:
			equal(t, strings.Join(c.command, " "), m.String(), c.want)
		case <-time.After(time.Minute):
			t.Fatalf("%v: nothing has come", c.command)
		}
	}
}
