"""mn -c: take down what labs of this package have left behind."""
from __future__ import annotations

import os
import subprocess
import time  # noqa: F401 (found here by programs)
from subprocess import PIPE, CalledProcessError, Popen, check_output as co  # noqa: F401 (found here by programs)
from typing import Any, Callable, Dict, Iterator

from mininet import _fabric
from mininet.log import info, warn
from mininet.term import cleanUpScreens
from mininet.util import decode  # noqa: F401 (found here by programs)
from trivet import NoLab, TrivetError, _binary, labs

PREFIX = "mn-"


def sh(cmd: str) -> str:
    """Run a command of the shell and return what it prints."""
    info("%s\n" % cmd)
    done = subprocess.run(cmd, shell=True, stdout=subprocess.PIPE, encoding="utf-8", errors="replace", check=False)
    return done.stdout


def killprocs(pattern: str) -> None:
    """Mininet ends all processes of the machine that match a pattern; here what a lab runs ends with the lab."""
    warn("*** killprocs(%r): nothing is done; what a lab runs ends with it\n" % pattern)


class Cleanup:
    """Takes down the labs of scripts that have ended without net.stop()."""

    callbacks: Dict[Callable[[], Any], None] = {}  # each once, in the order in which they came

    @classmethod
    def addCleanupCallback(cls, callback: Callable[[], Any]) -> None:
        """Have a function called by cleanup."""
        cls.callbacks.setdefault(callback)

    @classmethod
    def cleanup(cls) -> None:
        info("*** Removing labs of Mininet scripts\n")
        _fabric.forget()
        try:
            for name in _abandoned():
                info(name, "\n")
                _down(name)
        except (NoLab, TrivetError) as e:
            warn("*** %s\n" % e)
        for callback in list(cls.callbacks):
            callback()
        cleanUpScreens()
        info("*** Nothing is left\n")


cleanup, addCleanupCallback = Cleanup.cleanup, Cleanup.addCleanupCallback


def _down(name: str) -> None:
    try:
        _binary.run(["down", name], root=True)
    except TrivetError as e:
        warn("*** %s\n" % e)


def _abandoned() -> Iterator[str]:
    """Labs of this package whose scripts do not run, or are this one or what has started it: others' labs are not ours to take."""
    for name in [lab["name"] for lab in labs()]:
        pid = name[len(PREFIX):].partition("-")[0]
        if name.startswith(PREFIX) and not (pid.isdigit() and _runs(int(pid)) and int(pid) not in _lineage()):
            yield name


def _runs(pid: int) -> bool:
    """Whether a process is there, and is a script."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return b"python" in f.read()
    except OSError:
        return False


def _lineage() -> Iterator[int]:
    """This process, what has started it, and so on."""
    pid = os.getpid()
    while pid:
        yield pid
        try:
            with open("/proc/%d/stat" % pid) as f:
                pid = int(f.read().rpartition(")")[2].split()[1])
        except OSError:
            return
