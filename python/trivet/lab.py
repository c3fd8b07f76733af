"""A lab, its nodes and its links."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from . import _binary
from ._errors import CommandError, NoLab, TrivetError
from .api import API, IperfRequest, PingRequest, TrafficLook
from .client import Client, RemoteClient, run_dir
from .process import Arguments, Process, arguments

JSON = Dict[str, Any]


def labs() -> List[JSON]:
    """The labs on this machine, as `trivet ls --json` says them."""
    said = json.loads(_binary.run(["ls", "--json"]).stdout)
    return list(said or [])


@dataclass
class Ping:
    """What pings gave."""

    sent: int
    received: int
    loss: float  #: share of requests without a reply, from 0 to 1
    rtt_ms: Optional[JSON]  #: min, median, mean, max … of the round trips, in milliseconds
    pairs: List[JSON] = field(repr=False)
    without_address: List[str] = field(default_factory=list)  #: of all hosts, those that were left out

    def __bool__(self) -> bool:
        """Whether all pings were answered, and no host was left out."""
        return self.sent > 0 and self.received == self.sent and not self.without_address


@dataclass
class Iperf:
    """What iperf3 has measured, at the receiver."""

    bits_per_second: float
    sent_bits_per_second: float
    seconds: float
    protocol: str
    retransmits: Optional[int] = None
    jitter_ms: Optional[float] = None
    loss: Optional[float] = None


class Flows(List[JSON]):
    """Flow entries of a switch, each as the controller's API says it."""


class Node:
    """A node of a lab: lab["h1"]."""

    def __init__(self, lab: "Lab", name: str) -> None:
        self.lab, self.name = lab, name

    @property
    def info(self) -> JSON:
        """What the resolved topology says of it."""
        return self.lab._node(self.name)

    @property
    def addresses(self) -> List[str]:
        """Its addresses with prefix lengths, as the topology gives them, in the order of its ports."""
        ends = [e for link in self.lab.info["topology"].get("links") or [] for e in link["ends"] if e.get("node") == self.name]
        ends.sort(key=lambda e: e.get("port", 0))
        return [a for e in ends for a in e.get("addresses") or []]

    @property
    def ip(self) -> Optional[str]:
        """Its first address without the prefix length, if it has one."""
        return next((a.split("/")[0] for a in self.addresses), None)

    def popen(self, command: Arguments, **options: Any) -> Process:
        """Start a program in the node. A text is run by the shell, a list as it is; see Process for the options."""
        return Process(self.lab.client, self.name, command, **options)

    def run(self, command: Arguments, *, check: bool = True, input: Any = None, text: bool = True,
            capture: bool = True, timeout: Optional[float] = None, **options: Any) -> "subprocess.CompletedProcess[Any]":
        """Run a program to its end. With check another exit code than 0 is a CommandError, which has what it printed."""
        pipe = subprocess.PIPE if capture else None
        with_input = subprocess.PIPE if input is not None else None
        process = self.popen(command, stdin=with_input, stdout=pipe, stderr=pipe, text=text, **options)
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:  # also Ctrl-C and a time that is over: nothing of it goes on
            process.kill()
            raise
        done: "subprocess.CompletedProcess[Any]" = subprocess.CompletedProcess(arguments(command), process.wait(), out, err)
        if check and done.returncode != 0:
            raise CommandError(self.name, process.args, done.returncode, out, err)
        return done

    def cmd(self, command: Arguments, timeout: Optional[float] = None) -> str:
        """What a command prints, on both outputs (lines of the two may change places), whatever its exit code."""
        process = self.popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            return str(process.communicate(timeout=timeout)[0])
        except BaseException:
            process.kill()
            raise

    def ping(self, to: Union[str, "Node"], count: int = 1, **options: Any) -> Ping:
        """Ping a node or an address; options are those of Lab.ping."""
        return self.lab.ping(self.name, to, count, **options)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return "<Node %s of %s>" % (self.name, self.lab.name)


class Link:
    """A link of a lab: lab.link("h1", "s1"); number tells parallel ones apart, from 1."""

    def __init__(self, lab: "Lab", a: str, b: str, number: int = 1) -> None:
        self.lab, self.a, self.b, self.number = lab, a, b, number

    def _change(self, words: Sequence[str]) -> "Link":
        self.lab.api.post_link({"a": self.a, "b": self.b, "number": self.number, "change": list(words)})
        return self

    def set(self, bandwidth: Optional[str] = None, delay: Optional[str] = None, jitter: Optional[str] = None,
            loss: Optional[str] = None, queue: Optional[Union[int, str]] = None) -> "Link":
        """Change what is given, in both directions: set(bandwidth="10mbit", delay="5ms", loss="1%"); "none" takes it away."""
        given = {"bandwidth": bandwidth, "delay": delay, "jitter": jitter, "loss": loss, "queue": queue}
        return self._change(["%s=%s" % item for item in given.items() if item[1] is not None])

    def down(self) -> "Link":
        """Pull the cable."""
        return self._change(["down"])

    def up(self) -> "Link":
        """Put the cable in again."""
        return self._change(["up"])

    @property
    def info(self) -> JSON:
        """The link as the topology has it now."""
        return self._find(self.lab.info["topology"].get("links") or [])

    @property
    def state(self) -> JSON:
        """How the link is made, and what its ends are now, whoever made them that (GET /v1/links)."""
        links = self.lab.info["topology"].get("links") or []
        wires = self.lab.api.list_links()
        found = self._find(links)
        return dict(next(w for link, w in zip(links, wires) if link is found))

    def _find(self, links: List[JSON]) -> JSON:
        ends = sorted([self.a, self.b])
        same = [link for link in links if sorted(e.get("node") or e.get("interface") or "" for e in link["ends"]) == ends]
        if not 1 <= self.number <= len(same):
            raise TrivetError("there is no link %s-%s%s" % (self.a, self.b, " %d" % self.number if self.number > 1 else ""))
        return same[self.number - 1]

    def __repr__(self) -> str:
        return "<Link %s-%s of %s>" % (self.a, self.b, self.lab.name)


class Lab:
    """A topology, and the lab that it is once it is up.

    source is what `trivet up` takes: a file, or a generator like "fat-tree,4". It comes up by up(), or for the
    time of a with block. Bringing it up takes root: where this is not root, sudo asks.
    """

    def __init__(self, source: Union[str, "os.PathLike[str]"], *args: str, name: Optional[str] = None, datapath: Optional[str] = None,
                 controller: Union[None, str, Sequence[str]] = None, nodes: Optional[str] = None,
                 routes: Optional[str] = None, wait: Optional[str] = None) -> None:
        self.source = os.fspath(source)
        self.arguments = [str(a) for a in args]
        self.name = name or ""
        self.warnings: List[str] = []  #: what `trivet up` warned of
        self.seconds: Optional[float] = None  #: how long coming up took
        controllers = [controller] if isinstance(controller, str) else list(controller or [])
        self._flags: List[str] = []
        for flag, value in [("--name", name), ("--datapath", datapath), ("--nodes", nodes), ("--routes", routes), ("--wait", wait)]:
            if value is not None:
                self._flags += [flag, value]
        for c in controllers:
            self._flags += ["--controller", c]
        self._client: Optional[Client] = None

    @classmethod
    def from_file(cls, file: Union[str, "os.PathLike[str]"], *args: str, **options: Any) -> "Lab":
        """A lab of a topology file of any format; arguments are those of a file that is a program."""
        if not os.path.exists(file):
            raise TrivetError("%s: there is no such file" % os.fspath(file))
        return cls(file, *args, **options)

    @classmethod
    def attach(cls, name: Optional[str] = None, *, url: Optional[str] = None, token: Optional[str] = None,
               token_file: Union[None, str, "os.PathLike[str]"] = None, certificate: Union[None, str, "os.PathLike[str]"] = None,
               fingerprint: Optional[str] = None) -> "Lab":
        """A lab that is up already; without a name the only one there is.

        With a url, it is the lab whose API `trivet api on` has opened there, be it on another machine. The token is given,
        or is in a file; who answers is known by its certificate: see RemoteClient.
        """
        if url is not None:
            if name is not None:
                raise TrivetError("there is one lab at %s: leave out the name" % url)
            if token_file is not None:
                with open(token_file) as f:
                    token = f.read().strip()
            client = RemoteClient(url, token or "", certificate, fingerprint)
            lab = cls(url, name=client.name)
            lab._client = client
            lab.source = str(lab.info.get("source", ""))
            return lab
        if name is None:
            up = [str(lab["name"]) for lab in labs()]
            if len(up) != 1:
                raise NoLab("no lab is up" if not up else "there are several labs, name one of them: %s" % ", ".join(up))
            name = up[0]
        lab = cls(os.path.join(run_dir(), name), name=name)
        lab._client = Client(name)
        lab.source = str(lab.info.get("source", ""))
        return lab

    # Its life

    @property
    def client(self) -> Client:
        """The connection to the lab's daemon."""
        if self._client is None:
            raise NoLab("the lab of %s is not up: call up(), or use it in a with block" % self.source)
        return self._client

    @property
    def api(self) -> API:
        """All requests that the lab's daemon answers, each a method."""
        return API(self.client)

    def up(self) -> "Lab":
        """Bring it up; it returns when traffic can flow. If it fails, nothing is left."""
        if self._client is not None:
            raise TrivetError("lab %s is up already" % self.name)
        done = _binary.run(["up", "--json", *self._flags, self.source, *self.arguments], root=True, ok=(0, 4))
        said = json.loads(done.stdout)
        self.name, self.seconds, self.warnings = said["name"], said["seconds"], list(said.get("warnings") or [])
        self._client = Client(self.name)
        return self

    def down(self) -> None:
        """Take it down, without a trace."""
        client, self._client = self.client, None
        if not client.here:
            for line in client.lines("POST", "/v1/down"):
                said = json.loads(line)
                if said.get("error"):
                    raise TrivetError(said["error"])
                if said.get("end"):
                    return
            raise NoLab("lab %s has not said that it is down" % client.name)
        if os.path.exists(client.directory):
            _binary.run(["down", client.name])

    def __enter__(self) -> "Lab":
        return self if self._client is not None else self.up()

    def __exit__(self, *_: Any) -> None:
        if self._client is not None:
            self.down()

    def apply(self, file: Union[str, "os.PathLike[str]"], *args: str, dry_run: bool = False) -> List[str]:
        """Change the lab to match a file, touching only what differs; returns the changes."""
        if not self.client.here:
            raise TrivetError("apply takes the program trivet on the lab's machine, which reads the file; over TCP there is "
                              "lab.api.post_apply, which takes a resolved topology, as lab.info has it")
        flags = ["--dry-run"] if dry_run else []
        done = _binary.run(["apply", "--json", "--lab", self.client.name, *flags, os.fspath(file), *map(str, args)])
        return list(json.loads(done.stdout)["changes"])

    # What is in it

    @property
    def info(self) -> JSON:
        """What the lab says of itself: state, resolved topology, how its links are made."""
        return dict(self.api.get_lab())

    def _node(self, name: str) -> JSON:
        nodes = self.info["topology"]["nodes"]
        for n in nodes:
            if n["name"] == name:
                return dict(n)
        raise KeyError("there is no node %s in lab %s; there are %s" % (name, self.name, ", ".join(n["name"] for n in nodes[:10])))

    def __getitem__(self, name: str) -> Node:
        self._node(name)
        return Node(self, name)

    def __contains__(self, name: object) -> bool:
        return any(n["name"] == name for n in self.info["topology"]["nodes"])

    def nodes(self, kind: Optional[str] = None) -> List[Node]:
        """The nodes, or those of a kind: host, switch, router, controller."""
        return [Node(self, n["name"]) for n in self.info["topology"]["nodes"] if kind in (None, n["kind"])]

    @property
    def hosts(self) -> List[Node]:
        return self.nodes("host")

    @property
    def switches(self) -> List[Node]:
        return self.nodes("switch")

    def link(self, a: Union[str, Node], b: Union[str, Node], number: int = 1) -> Link:
        """The link between two nodes; number tells parallel ones apart, from 1."""
        link = Link(self, str(a), str(b), number)
        link.info
        return link

    def links(self) -> List[Link]:
        """All links."""
        seen: Dict[Tuple[str, ...], int] = {}
        out = []
        for link in self.info["topology"].get("links") or []:
            a, b = (e.get("node") or e.get("interface") for e in link["ends"])
            key = tuple(sorted((a, b)))
            seen[key] = seen.get(key, 0) + 1
            out.append(Link(self, a, b, seen[key]))
        return out

    # Measuring

    def ping(self, a: Union[str, Node], b: Union[str, Node], count: int = 1, *, size: Optional[int] = None,
             interval: Optional[str] = None, timeout: Optional[str] = None, ipv6: bool = False) -> Ping:
        """Ping from a node to another, or to an address; times are texts like "100ms"."""
        return self._ping({"from": str(a), "to": str(b), "count": count, "size": size, "interval": interval,
                           "timeout": timeout, "ipv6": ipv6})

    def ping_all(self, count: int = 1, *, timeout: Optional[str] = None, ipv6: bool = False) -> Ping:
        """Every host pings every other; those without an address are left out, and named in the result."""
        return self._ping({"count": count, "timeout": timeout, "ipv6": ipv6})

    def _ping(self, request: JSON) -> Ping:
        given: PingRequest = {k: v for k, v in request.items() if v}  # type: ignore[assignment]
        r: JSON = dict(self.api.post_ping(given))
        return Ping(r["sent"], r["received"], r["loss"], r.get("rtt_ms"), r["pairs"],
                    r.get("without_address") or [])

    def iperf(self, a: Union[str, Node], b: Union[str, Node], seconds: int = 5, *, udp: bool = False, rate: Optional[str] = None,
              parallel: Optional[int] = None, ipv6: bool = False) -> Iperf:
        """Measure the throughput from a to b with iperf3."""
        request = {"from": str(a), "to": str(b), "seconds": seconds, "udp": udp, "rate": rate, "parallel": parallel, "ipv6": ipv6}
        given: IperfRequest = {k: v for k, v in request.items() if v}  # type: ignore[assignment]
        r = self.api.post_iperf(given)
        return Iperf(r["bits_per_second"], r["sent_bits_per_second"], r["seconds"], r["protocol"],
                     r.get("retransmits"), r.get("jitter_ms"), r.get("loss"))

    def traffic(self, over: str = "") -> TrafficLook:
        """What each link has carried, what waits there and was dropped; with a time ("1s") also the rates over that."""
        return self.api.get_traffic(over=over or None)

    def follow_traffic(self, every: str = "1s") -> Iterator[TrafficLook]:
        """The same at once and then each such time, with rates from the second on, until the lab is down or the iterator is closed."""
        for line in self.client.lines("GET", "/v1/traffic/follow", every=every):
            look: TrafficLook = json.loads(line)
            if look.get("error"):
                raise TrivetError(look["error"])
            yield look

    # Its controller

    def flows(self, switch: Union[None, str, Node] = None) -> Flows:
        """The flow entries of a switch, or of all."""
        said = self.api.get_controller_flows(switch=None if switch is None else str(switch))
        return Flows(dict(f) for f in said.get("flows") or [])

    @property
    def routes(self) -> JSON:
        """The routes of routing nodes."""
        return dict(self.api.get_controller_routes())

    @property
    def statistics(self) -> JSON:
        """What the links carry, and the load of the controller."""
        return dict(self.api.get_controller_statistics())

    def path(self, a: Union[str, Node], b: Union[str, Node], **options: Any) -> JSON:
        """The way of a packet, and why; options: tcp=80, udp=53, ipv6=True."""
        return dict(self.client.call("GET", "/v1/controller/path", **{"from": str(a), "to": str(b), **options}))

    @property
    def controllers(self) -> List[JSON]:
        """Whether switches are connected to their controllers."""
        return [dict(c) for c in self.api.list_controllers()]

    def events(self, samples: bool = False, routes: Iterable[Union[str, Node]] = (), into: str = "") -> Iterator[Tuple[str, JSON]]:
        """What happens, as (kind, what): switches and links that come and go, hosts heard, ways that change; with samples also
        what the links carry; with routes, of some routing nodes, also the routes that these use ("route") and what changes of them;
        with into also the routes that routers redistribute into that program. It goes on until the lab is down or the iterator is closed."""
        routers = ",".join([str(routes)] if isinstance(routes, (str, Node)) else map(str, routes))
        kind, data = "message", []
        for line in self.client.lines("GET", "/v1/controller/events", samples=samples, routes=routers, into=into):
            text = line.decode(errors="replace").rstrip("\r\n")
            if text.startswith("event:"):
                kind = text[6:].strip()
            elif text.startswith("data:"):
                data.append(text[5:].strip())
            elif not text and data:
                yield kind, json.loads("\n".join(data))
                kind, data = "message", []

    def __repr__(self) -> str:
        return "<Lab %s: %s>" % (self.name or self.source, "up" if self._client else "not up")
