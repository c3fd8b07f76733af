"""Interfaces of network namespaces that are Neutron's ports, as a hypervisor makes those of guests.

An interface is an internal port of Open vSwitch which carries the id of Neutron's port: by that the agent knows it, and
wires it like an instance's (network, security groups, trunk). A namespace is named by a path (/proc/PID/ns/net): only
who asks knows it by a name."""
import contextlib
import json
import subprocess

from api import wait
from place import DEVICE, HEAD, HOST, LENGTH, Failure


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def ip(netns, *command):
    return run("nsenter", f"--net={netns}", "ip", *command)


def interfaces(namespace=None):
    """{device: what plug noted} of those that were plugged (for a name), as Open vSwitch has them."""
    rows = json.loads(run("ovs-vsctl", "--format=json", "--columns=name,external_ids", "list", "Interface"))["data"]
    noted = {name: dict(ids[1]) for name, ids in rows}
    return {name: ids for name, ids in noted.items() if "plugged-for" in ids and namespace in (None, ids["plugged-for"])}


def listed(api, kind, ids):
    """{id: object} of Neutron's objects of a kind ("ports")."""
    ids = set(ids)
    query = "&".join(f"id={id}" for id in ids)
    found = {o["id"]: o for o in api.get("network", f"/v2.0/{kind}?{query}")[kind]} if ids else {}
    if missing := ids - found.keys():
        raise Failure(f"Neutron has no {missing.pop()} among its {kind}")
    return found


def plug(api, netns, name, ids, first=0):
    """Make interfaces of a namespace, eth0 (or what first says) and so on, of ports; name is for interfaces(). Their fixed
    addresses are set, not asked for by DHCP, and the first gateway of any is the namespace's."""
    ports = listed(api, "ports", ids)
    networks = listed(api, "networks", (p["network_id"] for p in ports.values()))
    subnets = listed(api, "subnets", (a["subnet_id"] for p in ports.values() for a in p["fixed_ips"]))
    switch, moves, inside = [], [], [["link", "set", "lo", "up"]]
    routed = first > 0
    for n, id in enumerate(ids, first):
        port, device, bridge = ports[id], "tap" + id[:11], "br-int"
        noted = {"iface-id": id, "attached-mac": port["mac_address"], "iface-status": "active", "plugged-for": name}
        if not port["binding:host_id"]:
            api.call("PUT", "network", f"/v2.0/ports/{id}", {"port": {"binding:host_id": HOST}})
            noted["bound"] = "true"
        if trunk := port.get("trunk_details"):
            bridge = "tbr-" + trunk["trunk_id"][:10]        # as the agent names it
            switch += ["--", "--may-exist", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"]
        switch += ["--", "--may-exist", "add-port", bridge, device, "--", "set", "interface", device, "type=internal",
                   *(f'external_ids:{k}="{v}"' for k, v in noted.items())]
        moves.append(device)
        inside.append(["link", "set", device, "name", f"eth{n}", "mtu", str(networks[port["network_id"]]["mtu"]), "up"])
        for fixed in port["fixed_ips"]:
            subnet = subnets[fixed["subnet_id"]]
            at_once = ["nodad"] if subnet["ip_version"] == 6 else []
            inside.append(["addr", "add", fixed["ip_address"] + "/" + subnet["cidr"].split("/")[1], "dev", f"eth{n}", *at_once])
            if subnet["gateway_ip"] and not routed:
                routed = True
                inside.append(["route", "replace", "default", "via", subnet["gateway_ip"]])
        # Last, as programs there may know the interface by it, and take it away.
        inside.append(["link", "set", f"eth{n}", "address", port["mac_address"]])
    if switch:
        run("ovs-vsctl", *switch[1:])
    for device in moves:
        run("ip", "link", "set", device, "netns", netns)
    for command in inside:
        ip(netns, *command)


def unplug(api, plugged):
    """Take interfaces (of interfaces()) away. Where it was plug that bound the port to this machine, it is bound no longer."""
    for device, noted in plugged.items():
        run("ovs-vsctl", "--if-exists", "del-port", device)
        if "bound" in noted:
            with contextlib.suppress(Failure):      # there is no such port any more
                api.call("PUT", "network", f"/v2.0/ports/{noted['iface-id']}", {"port": {"binding:host_id": ""}})


def active(api, ids):
    """Wait until Neutron says that ports work."""
    wait("a port", 300, lambda: all(p["status"] == "ACTIVE" for p in listed(api, "ports", ids).values()))


def join(netns, address=HEAD):
    """Give a namespace an interface, named openstack, in the network in which the services and floating IPs are. It is one
    end of a veth pair, so that it goes with the stack's namespaces however these end: a tap of Open vSwitch's stays."""
    device = "head" + address.split(".")[-1]
    run("ovs-vsctl", "--if-exists", "del-port", device)
    run("ip", "link", "add", device, "type", "veth", "peer", "name", DEVICE, "netns", netns)
    run("ip", "link", "set", device, "up")
    # A packet whose checksum is left to hardware would arrive with half a checksum.
    run("nsenter", f"--net={netns}", "ethtool", "-K", DEVICE, "tx", "off")
    ip(netns, "link", "set", DEVICE, "up")
    ip(netns, "addr", "add", f"{address}/{LENGTH}", "dev", DEVICE)
    run("ovs-vsctl", "add-port", "br-provider", device)
