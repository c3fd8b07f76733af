"""A learning switch for os-ken, as its documentation teaches to write one: an entry for each pair of hosts."""
from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_3


class Switch(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ports = {}

    @staticmethod
    def add(datapath, priority, match, port, **more):
        parser, ofproto = datapath.ofproto_parser, datapath.ofproto
        apply = parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, [parser.OFPActionOutput(port, 65535)])
        datapath.send_msg(parser.OFPFlowMod(datapath=datapath, priority=priority, match=match, instructions=[apply], **more))

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event):
        datapath = event.msg.datapath
        self.add(datapath, 0, datapath.ofproto_parser.OFPMatch(), datapath.ofproto.OFPP_CONTROLLER)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        message = event.msg
        datapath = message.datapath
        parser, ofproto = datapath.ofproto_parser, datapath.ofproto
        in_port = message.match["in_port"]
        head = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        self.ports[datapath.id, head.src] = in_port
        out = self.ports.get((datapath.id, head.dst))
        if out is not None:
            match = parser.OFPMatch(in_port=in_port, eth_dst=head.dst, eth_src=head.src)
            if message.buffer_id != ofproto.OFP_NO_BUFFER:
                self.add(datapath, 1, match, out, buffer_id=message.buffer_id)
                return
            self.add(datapath, 1, match, out)
        data = message.data if message.buffer_id == ofproto.OFP_NO_BUFFER else None
        datapath.send_msg(parser.OFPPacketOut(
            datapath=datapath, buffer_id=message.buffer_id, in_port=in_port, data=data,
            actions=[parser.OFPActionOutput(ofproto.OFPP_FLOOD if out is None else out)]))
