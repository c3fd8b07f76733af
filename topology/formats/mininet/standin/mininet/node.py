"""Hosts, switches and controllers: what a program gives them is kept; what it runs in them is reported."""
import io

from mininet import _record as record
from mininet._commands import default_route, neighbour, route_to, run_on
from mininet._patch import NoProcess
from mininet.link import Intf, Link, OVSIntf, TCIntf  # noqa: F401 (found here by programs)
from mininet.log import info, error, warn, debug  # noqa: F401
from mininet.util import quietRun, errRun, errFail, moveIntf, isShellBuiltin, numCores, retry, mountCgroups  # noqa: F401


class Node:
    portBase = 0
    isSwitch = isController = False
    fdToNode, inToNode, outToNode = {}, {}, {}

    def __init__(self, name, inNamespace=True, **params):
        self.name, self.inNamespace = name, inNamespace
        self.privateDirs = params.get("privateDirs", [])
        self.params = params
        self.given = {"ip": params.get("ip"), "mac": params.get("mac")}
        self.intfs, self.ports, self.nameToIntf = {}, {}, {}
        self.line, self.sequence = record.here(), record.sequence()
        self.loopback, self.routes, self.gateways = [], [], {}   # gateways: by "is IPv6"
        self.settings = []      # commands to run when the lab is up, before its own
        self.masquerade = []    # of routers: [from, device]
        self.forwards = False
        self.cpu, self.cores = None, None
        self.shell, self.pid, self.waiting, self.execed = object(), 1000 + self.sequence, False, True
        self.stdin, self.stdout, self.lastPid, self.lastCmd, self.readbuf = io.StringIO(), io.StringIO(), None, None, ""
        self.master = self.slave = self.pollOut = None

    # Interfaces

    def newPort(self):
        return max(self.ports.values()) + 1 if self.ports else self.portBase

    def addIntf(self, intf, port=None, moveIntfFn=None):
        port = self.newPort() if port is None else port
        self.intfs[port], self.ports[intf], self.nameToIntf[intf.name] = intf, port, intf

    def delIntf(self, intf):
        port = self.ports.pop(intf, None)
        self.intfs.pop(port, None)
        self.nameToIntf.pop(intf.name, None)

    def defaultIntf(self):
        return self.intfs[min(self.intfs)] if self.intfs else None

    def intf(self, intf=None):
        if not intf:
            return self.defaultIntf()
        return self.nameToIntf[intf] if isinstance(intf, str) else intf

    def intfList(self):
        return [self.intfs[p] for p in sorted(self.intfs)]

    def intfNames(self):
        return [str(i) for i in self.intfList()]

    def connectionsTo(self, node):
        links = [i.link for i in self.intfList() if i.link]
        pairs = [(link.intf1, link.intf2) for link in links]
        return [p if p[0].node is self else p[::-1] for p in pairs if {p[0].node, p[1].node} == {self, node}]

    def deleteIntfs(self, checkName=True):
        pass

    def linkTo(self, node, link=Link):
        return link(self, node)

    # Configuration

    def setParam(self, results, method, **param):
        (name, value), = param.items()
        if value is None:
            return None
        call = getattr(self, method, None)
        if call is None:
            return None
        if isinstance(value, (list, tuple)):
            result = call(*value)
        elif isinstance(value, dict):
            result = call(**value)
        else:
            result = call(value)
        results[name] = result
        return result

    def config(self, mac=None, ip=None, defaultRoute=None, lo="up", **_params):
        results = {}
        self.setParam(results, "setMAC", mac=mac)
        self.setParam(results, "setIP", ip=ip)
        self.setParam(results, "setDefaultRoute", defaultRoute=defaultRoute)
        return results

    def configDefault(self, **moreParams):
        self.params.update(moreParams)
        self.config(**self.params)

    def setMAC(self, mac, intf=None):
        return self.intf(intf).setMAC(mac)

    def setIP(self, ip, prefixLen=8, intf=None):
        if "/" not in ip:
            ip = "%s/%s" % (ip, prefixLen)
        return self.intf(intf).setIP(ip)

    def setDefaultRoute(self, intf=None):
        text = str(intf) if intf is not None else ""
        if intf is None:
            return
        if not default_route(self, text.split() if " " in text.strip() else ["dev", text.strip()]):
            record.not_honoured("%s.setDefaultRoute" % self.name, text, why="write 'via ADDRESS', or a device of the node")

    def setHostRoute(self, ip, intf):
        if not route_to(self, ip, "", str(intf)):
            record.not_honoured("%s.setHostRoute" % self.name, ip, str(intf))

    def setARP(self, ip, mac):
        if not neighbour(self, ip, mac):
            record.not_honoured("%s.setARP" % self.name, ip, mac)

    def IP(self, intf=None):
        intf = self.intf(intf)
        return intf.IP() if intf else None

    def MAC(self, intf=None):
        intf = self.intf(intf)
        return intf.MAC() if intf else None

    def intfIsUp(self, intf=None):
        return self.intf(intf).isUp()

    # Commands

    def cmd(self, *args, **_options):
        run_on(self, "cmd", self._text(args))
        return ""

    def cmdPrint(self, *args, **_options):
        run_on(self, "cmdPrint", self._text(args))
        return ""

    def sendCmd(self, *args, **_options):
        run_on(self, "sendCmd", self._text(args))

    def popen(self, *args, **options):
        run_on(self, "popen", self._text(args))
        return NoProcess(**options)

    def pexec(self, *args, **_options):
        run_on(self, "pexec", self._text(args))
        return "", "", 0

    @staticmethod
    def _text(args):
        if len(args) == 1 and isinstance(args[0], (list, tuple)):
            args = args[0]
        return " ".join(map(str, args))

    def waitOutput(self, verbose=False, findPid=True):
        return ""

    def monitor(self, timeoutms=None, findPid=True):
        return ""

    def read(self, maxbytes=1024):
        return ""

    def readline(self):
        return None

    def waitReadable(self, timeoutms=None):
        return []

    def _nothing(self, *_args, **_options):
        pass

    sendInt = write = startShell = mountPrivateDirs = unmountPrivateDirs = cleanup = _nothing

    def stop(self, deleteIntfs=False):
        pass

    def terminate(self):
        pass

    @classmethod
    def checkSetup(cls):
        pass

    setup = checkSetup

    def __repr__(self):
        return "<%s %s>" % (type(self).__name__, self)

    def __str__(self):
        return self.name


Intf.setParam = Node.setParam


class Host(Node):
    pass


class CPULimitedHost(Host):
    def __init__(self, name, sched="cfs", **kwargs):
        super().__init__(name, **kwargs)
        self.sched = sched

    def config(self, cpu=-1, cores=None, **params):
        results = super().config(**params)
        self.setParam(results, "setCPUFrac", cpu=cpu)
        if cores is not None:
            self.setCPUs(cores)
        return results

    def setCPUFrac(self, f, sched=None):
        self.cpu = f if f > 0 else None

    def setCPUs(self, cores, mems=0):
        if isinstance(cores, str):
            cores = cores.split(",")
        self.cores = [int(c) for c in (cores if isinstance(cores, (list, tuple)) else [cores])]

    def cgroupSet(self, param, value, resource="cpu"):
        record.not_honoured("%s.cgroupSet" % self.name, param, value)

    def cgroupGet(self, param, resource="cpu"):
        return "0"

    @classmethod
    def init(cls):
        pass


class Switch(Node):
    portBase = 1
    dpidLen = 16
    isSwitch = True
    datapath_ = None        # what Trivet calls it; None: its default
    learns = False          # needs no controller

    def __init__(self, name, dpid=None, opts="", listenPort=None, **params):
        super().__init__(name, **params)
        self.givenDPID, self.opts, self.listenPort = dpid, opts, listenPort
        self.dpid = self.defaultDpid(dpid)
        self.params.setdefault("dpid", dpid)
        self.startedWith = None
        if not self.inNamespace:
            self.controlIntf = Intf("lo", self, port=0)

    def defaultDpid(self, dpid=None):
        if dpid:
            text = str(dpid).replace(":", "")
            assert len(text) <= self.dpidLen and int(text, 16) >= 0
        else:
            digits = "".join(c if c.isdigit() else " " for c in self.name).split()
            if not digits:
                raise Exception("Unable to derive default datapath ID - please either specify a dpid or use a "
                                "canonical switch name such as s23.")
            text = "%x" % int(digits[0])
        return text.rjust(self.dpidLen, "0")

    def defaultIntf(self):
        return getattr(self, "controlIntf", None) or super().defaultIntf()

    def start(self, controllers):
        self.startedWith = list(controllers)

    def connected(self):
        return True

    def attach(self, intf):
        pass

    detach = attach

    def dpctl(self, *args):
        record.not_honoured("%s.dpctl" % self.name, *args)
        return ""


class OVSSwitch(Switch):
    datapath_ = "ovs"

    def __init__(self, name, failMode=None, datapath="kernel", inband=False, protocols=None, reconnectms=1000, stp=False,
                 batch=False, **params):
        super().__init__(name, **params)
        self.failMode, self.datapath, self.inband, self.protocols, self.stp = failMode or "secure", datapath, inband, protocols, stp
        self.params.update({k: v for k, v in (("failMode", failMode), ("protocols", protocols), ("stp", stp)) if v})

    def vsctl(self, *args, **_options):
        record.not_honoured("%s.vsctl" % self.name, *args)
        return ""

    @classmethod
    def isOldOVS(cls):
        return False

    @classmethod
    def batchStartup(cls, switches, run=None):
        return switches

    batchShutdown = batchStartup


OVSKernelSwitch = OVSSwitch


class OVSBridge(OVSSwitch):
    learns = True

    def __init__(self, *args, **kwargs):
        kwargs.setdefault("failMode", "standalone")
        super().__init__(*args, **kwargs)

    def start(self, controllers):
        super().start([])


class UserSwitch(Switch):
    dpidLen = 12

    def __init__(self, name, dpopts="--no-slicing", **kwargs):
        super().__init__(name, **kwargs)


class IVSSwitch(Switch):
    def __init__(self, name, verbose=False, **kwargs):
        super().__init__(name, **kwargs)


class Controller(Node):
    isController = True

    def __init__(self, name, inNamespace=False, command="controller", cargs="-v ptcp:%d", cdir=None, ip="127.0.0.1",
                 port=6653, protocol="tcp", verbose=False, **params):
        if ":" in str(ip):
            ip, port = ip.split(":")
        self.command, self.cargs, self.cdir, self.ip, self.port, self.protocol = command, cargs, cdir, ip, int(port), protocol
        super().__init__(name, inNamespace=inNamespace, **params)

    def start(self):
        pass

    def stop(self, *_args, **_options):
        pass

    def checkListening(self):
        pass

    def isListening(self, ip, port):
        return True

    def IP(self, intf=None):
        return (self.intf(intf).IP() if self.intfs else None) or self.ip

    @classmethod
    def isAvailable(cls):
        return True


class OVSController(Controller):
    pass


class NOX(Controller):
    """An application of its own, which does not run here."""

    def __init__(self, name, *args, **kwargs):
        record.not_honoured(self.__class__.__name__, name, *args, why="start it yourself and name it with RemoteController")
        super().__init__(name, **kwargs)


class Ryu(NOX):
    pass


class RemoteController(Controller):
    def __init__(self, name, ip="127.0.0.1", port=None, **kwargs):
        super().__init__(name, ip=ip, port=6653 if port is None else port, **kwargs)


class NullController(Controller):
    pass


DefaultControllers = (Controller, OVSController)


def findController(controllers=DefaultControllers):
    return controllers[0]


def DefaultController(name, controllers=DefaultControllers, **kwargs):
    return findController(controllers)(name, **kwargs)
