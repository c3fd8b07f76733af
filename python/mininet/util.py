"""The helpers of Mininet that programs use: running commands, numbers and addresses, options of mn, looking at networks."""
from __future__ import annotations

import codecs
import os
import re
import selectors
import resource
import shutil
import socket
import sys
import time
from contextlib import suppress
from fcntl import F_GETFL, F_SETFL, fcntl  # noqa: F401 (found here by programs)
from functools import lru_cache, partial, total_ordering
from os import O_NONBLOCK  # noqa: F401 (found here by programs)
from resource import RLIMIT_NOFILE, RLIMIT_NPROC, getrlimit, setrlimit  # noqa: F401 (found here by programs)
from select import POLLHUP, POLLIN, poll  # noqa: F401 (found here by programs)
from subprocess import PIPE, STDOUT, Popen, call, check_call, run as _run  # noqa: F401 (found here by programs)
from sys import exit  # noqa: F401 (found here by programs)
from time import sleep  # noqa: F401 (found here by programs)
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from mininet.log import debug, error, info, output, warn  # noqa: F401 (found here by programs)

Python3 = True
BaseString = str
Encoding = "utf-8"

try:  # pexpect, whose programs speak text unless something else is asked for
    import pexpect as oldpexpect
    pexpect: Any = SimpleNamespace(**{**vars(oldpexpect), "spawn": partial(oldpexpect.spawn, encoding=Encoding)})
except ImportError:
    oldpexpect = pexpect = None


def decode(text: Any) -> Any:
    return text.decode(Encoding, "replace") if isinstance(text, bytes) else text


def encode(text: Any) -> Any:
    return text.encode(Encoding) if isinstance(text, str) else text


class NullCodec:
    """What Mininet decodes and encodes with in Python 2: nothing changes."""

    @staticmethod
    def decode(buf: Any) -> Any:
        return buf

    encode = decode


def getincrementaldecoder(*_args: Any) -> codecs.IncrementalDecoder:
    """A decoder that bears characters which come in pieces."""
    return codecs.getincrementaldecoder(Encoding)("replace")


@total_ordering
class StrictVersion:
    """Versions like 2.9.1 that compare by their numbers, with each other and with text."""

    def __init__(self, text: str) -> None:
        self.version = tuple(map(int, re.findall(r"\d+", text)))

    @classmethod
    def _numbers(cls, other: Any) -> Tuple[int, ...]:
        return (other if isinstance(other, cls) else cls(other)).version

    def __eq__(self, other: object) -> bool:
        return self.version == self._numbers(other)

    def __lt__(self, other: Any) -> bool:
        return self.version < self._numbers(other)

    def __hash__(self) -> int:
        return hash(self.version)


# Running programs. A command is one text, which is split at blanks, or a list of words, or words as arguments.

def errRun(*cmd: Any, shell: bool = False, echo: bool = False, stderr: Any = PIPE, **_kwargs: Any) -> Tuple[str, str, int]:
    """Run a command; returns (stdout, stderr, exit code). With shell=True it is one for the shell; with echo=True it is shown,
    and what it prints."""
    words = [str(word) for part in cmd for word in (part if isinstance(part, (list, tuple)) else [part])]
    if len(cmd) == 1 and isinstance(cmd[0], str) and not shell:
        words = cmd[0].split()
    said: Any = " ".join(words) if shell else words
    show = info if echo else lambda *_what: None
    debug("*** errRun:", said, "\n")
    show(said, "\n")
    done = _run(said, stdout=PIPE, stderr=stderr, shell=shell, check=False)
    out, err = (decode(text or b"") for text in (done.stdout, done.stderr))
    show(out)
    return out, err, done.returncode


def errFail(*cmd: Any, **kwargs: Any) -> Tuple[str, str, int]:
    """As errRun; another exit code than 0 is an error."""
    done = errRun(*cmd, **kwargs)
    if done[2]:
        raise Exception("%s ended with exit code %d: %s" % (" ".join(map(str, cmd)), done[2], done[1]))
    return done


def quietRun(cmd: Any, **kwargs: Any) -> str:
    """Run a command and return what it prints, on either output."""
    return errRun(cmd, **{**kwargs, "stderr": STDOUT})[0]


def oldQuietRun(*cmd: Any) -> str:
    return quietRun(cmd[0] if len(cmd) == 1 else cmd)


def run(cmd: str) -> int:
    """Run a command whose output is the program's own; returns its exit code."""
    return call(cmd.split())


def checkRun(cmd: str) -> int:
    """As run; another exit code than 0 is an error."""
    return check_call(cmd.split())


def which(cmd: str, **_kwargs: Any) -> str:
    """The path of a program, or ''."""
    return shutil.which(cmd) or ""


@lru_cache(maxsize=None)
def _builtins() -> List[str]:
    return [line.split()[-1] for line in quietRun(["bash", "-c", "enable"]).splitlines()]


def isShellBuiltin(cmd: str) -> bool:
    """Whether the first word of a command is one of bash's own."""
    return cmd.strip().partition(" ")[0] in _builtins()


def retry(retries: int, delaySecs: float, fn: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """What fn returns, called again until that is true; the program ends when it still is not."""
    for pause in [0, *[delaySecs] * retries]:
        time.sleep(pause)
        result = fn(*args, **keywords)
        if result:
            return result
    error("*** gave up after %i retries\n" % retries)
    sys.exit(1)


def waitListening(client: Any = None, server: Any = "127.0.0.1", port: int = 80, timeout: Optional[float] = None) -> bool:
    """Wait until server (a node or an address) listens on a TCP port, seen from client; returns whether it does."""
    address = server if isinstance(server, str) else server.IP()
    begin, said = time.monotonic(), False
    while not _listens(client, address, int(port)):
        waited = time.monotonic() - begin
        if timeout is not None and waited >= timeout:
            error("could not connect to %s on port %s\n" % (server, port))
            return False
        if waited >= 1 and not said:
            info("waiting for", server, "to listen on port", port, "\n")
            said = True
        time.sleep(0.1)
    return True


def _listens(client: Any, address: str, port: int) -> bool:
    if client is not None and getattr(client, "inNamespace", False):
        probe = "exec 3<>/dev/tcp/%s/%d" % (address, port)
        return bool(client.pexec(["timeout", "2", "bash", "-c", probe])[2] == 0)
    with suppress(OSError), socket.create_connection((address, port), timeout=1):
        return True
    return False


# The machine

def ensureRoot() -> None:
    """End with a message unless this is root."""
    if os.geteuid():
        error("*** Mininet must run as root.\n")
        sys.exit(1)


def fixLimits() -> None:
    """The lab raises what it needs of the machine's limits, and puts it back; there is nothing to do."""


def rlimitTestAndSet(name: int, limit: int) -> None:
    """Have this program's limit (resource.RLIMIT_…) be at least so much, and for what it starts."""
    soft, hard = resource.getrlimit(name)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(name, (limit, hard if hard == resource.RLIM_INFINITY else max(hard, limit)))


def sysctlTestAndSet(name: str, limit: Any) -> None:
    """Have a setting of the kernel (net.core.rmem_max, or a path) be at least so much; a text is set as it is."""
    path = name if "/" in name else "/proc/sys/" + name.replace(".", "/")
    with open(path) as now:
        if isinstance(limit, int) and int(now.read().split()[0]) >= limit:
            return
    with open(path, "w") as setting:
        setting.write(str(limit))


def mountCgroups(*_args: Any, **_kwargs: Any) -> None:
    """The lab finds the machine's cgroups by itself; there is nothing to do."""


def numCores() -> int:
    return os.cpu_count() or 1


# Numbers, addresses, names

def irange(start: int, end: int) -> range:
    """The numbers from start to end, which is one of them."""
    return range(start, end + 1)


def natural(text: Any) -> List[Any]:
    """A key that sorts h2 before h10."""
    pieces: List[Any] = re.split("([0-9]+)", str(text))
    pieces[1::2] = map(int, pieces[1::2])
    return pieces


def naturalSeq(names: Iterable[Any]) -> List[List[Any]]:
    return list(map(natural, names))


def macColons(text: str) -> str:
    """A MAC as ip wants it: ifconfig takes twelve digits without colons, too."""
    return ":".join(re.findall("..", text)) if re.fullmatch("[0-9a-fA-F]{12}", text) else text


def macColonHex(mac: int) -> str:
    """The MAC of a number."""
    return mac.to_bytes(6, "big").hex(":")


def ipStr(ip: int) -> str:
    """The address of a number."""
    return socket.inet_ntoa((ip & 0xFFFFFFFF).to_bytes(4, "big"))


def ipNum(w: int, x: int, y: int, z: int) -> int:
    """The number of the address w.x.y.z."""
    return int.from_bytes([w, x, y, z], "big")


def ipParse(ip: str) -> int:
    """The number of an address; "10.1" is 10.0.0.1."""
    *network, host = map(int, ip.split("."))
    return ipNum(*network, *[0] * (3 - len(network)), host)


def netParse(ipstr: str) -> Tuple[int, int]:
    """The number and the prefix length of "10.0.0.0/8"; the length is 24 unless it is given."""
    network, _, length = ipstr.partition("/")
    return ipParse(network), int(length or 24)


def ipAdd(i: int, prefixLen: int = 8, ipBaseNum: int = 0x0A000000) -> str:
    """The i-th address of a network."""
    most = 0xFFFFFFFF >> prefixLen
    assert i <= most, "Not enough IP addresses in the subnet"
    return ipStr((ipBaseNum & ~most) + i)


def _readAs(text: Any, *kinds: Callable[[Any], Any]) -> Iterator[Any]:
    """What a text is, read as each of the kinds that it can be."""
    for kind in kinds:
        with suppress(ValueError):
            yield kind(text)


def checkInt(s: Any) -> bool:
    return any(True for _number in _readAs(s, int))


def checkFloat(s: Any) -> bool:
    return any(True for _number in _readAs(s, float))


def makeNumeric(text: Any) -> Any:
    """A number, if the text is one."""
    return next(_readAs(text, int, float), text)


# Options of mn, like tc,bw=10

def splitArgs(argstr: str) -> Tuple[str, List[Any], Dict[str, Any]]:
    """(name, arguments, named arguments), with numbers for what is one."""
    name, *rest = argstr.split(",")
    pairs = [part.partition("=") for part in rest]
    return (name, [makeNumeric(word) for word, sign, _value in pairs if not sign],
            {word: makeNumeric(value) for word, sign, value in pairs if sign})


def buildTopo(topos: Dict[str, Callable[..., Any]], topoStr: str) -> Any:
    """The topology that "tree,2,fanout=3" names."""
    name, args, named = splitArgs(topoStr)
    if name not in topos:
        raise Exception("Invalid topo name %s" % name)
    return topos[name](*args, **named)


def customClass(classes: Dict[str, Any], argStr: str) -> Any:
    """The class that "tc,bw=10" names, with its parameters."""
    name, args, named = splitArgs(argStr)
    cls = classes.get(name)
    if not cls:
        raise Exception("error: %s is unknown - please specify one of %s" % (name, sorted(classes)))
    return specialClass(cls, append=args, defaults=named) if args or named else cls


def specialClass(cls: Any, prepend: Any = None, append: Any = None, defaults: Any = None, override: Any = None) -> Any:
    """A subclass whose constructor has further arguments: before and after those of a call, named ones that a call may change,
    and such that it may not. Of what is no class, a function."""
    def calls(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: make(*(prepend or ()), *args, *(append or ()),
                                           **{**(defaults or {}), **named, **(override or {})})

    if not isinstance(cls, type):
        return calls(cls)
    special: Any = type("%s%s" % (cls.__name__, defaults or {}), (cls,), {
        "__init__": lambda self, *args, **named: calls(super(special, self).__init__)(*args, **named)})
    return special


def custom(cls: Callable[..., Any], **params: Any) -> Callable[..., Any]:
    """A function that makes objects with these parameters, unless a call has others."""
    made = partial(cls, **params)
    made.__name__ = "custom(%s,%s)" % (cls, params)  # type: ignore[attr-defined]
    return made


# Looking at a network

def dumpNodeConnections(nodes: Iterable[Any]) -> None:
    """Show what the interfaces of nodes are linked to."""
    for node in nodes:
        output(node.name + "".join(" %s:%s" % (intf, _peer(intf) or " ") for intf in node.intfList()) + "\n")


def _peer(intf: Any) -> Any:
    """The interface at the other end of the link, or None."""
    link = intf.link
    return link and (link.intf1 if intf is link.intf2 else link.intf2)


def dumpNetConnections(net: Any) -> None:
    dumpNodeConnections([*net.controllers, *net.switches, *net.hosts])


def dumpPorts(switches: Iterable[Any]) -> None:
    """Show the port numbers of switches."""
    for switch in switches:
        ports = ("%s:%d" % (intf, switch.ports[intf]) for intf in switch.intfList())
        output(" ".join([switch.name, *ports]) + " \n")


def pmonitor(popens: Dict[Any, Any], timeoutms: Optional[float] = 500, readline: bool = True,
             readmax: int = 1024) -> Iterator[Tuple[Any, str]]:
    """Yield (host, text) for what the programs of popens = {host: popen} print, by line or as it comes, and (None, '') when nothing
    has come for timeoutms. One that has ended is taken out of popens; it ends when all of them have."""
    forever = timeoutms is None or timeoutms < 0
    begun = dict.fromkeys(popens, b"")  # lines whose end has not come
    with selectors.DefaultSelector() as open_:
        for host, popen in popens.items():
            open_.register(popen.stdout, selectors.EVENT_READ, host)
        while open_.get_map():
            ready = open_.select(None if forever else (timeoutms or 0) / 1000)
            if not ready:
                yield None, ""
            for file, _events in ready:
                host, data = file.data, os.read(file.fd, readmax)
                text = begun[host] + data
                # With the last data comes whatever there is of a line.
                whole = text.rfind(b"\n") + 1 if readline and data else len(text)
                begun[host] = text[whole:]
                for piece in re.findall(b"[^\n]*\n|[^\n]+" if readline else b"(?s).+", text[:whole]):
                    yield host, decode(piece)
                if not data:
                    open_.unregister(file.fileobj)
                    popens.pop(host, None)


# Interfaces of the machine

def makeIntfPair(intf1: str, intf2: str, addr1: Optional[str] = None, addr2: Optional[str] = None, node1: Any = None,
                 node2: Any = None, deleteIntfs: bool = True, runCmd: Optional[Callable[[str], str]] = None) -> None:
    """Make a pair of interfaces that are linked, in the nodes or on the machine."""
    ends = {intf1: node1, intf2: node2}
    for name in ends if deleteIntfs else ():
        quietRun("ip link del " + name)
    one, two = (name + (" address " + mac if mac else "") for name, mac in ((intf1, addr1), (intf2, addr2)))
    said = (runCmd or quietRun)("ip link add name %s type veth peer name %s" % (one, two))
    if said:
        raise Exception("Error creating interface pair (%s,%s): %s" % (intf1, intf2, said))
    for name, node in ends.items():
        if getattr(node, "inNamespace", False):
            moveIntf(name, node)


def moveIntfNoRetry(intf: Any, dstNode: Any, printError: bool = False) -> bool:
    """Move an interface of the machine into a node; returns whether it has."""
    said = quietRun("ip link set %s netns %s" % (intf, dstNode.pid))
    if printError and said:
        error("*** Error: %s cannot be moved to %s: %s\n" % (intf, dstNode, said.strip()))
    return said == ""


def moveIntf(intf: Any, dstNode: Any, printError: bool = True, retries: int = 3, delaySecs: float = 0.001) -> bool:
    """Move an interface of the machine into a node, if need be by several tries."""
    return bool(retry(retries, delaySecs, partial(moveIntfNoRetry, intf, dstNode, printError)))
