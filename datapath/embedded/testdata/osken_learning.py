"""A learning switch in os-ken, as its authors mean applications to be written: what is known goes into
a flow, what is not is flooded by the controller."""

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_3


class Learning(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event):
        dp = event.msg.datapath
        output = dp.ofproto_parser.OFPActionOutput(dp.ofproto.OFPP_CONTROLLER, dp.ofproto.OFPCML_NO_BUFFER)
        self.add_flow(dp, 0, dp.ofproto_parser.OFPMatch(), [output])

    def add_flow(self, dp, priority, match, actions):
        parser = dp.ofproto_parser
        apply = parser.OFPInstructionActions(dp.ofproto.OFPIT_APPLY_ACTIONS, actions)
        dp.send_msg(parser.OFPFlowMod(datapath=dp, priority=priority, match=match, instructions=[apply]))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        msg = event.msg
        dp, parser, port = msg.datapath, msg.datapath.ofproto_parser, msg.match["in_port"]
        eth = packet.Packet(msg.data).get_protocol(ethernet.ethernet)
        self.seen[dp.id, eth.src] = port
        out = self.seen.get((dp.id, eth.dst), dp.ofproto.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(out)]
        if out != dp.ofproto.OFPP_FLOOD:
            self.add_flow(dp, 1, parser.OFPMatch(in_port=port, eth_dst=eth.dst, eth_src=eth.src), actions)
        dp.send_msg(parser.OFPPacketOut(datapath=dp, buffer_id=msg.buffer_id, in_port=port, actions=actions, data=msg.data))
