"""The helpers that programs import from mininet.util."""
import re
from functools import partial

from mininet import _record as record
from mininet._commands import run_outside
from mininet.log import info, error, debug, output, warn  # noqa: F401 (found here by programs)

Python3 = True
BaseString = str


def decode(text):
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def encode(text):
    return text.encode() if isinstance(text, str) else text


def _outside(name, answer):
    def call(*args, **_options):
        run_outside(name, args[0] if len(args) == 1 else list(args))
        return answer
    return call


quietRun = _outside("quietRun", "")
checkRun = _outside("checkRun", ("", "", 0))
run = _outside("run", 0)
errRun = _outside("errRun", ("", "", 0))
errFail = _outside("errFail", ("", "", 0))


def which(cmd, **_options):
    return "/usr/bin/" + cmd


def isShellBuiltin(_cmd):
    return False


def ensureRoot():
    pass


fixLimits = ensureRoot


def numCores():
    return 4


def waitListening(client=None, server="127.0.0.1", port=80, timeout=None):
    return True


def irange(start, end):
    return range(start, end + 1)


def natural(text):
    """Sorts h2 before h10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(text))]


def naturalSeq(names):
    return [natural(name) for name in names]


def retry(retries, delaySecs, fn, *args, **keywords):
    return fn(*args, **keywords)


# Addresses

def macColonHex(mac):
    return ":".join(re.findall("..", "%012x" % mac))


def ipStr(ip):
    return ".".join(str(ip >> shift & 255) for shift in (24, 16, 8, 0))


def ipNum(w, x, y, z):
    return w << 24 | x << 16 | y << 8 | z


def ipParse(ip):
    """The number of an address; "10.1" is 10.0.0.1."""
    parts = [int(part) for part in ip.split(".")]
    while len(parts) < 4:
        parts.insert(len(parts) - 1, 0)
    return ipNum(*parts)


def netParse(ipstr):
    """The number and the prefix length of "10.0.0.0/8"; "10/8" is the same."""
    ip, _, length = ipstr.partition("/")
    parts = ip.split(".")
    if not length:
        length = 8 * len(parts) if ip else 0
    return ipNum(*map(int, (parts + ["0"] * 4)[:4])), int(length)


def ipAdd(i, prefixLen=8, ipBaseNum=0x0A000000):
    """The i-th address of a network."""
    most = 0xFFFFFFFF >> prefixLen
    assert i <= most, "Not enough IP addresses in the subnet"
    return ipStr((ipBaseNum & ~most) + i)


# Options of mn

def makeNumeric(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def splitArgs(argstr):
    name, *rest = argstr.split(",")
    named = dict(part.split("=", 1) for part in rest if "=" in part)
    return name, [makeNumeric(part) for part in rest if "=" not in part], {k: makeNumeric(v) for k, v in named.items()}


def customClass(classes, argStr):
    name, args, options = splitArgs(argStr)
    made = classes.get(name, classes.get("default"))
    return partial(made, *args, **options) if args or options else made


def specialClass(cls, prepend=None, append=None, defaults=None, override=None):
    class Special(cls):
        def __init__(self, *args, **params):
            super().__init__(*(prepend or []), *args, *(append or []), **{**(defaults or {}), **params, **(override or {})})
    Special.__name__ = cls.__name__ + "*"
    return Special


def custom(cls, **params):
    """A class whose objects are made with these parameters."""
    def customized(*args, **more):
        return cls(*args, **{**params, **more})
    customized.__name__ = "custom(%s,%s)" % (cls, params)
    return customized


def buildTopo(topos, topoStr):
    name, args, options = splitArgs(topoStr)
    return topos[name](*args, **options)


# What looks at a running network sees none

def dumpNodeConnections(_nodes):
    pass


dumpNetConnections = dumpPorts = dumpNodeConnections


def pmonitor(_popens, timeoutms=500, readline=True, readmax=1024):
    return iter(())


def makeIntfPair(intf1, intf2, *_args, **_options):
    record.not_honoured("makeIntfPair", intf1, intf2)


def moveIntf(intf, dstNode, *_args, **_options):
    record.not_honoured("moveIntf", str(intf), str(dstNode))
    return True


moveIntfNoRetry = moveIntf


def mountCgroups(*_args, **_options):
    pass
