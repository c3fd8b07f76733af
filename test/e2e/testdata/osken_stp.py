"""os-ken's own spanning tree below a switch that floods all. It tells a port that is blocked to send no PACKET_IN, and waits there
for the neighbours' BPDUs, which an entry of its own brings."""

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib import stplib
from os_ken.ofproto import ofproto_v1_3


class Tree(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]
    _CONTEXTS = {"stplib": stplib.Stp}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        bridge = {"hello_time": 1, "max_age": 6, "fwd_delay": 2}
        kwargs["stplib"].set_config({dpid: {"bridge": bridge} for dpid in range(1, 4)})

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        dp = event.msg.datapath
        proto, parser = dp.ofproto, dp.ofproto_parser
        ask = parser.OFPActionOutput(proto.OFPP_CONTROLLER, proto.OFPCML_NO_BUFFER)
        apply = parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, [ask])
        dp.send_msg(parser.OFPFlowMod(datapath=dp, priority=0, match=parser.OFPMatch(), instructions=[apply]))

    @set_ev_cls(stplib.EventPacketIn, MAIN_DISPATCHER)
    def packet(self, event):
        msg = event.msg
        dp = msg.datapath
        dp.send_msg(dp.ofproto_parser.OFPPacketOut(
            datapath=dp, buffer_id=dp.ofproto.OFP_NO_BUFFER, in_port=msg.match["in_port"],
            actions=[dp.ofproto_parser.OFPActionOutput(dp.ofproto.OFPP_FLOOD)], data=msg.data))
