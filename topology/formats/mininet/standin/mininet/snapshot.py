"""A network as the document that Trivet reads."""
from mininet import _record as record
from mininet.link import Link, microseconds
from mininet.node import Controller, NullController, OVSSwitch, RemoteController, Switch


def snapshot(net):
    if net.taken:
        return net.taken
    decide = {*net.controllers, *(c for s in net.switches for c in s.startedWith or ())}
    nodes = sorted({*net.hosts, *net.switches, *decide}, key=lambda n: n.sequence)
    everyone = controllers_of(net.controllers) if any(controlled(s) for s in net.switches) else None
    return {
        "line": net.line,
        "name": getattr(net, "name", None),
        "subnet": net.givenBase and "%s/%d" % (dotted(net.ipBaseNum), net.prefixLen),
        "datapath": datapath_of(net.givenSwitch),
        "controllers": None if everyone == ["trivet"] else everyone,
        "nodes": [node_of(net, n, everyone) for n in nodes if not isinstance(n, Controller) or isinstance(n, RemoteController)],
        "links": links_of(net, set(nodes)),
    }


def dotted(number):
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def datapath_of(cls):
    """The datapath that a given switch class means; a callable is none that we know."""
    return cls.datapath_ if isinstance(cls, type) and issubclass(cls, Switch) else None


def controllers_of(controllers, switch=None):
    """What Trivet has in their place: addresses stay, local learning controllers are the built-in one."""
    remote = [c.name for c in controllers if isinstance(c, RemoteController)]
    local = [c for c in controllers if not isinstance(c, (RemoteController, NullController))]
    if remote and local and switch:
        record.warn(local[0].line, "%s: Trivet's controller, which replaces it, does not share switches: only %s controls them" % (
            local[0].name, ", ".join(dict.fromkeys(remote))))
    return list(dict.fromkeys(remote)) or (["trivet"] if local else ["none"])


def controlled(switch):
    return switch.datapath_ != "bridge"


def node_of(net, node, everyone):
    document = {"name": node.name, "line": node.line}
    if isinstance(node, Controller):
        return {**document, "kind": "controller", "address": "%s:%s:%d" % (node.protocol, node.ip, node.port)}
    start = "\n".join(filter(None, [*node.settings, node.params.get("startCommand")]))
    document.update(start=start or None, stop=node.params.get("stopCommand"),
                    dirs=[list(d) if isinstance(d, (list, tuple)) else [d] for d in node.privateDirs])
    if isinstance(node, Switch):
        return {**document, **switch_of(net, node, everyone)}
    first = node.defaultIntf()
    ips = first.ips if first else [node.given["ip"]] if node.given["ip"] else []
    unaddressed = not node.forwards and not ips
    if numbered_plainly(net) and node in net.assigned:
        ips = [ip for ip in ips if ip != net.assigned[node]]
    if not node.inNamespace and not getattr(node, "isNAT", False):
        record.warn(node.line, "%s: inNamespace=False: not honoured; every host has a network of its own" % node.name)
    return {**document, "kind": "router" if node.forwards else "host", "nat": getattr(node, "isNAT", False),
            "ips": ips, "unaddressed": unaddressed, "mac": first.givenMAC if first else node.given["mac"],
            "loopback": node.loopback, "gateways": [node.gateways[six] for six in sorted(node.gateways)], "routes": node.routes,
            "masquerade": node.masquerade if node.forwards else [],
            "cpu": node.cpu, "cores": node.cores}


def numbered_plainly(net):
    """Whether all addresses are Mininet's own, one after the other from the first: then they are as good as not given."""
    return net.firstIP == 1 and len(net.assigned) == len(net.hosts) and not any(h.forwards for h in net.hosts) and all(
        not h.defaultIntf() or h.IP() is not None and "%s/%s" % (h.IP(), h.defaultIntf().prefixLen) == net.assigned[h]
        for h in net.hosts)


def switch_of(net, switch, everyone):
    params = switch.params
    given = getattr(switch, "givenClass", True)
    if switch.datapath_ is None:
        record.warn(switch.line, "%s: not honoured; the default datapath takes its place" % type(switch).__name__)
    own = None
    if controlled(switch):
        own = ["none"] if switch.learns else controllers_of(net.controllers if switch.startedWith is None else switch.startedWith, switch)
    protocols = params.get("protocols")
    if isinstance(protocols, str):
        protocols = protocols.replace(",", " ").split()
    return {"kind": "switch", "dpid": params.get("dpid") or None, "datapath": switch.datapath_ if given else None,
            "controllers": None if own == everyone else own, "protocols": protocols,
            "failMode": params.get("failMode") if isinstance(switch, OVSSwitch) else None, "stp": bool(params.get("stp"))}


def links_of(net, nodes):
    found = []
    for link in record.links:
        ends = [link.intf1, link.intf2] if isinstance(link, Link) else [link]
        if any(isinstance(e.node, Controller) for e in ends):
            record.warn(link.line, "%s: not honoured; a controller has no links here" % link)
        elif all(e.node in nodes for e in ends):
            found.append((link, ends))
    found.sort(key=lambda pair: pair[0].sequence)
    loose = mixed_ports(found)
    documents = []
    for link, ends in found:
        given = link.givenPorts if len(ends) == 2 else [link.givenPort]
        documents.append({"line": link.line, "down": not all(e.up for e in ends),
                          "ends": [end_of(net, e, g or e.node in loose) for e, g in zip(ends, given)]})
        if len(ends) == 1:
            documents[-1]["ends"].append({"interface": ends[0].name})
            documents[-1]["ends"][0]["interface"] = None
    return documents


def mixed_ports(found):
    """Nodes whose ports are not simply counted up in the order of their links: there each is told."""
    next_port, mixed = {}, set()
    for link, ends in found:
        given = link.givenPorts if len(ends) == 2 else [link.givenPort]
        for end, explicit in zip(ends, given):
            expected = next_port.get(end.node, end.node.portBase)
            if end.node.ports.get(end) != expected:
                mixed.add(end.node)
            next_port[end.node] = expected + 1
    return mixed


def end_of(net, intf, told):
    node = intf.node
    first = intf is node.defaultIntf() and not isinstance(node, Switch)
    document = {"node": node.name, "interface": intf.givenName, "port": node.ports.get(intf) if told else None,
                "mac": None if first else intf.givenMAC, "ips": [] if first else intf.ips}
    shape = dict(intf.shape)
    for key in ("delay", "jitter"):
        if key in shape:
            span = microseconds(shape[key])
            if span is None:
                record.warn(intf.line, "%s: %s=%r is not a time, and Mininet ignores it" % (intf.name, key, shape[key]))
            shape[key] = span
    for key in ("bw", "loss", "max_queue_size"):
        if key in shape:
            shape[key] = float(shape[key])  # of any type that is a number
    if "loss" in shape:
        shape["loss"] = round(shape["loss"], 5)  # as precisely as Mininet says it
    return {**document, **shape}
