package openflow_test

import (
	"bytes"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	of "trivet.dev/trivet/openflow"
)

func (c *controller) handshake() {
	c.t.Helper()
	own := &of.Hello{Version: of.Version, Versions: of.Versions(of.Version)}
	c.send(own)
	peer, ok := c.receive().(*of.Hello)
	if !ok {
		c.t.Fatal("the first message is no HELLO")
	}
	if v, err := of.Negotiate(own, peer); v != of.Version || err != nil {
		c.t.Fatalf("version %d: %v", v, err)
	}
	features := ask[*of.FeaturesReply](c, &of.FeaturesRequest{})
	equal(c.t, "datapath id", features.DatapathID, 0xaa)
	equal(c.t, "tables", features.Tables, 254)
}

// All statistics and descriptions can be asked for, and say what is known of the bridge.
func (c *controller) testStatistics(t *testing.T) {
	ports := stats[of.PortDescList](c, of.NoBody(of.MultipartPortDesc))
	names := map[uint32]string{}
	for _, p := range ports {
		names[p.Number] = p.Name
	}
	equal(t, "ports", names, map[uint32]string{1: "p1", 2: "p2", of.PortLocal: "s1"})
	equal(t, "manufacturer", stats[of.Desc](c, of.NoBody(of.MultipartDesc)).Manufacturer, "Nicira, Inc.")
	equal(t, "tables", len(stats[of.TableStatsList](c, of.NoBody(of.MultipartTable))), 254)
	features := stats[of.TableFeaturesList](c, of.TableFeaturesList(nil))
	equal(t, "tables with features", len(features), 254)
	equal(t, "port of the statistics", stats[of.PortStatsList](c, of.PortStatsRequest{Port: 1})[0].Port, 1)
	equal(t, "ports with statistics", len(stats[of.PortStatsList](c, of.PortStatsRequest{Port: of.PortAny})), 3)
	for _, q := range stats[of.QueueStatsList](c, of.QueueStatsRequest{Port: of.PortAny, Queue: of.QueueAll}) {
		if names[q.Port] == "" {
			t.Errorf("a queue of no port: %+v", q)
		}
	}
	equal(t, "kinds of groups", stats[of.GroupFeatures](c, of.NoBody(of.MultipartGroupFeatures)).Types, 0xf)
	equal(t, "colors", stats[of.MeterFeatures](c, of.NoBody(of.MultipartMeterFeatures)).MaxColor, 0)
	equal(t, "aggregate", stats[of.AggregateStats](c, of.AggregateStatsRequest(of.AllFlows())).Flows, 0)
}

// Configuration, role, masks and the state of a port are what they were set to.
func (c *controller) testState(t *testing.T) {
	config := of.SwitchConfig{Flags: of.FragNormal, MissSendLen: 1000}
	c.do(&of.SetConfig{SwitchConfig: config})
	equal(t, "configuration", ask[*of.GetConfigReply](c, &of.GetConfigRequest{}).SwitchConfig, config)
	role := of.ControllerRole{Role: of.RoleMaster, GenerationID: 7}
	equal(t, "role", ask[*of.RoleReply](c, &of.RoleRequest{ControllerRole: role}).ControllerRole, role)
	masks := of.AsyncMasks{PacketIn: [2]uint32{7, 0}, PortStatus: [2]uint32{7, 7}, FlowRemoved: [2]uint32{15, 0}}
	c.do(&of.SetAsync{AsyncMasks: masks})
	equal(t, "masks", ask[*of.GetAsyncReply](c, &of.GetAsyncRequest{}).AsyncMasks, masks)
	equal(t, "queues", len(ask[*of.QueueGetConfigReply](c, &of.QueueGetConfigRequest{Port: 1}).Queues), 0)
	equal(t, "echo", string(ask[*of.EchoReply](c, &of.EchoRequest{Data: []byte("ping")}).Data), "ping")
	c.do(&of.TableMod{Table: of.TableAll, Config: 3})

	// Whoever changes a port is not told, but the others are.
	p2 := func() of.Port {
		ports := stats[of.PortDescList](c, of.NoBody(of.MultipartPortDesc))
		return ports[slices.IndexFunc(ports, func(p of.Port) bool { return p.Number == 2 })]
	}
	c.do(&of.PortMod{Port: 2, HWAddr: p2().HWAddr, Config: of.PortConfigNoFwd, Mask: of.PortConfigNoFwd})
	equal(t, "port config", p2().Config&of.PortConfigNoFwd, of.PortConfigNoFwd)
	c.async = nil
	run(t, "ovs-ofctl", "-O", "OpenFlow13", "mod-port", c.socket, "2", "no-packet-in")
	status := await[*of.PortStatus](c)
	if status.Reason != of.PortModify || status.Port.Number != 2 || status.Port.Config&of.PortConfigNoPacketIn == 0 {
		t.Errorf("%v", status)
	}
	c.do(&of.PortMod{Port: 2, HWAddr: p2().HWAddr, Mask: of.PortConfigNoFwd | of.PortConfigNoPacketIn})
}

// await returns the first message of the type that comes without being asked for.
func await[M of.Message](c *controller) M {
	c.t.Helper()
	return awaitThat(c, func(M) bool { return true })
}

func awaitThat[M of.Message](c *controller, is func(M) bool) M {
	c.t.Helper()
	for i := 0; ; i++ {
		if i == len(c.async) {
			c.async = append(c.async, c.receive())
		}
		if m, ok := c.async[i].(M); ok && is(m) {
			return m
		}
	}
}

func (c *controller) testGroups(t *testing.T) {
	groups := of.GroupDescList{
		{Kind: of.GroupTypeAll, Group: 1, Buckets: []of.Bucket{of.NewBucket(of.Output(1)), of.NewBucket(of.PushVLAN(0x8100), of.Output(2))}},
		{Kind: of.GroupTypeSelect, Group: 2, Buckets: []of.Bucket{{Weight: 3, WatchPort: of.PortAny, WatchGroup: of.GroupAny, Actions: []of.Action{of.Output(1)}}}},
		{Kind: of.GroupTypeIndirect, Group: 3, Buckets: []of.Bucket{of.NewBucket(of.Group(1))}},
		{Kind: of.GroupTypeFF, Group: 4, Buckets: []of.Bucket{{WatchPort: 1, WatchGroup: of.GroupAny, Actions: []of.Action{of.Output(1)}}}},
	}
	c.do(&of.GroupMod{Command: of.GroupDelete, GroupDesc: of.GroupDesc{Group: of.GroupAll}})
	for _, g := range groups {
		c.do(&of.GroupMod{Command: of.GroupAdd, GroupDesc: g})
	}
	got := map[uint32]of.GroupDesc{}
	for _, g := range stats[of.GroupDescList](c, of.NoBody(of.MultipartGroupDesc)) {
		got[g.Group] = g
	}
	for _, g := range groups {
		equal(t, "group", got[g.Group], g)
	}
	for _, s := range stats[of.GroupStatsList](c, of.GroupStatsRequest{Group: of.GroupAll}) {
		equal(t, "buckets with counters", len(s.Buckets), len(got[s.Group].Buckets))
	}
}

func (c *controller) testMeters(t *testing.T) {
	meter := of.MeterConfig{Flags: of.MeterFlagKbps | of.MeterFlagBurst | of.MeterFlagStats, Meter: 5, Bands: []of.MeterBand{{Type: of.BandDrop, Rate: 1000, Burst: 100}}}
	c.do(&of.MeterMod{Command: of.MeterAdd, MeterConfig: meter})
	equal(t, "meters", stats[of.MeterConfigList](c, of.MeterConfigRequest{Meter: of.MeterAll}), of.MeterConfigList{meter})
	s := stats[of.MeterStatsList](c, of.MeterStatsRequest{Meter: 5})
	equal(t, "meters with statistics", len(s), 1)
	equal(t, "bands", len(s[0].Bands), 1)
	c.do(&of.MeterMod{Command: of.MeterDelete, MeterConfig: of.MeterConfig{Meter: 5}})
	equal(t, "meters left", len(stats[of.MeterConfigList](c, of.MeterConfigRequest{Meter: of.MeterAll})), 0)
}

// flows are what testFlows and testText install. OVS has no PBB, IPV6_EXTHDR and IN_PHY_PORT.
var flows = []string{
	"priority=1,actions=drop",
	"table=3,priority=65535,in_port=1,metadata=0x10/0xf0,actions=output:2",
	"priority=2,in_port=LOCAL,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,dl_src=02:00:00:00:00:01,dl_type=0x88cc,actions=CONTROLLER:65535",
	"priority=3,dl_vlan=100,dl_vlan_pcp=5,actions=pop_vlan,IN_PORT",
	"priority=4,vlan_tci=0x1000/0x1000,actions=ALL",
	"priority=5,vlan_tci=0x0000/0x1fff,actions=push_vlan:0x8100,set_field:0x1064->vlan_vid,output:2",
	"priority=6,vlan_vid=0x1004/0x100c,actions=FLOOD",
	"priority=7,ip,ip_dscp=46,nw_ecn=1,nw_src=10.0.0.0/8,nw_dst=192.0.0.2/255.255.0.255,actions=dec_ttl,NORMAL",
	"priority=8,tcp,in_port=1,nw_dst=10.1.2.3,tp_src=1000,tp_dst=80,actions=set_field:10.0.0.9->ip_dst,set_field:8080->tcp_dst,output:2",
	"priority=9,udp,tp_src=68,tp_dst=67,actions=set_field:02:00:00:00:00:05->eth_dst,output:1,output:2",
	"priority=10,sctp,tp_src=1,tp_dst=2,actions=set_queue:3,output:1",
	"priority=11,icmp,icmp_type=8,icmp_code=0,actions=mod_nw_ttl:9,output:1",
	"priority=12,arp,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/24,arp_sha=02:00:00:00:00:01,actions=LOCAL",
	"priority=13,ipv6,ipv6_src=2001:db8::/32,ipv6_dst=2001:db8::1,ipv6_label=0x5,actions=set_field:2001:db8::9->ipv6_dst,output:1",
	"priority=14,icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=02:00:00:00:00:01,actions=output:1",
	"priority=15,icmp6,icmp_type=136,nd_tll=02:00:00:00:00:01,actions=output:1",
	"priority=16,tcp6,tp_dst=443,actions=output:1",
	"priority=17,mpls,mpls_label=16,mpls_tc=3,mpls_bos=1,actions=dec_mpls_ttl,set_mpls_ttl(7),pop_mpls:0x0800,output:1",
	"priority=18,tun_id=0x7/0xff,actions=push_mpls:0x8847,output:1",
	"table=1,cookie=0x1234,idle_timeout=10,hard_timeout=20,send_flow_rem,priority=19,actions=meter:6,clear_actions,write_actions(group:1,output:1),write_metadata:0x1/0xff,goto_table:2",
	"table=1,priority=21,ip,actions=check_pkt_larger(1414)->OXM_OF_METADATA[5],write_actions(dec_ttl,output:1),goto_table:2",
	"priority=20,rarp,actions=group:1",
}

func (c *controller) deleteFlows() {
	c.t.Helper()
	all := of.NewFlowMod(of.FlowDelete, 0, of.Match{})
	all.Table = of.TableAll
	group := of.GroupDesc{Group: 1, Buckets: []of.Bucket{of.NewBucket(of.Output(1))}}
	meter := of.MeterConfig{Flags: of.MeterFlagPktps, Meter: 6, Bands: []of.MeterBand{{Type: of.BandDrop, Rate: 1000}}}
	c.do(all, &of.GroupMod{Command: of.GroupDelete, GroupDesc: of.GroupDesc{Group: of.GroupAll}},
		&of.MeterMod{Command: of.MeterDelete, MeterConfig: of.MeterConfig{Meter: of.MeterAll}},
		&of.GroupMod{Command: of.GroupAdd, GroupDesc: group}, &of.MeterMod{Command: of.MeterAdd, MeterConfig: meter})
	c.async = nil
}

// A flow comes back from the switch as it was sent, field by field.
func (c *controller) testFlows(t *testing.T) {
	for _, text := range flows {
		c.deleteFlows()
		m, err := of.ParseFlow(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		c.do(m)
		c.checkFlow(t, text, m)
		aggregate := of.AggregateStatsRequest(of.AllFlows())
		aggregate.Match = m.Match
		equal(t, text+": aggregate", stats[of.AggregateStats](c, aggregate).Flows, 1)
	}
}

// checkFlow checks that the switch has this flow and no other.
func (c *controller) checkFlow(t *testing.T, text string, m *of.FlowMod) {
	t.Helper()
	list := stats[of.FlowStatsList](c, of.AllFlows())
	if len(list) != 1 {
		t.Errorf("%s: the switch has %v", text, list)
		return
	}
	s := list[0]
	equal(t, text+": match", s.Match.String(), m.Match.String())
	if s.Match != m.Match {
		t.Errorf("%s: %v is not %v", text, s.Match, m.Match)
	}
	equal(t, text+": instructions", s.Instructions, m.Instructions)
	equal(t, text+": flags", s.Flags, m.Flags)
	equal(t, text+": priority", s.Priority, m.Priority)
	equal(t, text+": table", s.Table, m.Table)
	equal(t, text+": cookie", s.Cookie, m.Cookie)
	equal(t, text+": timeouts", [2]uint16{s.IdleTimeout, s.HardTimeout}, [2]uint16{m.IdleTimeout, m.HardTimeout})
}

// ovs-ofctl understands the text of a flow as we do, and we understand that of ovs-ofctl.
func (c *controller) testText(t *testing.T) {
	for _, text := range flows {
		c.deleteFlows()
		m, err := of.ParseFlow(text)
		if err != nil {
			t.Error(err)
			continue
		}
		equal(t, "text", of.FormatFlow(m), text)
		run(t, "ovs-ofctl", "-O", "OpenFlow13", "add-flow", c.socket, text)
		c.checkFlow(t, text, m)
		out, err := exec.Command("ovs-ofctl", "-O", "OpenFlow13", "--no-names", "dump-flows", c.socket).Output()
		if err != nil {
			t.Fatal(err)
		}
		line := strings.TrimSpace(string(out))
		line = line[strings.LastIndex(line, "\n")+1:] // without a heading
		back, err := of.ParseFlow(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		equal(t, line, of.FormatFlow(back), text)
	}
}

// A packet that is sent to the switch for the controller comes back; a flow that is deleted is
// reported.
func (c *controller) testPackets(t *testing.T) {
	c.deleteFlows()
	c.do(&of.SetConfig{SwitchConfig: of.SwitchConfig{MissSendLen: of.MaxLenNoBuffer}})
	packet := append([]byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x88\xb5"), bytes.Repeat([]byte{7}, 100)...)
	c.do(&of.PacketOut{Buffer: of.BufferNone, InPort: 2, Actions: []of.Action{of.OutputController(of.MaxLenNoBuffer)}, Data: packet})
	in := await[*of.PacketIn](c)
	equal(t, "packet", in.Data, packet)
	equal(t, "length", int(in.TotalLen), len(packet))
	equal(t, "match", in.Match, of.NewMatch(of.InPort(2)))

	c.async = nil
	flow := of.NewFlowMod(of.FlowAdd, 7, of.NewMatch(of.InPort(2)), of.ApplyActions(of.Output(1)))
	flow.Flags, flow.Cookie = of.FlowSendFlowRem, 0xc0ffee
	c.do(flow)
	remove := of.NewFlowMod(of.FlowDelete, 0, of.Match{})
	remove.Cookie, remove.CookieMask = 0xc0ffee, ^uint64(0)
	c.do(remove)
	// What is said of flows that an earlier test has deleted may come late.
	removed := awaitThat(c, func(m *of.FlowRemoved) bool { return m.Cookie == flow.Cookie })
	if removed.Match != flow.Match || removed.Reason != of.RemovedDelete || removed.Priority != 7 {
		t.Errorf("%v", removed)
	}
}

// Open vSwitch answers malformed messages with the same error as Decode says to.
func (c *controller) testErrors(t *testing.T) {
	flow := func(match of.Match, instructions ...of.Instruction) []byte {
		return of.NewFlowMod(of.FlowAdd, 1, match, instructions...).AppendTo(nil)
	}
	change := func(b []byte, at int, to ...byte) []byte {
		copy(b[at:], to)
		return b
	}
	ip := of.IPv4Src(netip.MustParseAddr("10.0.0.0"))
	output := of.ApplyActions(of.Output(1))
	for name, b := range map[string][]byte{
		"no prerequisite":         flow(of.NewMatch(ip)),
		"no transport":            flow(of.NewMatch(of.EthType(of.EthTypeIPv4), of.TCPDst(80))),
		"unknown field":           change(flow(of.NewMatch(of.InPort(1))), 48+4+2, 100<<1),
		"match of another type":   change(flow(of.NewMatch(of.InPort(1))), 48, 0, 2),
		"match too long":          change(flow(of.NewMatch(of.InPort(1))), 50, 1, 0),
		"value beside the mask":   change(flow(of.NewMatch(of.Metadata(0).WithMask64(1))), 48+4+4, 1),
		"unknown action":          change(flow(of.Match{}, output), 64, 0, 200),
		"length of an action":     change(flow(of.Match{}, output), 66, 0, 8),
		"action over the end":     change(flow(of.Match{}, output), 66, 0, 24),
		"unknown instruction":     change(flow(of.Match{}, output), 56, 0, 99),
		"length of a goto":        change(flow(of.Match{}, of.GotoTable(1), of.ClearActions()), 58, 0, 16),
		"unknown type of message": {4, 99, 0, 8, 0, 0, 0, 1},
		"other version":           {5, 5, 0, 8, 0, 0, 0, 1},
		"short message":           {4, 14, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0},
		"unknown multipart":       {4, 18, 0, 16, 0, 0, 0, 1, 0, 200, 0, 0, 0, 0, 0, 0},
		"unknown group type":      change((&of.GroupMod{}).AppendTo(nil), 10, 9),
		"unknown command":         change(flow(of.Match{}), 25, 77),
	} {
		var bad *of.DecodeError
		if _, err := of.Decode(b); !errors.As(err, &bad) {
			t.Errorf("%s: we take it", name)
			continue
		}
		c.send(&raw{Message: &of.BarrierRequest{}, bytes: b})
		answer, ok := c.answer().(*of.Error)
		if !ok {
			t.Errorf("%s: Open vSwitch takes it", name)
			continue
		}
		if answer.Code != bad.Code {
			t.Errorf("%s: Open vSwitch answers %v, we %v", name, answer.Code, bad)
		}
		equal(t, name, bad.Reply(b).Code, bad.Code)
	}
}

// raw is a message of bytes that stand for themselves.
type raw struct {
	of.Message
	bytes []byte
}

func (r *raw) AppendTo(b []byte) []byte {
	at := len(b)
	b = append(b, r.bytes...)
	x := r.Transaction()
	copy(b[at+4:], []byte{byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x)})
	return b
}
