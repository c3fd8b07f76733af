package openflow

import "strings"

// sample is a message that peers are asked about, and what they shall say of it.
type sample struct {
	Message
	osken  []string // "key=value" of what os-ken parses
	tshark []string // "field=value" of what tshark shows
}

var (
	sampleMatch = NewMatch(InPort(3), EthType(EthTypeIPv4), IPProto(IPProtoTCP), IPv4Src(addr("10.0.0.0")).WithPrefix(8),
		TCPDst(80), VLANVID(100), EthDst(MAC{2, 0, 0, 0, 0, 9}), Metadata(0x12).WithMask64(0xff))
	sampleInstructions = []Instruction{
		Meter(7), ApplyActions(SetField(EthDst(MAC{2, 0, 0, 0, 0, 1})), SetField(IPv6Src(addr("2001:db8::5"))), PushVLAN(EthTypeVLAN),
			DecNwTTL(), SetNwTTL(61), Group(77), SetQueue(5), OutputController(128)),
		WriteActions(Output(9)), ClearActions(), WriteMetadata(0x1122, 0xffff), GotoTable(12),
	}
	samplePort = Port{
		Number: 3, HWAddr: MAC{2, 0, 0, 0, 0, 3}, Name: "s1-eth3", Config: PortConfigNoFwd, State: PortStateLive,
		Current: PortFeature10GbFD, Advertised: PortFeatureCopper, Supported: PortFeatureFiber, Peer: PortFeaturePause,
		CurrentSpeed: 10_000_000, MaxSpeed: 40_000_000,
	}
	sampleBuckets = []Bucket{{5, 2, GroupAny, []Action{Output(2)}}, {6, PortAny, 8, []Action{PopVLAN(), Output(3)}}}
	sampleBands   = []MeterBand{
		{Type: BandDrop, Rate: 1000, Burst: 100}, {Type: BandDSCPRemark, Rate: 500, Burst: 50, PrecLevel: 1},
	}
)

// says splits what a peer shall say at its spaces.
func says(facts string) []string { return strings.Fields(facts) }

func reply(body MultipartBody) Message   { return &MultipartReply{Xid: 9, Body: body} }
func request(body MultipartBody) Message { return &MultipartRequest{Xid: 9, Body: body} }

// samples holds a message of each type, and a multipart body of each.
func samples() []sample {
	return []sample{
		{&Hello{1, Version, Versions(1, 4)}, says("versions=1 versions=4"), says("hello_element.type=1 version.bitmap=00:00:00:12")},
		{&Error{1, GroupModFailedBadWatch, 0, []byte("\x04\x14\x00\x08\x00\x00\x00\x01")}, says("type=6 code=13"), says("error.type=6 error.code=13")},
		{&Error{1, MakeErrorCode(ErrorExperimenter, 5), 0x4f4e4600, []byte("data")}, says("type=65535 exp_type=5 experimenter=1330529792"), says("error.type=65535 error.code=5 error.experimenter=0x4f4e4600")},
		{&EchoRequest{2, []byte("ping")}, says("data=cGluZw=="), says("echo.data=70:69:6e:67")},
		{&EchoReply{2, []byte("ping")}, says("data=cGluZw=="), says("echo.data=70:69:6e:67")},
		{&Experimenter{3, 0x4f4e4600, 17, []byte("data")}, says("experimenter=1330529792 exp_type=17"), says("experimenter.exp_type=17")},
		{&FeaturesRequest{4}, nil, says("openflow_v4.type=5")},
		{&FeaturesReply{4, 0x00aa020000000001, 256, 254, 1, CapabilityFlowStats | CapabilityQueueStats, 0}, says("datapath_id=47852945064067073 n_buffers=256 n_tables=254 auxiliary_id=1 capabilities=65"), says("switch_features.datapath_id=0x00aa020000000001 switch_features.n_buffers=256 switch_features.n_tables=254 capabilities.flow_stats=1 capabilities.queue_stats=1 capabilities.port_stats=0")},
		{&GetConfigRequest{5}, nil, says("openflow_v4.type=7")},
		{&GetConfigReply{5, SwitchConfig{FragDrop, 128}}, says("flags=1 miss_send_len=128"), says("flags.fragments=1 switch_config.miss_send_len=128")},
		{&SetConfig{5, SwitchConfig{FragReasm, MaxLenNoBuffer}}, nil, says("flags.fragments=2 switch_config.miss_send_len=65535")},
		{&PacketIn{6, 0x100, 60, ReasonAction, 3, 0xc0ffee, NewMatch(InPort(4), TunnelID(5)), make([]byte, 60)}, says("buffer_id=256 cookie=12648430 reason=1 table_id=3 total_len=60 field=in_port field=tunnel_id"), says("packet_in.buffer_id=256 packet_in.total_len=60 packet_in.reason=1 packet_in.table_id=3 oxm.value_uint32=4")},
		{&FlowRemoved{7, 0xc0ffee, 99, RemovedHardTimeout, 4, Duration{11, 12}, 13, 14, 15, 16, sampleMatch}, says("cookie=12648430 priority=99 reason=1 table_id=4 duration_sec=11 duration_nsec=12 idle_timeout=13 hard_timeout=14 packet_count=15 byte_count=16 field=tcp_dst"), says("flow_removed.priority=99 flow_removed.reason=1 flow_removed.duration_nsec=12 flow_removed.byte_count=16 oxm.ipv4_mask=255.0.0.0 oxm.value_vlan_vid=100 oxm.value_uint16=80")},
		{&PortStatus{8, PortModify, samplePort}, says("reason=2 port_no=3 hw_addr=02:00:00:00:00:03 name=s1-eth3 config=32 state=4 curr=64 advertised=2048 supported=4096 peer=16384 curr_speed=10000000 max_speed=40000000"), says("port_status.reason=2 config.no_fwd=1 state.live=1 current.10gb_fd=1 advertised.copper=1 supported.fiber=1 peer.pause=1 port.max_speed=40000000")},
		{&PacketOut{9, BufferNone, PortController, []Action{PushVLAN(EthTypeVLAN), SetField(VLANVID(5)), Output(2)}, make([]byte, 60)}, nil, says("packet_out.buffer_id=4294967295 packet_out.in_port=4294967293 packet_out.acts_len=40 push_vlan.ethertype=0x8100 oxm.value_vlan_vid=5 output.port=2")},
		{&FlowMod{10, 0xc0ffee, 0xff, 2, FlowModifyStrict, 30, 60, 1000, BufferNone, 4, 5, FlowSendFlowRem | FlowResetCounts, sampleMatch, sampleInstructions}, says("cookie=12648430 cookie_mask=255 table_id=2 command=2 idle_timeout=30 hard_timeout=60 priority=1000 out_port=4 out_group=5 flags=5 meter_id=7 group_id=77 queue_id=5 nw_ttl=61 metadata=4386 value=2001:db8::5 max_len=128 field=vlan_vid value=4196"), says("flowmod.cookie=0x0000000000c0ffee flowmod.command=2 flowmod.priority=1000 flowmod.out_group=5 goto_table.table_id=12 write_metadata.value=0x0000000000001122 meter.meter_id=7 set_queue.queue_id=5 set_nw_ttl.ttl=61 group.group_id=77 output.max_len=128")},
		{&GroupMod{11, GroupModify, GroupDesc{GroupTypeSelect, 21, sampleBuckets}}, nil, says("groupmod.command=1 groupmod.type=1 groupmod.group_id=21 bucket.weight=5 bucket.watch_port=2 bucket.watch_group=8 output.port=3")},
		{&PortMod{12, 3, MAC{2, 0, 0, 0, 0, 3}, PortConfigDown, PortConfigDown | PortConfigNoRecv, PortFeature1GbFD}, nil, says("portmod.port_no=3 portmod.hw_addr=02:00:00:00:00:03 portmod.config=0x00000001 portmod.mask=0x00000005 advertise.1gb_fd=1")},
		{&TableMod{13, TableAll, 3}, nil, says("tablemod.table_id=255 tablemod.config=00:00:00:03")},
		{&MeterMod{14, MeterModify, MeterConfig{MeterFlagKbps | MeterFlagStats, 31, sampleBands}}, nil, says("metermod.command=1 flags.kbps=1 flags.stats=1 flags.burst=0 metermod.meter_id=31 meter_band.rate=500 dscp_remark.prec_level=1")},
		{&BarrierRequest{15}, nil, says("openflow_v4.type=20")},
		{&BarrierReply{15}, nil, says("openflow_v4.type=21")},
		{&QueueGetConfigRequest{16, 3}, nil, says("openflow_v4.type=22")},
		{&QueueGetConfigReply{16, 3, []PacketQueue{{41, 3, []QueueProperty{{Type: QueueMinRate, Rate: 100}, {Type: QueueMaxRate, Rate: 900}}}}}, says("port=3 queue_id=41 property=1 rate=100 property=2 rate=900"), says("packet_queue.queue_id=41")},
		{&RoleRequest{17, ControllerRole{RoleMaster, 0x1234}}, nil, says("role_request.role=0x00000002 role_request.generation_id=0x0000000000001234")},
		{&RoleReply{17, ControllerRole{RoleSlave, 0x1235}}, says("role=3 generation_id=4661"), says("role_reply.role=0x00000003")},
		{&GetAsyncRequest{18}, nil, says("openflow_v4.type=26")},
		{&GetAsyncReply{18, AsyncMasks{[2]uint32{1, 2}, [2]uint32{3, 4}, [2]uint32{5, 6}}}, says("packet_in_mask=1 packet_in_mask=2 port_status_mask=3 port_status_mask=4 flow_removed_mask=5 flow_removed_mask=6"), says("openflow_v4.type=27")},
		{&SetAsync{18, AsyncMasks{[2]uint32{1, 2}, [2]uint32{3, 4}, [2]uint32{5, 6}}}, nil, says("openflow_v4.type=28")},

		{request(NoBody(MultipartDesc)), nil, says("openflow_v4.multipart_request.type=0")},
		{reply(Desc{"Trivet", "none", "1.0", "42", "campus"}), says("mfr_desc=Trivet hw_desc=none sw_desc=1.0 serial_num=42 dp_desc=campus"), says("openflow_v4.multipart_reply.type=0")},
		{request(FlowStatsRequest{1, 2, 3, 4, 5, sampleMatch}), nil, says("flow_stats_request.table_id=1 flow_stats_request.out_port=2 flow_stats_request.out_group=3")},
		{reply(FlowStatsList{
			{1, Duration{2, 3}, 4, 5, 6, FlowSendFlowRem, 7, 8, 9, sampleMatch, sampleInstructions},
			{Table: 2, Priority: 3, Match: NewMatch(EthType(EthTypeARP), ARPSPA(addr("10.0.0.1")))},
		}), says("table_id=1 duration_sec=2 duration_nsec=3 priority=4 idle_timeout=5 hard_timeout=6 flags=1 cookie=7 packet_count=8 byte_count=9 field=arp_spa value=10.0.0.1"), says("flow_stats.duration_nsec=3 flow_stats.packet_count=8 goto_table.table_id=12")},
		{request(AggregateStatsRequest{1, 2, 3, 4, 5, sampleMatch}), nil, says("aggregate_stats_request.out_port=2")},
		{reply(AggregateStats{1001, 1002, 1003}), says("packet_count=1001 byte_count=1002 flow_count=1003"), says("aggregate_stats.flow_count=1003")},
		{request(NoBody(MultipartTable)), nil, says("openflow_v4.multipart_request.type=3")},
		{reply(TableStatsList{{1, 1001, 1002, 1003}, {2, 3, 4, 5}}), says("table_id=1 active_count=1001 lookup_count=1002 matched_count=1003 table_id=2"), says("table_stats.match_count=1003")},
		{request(PortStatsRequest{PortAny}), nil, says("port_stats_request.port_no=4294967295")},
		{reply(PortStatsList{{3, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012, Duration{1013, 1014}}}), says("rx_packets=1001 tx_packets=1002 rx_bytes=1003 tx_bytes=1004 rx_dropped=1005 tx_dropped=1006 rx_errors=1007 tx_errors=1008 rx_frame_err=1009 rx_over_err=1010 rx_crc_err=1011 collisions=1012 duration_sec=1013 duration_nsec=1014"), says("port_stats.collisions=1012")},
		{request(QueueStatsRequest{3, QueueAll}), nil, says("queue_stats_request.queue_id=4294967295")},
		{reply(QueueStatsList{{3, 41, 1001, 1002, 1003, Duration{1004, 1005}}}), says("port_no=3 queue_id=41 tx_bytes=1001 tx_packets=1002 tx_errors=1003 duration_sec=1004 duration_nsec=1005"), says("quee_stats.tx_packets=1002")},
		{request(GroupStatsRequest{21}), nil, says("group_stats_request.group_id=21")},
		{reply(GroupStatsList{{21, 1001, 1002, 1003, Duration{1004, 1005}, []Counter{{1006, 1007}, {1008, 1009}}}}), says("group_id=21 ref_count=1001 packet_count=1002 byte_count=1003 duration_sec=1004 duration_nsec=1005 packet_count=1006 byte_count=1007 packet_count=1008 byte_count=1009"), says("group_stats.ref_count=1001")},
		{request(NoBody(MultipartGroupDesc)), nil, says("openflow_v4.multipart_request.type=7")},
		{reply(GroupDescList{{GroupTypeFF, 21, sampleBuckets}}), says("type=3 group_id=21 weight=5 watch_port=2 watch_group=8 port=3"), says("bucket.weight=6")},
		{request(NoBody(MultipartGroupFeatures)), nil, says("openflow_v4.multipart_request.type=8")},
		{reply(GroupFeatures{15, GroupChaining, [4]uint32{1001, 1002, 1003, 1004}, [4]uint32{1, 3, 5, 7}}), says("types=15 capabilities=4 max_groups=1001 max_groups=1004 actions=1 actions=7"), says("openflow_v4.multipart_reply.type=8")},
		{request(MeterStatsRequest{31}), nil, says("openflow_v4.multipart_request.type=9")},
		{reply(MeterStatsList{{31, 1001, 1002, 1003, Duration{1004, 1005}, []Counter{{1006, 1007}}}}), says("meter_id=31 flow_count=1001 packet_in_count=1002 byte_in_count=1003 duration_sec=1004 duration_nsec=1005 packet_band_count=1006 byte_band_count=1007"), says("meter_stats.flow_count=1001")},
		{request(MeterConfigRequest{MeterAll}), nil, says("meter_config_request.meter_id=4294967295")},
		{reply(MeterConfigList{{MeterFlagPktps | MeterFlagBurst, 31, sampleBands}}), says("flags=6 meter_id=31 rate=1000 burst_size=100 rate=500 burst_size=50 prec_level=1"), says("meter_band.burst_size=50")},
		{request(NoBody(MultipartMeterFeatures)), nil, says("openflow_v4.multipart_request.type=11")},
		{reply(MeterFeatures{1001, 6, 15, 5, 6}), says("max_meter=1001 band_types=6 capabilities=15 max_bands=5 max_color=6"), says("meter_features.max_color=6")},
		{request(TableFeaturesList{{1, "one", 0xff, 0xf0, 3, 1001, []TableProperty{
			{Type: TableInstructions, Instructions: []InstructionID{{InstructionGotoTable, 0}, {InstructionMeter, 0}}},
			{Type: TableNextTables, NextTables: []uint8{2, 3, 4}},
			{Type: TableApplyActions, Actions: []ActionID{{ActionOutput, 0}, {ActionSetField, 0}}},
			{Type: TableMatch, Fields: []FieldID{BasicFieldID(FieldInPort, false), BasicFieldID(FieldEthDst, true)}},
		}}}), nil, says("table_features.name=one table_features.max_entries=1001 instruction.type=6 action.type=25 oxm.length=12")},
		{reply(TableFeaturesList{{1, "one", 0xff, 0xf0, 3, 1001, []TableProperty{
			{Type: TableWildcards, Fields: []FieldID{BasicFieldID(FieldIPv6Src, true)}},
			{Type: TableWriteSetFieldMiss, Fields: []FieldID{BasicFieldID(FieldIPv6Src, false)}},
		}}}), says("name=one metadata_match=255 metadata_write=240 config=3 max_entries=1001 type=ipv6_src hasmask=1 hasmask=0"), says("table_feature_prop.type=13 oxm.length=32")},
		{request(NoBody(MultipartPortDesc)), nil, says("openflow_v4.multipart_request.type=13")},
		{reply(PortDescList{samplePort, samplePort}), says("port_no=3 name=s1-eth3"), says("port.name=s1-eth3")},
		{request(ExperimenterMultipart{0x4f4e4600, 5, []byte("data")}), nil, says("experimenter.exp_type=5")},
		{reply(ExperimenterMultipart{0x4f4e4600, 5, []byte("data")}), says("experimenter=1330529792 exp_type=5"), says("experimenter.exp_type=5")},
	}
}
