"""The control groups of nodes: the lab makes one for each, in each hierarchy that the machine has."""
from __future__ import annotations

import functools
import os
from contextlib import suppress
from typing import List


@functools.lru_cache(maxsize=None)
def _hierarchies() -> List[str]:
    """Where control groups are mounted: one directory with version 2, one for each set of controllers with version 1."""
    with open("/proc/self/mountinfo") as mounts:
        halves = [line.split(" - ") for line in mounts]
    return [mount.split()[4] for mount, what in halves if what.startswith("cgroup")]


def of(lab: str, node: str) -> List[str]:
    """The directories of a node's groups. Nodes without namespaces get theirs when something runs there."""
    found = []
    for hierarchy in _hierarchies():
        top = os.path.join(hierarchy, "trivet", lab)
        if os.path.isdir(top):
            group = os.path.join(top, node)
            with suppress(OSError):
                os.makedirs(group, exist_ok=True)
                found.append(group)
    return found
