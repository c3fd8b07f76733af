"""The peer of TestOSKen: OpenFlow 1.3 by os-ken (Debian: python3-os-ken).

osken.py encode          prints messages that os-ken encodes: a line of JSON each, {"name", "hex"}
osken.py parse < lines   parses messages, one in hexadecimal digits per line, and prints what os-ken
                         understands: a line of JSON each; {"error"} where it does not
osken.py constants       prints the constants of the protocol: {name: number}
"""

import json
import sys

from os_ken.ofproto import ofproto_parser, ofproto_protocol, ofproto_v1_3 as of, ofproto_v1_3_parser as p

dp = ofproto_protocol.ProtocolDesc(version=of.OFP_VERSION)

MATCHES = {
    "empty": {},
    "ports": dict(in_port=1, in_phy_port=2, metadata=(0x10, 0xf0)),
    "ethernet": dict(eth_dst=("01:00:00:00:00:00", "01:00:00:00:00:00"), eth_src="02:00:00:00:00:01", eth_type=0x88cc),
    "vlan": dict(vlan_vid=0x1000 | 100, vlan_pcp=5),
    "vlan any": dict(vlan_vid=(0x1000, 0x1000)),
    "vlan none": dict(vlan_vid=0),
    "tcp": dict(in_port=3, eth_type=0x800, ip_dscp=46, ip_ecn=1, ip_proto=6, ipv4_src=("10.0.0.0", "255.0.0.0"),
                ipv4_dst="10.1.2.3", tcp_src=1000, tcp_dst=80),
    "udp": dict(eth_type=0x800, ip_proto=17, udp_src=68, udp_dst=67),
    "sctp": dict(eth_type=0x800, ip_proto=132, sctp_src=1, sctp_dst=2),
    "icmp": dict(eth_type=0x800, ip_proto=1, icmpv4_type=8, icmpv4_code=0),
    "arp": dict(eth_type=0x806, arp_op=1, arp_spa="10.0.0.1", arp_tpa=("10.0.0.0", "255.255.0.255"),
                arp_sha="02:00:00:00:00:01", arp_tha="00:00:00:00:00:00"),
    "ipv6": dict(eth_type=0x86dd, ipv6_src=("2001:db8::", "ffff:ffff::"), ipv6_dst="2001:db8::1", ipv6_flabel=(0x5, 0xf),
                 ipv6_exthdr=(0, 0x1ff & ~1)),
    "nd": dict(eth_type=0x86dd, ip_proto=58, icmpv6_type=135, icmpv6_code=0, ipv6_nd_target="fe80::1",
               ipv6_nd_sll="02:00:00:00:00:01"),
    "na": dict(eth_type=0x86dd, ip_proto=58, icmpv6_type=136, ipv6_nd_target="fe80::1", ipv6_nd_tll="02:00:00:00:00:02"),
    "mpls": dict(eth_type=0x8847, mpls_label=16, mpls_tc=3, mpls_bos=1),
    "pbb": dict(eth_type=0x88e7, pbb_isid=(0x10000, 0xff0000)),
    "tunnel": dict(tunnel_id=(7, 0xff)),
    "experimenter": dict(tcp_flags=(2, 2)),
}

ACTIONS = [
    p.OFPActionOutput(1), p.OFPActionOutput(of.OFPP_CONTROLLER, 128), p.OFPActionGroup(7), p.OFPActionSetQueue(3),
    p.OFPActionSetMplsTtl(64), p.OFPActionDecMplsTtl(), p.OFPActionSetNwTtl(63), p.OFPActionDecNwTtl(),
    p.OFPActionCopyTtlOut(), p.OFPActionCopyTtlIn(), p.OFPActionPushVlan(0x8100), p.OFPActionPopVlan(),
    p.OFPActionPushMpls(0x8847), p.OFPActionPopMpls(0x800), p.OFPActionPushPbb(0x88e7), p.OFPActionPopPbb(),
    p.OFPActionSetField(eth_dst="02:00:00:00:00:09"), p.OFPActionSetField(vlan_vid=0x1005),
    p.OFPActionSetField(ipv4_src="192.0.2.1"), p.OFPActionSetField(ipv6_dst="2001:db8::2"),
    p.OFPActionSetField(tcp_dst=8080), p.OFPActionSetField(tunnel_id=9), p.OFPActionExperimenterUnknown(0xff000001, b"12345678"),
]


def flow_mod(match, instructions=(), **more):
    return p.OFPFlowMod(dp, match=p.OFPMatch(**match), instructions=list(instructions), **more)


def messages():
    yield "hello", p.OFPHello(dp)  # os-ken does not encode elements
    yield "error", p.OFPErrorMsg(dp, 1, 6, b"01234567")
    yield "echo request", p.OFPEchoRequest(dp, b"data")
    yield "echo reply", p.OFPEchoReply(dp, b"data")
    yield "experimenter", p.OFPExperimenter(dp, 0xff000001, 5, b"data")
    yield "features request", p.OFPFeaturesRequest(dp)
    yield "get config request", p.OFPGetConfigRequest(dp)
    yield "set config", p.OFPSetConfig(dp, of.OFPC_FRAG_DROP, 128)
    yield "packet out", p.OFPPacketOut(dp, of.OFP_NO_BUFFER, of.OFPP_CONTROLLER, [p.OFPActionOutput(2)], b"\x01" * 60)
    for name, match in MATCHES.items():
        yield "flow mod with match " + name, flow_mod(match)
    yield "flow mod with instructions", flow_mod(
        MATCHES["tcp"],
        [p.OFPInstructionMeter(1), p.OFPInstructionActions(of.OFPIT_APPLY_ACTIONS, ACTIONS), p.OFPInstructionActions(of.OFPIT_CLEAR_ACTIONS, []),
         p.OFPInstructionActions(of.OFPIT_WRITE_ACTIONS, ACTIONS[:3]), p.OFPInstructionWriteMetadata(1, 0xff), p.OFPInstructionGotoTable(2)],
        cookie=0x1234, cookie_mask=0xffff, table_id=1, command=of.OFPFC_MODIFY_STRICT, idle_timeout=10, hard_timeout=20,
        priority=300, buffer_id=of.OFP_NO_BUFFER, out_port=4, out_group=5, flags=of.OFPFF_SEND_FLOW_REM)
    yield "group mod", p.OFPGroupMod(dp, of.OFPGC_ADD, of.OFPGT_FF, 9, [
        p.OFPBucket(1, 2, of.OFPG_ANY, ACTIONS[:2]), p.OFPBucket(2, of.OFPP_ANY, 8, [])])
    yield "port mod", p.OFPPortMod(dp, 3, "02:00:00:00:00:03", of.OFPPC_PORT_DOWN, of.OFPPC_PORT_DOWN | of.OFPPC_NO_FWD, of.OFPPF_1GB_FD)
    yield "table mod", p.OFPTableMod(dp, of.OFPTT_ALL, 3)
    yield "meter mod", p.OFPMeterMod(dp, of.OFPMC_ADD, of.OFPMF_KBPS | of.OFPMF_BURST, 1, [
        p.OFPMeterBandDrop(1000, 100), p.OFPMeterBandDscpRemark(500, 50, 1), p.OFPMeterBandExperimenter(1, 2, 3)])
    flow_request = (0, of.OFPTT_ALL, of.OFPP_ANY, of.OFPG_ANY, 1, 1, p.OFPMatch(in_port=1))
    yield "desc request", p.OFPDescStatsRequest(dp, 0)
    yield "flow stats request", p.OFPFlowStatsRequest(dp, *flow_request)
    yield "aggregate stats request", p.OFPAggregateStatsRequest(dp, *flow_request)
    yield "table stats request", p.OFPTableStatsRequest(dp, 0)
    yield "port stats request", p.OFPPortStatsRequest(dp, 0, of.OFPP_ANY)
    yield "queue stats request", p.OFPQueueStatsRequest(dp, 0, 1, of.OFPQ_ALL)
    yield "group stats request", p.OFPGroupStatsRequest(dp, 0, of.OFPG_ALL)
    yield "group desc request", p.OFPGroupDescStatsRequest(dp, 0)
    yield "group features request", p.OFPGroupFeaturesStatsRequest(dp, 0)
    yield "meter stats request", p.OFPMeterStatsRequest(dp, 0, 1)
    yield "meter config request", p.OFPMeterConfigStatsRequest(dp, 0, of.OFPM_ALL)
    yield "meter features request", p.OFPMeterFeaturesStatsRequest(dp, 0)
    yield "port desc request", p.OFPPortDescStatsRequest(dp, 0)
    yield "experimenter multipart request", p.OFPExperimenterStatsRequest(dp, 0, 0xff000001, 2, b"data")
    yield "table features request", p.OFPTableFeaturesStatsRequest(dp, of.OFPMPF_REQ_MORE, [p.OFPTableFeaturesStats(
        table_id=1, name=b"one", metadata_match=0xff, metadata_write=0xf0, config=3, max_entries=100, properties=[
            p.OFPTableFeaturePropInstructions(of.OFPTFPT_INSTRUCTIONS, instruction_ids=[p.OFPInstructionId(1), p.OFPInstructionId(4)]),
            p.OFPTableFeaturePropNextTables(of.OFPTFPT_NEXT_TABLES, table_ids=[2, 3, 4]),
            p.OFPTableFeaturePropActions(of.OFPTFPT_APPLY_ACTIONS, action_ids=[p.OFPActionId(0), p.OFPActionId(25)]),
            p.OFPTableFeaturePropOxm(of.OFPTFPT_MATCH, oxm_ids=[p.OFPOxmId("in_port"), p.OFPOxmId("eth_dst", hasmask=True)]),
        ])])
    yield "barrier request", p.OFPBarrierRequest(dp)
    yield "barrier reply", p.OFPBarrierReply(dp)
    yield "queue get config request", p.OFPQueueGetConfigRequest(dp, 1)
    yield "role request", p.OFPRoleRequest(dp, of.OFPCR_ROLE_MASTER, 0x1234567890)
    yield "get async request", p.OFPGetAsyncRequest(dp)
    yield "set async", p.OFPSetAsync(dp, [1, 2], [3, 4], [5, 6])


def encode():
    for number, (name, message) in enumerate(messages()):
        message.set_xid(number + 1)
        message.serialize()
        print(json.dumps({"name": name, "hex": bytes(message.buf).hex()}))


def parse():
    for line in sys.stdin:
        buf = bytes.fromhex(line)
        try:
            version, kind, length, xid = ofproto_parser.header(buf)
            message = ofproto_parser.msg(dp, version, kind, length, xid, buf)
            print(json.dumps(message.to_jsondict()))
        except Exception as e:  # whatever it is: the test shows it
            print(json.dumps({"error": repr(e)}))


def constants():
    print(json.dumps({name: value for name, value in vars(of).items() if name.startswith("OFP") and isinstance(value, int)}))


{"encode": encode, "parse": parse, "constants": constants}[sys.argv[1]]()
