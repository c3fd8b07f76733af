"""Controllers: Trivet's own, programs that are started, and those that run elsewhere."""
from __future__ import annotations

import os
import socket
import sys
from typing import Any, Optional, Sequence

from mininet._node import Node
from mininet.log import info, warn
from mininet.moduledeps import pathCheck
from mininet.util import quietRun, which

_OPENFLOW = 6653, 6633  # the ports of OpenFlow, now and before
_TESTS = "controller", "ovs-testcontroller", "test-controller", "ovs-controller"  # the same program, by the names of packages


def _listens(ip: str, port: int) -> bool:
    """Whether something takes connections there."""
    try:
        socket.create_connection((ip, port), timeout=1).close()
    except OSError:
        return False
    return True


def _new(path: str) -> str:
    """Make a file anew: where everybody may write, what has its name already may be a link of somebody's to anything."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644))
    return path


class Controller(Node):
    """A controller. Controller and OVSController as they are stand for Trivet's own; where command says another program, and in
    subclasses that start one, that is it."""

    def __init__(self, name: str, inNamespace: bool = False, command: str = "controller", cargs: str = "ptcp:%d",
                 cdir: Optional[str] = None, ip: str = "127.0.0.1", port: Any = 6653, protocol: str = "tcp", verbose: bool = False,
                 **params: Any) -> None:
        address, _, given = ip.partition(":")
        self.ip, self.port, self.protocol = address, int(given) if given else port, protocol
        self.command, self.cargs = command, cargs
        self.cdir, self.verbose = cdir, verbose
        self._program: Optional[int] = None  # its process
        super().__init__(name, inNamespace=inNamespace, ip=self.ip, **params)
        if not self._plain():
            self.checkListening()

    @classmethod
    def isAvailable(cls) -> bool:
        return True

    # What it is to the lab

    def _plain(self) -> bool:
        """Whether it could be Trivet's own controller: nobody says what program it is."""
        return self.command == _TESTS[0] and type(self).start is Controller.start

    def _trivet(self) -> bool:
        """Whether it is. Of several controllers each is a program of its own."""
        others = (node for node in self.fabric.nodes if isinstance(node, Controller))
        return self._plain() and all(other._plain() and other.port == self.port for other in others)

    def fabricAddress(self) -> str:
        """How a topology names it."""
        if self._trivet() and self._program is None:
            return "trivet"
        return "%s:%s:%s" % (self.protocol, self.IP(), self.port)

    # Its program

    def checkListening(self) -> None:
        """Raise an error where something listens at its port already."""
        if _listens(self.ip, self.port):
            who = quietRun("ss -tlnp sport = :%d" % self.port) if which("ss") else ""
            raise Exception("Please shut down the controller which is running on port %d:\n%s" % (self.port, who))

    def start(self) -> None:
        """Start its program, which writes to /tmp/NAME.log."""
        if self._trivet():
            return
        if self._plain():
            self.command = next(filter(which, _TESTS), _TESTS[0])
            if self.command == "ovs-testcontroller":
                self.cargs = "--unixctl=none " + self.cargs
            self.checkListening()
        pathCheck(self.command)
        if self.cdir is not None:
            self.cmd("cd", self.cdir)
        self.cmd(self.command, self.cargs % self.port, ">>%s 2>&1 &" % _new("/tmp/%s.log" % self.name))
        self._program = self.lastPid

    def stop(self, *args: Any, **kwargs: Any) -> None:
        """End its program."""
        if self._program:
            self.cmd("kill %d; wait %d" % (self._program, self._program))
            self._program = None
        super().stop(*args, **kwargs)

    def IP(self, intf: Any = None) -> Optional[str]:
        """The address that switches connect to."""
        return super().IP(intf) or self.ip if self.intfs else self.ip

    def __repr__(self) -> str:
        return "<%s %s: %s:%s pid=%s> " % (type(self).__name__, self, self.IP(), self.port, self.pid)


class OVSController(Controller):
    """Mininet's is Open vSwitch's test controller; here it is Trivet's own."""


class NOX(Controller):
    """A controller that its makers have given up, in the directory that NOX_CORE_DIR says."""

    def __init__(self, name: str, *noxArgs: str, **kwargs: Any) -> None:
        directory = os.environ.get("NOX_CORE_DIR")
        if directory is None:
            sys.exit("NOX_CORE_DIR does not say where NOX is; use Controller or RemoteController")
        apps = " ".join(noxArgs) or "packetdump"
        super().__init__(name, command=os.path.join(directory, "nox_core"), cdir=directory,
                         cargs="--libdir=/usr/local/lib -v -i ptcp:%s " + apps, **kwargs)

    @classmethod
    def isAvailable(cls) -> bool:
        return "NOX_CORE_DIR" in os.environ


class Ryu(Controller):
    """ryu-manager, or osken-manager where that is installed instead."""

    _managers = {"ryu-manager": "ryu.app.simple_switch", "osken-manager": "os_ken.app.simple_switch_13"}

    def __init__(self, name: str, ryuArgs: Any = "", command: str = "", **kwargs: Any) -> None:
        command = command or next(filter(which, self._managers), "")
        if not which(command):
            raise Exception("neither ryu-manager nor osken-manager is installed: pip install os-ken, or start a controller "
                            "yourself and use RemoteController")
        apps = ryuArgs if isinstance(ryuArgs, str) else " ".join(ryuArgs)
        apps = apps or self._managers.get(os.path.basename(command), self._managers["ryu-manager"])
        super().__init__(name, command=command, cargs="--ofp-tcp-listen-port %s " + apps, cdir=os.environ.get("RYU_HOME") or None,
                         **kwargs)


class RemoteController(Controller):
    """A controller that somebody else has started, or will."""

    def __init__(self, name: str, ip: str = "127.0.0.1", port: Optional[int] = None, **kwargs: Any) -> None:
        super().__init__(name, ip=ip, port=port, **kwargs)

    def _plain(self) -> bool:
        return False

    def start(self) -> None:
        """It runs, or will."""

    def stop(self, *args: Any, **kwargs: Any) -> None:
        """It goes on."""
        Node.stop(self)

    def isListening(self, ip: str, port: int) -> bool:
        """Whether something listens there."""
        return _listens(ip, port)

    def checkListening(self) -> None:
        """Look where it listens, and say so."""
        for port in _OPENFLOW if self.port is None else (self.port,):
            if self.isListening(self.ip, port):
                if self.port is None:
                    info("Connecting to remote controller at %s:%d\n" % (self.ip, port))
                self.port = port
                return
            warn("Unable to contact the remote controller at %s:%d\n" % (self.ip, port))
        if self.port is None:
            self.port = _OPENFLOW[0]
            warn("Setting remote controller to %s:%d\n" % (self.ip, self.port))


DefaultControllers = Controller, OVSController


def findController(controllers: Sequence[Any] = DefaultControllers) -> Any:
    """The first class of controllers that there is."""
    return next((kind for kind in controllers if kind.isAvailable()), None)


def DefaultController(name: str, controllers: Sequence[Any] = DefaultControllers, **kwargs: Any) -> Any:
    """The controller of networks that name none: Trivet's own."""
    kind = findController(controllers)
    if not kind:
        raise Exception("there is no controller that could be the default")
    return kind(name, **kwargs)


def NullController(*_args: Any, **_kwargs: Any) -> None:
    """No controller."""
