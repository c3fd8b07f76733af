r"""A controller app of a student's own for os-ken (Ryu's successor): a hub that counts what it floods.

needs: osken-manager
expect: \*\*\* Results: 0% dropped \(2/2 received\)
expect: packets at the app: [1-9]
"""
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Ryu
from mininet.topo import MinimalTopo

APP = '''from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3


class Hub(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, ev):
        dp = ev.msg.datapath
        p, o = dp.ofproto_parser, dp.ofproto
        actions = [p.OFPActionOutput(o.OFPP_CONTROLLER, o.OFPCML_NO_BUFFER)]
        inst = [p.OFPInstructionActions(o.OFPIT_APPLY_ACTIONS, actions)]
        dp.send_msg(p.OFPFlowMod(datapath=dp, priority=0, match=p.OFPMatch(), instructions=inst))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet(self, ev):
        msg = ev.msg
        dp = msg.datapath
        p, o = dp.ofproto_parser, dp.ofproto
        with open("packets.txt", "a") as f:
            f.write("x")
        out = p.OFPPacketOut(datapath=dp, buffer_id=o.OFP_NO_BUFFER, in_port=msg.match["in_port"],
                             actions=[p.OFPActionOutput(o.OFPP_FLOOD)], data=msg.data)
        dp.send_msg(out)
'''
with open('hub.py', 'w') as f:
    f.write(APP)
setLogLevel('info')
net = Mininet(topo=MinimalTopo(), controller=lambda name: Ryu(name, 'hub.py', port=6676), waitConnected=True)
net.start()
time.sleep(1)
net.pingAll()
print('packets at the app: %d' % len(open('packets.txt').read()))
net.stop()
