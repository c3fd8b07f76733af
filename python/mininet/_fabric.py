"""What nodes and links of the Mininet API become: one topology of Trivet, and the lab that it is.

Nothing is made while a script adds nodes and links. The lab comes up when something needs it (a command in a node, or
net.start()), with all that there is by then; what is added afterwards is applied before the next thing that needs it.
"""
import atexit
import itertools
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager

from mininet.log import debug, info, warn
from trivet import Lab, Node, TrivetError, _binary

_numbers = itertools.count()
_name = "mn-%d-%s" % (os.getpid(), secrets.token_hex(2))  # process ids repeat: in other namespaces, and after a crash
_current = None


def current():
    """The fabric that new nodes join: that of the latest Mininet, unless it has stopped."""
    global _current
    if _current is None or _current.ended:
        _current = Fabric()
    return _current


def begin(net):
    """The fabric of a new Mininet."""
    global _current
    _current = Fabric(net)
    return _current


def forget():
    """Take down the lab of this program."""
    if _current is not None:
        _current.end()


def here():
    """The line of the script that is being executed, as "file:line: "; of mn there is none."""
    frame, ours = sys._getframe(1), os.path.dirname(os.path.abspath(__file__))
    while frame is not None and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == ours:
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith("<"):
        return ""
    return "%s:%d: " % (frame.f_code.co_filename, frame.f_lineno)


class Wire:
    """A link in the topology: its two interfaces, or one and an interface of the machine."""

    def __init__(self, intf1, intf2):
        self.ends = intf1, intf2
        self.line = here()
        self.down = False
        self.pulled = set()  # the switches that have pulled it

    def key(self):
        return tuple(sorted(e.node.name if e is not None and e.node.fabricKind() else "" for e in self.ends))


class Fabric:
    """The nodes and links of a network, and its lab."""

    def __init__(self, net=None):
        self.net, self.lab, self.ended = net, None, False
        self.nodes, self.wires = [], []
        self.lines = {}  # of the script, where each node is made
        self.dirty, self.datapath, self.waits = False, None, False
        self.devices = []  # of the machine, made for links that leave the lab: removed at the end
        self.lock = threading.RLock()
        self.working = False
        self.configuring = False  # hosts are being given what the lab has made them with
        self.starting = False  # net.start() is under way
        self.ending = False  # net.stop() is under way: the lab goes as a whole
        self.tools = None  # for commands of Open vSwitch, and of network devices
        self.named = set()  # interfaces that commands in switches have named
        self.keeper = None  # what takes the lab down when the script cannot
        number = next(_numbers) + 1
        self.name = os.environ.get("TRIVET_LAB") or _name + ("-%d" % number if number > 1 else "")

    @contextmanager
    def during(self, what):
        """While something is going on that nodes and links ask for: configuring or starting."""
        setattr(self, what, True)
        try:
            yield
        finally:
            setattr(self, what, False)

    # What there is

    def add(self, node):
        self.lines.setdefault(node.name, here())
        self.nodes.append(node)
        self.changed(node)

    def remove(self, node):
        if node in self.nodes:
            self.nodes.remove(node)
            self.wires = [w for w in self.wires if all(e is None or e.node is not node for e in w.ends)]
            self.changed(node)

    def changed(self, node=None):
        if node is None or node.fabricKind():
            self.dirty = True

    def wire(self, wire):
        self.wires.append(wire)
        self.dirty = True
        return wire

    def unwire(self, wire):
        if wire in self.wires:
            self.wires.remove(wire)
            self.dirty = True

    def adopt(self, other):
        """Take over what another fabric holds, that has no network of its own."""
        for node in other.nodes:
            node._fabric = self
        self.nodes += other.nodes
        self.lines.update(other.lines)
        self.wires += other.wires
        self.devices += other.devices
        other.nodes, other.wires, other.devices, other.ended = [], [], [], True
        self.dirty = True

    # What it becomes

    def choose(self):
        """Choose what forwards in switches, once."""
        self.datapath = self.datapath or chooseDatapath(self)

    def topology(self):
        """The topology, as a Trivet YAML file holds it."""
        self.choose()
        nodes, links = {}, []
        for n in self.nodes:
            kind = n.fabricKind()
            if kind:
                nodes[n.name] = {kind: n.fabricOptions(self)}
        seen = {}
        for w in self.wires:
            link = {}
            key = w.key()
            seen[key] = w.number = seen.get(key, 0) + 1
            for side, other, intf in (("from", "to", w.ends[0]), ("to", "from", w.ends[1])):
                if intf is None or not intf.node.fabricKind():
                    continue
                link[side] = intf.fabricEnd()
                if w.ends[0] is None or w.ends[1] is None or not all(e.node.fabricKind() for e in w.ends):
                    link[side].pop("interface", None)
                    link[other] = {"interface": intf._device, **({"take": True} if intf._take else {})}
            if w.down:
                link["down"] = True
            if link:
                links.append(link)
        return {"name": self.name, "routes": "as-written", "learning": "reactive", "ipv6": "link-local", "nodes": nodes, "links": links}

    def ensure(self):
        """Have the lab be what the nodes and links are by now."""
        if (self.lab is not None and not self.dirty) or self.ended:
            return
        with self.lock:
            if self.working or (self.lab is not None and not self.dirty):
                return
            self.working = True
            try:
                self._ensure()
            finally:
                self.working = False

    def _file(self):
        """The topology as a text, and what each of its lines is: a node or a link, and where the script makes it."""
        topology = self.topology()
        nodes, links = topology.pop("nodes"), topology.pop("links")
        made = [wire for wire in self.wires if any(e is not None and e.node.fabricKind() for e in wire.ends)]
        lines, what = [json.dumps(topology)[:-1] + ', "nodes": {'], [""]
        for number, (name, said) in enumerate(nodes.items(), 1):
            lines.append("%s: %s%s" % (json.dumps(name), json.dumps(said), "," * (number < len(nodes))))
            what.append("%s%s: " % (self.lines.get(name, ""), name))
        lines.append('}, "links": [')
        what.append("")
        for number, (wire, said) in enumerate(zip(made, links), 1):
            lines.append(json.dumps(said) + "," * (number < len(links)))
            what.append("%s%s: " % (wire.line, " -- ".join(str(e) for e in wire.ends if e is not None)))
        return "\n".join([*lines, "]}"]), what

    def _inScript(self, text, file, what):
        """What is wrong, by the script's lines and names in place of those of a file that nobody wrote."""
        def place(found):
            number = int(found.group(1))
            return what[number - 1] if number <= len(what) else ""
        return re.sub(re.escape(file) + r":(\d+)(?::\d+)?:?\s*", place, text).replace(file, "the network")

    def _ensure(self):
        sys.stdout.flush()
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", prefix="mininet-", delete=False) as f:
            text, what = self._file()
            f.write(text)
        debug("*** The topology:\n%s\n" % text)
        try:
            if self.lab is None:
                foreign = any(c not in ("trivet", "none") for n in self.nodes for c in n.fabricControllers())
                lab = Lab.from_file(f.name, name=self.name, wait="0s" if foreign and not self.waits else None)
                lab.up()
                self.lab, self.keeper = lab, _keeper(lab.name)
                atexit.register(self.end)
                for warning in lab.warnings:
                    debug("*** %s\n" % warning)
            else:
                for change in self.lab.apply(f.name):
                    debug("*** %s\n" % change)
            self.dirty = False
        except TrivetError as e:
            raise TrivetError(self._inScript(str(e), f.name, what)) from None
        finally:
            os.unlink(f.name)
        if self.tools is None:
            self.tools = _Tools(self.directory("tools"))
        if self.datapath == "ovs" or self.tools.told:
            self.tell()
        for w in self.wires:
            for intf in w.ends:
                if intf is not None:
                    intf.fabricMade()

    def spaces(self, node):
        """The options of nsenter for what runs in a node. Switches have the namespace in which the lab's devices are."""
        lab = self.directory()
        if node.isForwarder():
            return ["--net=%s/ns/fabric" % lab]
        return ["--%s=%s/ns/%s/%s" % (option, lab, kind, node.name) for option, kind in (("net", "net"), ("uts", "uts"), ("mount", "mnt"))]

    def directory(self, *below):
        """The lab's directory, or what is below it."""
        return os.path.join(self.lab.client.directory, *below)

    def path(self):
        """Where hosts look for programs: they have devices of their own."""
        theirs, mine = self.directory("tools"), self.directory("tools", "host")
        dirs = [d for d in os.environ.get("PATH", os.defpath).split(":") if d != theirs]
        return ":".join([mine] * os.path.isfile(mine + "/tc") + dirs)

    def showPorts(self, node, text):
        """Have links of a switch be devices that a command in it names: there are none before, or packets go around them."""
        if self.lab is None or self.dirty or not node.isForwarder():
            return
        words = set(re.findall(r"[\w.@+-]+", text)) - self.named
        ports = {intf.name for switch in self.nodes if switch.isForwarder() for intf in switch.intfList() if intf.name in words}
        if ports:
            self.named |= ports
            try:
                self.lab.client.call("POST", "/v1/tool", {"namespace": os.stat(self.directory("ns", "fabric")).st_ino, "words": sorted(ports)})
            except TrivetError as e:  # the command says what it lacks
                warn("*** %s\n" % e)

    def tell(self):
        """Have ovs-ofctl and ovs-vsctl find the lab's switches, whoever runs them from now on: this program, or what it starts. The
        lab makes what they need when it is asked for it."""
        self.ensure()
        switch = next((n for n in self.nodes if n.fabricKind() == "switch" and n.fabricOVS()), None)
        if switch is None or self.lab is None:
            return
        self.tools.use(Node(self.lab, switch.name))

    def setLink(self, wire, up):
        """Pull the cable of a link, or put it in again."""
        wire.down = not up
        if self.lab is None or self.dirty:
            self.dirty = True
            self.ensure()
            return
        a, b = (e.node.name if e is not None and e.node.fabricKind() else o._device for e, o in (wire.ends, wire.ends[::-1]))
        self.lab.client.call("POST", "/v1/link", {"a": a, "b": b, "number": wire.number, "change": ["up" if up else "down"],
                                                  "no_wait": True})

    def end(self):
        """Take the lab down. What runs in it ends."""
        with self.lock:
            if self.ended:
                return
            self.ended = True
            lab, self.lab = self.lab, None
            if lab is not None:
                atexit.unregister(self.end)
                try:
                    lab.down()
                except TrivetError as e:
                    warn("*** %s\n" % e)
                self.keeper.kill()
                self.keeper.communicate()
            if self.tools is not None:
                self.tools.end()
            from mininet.util import quietRun
            for device in self.devices:
                quietRun("ip link del " + device)


def _keeper(lab):
    """A process that waits for the end of this one, however it comes (a signal, os._exit), and takes the lab down then."""
    wait = ["sh", "-c", 'read -r _; exec "$@"', "sh", _binary.find(), "down", lab]
    return subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


class _Tools:
    """What tells commands where the lab's switches and their ports are, in the environment of this program."""

    _names = "OVS_RUNDIR", "PATH"

    def __init__(self, directory):
        self.before, self.told = dict(os.environ), False
        os.environ["PATH"] = directory + ":" + os.environ.get("PATH", os.defpath)

    def use(self, switch):
        """Take over what the lab tells programs in a switch, among them the commands of Open vSwitch."""
        self.told = True
        told = switch.run(["env", "-0"], env=self.before).stdout.split("\0")
        os.environ.update(line.split("=", 1) for line in told if line.startswith(tuple(name + "=" for name in self._names)))

    def end(self):
        for name in self._names:
            os.environ.pop(name, None)
            if name in self.before:
                os.environ[name] = self.before[name]


_talk = re.compile(r"\bovs-(vsctl|ofctl|appctl|dpctl)\b|\bdpctl\b|\.vsctl\(")


def chooseDatapath(fabric):
    """What forwards in OVSSwitches: what TRIVET_DATAPATH says; Open vSwitch where a controller decides that is not Trivet's,
    where none does, or where the script talks to Open vSwitch; the embedded switch otherwise, and where there is none."""
    from mininet.util import which
    asked = os.environ.get("TRIVET_DATAPATH")
    switches = [n for n in fabric.nodes if n.fabricKind() == "switch" and n.fabricOVS()]
    if asked:
        if asked not in ("embedded", "ovs"):
            raise TrivetError("TRIVET_DATAPATH=%s: there are embedded and ovs" % asked)
        chosen, why = asked, "as TRIVET_DATAPATH says"
    elif not which("ovs-vswitchd"):
        chosen, why = "embedded", "Open vSwitch is not installed; TRIVET_DATAPATH chooses"
    elif any(n.fabricControllers()[0] not in ("trivet", "none") for n in switches):
        chosen, why = "ovs", "for controllers that are not Trivet's; TRIVET_DATAPATH chooses"
    elif any(n.fabricSecure() for n in switches):
        chosen, why = "ovs", "switches have no controller so far, and forward what they are told; TRIVET_DATAPATH chooses"
    elif scriptTalks():
        chosen, why = "ovs", "the script talks to it; TRIVET_DATAPATH chooses"
    else:
        chosen, why = "embedded", "nothing asks for Open vSwitch; TRIVET_DATAPATH chooses"
    if switches:
        info("*** Switches are %s (%s)\n" % ({"ovs": "Open vSwitch", "embedded": "Trivet's own"}[chosen], why))
    return chosen


def scriptTalks():
    """Whether the program, or a module from its directory, names a command of Open vSwitch."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    files = [f for f in [main] if f]
    here = os.path.dirname(os.path.abspath(main)) if main else None
    ours = os.path.dirname(os.path.abspath(__file__))
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and here and os.path.dirname(os.path.abspath(file)) == here and here != ours:
            files.append(file)
    for file in files + _customFiles:
        if os.path.dirname(os.path.abspath(file)) == ours:
            continue
        try:
            with open(file, encoding="utf-8", errors="replace") as f:
                if _talk.search(f.read()):
                    return True
        except OSError:
            pass
    return False


_customFiles = []  # that mn --custom has run
