"""What forwards behind rest_qos, which keeps table 0: the switch's table 1 floods."""

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3


class Flood(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        dp = event.msg.datapath
        proto, parser = dp.ofproto, dp.ofproto_parser
        flood = parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, [parser.OFPActionOutput(proto.OFPP_FLOOD)])
        dp.send_msg(parser.OFPFlowMod(datapath=dp, table_id=1, priority=0, match=parser.OFPMatch(), instructions=[flood]))
