"""A switch that floods all, by a table-miss entry. As Floodlight does, it makes one only where the switch says in so many words that
the table-miss entry of the first table may send packets to a port."""

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3


class Careful(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    def connected(self, event):
        dp = event.datapath
        dp.send_msg(dp.ofproto_parser.OFPTableFeaturesStatsRequest(dp, 0, []))

    @set_ev_cls(ofp_event.EventOFPTableFeaturesStatsReply, MAIN_DISPATCHER)
    def tables(self, event):
        dp = event.msg.datapath
        proto, parser = dp.ofproto, dp.ofproto_parser
        for p in [p for t in event.msg.body if t.table_id == 0 for p in t.properties]:
            if p.type == proto.OFPTFPT_APPLY_ACTIONS_MISS and proto.OFPAT_OUTPUT in [a.type for a in p.action_ids]:
                ask = parser.OFPActionOutput(proto.OFPP_CONTROLLER, proto.OFPCML_NO_BUFFER)
                apply = parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, [ask])
                dp.send_msg(parser.OFPFlowMod(datapath=dp, priority=0, match=parser.OFPMatch(), instructions=[apply]))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet(self, event):
        msg = event.msg
        dp = msg.datapath
        dp.send_msg(dp.ofproto_parser.OFPPacketOut(
            datapath=dp, buffer_id=dp.ofproto.OFP_NO_BUFFER, in_port=msg.match["in_port"],
            actions=[dp.ofproto_parser.OFPActionOutput(dp.ofproto.OFPP_FLOOD)], data=msg.data))
