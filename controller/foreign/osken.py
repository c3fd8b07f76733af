"""A learning switch for os-ken, OpenFlow 1.3:  python3 osken.py PORT  listens on 127.0.0.1."""

import sys

if __name__ == "__main__":
    from os_ken.lib import hub

    hub.patch()  # before anything takes the sockets of the standard library

# app_manager goes first: the other way round os-ken's imports are circular.
from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3

IDLE = 60  # seconds until an entry that nobody needs goes
LEARNED = 1  # the cookie of entries that say where an address is
LLDP = b"\x88\xcc"


class Learning(app_manager.OSKenApp):
    """Sends a packet where its destination was last seen, and everywhere while that is unknown."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ports = {}  # of each switch: address -> port
        self.switches = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        """Lets the switch ask about what it has no entry for."""
        switch = event.msg.datapath
        self.ports[switch.id], self.switches[switch.id] = {}, switch
        self.logger.info("switch %016x", switch.id)
        proto, parser = switch.ofproto, switch.ofproto_parser
        ask = [parser.OFPActionOutput(proto.OFPP_CONTROLLER, proto.OFPCML_NO_BUFFER)]
        self.delete(switch)
        self.add(switch, 0, parser.OFPMatch(), ask)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet(self, event):
        """Learns from a packet, and sends it on."""
        msg = event.msg
        switch = msg.datapath
        proto, parser = switch.ofproto, switch.ofproto_parser
        in_port, to, source = msg.match["in_port"], address(msg.data[0:6]), address(msg.data[6:12])
        if len(msg.data) < 14 or msg.data[12:14] == LLDP:
            return
        ports = self.ports.setdefault(switch.id, {})
        if ports.get(source, in_port) != in_port:  # it has moved
            self.delete(switch, match=parser.OFPMatch(eth_dst=source))
        ports[source] = in_port
        out = ports.get(to, proto.OFPP_FLOOD)
        if out == in_port:
            return
        actions = [parser.OFPActionOutput(out)]
        if out != proto.OFPP_FLOOD:
            match = parser.OFPMatch(in_port=in_port, eth_src=source, eth_dst=to)
            self.add(switch, 1, match, actions, idle_timeout=IDLE, cookie=LEARNED)
        switch.send_msg(parser.OFPPacketOut(
            datapath=switch, buffer_id=proto.OFP_NO_BUFFER, in_port=in_port, actions=actions, data=msg.data))

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def port(self, event):
        """Forgets all addresses: where a link fails or comes, or the spanning tree protocol opens or
        closes one, they may be behind other ports of any switch."""
        for switch in self.switches.values():
            self.ports[switch.id] = {}
            if switch.is_active:
                self.delete(switch, cookie=LEARNED, cookie_mask=0xffffffffffffffff)

    def add(self, switch, priority, match, actions, **more):
        proto, parser = switch.ofproto, switch.ofproto_parser
        apply = [parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, actions)]
        switch.send_msg(parser.OFPFlowMod(datapath=switch, priority=priority, match=match, instructions=apply, **more))

    def delete(self, switch, match=None, **more):
        proto, parser = switch.ofproto, switch.ofproto_parser
        switch.send_msg(parser.OFPFlowMod(
            datapath=switch, command=proto.OFPFC_DELETE, table_id=proto.OFPTT_ALL, match=match or parser.OFPMatch(),
            out_port=proto.OFPP_ANY, out_group=proto.OFPG_ANY, **more))


def address(octets):
    return ":".join("%02x" % o for o in octets)


def main():
    from os_ken import cfg, log
    import os_ken.controller.controller  # registers the options below

    cfg.CONF(args=["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", sys.argv[1]],
             project="os_ken", prog="osken.py", version="1", default_config_files=[])
    log.init_log()
    app_manager.AppManager.run_apps(["osken"])


if __name__ == "__main__":
    main()
