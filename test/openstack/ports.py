"""Interfaces of network namespaces that are Neutron's ports, as a hypervisor makes those of guests.

What an interface is depends on the switch that Neutron's agent wires it with, like an instance's: see OpenVSwitch and
Bridges. A namespace is named by a path (/proc/PID/ns/net): only who asks knows it by a name."""
import contextlib
import json
import os
import subprocess

from api import wait
from place import DEVICE, HEAD, HOST, LENGTH, Failure


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def ip(netns, *command):
    return run("nsenter", f"--net={netns}", "ip", *command)


class OpenVSwitch:
    """An interface is an internal port, which carries the id of Neutron's port: by that the agent knows it, and security
    groups and trunks are done by it."""

    def noted(self):
        rows = json.loads(run("ovs-vsctl", "--format=json", "--columns=name,external_ids", "list", "Interface"))["data"]
        return {name: dict(ids[1]) for name, ids in rows}

    def add(self, netns, plugged):
        """Add {device: (what is noted, trunk or None)}, and have them in the namespace."""
        command = []
        for device, (noted, trunk) in plugged.items():
            bridge = "br-int"
            if trunk:
                bridge = "tbr-" + trunk[:10]        # as the agent names it
                command += ["--", "--may-exist", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"]
            command += ["--", "--may-exist", "add-port", bridge, device, "--", "set", "interface", device, "type=internal",
                        *(f'external_ids:{k}="{v}"' for k, v in noted.items())]
        if command:
            run("ovs-vsctl", *command[1:])
        for device in plugged:
            run("ip", "link", "set", device, "netns", netns)

    def remove(self, device):
        run("ovs-vsctl", "--if-exists", "del-port", device)

    def join(self, device, bridge):
        run("ovs-vsctl", "add-port", bridge, device)


class Bridges:
    """An interface is the end of a veth pair, at whose other end the agent finds the id of Neutron's port in the name, and
    puts it into the bridge of the network. What plug notes is the alias there. There are no trunks."""

    def noted(self):
        links = json.loads(run("ip", "-json", "link", "show", "type", "veth"))
        return {link["ifname"]: json.loads(link["ifalias"]) for link in links if link.get("ifalias", "").startswith("{")}

    def add(self, netns, plugged):
        for device, (noted, trunk) in plugged.items():
            if trunk:
                raise Failure(f"the port {noted['iface-id']} is that of a trunk, which needs Open vSwitch: start another mode")
            run("ip", "link", "add", device, "type", "veth", "peer", "name", device, "netns", netns)
            run("ip", "link", "set", device, "alias", json.dumps(noted), "up")

    def remove(self, device):
        if device in self.noted():
            run("ip", "link", "delete", device)

    def join(self, device, bridge):
        run("ip", "link", "set", device, "master", bridge)


def switch():
    """What the agent that runs wires interfaces with."""
    return OpenVSwitch() if os.path.exists("/run/openvswitch/db.sock") else Bridges()


def interfaces(namespace=None):
    """{device: what plug noted} of those that were plugged (for a name), as the switch has them."""
    return {name: ids for name, ids in switch().noted().items() if "plugged-for" in ids and namespace in (None, ids["plugged-for"])}


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
    plugged, inside = {}, [["link", "set", "lo", "up"]]
    routed = first > 0
    for n, id in enumerate(ids, first):
        port, device = ports[id], "tap" + id[:11]
        noted = {"iface-id": id, "attached-mac": port["mac_address"], "iface-status": "active", "plugged-for": name}
        if not port["binding:host_id"]:
            api.call("PUT", "network", f"/v2.0/ports/{id}", {"port": {"binding:host_id": HOST}})
            noted["bound"] = "true"
        plugged[device] = noted, (port.get("trunk_details") or {}).get("trunk_id")
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
    switch().add(netns, plugged)
    for command in inside:
        ip(netns, *command)


def unplug(api, plugged):
    """Take interfaces (of interfaces()) away. Where it was plug that bound the port to this machine, it is bound no longer."""
    for device, noted in plugged.items():
        switch().remove(device)
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
    if isinstance(switch(), OpenVSwitch):       # it remembers ports whose devices have gone
        switch().remove(device)
    run("ip", "link", "add", device, "type", "veth", "peer", "name", DEVICE, "netns", netns)
    run("ip", "link", "set", device, "up")
    # A packet whose checksum is left to hardware would arrive with half a checksum.
    run("nsenter", f"--net={netns}", "ethtool", "-K", DEVICE, "tx", "off")
    ip(netns, "link", "set", DEVICE, "up")
    ip(netns, "addr", "add", f"{address}/{LENGTH}", "dev", DEVICE)
    switch().join(device, "br-provider")
