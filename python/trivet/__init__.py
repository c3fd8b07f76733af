"""Labs of Trivet from Python.

>>> from trivet import Lab
>>> with Lab("linear,3") as lab:          # doctest: +SKIP
...     lab["h1"].cmd("ip -br addr")
...     lab.link("s1", "s2").set(delay="10ms")
...     lab.ping_all().loss
"""
from ._errors import CommandError, NoLab, TrivetError
from ._version import __version__
from .api import API
from .client import RemoteClient
from .lab import Flows, Iperf, Lab, Link, Node, Ping, labs
from .process import Process
from .results import Results, read_results

__all__ = [
    "API", "CommandError", "Flows", "Iperf", "Lab", "Link", "NoLab", "Node", "Ping", "Process", "RemoteClient", "Results", "TrivetError",
    "__version__", "labs", "read_results",
]
