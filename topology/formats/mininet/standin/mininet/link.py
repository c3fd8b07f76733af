"""Links and interfaces: their names, ports, addresses and impairments."""
import re

from mininet import _record as record
from mininet.log import info, error, debug  # noqa: F401

SHAPING = ("bw", "delay", "jitter", "loss", "max_queue_size", "enable_ecn", "enable_red")


class Intf:
    def __init__(self, name, node=None, port=None, link=None, mac=None, **params):
        self.name, self.node, self.link, self.params = str(name), node, link, params
        self.mac = self.givenMAC = None
        self.ips = []           # with prefix lengths; at most one of IPv4 first
        self.up = True
        self.shape = {}         # what leaves here, as given to TCIntf.config
        self.givenName = None   # when it is not <node>-eth<port>
        self.line, self.sequence = record.here(), record.sequence()
        if node is not None:
            if link is None and self.name != "lo":  # a real interface of the machine
                self.givenPort = port is not None
                record.links.append(self)
            node.addIntf(self, port=port)
            self.config(mac=mac, **params)

    def cmd(self, *args, **kwargs):
        return self.node.cmd(*args, **kwargs)

    def config(self, mac=None, ip=None, ifconfig=None, up=True, **params):
        for option in SHAPING:
            if params.get(option):
                record.warn(record.here(), "%s=%r does nothing in Mininet without link=TCLink" % (option, params[option]))
        result = {}
        self.setParam(result, "setMAC", mac=mac)
        self.setParam(result, "setIP", ip=ip)
        self.setParam(result, "ifconfig", ifconfig=ifconfig)
        return result

    setParam = None  # taken over from Node, which has the same; see node.py

    def ifconfig(self, *args):
        if args:
            self.node.cmd("ifconfig", self.name, *args)
        return ""

    def setIP(self, ipstr, prefixLen=None):
        address, _, length = str(ipstr).partition("/")
        if not length:
            if prefixLen is None:
                raise Exception("No prefix length set for IP address %s" % ipstr)
            length = prefixLen
        others = [ip for ip in self.ips if ":" in ip]
        self.ips = others if address == "0.0.0.0" else ["%s/%s" % (address, length), *others]
        return ""

    def setMAC(self, macstr):
        self.mac = self.givenMAC = str(macstr)
        return ""

    @property
    def ip(self):
        return next((ip.split("/")[0] for ip in self.ips if ":" not in ip), None)

    @property
    def prefixLen(self):
        return next((ip.split("/")[1] for ip in self.ips if ":" not in ip), None)

    def IP(self):
        return self.ip

    updateIP = IP

    def MAC(self):
        """The address given, or one that stays the same for this interface."""
        if self.mac is None:
            self.mac = "02:%02x:%02x:%02x:%02x:%02x" % tuple(self.sequence >> shift & 255 for shift in (32, 24, 16, 8, 0))
        return self.mac

    updateMAC = MAC

    def updateAddr(self):
        return self.IP(), self.MAC()

    def isUp(self, setUp=False):
        if setUp:
            self.up = True
        return self.up

    def rename(self, newname):
        if self.node is not None:
            self.node.nameToIntf[newname] = self.node.nameToIntf.pop(self.name, self)
        self.name = self.givenName = str(newname)
        return ""

    def delete(self):
        if self.node is not None:
            self.node.delIntf(self)
        self.link = None
        if self in record.links:
            record.links.remove(self)

    def status(self):
        return "OK"

    def __repr__(self):
        return "<%s %s>" % (type(self).__name__, self)

    def __str__(self):
        return self.name


class TCIntf(Intf):
    bwParamMax = 1000

    def config(self, bw=None, delay=None, jitter=None, loss=None, max_queue_size=None, speedup=0, latency_ms=None,
               use_hfsc=False, use_tbf=False, enable_ecn=False, enable_red=False, **params):
        result = super().config(**params)
        shape = dict(zip(SHAPING, (bw, delay, jitter, loss, max_queue_size, bool(enable_ecn), bool(enable_red))))
        if latency_ms:
            record.warn(record.here(), "%s: latency_ms=%r: not honoured" % (self.name, latency_ms))
        if (enable_ecn or enable_red) and bw is None:
            record.warn(record.here(), "%s: without bw, Mininet does nothing for enable_ecn and enable_red" % self.name)
        elif (enable_ecn or enable_red) and max_queue_size is not None:
            record.warn(record.here(), "%s: max_queue_size=%r: not honoured: the queue of enable_ecn or enable_red has its own length" % (
                self.name, max_queue_size))
        if bw is not None and not 0 <= bw <= self.bwParamMax:
            record.warn(record.here(), "%s: bw=%r is outside 0 to %d Mbit/s, where Mininet ignores it" % (self.name, bw, self.bwParamMax))
            shape["bw"] = None
        elif speedup and bw and self.node.name.startswith("s"):
            shape["bw"] = speedup
        if loss is not None and not 0 <= loss <= 100:
            record.warn(record.here(), "%s: loss=%r is not a percentage, and Mininet ignores it" % (self.name, loss))
            shape["loss"] = None
        if max_queue_size is not None and int(max_queue_size) < 1:
            record.warn(record.here(), "%s: max_queue_size=%r is not a number of packets from 1, and Mininet ignores it" % (self.name, max_queue_size))
            shape["max_queue_size"] = None
        if bw is None and not delay and not loss and max_queue_size is None:
            if jitter:
                record.warn(record.here(), "%s: jitter alone does nothing in Mininet; give a delay too" % self.name)
            return None
        self.shape = {k: v for k, v in shape.items() if v}
        return result

    def bwCmds(self, *_args, **_options):
        return [], " root "

    def delayCmds(self, parent, *_args, **_options):
        return [], parent

    def tc(self, cmd, tc="tc"):
        return self.cmd(cmd % (tc, self.name))


class Link:
    def __init__(self, node1, node2, port1=None, port2=None, intfName1=None, intfName2=None, addr1=None, addr2=None,
                 intf=Intf, cls1=None, cls2=None, params1=None, params2=None, fast=True, **params):
        params1, params2 = dict(params1 or {}), dict(params2 or {})
        for given, port in ((params1, port1), (params2, port2)):
            given.update({} if port is None else {"port": port})
        self.givenPorts = ["port" in params1, "port" in params2]
        params1.setdefault("port", node1.newPort())
        params2.setdefault("port", node2.newPort())
        name1 = intfName1 or self.intfName(node1, params1["port"])
        name2 = intfName2 or self.intfName(node2, params2["port"])
        self.line, self.sequence = record.here(), record.sequence()
        self.fast = fast
        # What holds for both ends wins, as in Mininet.
        self.intf1 = (cls1 or intf)(name=name1, node=node1, link=self, mac=addr1, **{**params1, **params})
        self.intf2 = (cls2 or intf)(name=name2, node=node2, link=self, mac=addr2, **{**params2, **params})
        self.intf1.givenName, self.intf2.givenName = intfName1, intfName2
        record.links.append(self)

    def intfName(self, node, n):
        return "%s-eth%s" % (node.name, n)

    @classmethod
    def makeIntfPair(cls, intfname1, intfname2, addr1=None, addr2=None, node1=None, node2=None, deleteIntfs=True):
        pass

    def delete(self):
        self.intf1.delete()
        self.intf2.delete()
        if self in record.links:
            record.links.remove(self)

    def stop(self):
        self.delete()

    def status(self):
        return "(%s)" % " ".join(intf.status() for intf in (self.intf1, self.intf2))

    def __str__(self):
        return "%s<->%s" % (self.intf1, self.intf2)


class OVSIntf(Intf):
    pass


class OVSLink(Link):
    def __init__(self, node1, node2, **kwargs):
        self.isPatchLink = False
        super().__init__(node1, node2, **kwargs)


class TCLink(Link):
    def __init__(self, *args, **kwargs):
        kwargs.setdefault("cls1", TCIntf)
        kwargs.setdefault("cls2", TCIntf)
        super().__init__(*args, **kwargs)


class TCULink(TCLink):
    pass


def microseconds(text):
    """A time span as tc reads it, in microseconds: "5ms", "1.5s", and bare numbers are microseconds already. None if it is none."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*(s|secs?|ms|msecs?|us|usecs?|ns|nsecs?)?", str(text).strip().lower())
    if not match:
        return None
    unit = (match[2] or "us")[:2].rstrip("e")
    return float(match[1]) * {"s": 1e6, "ms": 1e3, "us": 1, "ns": 1e-3}[unit]
