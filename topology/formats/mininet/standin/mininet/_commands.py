"""Recognises the shell commands that shape a network: addresses, routes, forwarding, links up and down.

A command is split at ; and && and newlines; what is recognised takes effect
on the node, anything else makes the whole call "not honoured".
"""
import re
import shlex

from mininet import _record as record


def run_on(node, call, command):
    """Applies what of the command is recognised and reports the rest."""
    text = joined(command)
    if record.quiet or not text.strip() or text in (node.params.get("startCommand"), node.params.get("stopCommand")):
        return
    passed_over = [part for part in parts(text) if not apply(node, part)]
    if passed_over:
        record.not_honoured("%s.%s" % (node.name, call), text, why=instead(node.name, passed_over[0]))


def run_outside(call, command):
    """A command on the machine itself; only settings of Open vSwitch are recognised."""
    text = joined(command)
    passed_over = [p for p in parts(text) if not re.match(r"(sudo )?mn (-c|--clean)\b", " ".join(p)) and not ovs(p)]
    if passed_over:
        record.not_honoured(call, text, why=instead("NODE", passed_over[0]))


VLANS = "a host's VLAN interfaces: its start in a Trivet file (trivet convert)"
DAEMONS = "routing daemons: see docs/routing.md, real routers"
INSTEAD = {
    "ping": "use trivet ping", "iperf": "use trivet iperf, or trivet bench", "iperf3": "use trivet iperf, or trivet bench",
    "tc": "use bw, delay, loss of addLink, or trivet link set", "vconfig": VLANS,
    "ovs-ofctl": "use trivet flows, with Trivet's controller", "dpctl": "use trivet flows, with Trivet's controller",
    "tcpdump": "use trivet capture", "tshark": "use trivet capture", "wireshark": "use trivet capture", "traceroute": "use trivet exec %s -- traceroute",
    "zebra": DAEMONS, "ospfd": DAEMONS, "ospf6d": DAEMONS, "bgpd": DAEMONS, "ripd": DAEMONS, "staticd": DAEMONS, "bird": DAEMONS,
}


def instead(name, words):
    """What does in a lab what the command does."""
    program, text = words[0].rsplit("/", 1)[-1], " ".join(words)
    if program == "ip" and re.search(r" type (vlan|802\.1q)\b", text) or program == "ifconfig" and re.match(r"\S+\.\d", " ".join(words[1:])):
        return VLANS
    if program == "ovs-vsctl" and re.search(r"\b(tag|trunks|vlan_mode)=", text):
        return "VLANs of a switch's ports are its controller's: flow entries, or Faucet (trivet up --controller faucet)"
    hint = INSTEAD.get(program, "")
    return hint % name if "%s" in hint else hint


def joined(command):
    if isinstance(command, bytes):
        return command.decode("utf-8", "replace")
    return command if isinstance(command, str) else " ".join(map(str, command))


def parts(text):
    for part in re.split(r";|&&|\n", text):
        try:
            words = shlex.split(part)
        except ValueError:
            words = part.split()
        words = [w for w in words if w not in ("sudo", "2>/dev/null", ">/dev/null", "2>&1")]
        if words:
            yield words


def apply(node, words):
    """Whether the command was recognised; if so, it has taken effect."""
    program = words[0].rsplit("/", 1)[-1]
    try:
        return bool(PROGRAMS[program](node, words[1:]))
    except (KeyError, IndexError, ValueError, AttributeError, StopIteration):
        return False


def sysctl(node, words):
    text = " ".join(w for w in words if not w.startswith("-"))
    settings = re.findall(r"([\w./-]+)\s*=\s*([^=]*?)\s*(?=\s[\w./-]+\s*=|$)", text)
    return bool(settings) and all([setting(node, *s) for s in settings])


def setting(node, key, value):
    key, value = key.replace("/", "."), value.strip()
    if key in ("net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding"):
        node.forwards = value == "1"
        return True
    if re.fullmatch(r"net\.ipv6\.conf\.\S+\.forwarding", key):
        return value == "1"
    # IPv6 is off unless a topology asks for it.
    if re.fullmatch(r"net\.ipv6\.conf\.\S+\.disable_ipv6", key):
        return value == "1"
    return bool(re.fullmatch(r"net\.ipv4\.[\w.-]+", key) and re.fullmatch(r"[\w ,.:-]+", value)) and at_start(node, "sysctl", "-qw", "%s=%s" % (key, value))


def at_start(node, *words):
    """Lets a host or router run what sets something of its network for which a topology has no words."""
    line = shlex.join(words)
    if node.isSwitch or node.isController:
        return False
    if line not in node.settings:
        node.settings.append(line)
    return True


def neighbour(node, address, mac, device=""):
    """A neighbour's MAC address that nobody has to ask for."""
    device = device or (node.defaultIntf().name if node.defaultIntf() else "")
    if device not in node.nameToIntf or not re.fullmatch(r"[0-9a-fA-F.:]+", address) or not re.fullmatch(r"[0-9a-fA-F]{1,2}(:[0-9a-fA-F]{1,2}){5}", str(mac)):
        return False
    for net in record.networks:  # where the program was told an address that nobody had given, it must be that
        for other in net.hosts:
            for intf in other.intfList():
                if intf.mac == mac:
                    intf.givenMAC = mac
    return at_start(node, "ip", "neigh", "replace", address, "lladdr", str(mac), "dev", device, "nud", "permanent")


def arp(node, words):
    words = [w for w in words if w != "-n"]
    device = ""
    if "-i" in words:
        device = words[words.index("-i") + 1]
        words = [w for w in words if w not in ("-i", device)]
    return words[0] == "-s" and len(words) == 3 and neighbour(node, words[1], words[2], device)


def ip_neighbour(node, verb, words):
    options = dict(zip(words[1::2], words[2::2]))
    mac, device = options.pop("lladdr"), options.pop("dev")
    return verb in ("add", "replace", "change") and options.pop("nud", "permanent") == "permanent" and not options and neighbour(node, words[0], mac, device)


def echo(node, words):
    value, target = words[0], "".join(words[1:])
    return setting(node, target.lstrip(">").removeprefix("/proc/sys/").replace("/", "."), value) if target.startswith(">/proc/sys/") else False


def ip(node, words):
    while words[0] in ("-4", "-6"):
        words = words[1:]
    what, verb, rest = words[0], words[1], words[2:]
    if what in ("a", "addr", "address"):
        return ip_address(node, verb, rest)
    if what in ("r", "ro", "route"):
        return ip_route(node, verb, rest)
    if what in ("n", "neigh", "neighbor", "neighbour"):
        return ip_neighbour(node, verb, rest)
    if what in ("l", "link") and verb == "set":
        return ip_link(node, rest)
    return False


def ip_address(node, verb, words):
    options = dict(zip(words[1::2], words[2::2]))
    if verb == "flush":
        intf = node.nameToIntf[words[words.index("dev") + 1] if "dev" in words else words[0]]
        intf.ips = []
        return True
    address, device = words[0], options.pop("dev")
    options = {k: v for k, v in options.items() if k not in ("brd", "broadcast")}
    if options:
        return False
    if "/" not in address:
        address += "/128" if ":" in address else "/32"
    ips = node.loopback if device == "lo" else node.nameToIntf[device].ips
    if verb == "add" and address not in ips:
        ips.append(address)
    elif verb in ("del", "delete") and address in ips:
        ips.remove(address)
    else:
        return False
    return True


def ip_route(node, verb, words):
    if verb == "flush":
        node.gateways, node.routes = {}, []
        return True
    words = [w for w in words if w not in ("to", "unicast", "onlink")]
    options = {k: v for k, v in zip(words[1::2], words[2::2]) if k not in ("proto", "scope", "src")}
    via, device = options.pop("via", ""), options.pop("dev", "")
    if verb in ("del", "delete"):
        return unroute(node, words[0], via, device)
    if verb not in ("add", "replace", "change", "append") or options:
        return False
    return route_to(node, words[0], via, device)


DEFAULT = ("default", "0.0.0.0/0", "::/0", "0/0", "0.0.0.0")


def default_route(node, words):
    """What follows default: "via 10.0.0.254", "dev h1-eth0", or both."""
    words = words[1:] if words[:1] == ["default"] else words
    options = dict(zip(words[0::2], words[1::2]))
    via, device = options.pop("via", ""), options.pop("dev", "")
    return not options and len(words) % 2 == 0 and route_to(node, "default", via, device)


def route_to(node, to, via, device=""):
    """Sets a route by a neighbour, by a device, or both."""
    if not via and not device or device and device not in node.nameToIntf:
        return False
    six = ":" in (via or to)
    if to in DEFAULT:
        node.routes = [r for r in node.routes if r[0] not in ("0.0.0.0/0", "::/0") or (":" in r[0]) != six]
        node.gateways.pop(six, None)
        if via:
            node.gateways[six] = via
            return True
        to = "::/0" if six else "0.0.0.0/0"
    if "/" not in to:
        to += "/128" if six else "/32"
    if via:
        device = ""  # the neighbour's address tells it
    if [to, via, device] not in node.routes:
        node.routes.append([to, via, device])
    return True


def unroute(node, to, via, device):
    if to in DEFAULT:
        node.gateways.pop(":" in (via or to), None)
        to = "::/0" if ":" in (via or to) else "0.0.0.0/0"
    node.routes = [r for r in node.routes if r[0].removesuffix("/32") != to.removesuffix("/32") or via not in ("", r[1]) or device not in ("", r[2])]
    return True


def ip_link(node, words):
    if words[0] == "dev":
        words = words[1:]
    return link_words(node, words[0], words[1:])


def link_words(node, device, words):
    if device == "lo":
        return words == ["up"]
    intf = node.nameToIntf[device]
    if words in (["up"], ["down"]):
        intf.up = words == ["up"]
    elif words[0] == "address":
        intf.setMAC(words[1])
    elif words[0] == "mtu":
        return words[1] == "1500" or words[1].isdigit() and at_start(node, "ip", "link", "set", "dev", device, "mtu", words[1])
    else:
        return False
    return True


def ifconfig(node, words):
    device, rest = words[0], words[1:]
    if rest[:2] == ["hw", "ether"]:
        node.nameToIntf[device].setMAC(rest[2])
        rest = rest[3:]
    if rest and rest[0] not in ("up", "down", "mtu"):
        if rest[0] == "inet":
            rest = rest[1:]
        address, rest = rest[0], rest[1:]
        if rest[:1] == ["netmask"]:
            address, rest = "%s/%d" % (address.split("/")[0], prefix_of(rest[1])), rest[2:]
        set_address(node, device, address)
    while rest:
        count = 2 if rest[0] == "mtu" else 1
        if not link_words(node, device, rest[:count]):
            return False
        rest = rest[count:]
    return len(words) > 1


def set_address(node, device, address):
    intf = node.nameToIntf[device]
    if address.split("/")[0] in ("0", "0.0.0.0"):
        intf.ips = [a for a in intf.ips if ":" in a]
        return
    if "/" not in address:  # the class of the address decides (RFC 791, section 3.2)
        first = int(address.split(".")[0])
        address += "/8" if first < 128 else "/16" if first < 192 else "/24"
    intf.setIP(address)


def prefix_of(mask):
    return sum(bin(int(part)).count("1") for part in mask.split("."))


def route(node, words):
    if words[0] not in ("add", "del"):
        return False
    verb, words = words[0], [w for w in words[1:] if w not in ("-net", "-host")]
    to, rest, via, device = words[0], words[1:], "", ""
    while rest:
        word = rest.pop(0)
        if word == "netmask":
            to = "%s/%d" % (to, prefix_of(rest.pop(0)))
        elif word in ("gw", "gateway"):
            via = rest.pop(0)
        elif word == "dev":
            device = rest.pop(0)
        elif word == "metric":
            rest.pop(0)
        elif rest:
            return False
        else:
            device = word
    return (unroute if verb == "del" else route_to)(node, to, via, device)


def iptables(node, words):
    """A router that puts its own address into packets: -t nat -A POSTROUTING [-s NET] [-o DEVICE] [! -d NET] -j MASQUERADE."""
    words = list(words)
    if "POSTROUTING" not in words or "MASQUERADE" not in words:
        return False
    sender = device = receiver = ""
    words = [w for w in words if w not in ("-t", "nat", "-A", "-I", "--append", "POSTROUTING", "-j", "--jump", "MASQUERADE")]
    while words:
        word = words.pop(0)
        if word in ("-o", "--out-interface"):
            device = words.pop(0)
        elif word in ("-s", "--source"):
            sender = words.pop(0)
        elif word == "!" and words[0] in ("-d", "--destination"):
            receiver = words[1]
            words = words[2:]
        else:
            return False
    if device and device not in node.nameToIntf or receiver not in ("", sender) or not (device or sender):
        return False
    if not device and not receiver:
        return False
    node.masquerade.append([sender, device])
    return True


def ovs(words):
    """ovs-vsctl set bridge s1 protocols=OpenFlow13, by the bridge's name."""
    words = [w for w in words if not w.startswith("-")]
    if len(words) < 5 or words[0] != "ovs-vsctl" or words[1] != "set" or words[2].lower() != "bridge":
        return False
    switches = [n.nameToNode[words[3]] for n in record.networks if words[3] in n.nameToNode]
    for switch in switches:
        for assignment in words[4:]:
            key, _, value = assignment.partition("=")
            if key == "protocols":
                switch.params["protocols"] = value.strip("[]")
            elif key == "stp_enable":
                switch.params["stp"] = value == "true"
            else:
                return False
    return bool(switches)


PROGRAMS = {"sysctl": sysctl, "echo": echo, "ip": ip, "ifconfig": ifconfig, "route": route,
            "arp": arp, "iptables": iptables, "iptables-legacy": iptables, "iptables-nft": iptables,
            "ovs-vsctl": lambda node, words: ovs(["ovs-vsctl", *words])}
