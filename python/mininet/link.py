"""Interfaces and links: what scripts say of them, how the topology has them, and what they are in the lab."""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from mininet import _fabric
from mininet.log import debug, error, info
from mininet.util import macColons, makeIntfPair, quietRun

_ADDRESSES = {"ip": re.compile(r"\d+(?:\.\d+){3}"),
              "mac": re.compile(r"(?<![:\w])[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}(?![:\w])")}  # not a piece of an IPv6 address


class Intf:
    """An interface of a node. One without a link, other than lo, is an interface of the machine, which moves into the lab."""

    def __init__(self, name: str, node: Any = None, port: Optional[int] = None, link: Optional[Link] = None,
                 mac: Optional[str] = None, **params: Any) -> None:
        mover = params.pop("moveIntfFn", None)
        self.params = params
        self.name, self.link = name, link
        self.ip: Optional[str] = None
        self.prefixLen: Optional[int] = None
        self.mac = mac
        self.node = node
        self.shape: Dict[str, Any] = {}
        self._device = name  # its name where it is made; on the machine, if the link leaves the lab
        self._take = False  # the machine has it already
        self._made = name == "lo"
        self._given: Optional[Dict[str, str]] = None  # addresses that the topology says
        self._wire: Any = None
        if name == "lo":
            self.ip, self.prefixLen = "127.0.0.1", 8
        if node is not None:
            node.addIntf(self, port=port, **({"moveIntfFn": mover} if mover else {}))
            if name != "lo" and link is None and node.fabricKind():
                self._take = True
                self._wire = node.fabric.wire(_fabric.Wire(self, None))
        self.config(**params, **({"mac": mac} if mac else {}))

    def __repr__(self) -> str:
        return "<%s %s>" % (type(self).__name__, self.name)

    def __str__(self) -> str:
        return self.name

    # As the topology has it

    def fabricEnd(self) -> Dict[str, Any]:
        """The end of a link that this is, in Trivet YAML. Addresses are those that it had when it was made: what a script
        changes later it changes in the kernel."""
        if self._given is None:
            address = "%s/%s" % (self.ip, self.prefixLen or 8) if self._hasIP() else "none"
            address = None if self.node.isForwarder() else address
            said = {"address": address, "mac": self.mac and macColons(self.mac)}
            self._given = {what: text for what, text in said.items() if text}
        return {"node": self.node.name, "port": self.node.ports.get(self, 0), "interface": self._device,
                **self._given, **self.shape}

    def fabricMade(self) -> None:
        """The lab has it now."""
        self._made = True

    def _hasIP(self) -> bool:
        """Whether it has an address; 0.0.0.0, which MiniEdit writes for routers, is none."""
        return self.ip not in (None, "", "0.0.0.0")

    def live(self) -> bool:
        """Whether commands can change it: the lab has it, or it is the machine's."""
        if self.node is None or not self._made:
            return False
        return self.node.fabric.lab is not None or not self.node.fabricKind()

    def _isCable(self) -> bool:
        """Whether up and down are its link's: a port of a lab's switch."""
        return self._wire is not None and self.node.isForwarder()

    def _settled(self, unchanged: bool) -> bool:
        """Whether an address needs no command: the lab will make it so, or is just configuring what it has made so."""
        return not self.live() or unchanged and self.node.fabric.configuring

    def onMachine(self, leads: bool) -> None:
        """An end that is not in the lab is there from the start; one that leads into the lab goes with it."""
        self._made = True
        if leads:
            self.node.fabric.devices.append(self.name)
        device = self.name
        for words in (self.mac and "link set %s address %s" % (device, macColons(self.mac)), "link set %s up" % device,
                      self.ip and "addr add %s/%s dev %s" % (self.ip, self.prefixLen, device)):
            if words:
                quietRun("ip " + words)

    # As scripts use it

    def cmd(self, *words: Any, **options: Any) -> Any:
        """Run a command in the interface's node."""
        return self.node.cmd(*words, **options)

    def ifconfig(self, *args: str) -> Any:
        """Run ifconfig on it; up and down of a switch's port are the cable."""
        if self._isCable() and args in (("up",), ("down",)):
            self.node.fabric.setLink(self._wire, args == ("up",))
            return ""
        return self.cmd("ifconfig", self.name, *args)

    def setIP(self, ipstr: str, prefixLen: Optional[int] = None) -> Any:
        """Give it an address: "10.0.0.1/8", or "10.0.0.1" and 8. The empty text changes nothing, as with Mininet's ifconfig."""
        if not ipstr:
            return ""
        address, _, length = ipstr.partition("/")
        if not length and prefixLen is None:
            raise Exception("%s has no prefix length: give one, as in %s/8" % (ipstr, address))
        before = self.ip, self.prefixLen
        self.ip, self.prefixLen = address, int(length) if length else prefixLen
        if self._settled(before == (self.ip, self.prefixLen)):
            return ""
        return self.ifconfig("%s/%s" % (self.ip, self.prefixLen), "up")

    def setMAC(self, macstr: str) -> Any:
        before, self.mac = self.mac, macstr
        if self._settled(before == macstr):
            return ""
        return self._whileDown("address " + macColons(macstr))

    def rename(self, newname: str) -> Any:
        """Give it another name."""
        said, node = "", self.node
        if node is not None:
            node.fabric.ensure()
            if self.live():
                said = self._whileDown("name " + newname, newname)
            node.nameToIntf.pop(self.name, None)
            node.nameToIntf[newname] = self
        self.name = newname
        return said

    def _whileDown(self, change: str, after: str = "") -> Any:
        """Change what can only be changed while it is down; it has another name afterwards, if one is said."""
        return self.cmd("; ".join("ip link set dev %s %s" % step for step in (
            (self.name, "down"), (self.name, change), (after or self.name, "up"))))

    def IP(self) -> Optional[str]:
        return self.ip

    def MAC(self) -> Optional[str]:
        return self.mac

    def _observe(self, *kinds: str) -> Tuple[Optional[str], ...]:
        """The addresses that it has now, whoever gave them."""
        said = self.cmd("ifconfig", self.name) or ""
        for kind in kinds:
            found = _ADDRESSES[kind].search(said)
            setattr(self, kind, found.group() if found else None)
        return tuple(getattr(self, kind) for kind in kinds)

    def updateIP(self) -> Optional[str]:
        return self._observe("ip")[0]

    def updateMAC(self) -> Optional[str]:
        return self._observe("mac")[0]

    def updateAddr(self) -> Tuple[Optional[str], ...]:
        return self._observe("ip", "mac")

    def isUp(self, setUp: bool = False) -> bool:
        """Whether it is up; with setUp it is set up before."""
        if self.name == "lo":
            return True
        if self._isCable():
            if setUp and self._wire.down:
                self.node.fabric.setLink(self._wire, True)
            return not self._wire.down
        if not self.live():
            return bool(setUp)
        if not setUp:
            return "UP" in (self.ifconfig() or "").partition("\n")[0]
        said = self.ifconfig("up") or ""
        failed = "not" in said.lower()
        if failed:
            error("%s does not go up: %s " % (self.name, said))
        return not failed

    def setParam(self, results: Dict[str, Any], method: str, **param: Any) -> Any:
        """Call a method, if there is such, with the one parameter: arguments if it is a list, named ones if it is a dict; it is
        not called for None. What it returns is put into results."""
        (name, given), = param.items()
        setter = getattr(self, method, None)
        if setter is None or given is None:
            return None
        args = given if isinstance(given, list) else [] if isinstance(given, dict) else [given]
        results[name] = setter(*args, **(given if isinstance(given, dict) else {}))
        return results[name]

    def config(self, mac: Any = None, ip: Any = None, ifconfig: Any = None, up: Any = True, **_params: Any) -> Any:
        """Give it a MAC, an address, arguments of ifconfig, and set it up."""
        results: Dict[str, Any] = {}
        for method, param in (("setMAC", {"mac": mac}), ("setIP", {"ip": ip}), ("isUp", {"up": up}),
                              ("ifconfig", {"ifconfig": ifconfig})):
            self.setParam(results, method, **param)
        return results

    def delete(self) -> None:
        """Remove it."""
        self.link = None
        if self.node is not None:
            self.node.delIntf(self)
            if self._wire is not None:
                self.node.fabric.unwire(self._wire)

    def status(self) -> str:
        """OK, or MISSING."""
        there = False
        if self.node is not None and self._isCable():
            there = self._wire in self.node.fabric.wires
        elif self.node is not None:
            there = self.node.pexec(["ip", "link", "show", "dev", self.name])[2] == 0
        return "OK" if there else "MISSING"


_TIME = re.compile(r"\s*\+?((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(s|ms|us|ns|(?:s|ms|us|ns)ecs?)?\s*", re.IGNORECASE)
_SECONDS = {"s": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def _number(option: str, given: Any) -> float:
    """A number, whatever its type; text is none, as in Mininet."""
    if isinstance(given, (str, bytes)):
        raise TypeError("%s is a number, not %r" % (option, given))
    return float(given)


class _Shape:
    """What a link does to what leaves an interface: options of Trivet, and the words that Mininet has for them."""

    def __init__(self) -> None:
        self.options: Dict[str, Any] = {}
        self.words: List[str] = []

    def bandwidth(self, given: Any, most: float) -> None:
        megabits = _number("bw", given)
        if not 0 <= megabits <= most:
            error("Bandwidth limit %s is outside supported range 0..%d - ignoring\n" % (given, most))
            return
        bits = round(megabits * 1e6)
        if bits:
            self.options["bandwidth"] = "%dbit" % bits
            self.words.append("%.2fMbit" % megabits)

    def time(self, option: str, value: Any) -> bool:
        """A delay or a jitter, as tc reads it: a bare number is microseconds. Returns whether it is one."""
        found = _TIME.fullmatch(str(value))
        if not found:
            error("%s is a time like 5ms, not %s\n" % (option, value))
            return False
        number, unit = found.groups()
        nanoseconds = round(float(number) * _SECONDS[(unit or "us")[0].lower()] * 1e9)
        if nanoseconds:
            self.options[option] = "%dns" % nanoseconds
        self.words.append("%s %s" % (value, option))
        return True

    def loss(self, given: Any) -> None:
        percent = _number("loss", given)
        if not 0 <= percent <= 100:
            error("loss is a percentage from 0 to 100, not %s\n" % given)
            return
        written = "%.5f" % percent  # as precisely as Mininet says it
        if float(written):
            self.options["loss"] = written + "%"
            self.words.append(written + "% loss")

    def queue(self, given: Any) -> None:
        """A length in packets: of a computed one the whole part counts, as in %d."""
        packets = int(_number("max_queue_size", given))
        if packets > 0:
            self.options["queue"] = packets
        else:
            error("max_queue_size is a number of packets from 1, not %s - ignoring\n" % given)

    def marks(self, ecn: bool, red: bool) -> None:
        """Mininet's RED, which marks or drops early; its queue has a length of its own."""
        if not (ecn or red):
            return
        self.words.append("ECN" if ecn else "RED")
        if "bandwidth" in self.options:
            self.options["queue"] = "red,max=35000,min=30000,avpkt=1500,burst=20,probability=100%" + (",ecn" if ecn else "")


class TCIntf(Intf):
    """An interface whose link is worse than a wire for what leaves there."""

    bwParamMax = 1000  # Mbit/s

    def bwCmds(self, *_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError("bwCmds: links are shaped by Trivet, not by commands of tc; give bw, delay, loss … to config()")

    delayCmds = bwCmds

    def tc(self, cmd: str, tc: str = "tc") -> Any:
        """Run a command of tc on the interface: the first %s in it is the program, the second the interface."""
        text = cmd % (tc, self.name) if cmd.count("%s") > 1 else cmd
        debug("*** tc: %s\n" % text)
        return self.cmd(text)

    def config(self, bw: Optional[float] = None, delay: Any = None, jitter: Any = None, loss: Optional[float] = None,
               gro: bool = False, txo: bool = True, rxo: bool = True, speedup: float = 0, use_hfsc: bool = False,
               use_tbf: bool = False, latency_ms: Optional[float] = None, enable_ecn: bool = False, enable_red: bool = False,
               max_queue_size: Optional[float] = None, **params: Any) -> Any:
        """Shape the link by what is given, and by that alone: options of before are gone. Returns None if there is nothing to
        do."""
        results = super().config(**params)
        if bw is not None and speedup > 0 and self.node.name.startswith("s"):
            bw = speedup
        shaped = bool(self.shape) and self._made
        if not (shaped or delay or loss) and bw is None and max_queue_size is None:
            return None
        shape = _Shape()
        if bw is not None:
            shape.bandwidth(bw, self.bwParamMax)
        if delay and shape.time("delay", delay) and jitter:
            shape.time("jitter", jitter)
        if loss is not None:
            shape.loss(loss)
        if max_queue_size is not None:
            shape.queue(max_queue_size)
        shape.marks(enable_ecn, enable_red)
        if shape.words:
            info("(%s) " % " ".join(shape.words))
        self.shape = shape.options
        fabric = self.node.fabric
        if self._made and fabric.lab is not None:
            fabric.dirty = True
            fabric.ensure()
        else:
            fabric.changed(self.node)
        return {**results, "tcoutputs": [], "parent": " parent 10:1 " if self.shape else " root "}


@dataclass
class _End:
    """What an end of a link is to be."""
    node: Any
    port: Optional[int]
    name: Optional[str]
    mac: Optional[str]
    cls: Any
    params: Dict[str, Any]

    def intf(self, link: Link) -> Any:
        return self.cls(name=self.name, node=self.node, port=self.port, link=link, mac=self.mac, **self.params)


class Link:
    """Two interfaces that are linked."""

    _intfClass: Any = None  # the interfaces' class, where a subclass has one of its own

    def __init__(self, node1: Any, node2: Any, port1: Optional[int] = None, port2: Optional[int] = None,
                 intfName1: Optional[str] = None, intfName2: Optional[str] = None, addr1: Optional[str] = None,
                 addr2: Optional[str] = None, intf: Any = Intf, cls1: Any = None, cls2: Any = None,
                 params1: Optional[Dict[str, Any]] = None, params2: Optional[Dict[str, Any]] = None, fast: bool = True,
                 **params: Any) -> None:
        self.fast = fast
        usual = self._intfClass or intf
        one = self._end(_End(node1, port1, intfName1, addr1, cls1 or usual, {**(params1 or {}), **params}))
        two = self._end(_End(node2, port2, intfName2, addr2, cls2 or usual, {**(params2 or {}), **params}), one)
        if node1.fabric is not node2.fabric:
            keep, give = sorted((node1.fabric, node2.fabric), key=lambda fabric: fabric.net is None)
            keep.adopt(give)
        self.makeIntfPair(str(one.name), str(two.name), addr1, addr2, node1=node1, node2=node2)
        self.intf1, self.intf2 = one.intf(self), two.intf(self)
        self._wire = self.intf1._wire = self.intf2._wire = _fabric.Wire(self.intf1, self.intf2)
        inLab = [bool(node.fabricKind()) for node in (node1, node2)]
        for end, here, there in ((self.intf1, *inLab), (self.intf2, *inLab[::-1])):
            if not here:
                end.onMachine(leads=there)
        if any(inLab):
            node1.fabric.wire(self._wire)

    def _end(self, end: _End, other: Optional[_End] = None) -> _End:
        """An end with a port and a name, both the next ones unless they are given."""
        end.params.pop("moveIntfFn", None)  # the lab makes interfaces where they belong
        port = end.params.pop("port", None)
        end.port = port if end.port is None else end.port
        if end.port is None:
            end.port = end.node.newPort()
            if other and (other.node, other.port) == (end.node, end.port):
                end.port += 1
        end.name = end.name or self.intfName(end.node, end.port)
        return end

    def intfName(self, node: Any, n: int) -> str:
        """The name of a node's n-th interface."""
        return "%s-eth%s" % (node.name, n)

    @classmethod
    def makeIntfPair(cls, intfname1: str, intfname2: str, addr1: Optional[str] = None, addr2: Optional[str] = None,
                     node1: Any = None, node2: Any = None, deleteIntfs: bool = True) -> None:
        """Make the pair where an end is the machine's; those in the lab are made by it."""
        for name in (intfname1, intfname2):
            if len(name) > 15:
                raise Exception("Error creating interface pair (%s,%s): name %s is longer than the 15 characters that Linux allows"
                                % (intfname1, intfname2, name))
        if not all(node is not None and node.fabricKind() for node in (node1, node2)):
            makeIntfPair(intfname1, intfname2, deleteIntfs=deleteIntfs)

    def delete(self) -> None:
        """Remove the link."""
        for intf in (self.intf1, self.intf2):
            if intf is not None:
                intf.delete()
        self.intf1 = self.intf2 = None

    def stop(self) -> None:
        """Remove the link; the lab does that with all of its own when it goes down."""
        if self.intf1 is not None and not self.intf1.node.fabric.ending:
            self.delete()

    def status(self) -> str:
        return "(%s %s)" % (self.intf1.status(), self.intf2.status())

    def __str__(self) -> str:
        return "%s<->%s" % (self.intf1, self.intf2)


class OVSIntf(Intf):
    """The end of a link between two Open vSwitches, which can only be up."""

    def ifconfig(self, *args: str) -> str:
        if args != ("up",):
            raise Exception("the end of a patch link can only be up, not %s" % " ".join(args))
        return ""


class OVSLink(Link):
    """In Mininet a pair of patch ports between Open vSwitches; Trivet makes links that need no device so by itself."""

    isPatchLink = False


class TCLink(Link):
    """A link with bw, delay, jitter, loss, max_queue_size, in both directions."""

    _intfClass = TCIntf


class TCULink(TCLink):
    """A TCLink without offload of checksums; the lab's links need no such care."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "txo": False, "rxo": False})
