"""Interfaces of network namespaces that are Neutron's ports, as a hypervisor makes those of guests.

An interface is an internal port of Open vSwitch which carries the id of Neutron's port: by that the agent knows it, and wires it like an
instance's (network, security groups, trunk). A namespace is named by a path (/proc/PID/ns/net): only who asks knows it by a name."""
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


def plug(api, netns, name, ids, first=0):
    """Make interfaces of a namespace, eth0 (or what first says) and so on, of ports; name is for interfaces(). Their fixed addresses are
    set, not asked for by DHCP, and the first gateway of any is the namespace's."""
    switch, commands = [], [["link", "set", "lo", "up"]]
    moves, gateway = [], first > 0
    for n, id in enumerate(ids, first):
        port = api.get("network", f"/v2.0/ports/{id}")["port"]
        bound = not port["binding:host_id"]
        if bound:
            api.call("PUT", "network", f"/v2.0/ports/{id}", {"port": {"binding:host_id": HOST}})
        mtu = api.get("network", f"/v2.0/networks/{port['network_id']}?fields=mtu")["network"]["mtu"]
        device, mac, trunk = "tap" + id[:11], port["mac_address"], port.get("trunk_details")
        bridge = "tbr-" + trunk["trunk_id"][:10] if trunk else "br-int"     # as the agent names a trunk's
        if trunk:
            switch += ["--", "--may-exist", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"]
        switch += ["--", "--may-exist", "add-port", bridge, device, "--", "set", "interface", device, "type=internal", f"external_ids:iface-id={id}",
                   f'external_ids:attached-mac="{mac}"', "external_ids:iface-status=active", f"external_ids:plugged-for={name}",
                   *(["external_ids:bound=true"] if bound else [])]
        moves.append(device)
        commands.append(["link", "set", device, "name", f"eth{n}", "address", mac, "mtu", str(mtu), "up"])
        for fixed in port["fixed_ips"]:
            subnet = api.get("network", f"/v2.0/subnets/{fixed['subnet_id']}")["subnet"]
            length = subnet["cidr"].split("/")[1]
            commands.append(["addr", "add", f"{fixed['ip_address']}/{length}", "dev", f"eth{n}", *(["nodad"] if subnet["ip_version"] == 6 else [])])
            if subnet["gateway_ip"] and not gateway:
                gateway = True
                commands.append(["route", "replace", "default", "via", subnet["gateway_ip"]])
    if switch:
        run("ovs-vsctl", *switch[1:])
    for device in moves:
        run("ip", "link", "set", device, "netns", netns)
    for command in commands:
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
    wait("a port", 60, lambda: all(api.get("network", f"/v2.0/ports/{id}?fields=status")["port"]["status"] == "ACTIVE" for id in ids))


def join(netns, address=HEAD):
    """Give a namespace an interface, named openstack, in the network in which the services and floating IPs are. It is one end of a veth pair, so
    that it goes with the stack's namespaces in whatever way these end: a tap of Open vSwitch's would stay."""
    device = "head" + address.split(".")[-1]
    run("ovs-vsctl", "--if-exists", "del-port", device)
    run("ip", "link", "add", device, "type", "veth", "peer", "name", DEVICE, "netns", netns)
    run("ip", "link", "set", device, "up")
    # A packet whose checksum is left to hardware would arrive with half a checksum.
    run("nsenter", f"--net={netns}", "ethtool", "-K", DEVICE, "tx", "off")
    ip(netns, "link", "set", DEVICE, "up")
    ip(netns, "addr", "add", f"{address}/{LENGTH}", "dev", DEVICE)
    run("ovs-vsctl", "add-port", "br-provider", device)
