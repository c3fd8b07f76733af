"""What a network measures: who reaches whom, how fast, and what its hosts get of the processors."""
from __future__ import annotations

import math
import re
import signal
import subprocess
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from mininet.log import debug, error, output
from mininet.node import Node


class Pinged(NamedTuple):
    """What a ping gave: numbers of packets, and round-trip times in ms."""
    sent: int
    received: int
    least: float = 0
    average: float = 0
    most: float = 0
    deviation: float = 0


_COUNTS = re.compile(r"(\d+) packets transmitted, (\d+)")
_TIMES = re.compile(r"= " + "/".join([r"(\d+\.\d+)"] * 4))


def readPing(said: str) -> Pinged:
    """What ping says at its end. One that cannot send has lost its packet."""
    counts, times = _COUNTS.search(said), _TIMES.search(said)
    if counts is None:
        if "unreachable" not in said.lower():
            error("*** Error: could not parse ping output: %s\n" % said)
        return Pinged(sent=1, received=0)
    return Pinged(*map(int, counts.groups()), *map(float, times.groups() if times else ()))


def readIperf(said: str) -> str:
    """The last rate that iperf says."""
    rate = ""
    for rate in re.findall(r"([\d.]+ \w+/sec)", said):
        pass
    if not rate:
        error("could not parse iperf output: %s" % said)
    return rate


class Measuring:
    """The part of a network that measures."""

    fabric: Any
    hosts: List[Any]
    numCores: int
    _parsePing = staticmethod(lambda pingOutput: readPing(pingOutput)[:2])
    _parsePingFull = staticmethod(readPing)
    _parseIperf = staticmethod(readIperf)

    # Who reaches whom

    def ping(self, hosts: Optional[Sequence[Any]] = None, timeout: Any = None) -> float:
        """Have each host ping each other; returns the loss in percent."""
        everybody = self._announced(hosts)
        known = self._known(everybody, timeout)

        def test(source: Any, target: Any) -> Pinged:
            pair = source.name, target.name
            if pair in known:
                return known[pair]
            return _ping(source, target, timeout) if target.intfs else Pinged(0, 0)

        results = [result for _source, _target, result in _matrix(everybody, test)]
        sent, received = (sum(result[which] for result in results) for which in (0, 1))
        if sent == 0:
            output("*** Warning: No packets sent\n")
            return 0
        loss = 100.0 * (sent - received) / sent
        output("*** Results: %i%% dropped (%d/%d received)\n" % (loss, received, sent))
        return loss

    def pingFull(self, hosts: Optional[Sequence[Any]] = None, timeout: Any = None) -> List[Tuple[Any, Any, Pinged]]:
        """Have each host ping each other; returns (from, to, (sent, received, least, average, most, deviation)) of each pair."""
        rows = list(_matrix(self._announced(hosts), lambda source, target: _ping(source, target, timeout)))
        output("*** Results: \n")
        for row in rows:
            output(" %s->%s: %d/%d, rtt min/avg/max/mdev %0.3f/%0.3f/%0.3f/%0.3f ms\n" % (*row[:2], *row[2]))
        return rows

    def _announced(self, hosts: Optional[Sequence[Any]]) -> Sequence[Any]:
        """The hosts, or all of them, which is said."""
        if not hosts:
            output("*** Ping: testing ping reachability\n")
        return hosts or self.hosts

    def _known(self, hosts: Sequence[Any], timeout: Any) -> Dict[Tuple[str, str], Pinged]:
        """What the lab finds when all of its hosts ping each other at once. It is not asked where these are others, or have
        other addresses than the topology says, where a class of hosts may ping in its own way, and where controllers are
        others', which may not bear all at once."""
        if len(hosts) < 3 or any(type(host).cmd is not Node.cmd for host in hosts):
            return {}
        self.fabric.ensure()
        nodes = self.fabric.nodes
        inLab = {node.name for node in nodes if node.fabricKind() == "host"}
        if inLab != {host.name for host in hosts} or not all(map(_asWritten, hosts)):
            return {}
        if any(decider not in ("trivet", "none") for node in nodes for decider in node.fabricControllers()):
            return {}
        found = self.fabric.lab.ping_all(timeout="%ss" % (timeout or 10))  # as long as ping waits
        return {(pair["from"], pair["to"]): Pinged(pair["sent"], pair["received"]) for pair in found.pairs}

    def pingAll(self, timeout: Any = None) -> float:
        """ping between all hosts."""
        return self.ping(None, timeout)

    def pingPair(self) -> float:
        """ping between the first two hosts."""
        return self.ping(self.hosts[:2])

    def pingAllFull(self) -> List[Tuple[Any, Any, Pinged]]:
        return self.pingFull()

    def pingPairFull(self) -> List[Tuple[Any, Any, Pinged]]:
        return self.pingFull(self.hosts[:2])

    # How fast

    def iperf(self, hosts: Optional[Sequence[Any]] = None, l4Type: str = "TCP", udpBw: str = "10M", fmt: Optional[str] = None,
              seconds: float = 5, port: int = 5001) -> List[str]:
        """Measure the throughput from the first host to the last, or between two others; returns what the server and the client
        say, for UDP with the rate that was asked for before."""
        client, server = hosts or [self.hosts[end] for end in (0, -1)]
        output("*** Iperf: testing", l4Type, "bandwidth between", client, "and", server, "\n")
        if l4Type not in ("TCP", "UDP"):
            raise Exception("iperf measures TCP or UDP, not %s" % l4Type)
        udp = l4Type == "UDP"
        words = ["iperf", "-p", port, *(["-u"] if udp else []), *(["-f", fmt] if fmt else [])]
        listener = _Listener(server, [*words, "-s"], port, "udp" if udp else "tcp")
        with listener:
            said = client.cmd(*words, "-t", seconds, "-c", server.IP(), *(["-b", udpBw] if udp else []))
            sleep(0.2)  # the server prints its line when the last segment has come
        for whose, text in (("Client", said), ("Server", listener.said)):
            debug("%s output: %s\n" % (whose, text))
        rates = [udpBw] * udp + [readIperf(listener.said), readIperf(said)]
        output("*** Results: %s\n" % rates)
        return rates

    # What of the processors

    def runCpuLimitTest(self, cpu: float, duration: int = 5) -> List[float]:
        """Have all hosts compute for some seconds, and measure each second how much of the machine each gets, in percent."""
        output("*** Testing CPU %.0f%% bandwidth limit\n" % (100 * cpu))
        busy = [_Busy(host, max(1, math.ceil(self.numCores * cpu))) for host in self.hosts]
        try:
            laps = []
            for _second in range(duration):
                sleep(1)
                laps.append([one.lap() / self.numCores for one in busy])
        finally:
            for one in busy:
                one.end()
        samples = [100 * share for shares in zip(*laps) for share in shares]
        output("*** Results: %s\n" % samples)
        return samples


def _matrix(hosts: Sequence[Any], test: Callable[[Any, Any], Pinged]) -> Iterator[Tuple[Any, Any, Pinged]]:
    """Test each pair of hosts, and show a row for each source: whom it reaches."""
    for source in hosts:
        output("%s -> " % source)
        for target in hosts:
            if source is target:
                continue
            result = test(source, target)
            output("%s " % (target if result.received else "X"))
            yield source, target, result
        output("\n")


def _ping(source: Any, target: Any, timeout: Any) -> Pinged:
    options = ["-c1"] + (["-W", str(timeout)] if timeout else [])
    return readPing(source.cmd("LANG=C ping", *options, target.IP()))


def _asWritten(host: Any) -> bool:
    """Whether its address is the one that the lab was made with."""
    intf = host.defaultIntf()
    return intf is not None and (intf._given or {}).get("address") == "%s/%s" % (host.IP(), intf.prefixLen)


class _Listener:
    """A server in a node, for the time of a with block; what it has said afterwards."""

    def __init__(self, node: Any, words: Iterable[Any], port: int, protocol: str) -> None:
        self.said = ""
        self.node = node
        self.process = node.popen(list(words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        # What the kernel calls a socket that waits for anybody is LISTEN for TCP and CLOSE for UDP.
        self._sign = re.compile(r":%04X [0-9A-F:]+ %s " % (port, {"tcp": "0A", "udp": "07"}[protocol]))
        self._tables = ["/proc/%d/net/%s" % (self.process.pid, table) for table in (protocol, protocol + "6")]

    def __enter__(self) -> _Listener:
        until = monotonic() + 10
        while not any(map(self._listens, self._tables)):
            if monotonic() > until or self.process.poll() is not None:
                self._end(signal.SIGTERM)
                raise Exception("Could not start iperf on %s: %s" % (self.node, self.said))
            sleep(0.02)
        return self

    def __exit__(self, *_error: Any) -> None:
        self._end(signal.SIGINT)

    def _listens(self, table: str) -> bool:
        with suppress(OSError), open(table) as sockets:
            return bool(self._sign.search(sockets.read()))
        return False

    def _end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        try:
            said = self.process.communicate(timeout=3)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            said = self.process.communicate()[0]
        self.said = said.decode(errors="replace")


class _Busy:
    """Programs in a host that compute, and nothing else."""

    def __init__(self, host: Any, count: int) -> None:
        self._programs = [host.popen(["sh", "-c", "while :; do a=1; done"]) for _number in range(count)]
        self._last = self._used()

    def _used(self) -> Tuple[float, float]:
        """The seconds of a processor that they have used by now, and this time."""
        used = 0
        for program in self._programs:
            with open("/proc/%d/schedstat" % program.pid) as schedstat:
                used += int(schedstat.read().split()[0])
        return used / 1e9, monotonic()

    def lap(self) -> float:
        """How many processors they have had since the last time."""
        before, self._last = self._last, self._used()
        return (self._last[0] - before[0]) / (self._last[1] - before[1])

    def end(self) -> None:
        for program in self._programs:
            program.kill()
            program.communicate()
