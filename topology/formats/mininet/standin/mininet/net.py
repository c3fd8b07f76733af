"""Mininet: the network that a program builds."""
from mininet import _record as record
from mininet.cli import CLI  # noqa: F401 (found here by programs, as are the other names not used here)
from mininet.link import Intf, Link, TCIntf  # noqa: F401
from mininet.log import info, error, debug, output, warn  # noqa: F401
from mininet.node import Controller, DefaultController, Host, Node, OVSKernelSwitch
from mininet.nodelib import NAT
from mininet.snapshot import snapshot
from mininet.term import makeTerms, cleanUpScreens  # noqa: F401
from mininet.util import ensureRoot, fixLimits, ipAdd, ipStr, macColonHex, netParse, numCores, quietRun, waitListening  # noqa: F401

VERSION = "2.3.0"
STATIC_ARP = 64  # hosts


class Mininet:
    def __init__(self, topo=None, switch=None, host=Host, controller=DefaultController, link=Link, intf=Intf, build=True,
                 xterms=False, cleanup=False, ipBase=None, inNamespace=False, autoSetMacs=False, autoStaticArp=False,
                 autoPinCpus=False, listenPort=None, waitConnected=False):
        self.line = record.here()
        self.givenSwitch, self.givenBase = switch, ipBase
        self.switch, self.host, self.controller = switch or OVSKernelSwitch, host, controller
        self.topo, self.link, self.intf = topo, link, intf
        self.ipBase = ipBase or "10.0.0.0/8"
        self.ipBaseNum, self.prefixLen = netParse(self.ipBase)
        self.firstIP = self.ipBaseNum & (0xFFFFFFFF >> self.prefixLen) or 1
        self.nextIP = self.firstIP
        self.inNamespace, self.xterms, self.cleanup, self.waitConn = inNamespace, xterms, cleanup, waitConnected
        self.autoSetMacs, self.autoStaticArp, self.autoPinCpus = autoSetMacs, autoStaticArp, autoPinCpus
        self.listenPort, self.numCores, self.nextCore = listenPort, numCores(), 0
        self.hosts, self.switches, self.controllers, self.links, self.terms = [], [], [], [], []
        self.nameToNode = {}
        self.assigned = {}      # host → the address it got because none was given
        self.built = self.started = False
        self.taken = None       # the document, once the program has taken the network down
        record.networks.append(self)
        if topo and build:
            self.build()

    # Nodes

    def addHost(self, name, cls=None, **params):
        address = "%s/%s" % (ipAdd(self.nextIP, ipBaseNum=self.ipBaseNum, prefixLen=self.prefixLen), self.prefixLen)
        defaults = {"ip": address}
        if self.autoSetMacs:
            defaults["mac"] = macColonHex(self.nextIP)
        if self.autoPinCpus:
            defaults["cores"], self.nextCore = self.nextCore, (self.nextCore + 1) % self.numCores
        self.nextIP += 1
        host = (cls or self.host)(name, **{**defaults, **params})
        if "ip" not in params:
            self.assigned[host] = address
        self.hosts.append(host)
        self.nameToNode[name] = host
        return host

    def addSwitch(self, name, cls=None, **params):
        params.pop("isSwitch", None)
        switch = (cls or self.switch)(name, **{"listenPort": self.listenPort, "inNamespace": self.inNamespace, **params})
        switch.givenClass = cls is not None
        if not self.inNamespace and self.listenPort:
            self.listenPort += 1
        self.switches.append(switch)
        self.nameToNode[name] = switch
        return switch

    def addController(self, name="c0", controller=None, **params):
        if isinstance(name, Controller):
            made = name
        else:
            made = (controller or self.controller or DefaultController)(name, **params)
        self.controllers.append(made)
        self.nameToNode[made.name] = made
        return made

    def addNAT(self, name="nat0", connect=True, inNamespace=False, **params):
        nat = self.addHost(name, cls=NAT, inNamespace=inNamespace, subnet=self.ipBase, **params)
        if connect:
            self.addLink(nat, connect if isinstance(connect, Node) else self.switches[0])
            for host in self.hosts:
                if host.inNamespace:
                    host.setDefaultRoute("via %s" % nat.params["ip"].split("/")[0])
        return nat

    def delNode(self, node, nodes=None):
        for group in [nodes] if nodes is not None else [self.hosts, self.switches, self.controllers]:
            if node in group:
                group.remove(node)
        self.nameToNode.pop(node.name, None)

    delHost = delSwitch = delController = delNode

    def getNodeByName(self, *args):
        return self.nameToNode[args[0]] if len(args) == 1 else [self.nameToNode[n] for n in args]

    def get(self, *args):
        return self.getNodeByName(*args)

    def __getitem__(self, key):
        return self.nameToNode[key]

    def __delitem__(self, key):
        self.delNode(self.nameToNode[key])

    def __iter__(self):
        return (node.name for node in [*self.hosts, *self.switches, *self.controllers])

    def __len__(self):
        return len(self.hosts) + len(self.switches) + len(self.controllers)

    def __contains__(self, item):
        return item in self.nameToNode

    def keys(self):
        return list(self)

    def values(self):
        return [self[name] for name in self]

    def items(self):
        return list(zip(self.keys(), self.values()))

    # Links

    @staticmethod
    def randMac():
        return macColonHex(0x020000000000 + record.sequence())

    def addLink(self, node1, node2, port1=None, port2=None, cls=None, **params):
        node1 = self[node1] if isinstance(node1, str) else node1
        node2 = self[node2] if isinstance(node2, str) else node2
        if port1 is not None:
            params.setdefault("port1", port1)
        if port2 is not None:
            params.setdefault("port2", port2)
        if self.intf is not None:
            params.setdefault("intf", self.intf)
        link = (cls or self.link)(node1, node2, **params)
        self.links.append(link)
        return link

    def delLink(self, link):
        link.delete()
        self.links.remove(link)

    def linksBetween(self, node1, node2):
        return [link for link in self.links if {link.intf1.node, link.intf2.node} == {node1, node2}]

    def delLinkBetween(self, node1, node2, index=0, allLinks=False):
        links = self.linksBetween(node1, node2)
        links = links if allLinks else [links[index]]
        for link in links:
            self.delLink(link)
        return links

    def configLinkStatus(self, src, dst, status):
        for link in self.linksBetween(self[src], self[dst]):
            link.intf1.up = link.intf2.up = status == "up"

    # Life

    def buildFromTopo(self, topo=None):
        topo = topo or self.topo
        if not self.controllers and self.controller:
            classes = self.controller if isinstance(self.controller, list) else [self.controller]
            for i, cls in enumerate(classes):
                self.addController(cls) if isinstance(cls, Controller) else self.addController("c%d" % i, cls)
        places = topo.places()
        for name in topo.hosts():
            self.addHost(name, **topo.nodeInfo(name)).line = places.get(name, (0,))[0]
        for name in topo.switches():
            self.addSwitch(name, **topo.nodeInfo(name)).line = places.get(name, (0,))[0]
        for _src, _dst, params in topo.links(sort=True, withInfo=True):
            link = self.addLink(**params)
            place = places.get((params["node1"], params["port1"], params["node2"], params["port2"]))
            if place and hasattr(link, "givenPorts"):
                link.line, link.sequence, link.givenPorts = place

    def build(self):
        if self.topo:
            self.buildFromTopo(self.topo)
        self.configHosts()
        if self.autoStaticArp:
            self.staticArp()
        self.built = True

    def configHosts(self):
        for host in self.hosts:
            if host.defaultIntf():
                host.configDefault()
            else:
                host.configDefault(ip=None, mac=None)

    def start(self):
        if not self.built:
            self.build()
        self.started = True
        for controller in self.controllers:
            controller.start()
        for switch in self.switches:
            switch.start(self.controllers)

    def stop(self):
        """Taking the network down changes nothing of what is read."""
        self.taken = self.taken or snapshot(self)
        record.quiet = True
        try:
            for node in [*self.controllers, *self.switches]:
                node.stop()
            for host in self.hosts:
                host.terminate()
        finally:
            record.quiet = False

    def staticArp(self):
        """Each host knows the MAC address of each other one."""
        hosts = [h for h in self.hosts if h.IP()]
        if len(hosts) > STATIC_ARP:
            record.not_honoured("net.staticArp", why="there are more than %d hosts" % STATIC_ARP)
            return
        for host in hosts:
            for other in hosts:
                if host is not other:
                    host.setARP(other.IP(), other.MAC())

    def waitConnected(self, timeout=None, delay=0.5):
        return True

    def interact(self):
        self.start()
        CLI(self)
        self.stop()

    def run(self, test, *args, **kwargs):
        self.start()
        result = test(*args, **kwargs)
        self.stop()
        return result

    @classmethod
    def init(cls):
        pass

    def startTerms(self):
        record.not_honoured("net.startTerms")

    def stopXterms(self):
        pass

    def configureControlNetwork(self):
        pass


def _measures(name, answer, instead=""):
    def call(self, *_args, **_options):
        record.not_honoured("net." + name, why=instead)
        return answer
    return call


for _name in ("ping", "pingAll", "pingPair"):
    setattr(Mininet, _name, _measures(_name, 0.0, "use trivet ping --all"))
for _name in ("pingFull", "pingAllFull", "pingPairFull"):
    setattr(Mininet, _name, _measures(_name, [], "use trivet ping --all"))
Mininet.iperf = _measures("iperf", ["0 bits/sec", "0 bits/sec"], "use trivet iperf, or trivet bench")
Mininet.runCpuLimitTest = _measures("runCpuLimitTest", [])
Mininet.monitor = _measures("monitor", iter(()))


class MininetWithControlNet(Mininet):
    pass
