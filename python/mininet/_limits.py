"""Hosts that do not get all of the machine's processors."""
from __future__ import annotations

import os
import sys
from typing import Any, Dict, Optional, Tuple

from mininet import _groups
from mininet._node import Host
from mininet.log import error, info
from mininet.util import numCores, quietRun


class CPULimitedHost(Host):
    """A host with a share of the processors' time, or with some of the processors."""

    inited = False

    def __init__(self, name: str, sched: str = "cfs", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self.sched, self.rtprio = sched, 20
        self.period_us: int = kwargs.get("period_us", 100000)
        if sched == "rt":
            self.checkRtGroupSched()

    @classmethod
    def init(cls) -> None:
        """The lab makes control groups."""
        cls.inited = True

    @classmethod
    def checkRtGroupSched(cls) -> None:
        """End the program: no kernel of a distribution has what sched=rt needs."""
        error("*** error: sched=rt needs RT_GROUP_SCHED, which kernels do not have; use sched='cfs'\n")
        sys.exit(1)

    # Its control group

    def _file(self, resource: str, param: str) -> Optional[str]:
        self.fabric.ensure()
        files = (os.path.join(group, "%s.%s" % (resource, param)) for group in _groups.of(self.fabric.name, self.name))
        return next(filter(os.path.exists, files), None)

    def cgroupGet(self, param: str, resource: str = "cpu") -> Any:
        """A value of the node's control group; -1 if the machine's have no such."""
        file = self._file(resource, param)
        if file is None:
            return -1
        with open(file) as value:
            return value.read().strip()

    def cgroupSet(self, param: str, value: Any, resource: str = "cpu") -> Optional[int]:
        """Set a value of the node's control group; returns what it is then."""
        file = self._file(resource, param)
        if file is None:
            error("*** error: this machine's control groups have no %s.%s\n" % (resource, param))
            return None
        with open(file, "w") as setting:
            setting.write(str(value))
        return int(self.cgroupGet(param, resource))

    def cgroupDel(self) -> bool:
        """The lab removes the group when it goes down."""
        return True

    # Its limits

    def setCPUFrac(self, f: float, sched: Optional[str] = None) -> None:
        """Limit it to a share of the whole machine; -1 is no limit."""
        if sched not in (None, "", "cfs", "host"):
            error("*** error: sched=%s: there is cfs\n" % sched)
        elif f:
            self._cpu = float(f) if f > 0 else None
            if self._cpu:
                info("(cfs %d/%dus) " % self.cfsInfo(f)[::-1])
            self._limited()

    def setCPUs(self, cores: Any, mems: int = 0) -> None:
        """Pin it to processors: 0, "0,1", "0-3" or [0, 1]."""
        listed = ",".join(map(str, cores)) if isinstance(cores, (list, tuple)) else str(cores)
        ranges = ((first, last or first) for first, _, last in (one.partition("-") for one in listed.split(",") if one))
        self._cores = [core for first, last in ranges for core in range(int(first), int(last) + 1)]
        self._limited()

    def _limited(self) -> None:
        """Have the lab be so, unless it is being made so."""
        self.fabric.changed(self)
        if self.fabric.lab is not None and not self.fabric.configuring:
            self.fabric.ensure()

    def cfsInfo(self, f: float) -> Tuple[int, int]:
        """The period and the quota of a share of the machine, in microseconds; a quota of -1 is no limit."""
        return self.period_us, int(f * self.period_us * numCores()) if f > 0 else -1

    def rtInfo(self, f: float) -> Tuple[int, int]:
        return 0, int(self.period_us * f)

    def chrt(self) -> str:
        """How its shell is scheduled."""
        return quietRun("chrt -p %s" % self.pid)

    # Configuration by parameters

    def preset(self, ip: Any = None, mac: Any = None, defaultRoute: Any = None) -> None:
        super().preset(ip, mac, defaultRoute)
        share, cores = map(self.params.get, ("cpu", "cores"))
        if share and share > 0:
            self._cpu = float(share)
        if cores is not None:
            self.setCPUs(cores)

    def config(self, cpu: Optional[float] = -1, cores: Any = None, **params: Any) -> Dict[str, Any]:
        """What Node.config does, and the share of the machine and the processors."""
        done = super().config(**params)
        if cpu and cpu > 0:
            self.setParam(done, "setCPUFrac", cpu=cpu)
        if cores is not None:
            self.setCPUs(cores)
            done["setCPUs"] = cores
        return done
