"""Terminals for nodes, by xterm or gnome-terminal."""
from __future__ import annotations

import os
import shutil
import subprocess
from os import environ  # noqa: F401 (found here by programs)
from typing import Any, Iterable, List, Optional, Sequence, Tuple, Union

from mininet.log import error
from mininet.util import errRun, quietRun  # noqa: F401 (found here by programs)

_terminals: List[subprocess.Popen[bytes]] = []


def tunnelX11(node: Any, display: Optional[str] = None) -> Tuple[Optional[str], None]:
    """The display for programs of a node, and no process: nodes share the machine's files, and so the display's socket."""
    display = display or os.environ.get("DISPLAY")
    if not display:
        error("Error: Cannot connect to display\n")
        return None, None
    return display, None


def makeTerm(node: Any, title: str = "Node", term: str = "xterm", display: Optional[str] = None,
             cmd: str = "bash") -> List[subprocess.Popen[bytes]]:
    """Open a terminal for a node; returns the processes that there are for it."""
    where, _tunnel = tunnelX11(node, display)
    if not where:
        return []
    if not shutil.which({"gterm": "gnome-terminal"}.get(term, term)):
        error("Error: %s is not installed\n" % term)
        return []
    title = '"%s: %s"' % (title, node.name)
    enter = node._enter()
    words = {"xterm": ["xterm", "-title", title, "-display", where, "-e"],
             "gterm": ["gnome-terminal", "--wait", "--title", title, "--display", where, "--"]}[term]
    process = subprocess.Popen(words + enter + ["env", "TERM=ansi", *cmd.split()])
    _terminals.append(process)
    return [process]


def runX11(node: Any, cmd: Union[str, Sequence[str]]) -> List[subprocess.Popen[bytes]]:
    """Run a program of X11 in a node."""
    where, _tunnel = tunnelX11(node)
    if not where:
        return []
    return [node.popen(["env", "DISPLAY=" + where] + (cmd.split() if isinstance(cmd, str) else list(cmd)))]


def cleanUpScreens() -> None:
    """Close the terminals that were opened here."""
    for process in _terminals:
        if process.poll() is None:
            process.terminate()
    _terminals.clear()


def makeTerms(nodes: Iterable[Any], title: str = "Node", term: str = "xterm") -> List[subprocess.Popen[bytes]]:
    """Open a terminal for each node."""
    return [t for node in nodes for t in makeTerm(node, title, term)]
