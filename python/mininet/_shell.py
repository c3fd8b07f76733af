"""What runs in a node: a shell, into which a script types commands, and programs beside it."""
from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import termios
from contextlib import suppress
from subprocess import PIPE, Popen
from typing import Any, Dict, List, Optional, Tuple

from mininet.log import debug, error, info, warn
from mininet.util import decode, encode, getincrementaldecoder, isShellBuiltin

PROMPT = chr(127)  # programs do not print it
_SHELL = {"shell", "pid", "stdin", "stdout", "pollOut", "pollIn", "master", "slave", "decoder"}  # what there is once it runs
_PID = re.compile(r"\x02(\d+)\x03")  # how a command tells the process it is
_JOB = re.compile(r"\[\d+\] \d+\r\n")  # how bash tells that it runs something in the background


class Shell:
    """The part of a node that runs commands.

    The shell is bash on a terminal of its own, whose prompt tells that a command has ended. It starts when something needs it.
    Subclasses may start another in startShell(): shell, pid, stdin, stdout and pollOut are then theirs to set."""

    name: str
    fabric: Any
    inToNode: Dict[int, Any] = {}
    outToNode: Dict[int, Any] = {}

    def __init__(self) -> None:
        self.execed = False  # whether another program has taken the shell's place
        self.lastCmd: Optional[str] = None
        self.lastPid: Optional[int] = None
        self.waiting = False  # for the end of a command
        self.readbuf = ""
        self._background = self._ended = False

    def _enter(self) -> List[str]:
        """The words before a command that run it in the node; if there are any, the last are env's."""
        raise NotImplementedError

    def _ready(self) -> None:
        """Have the lab be there, if what runs in the node could tell."""

    @classmethod
    def fdToNode(cls, fd: int) -> Any:
        """The node whose shell has a file number."""
        return {**cls.inToNode, **cls.outToNode}.get(fd)

    # Its life

    def __getattr__(self, name: str) -> Any:
        if name not in _SHELL or vars(self).get("_ended", True):
            raise AttributeError("%r object has no attribute %r" % (type(self).__name__, name))
        self.startShell()
        return vars(self).get(name)

    def startShell(self, mnopts: Any = None) -> None:
        """Start the shell, unless something has done so."""
        if vars(self).get("shell") or self._ended:
            error("%s: %s\n" % (self.name, "it has ended" if self._ended else "its shell runs"))
            return
        self._ready()
        self.master, self.slave = pty.openpty()
        settings = ["PS1=" + PROMPT, "PS2=", "NO_COLOR=1"]  # a program reads it, though it is a terminal
        bash = ["bash", "--norc", "--noediting", "-is", "mininet:" + self.name]
        self.shell = Popen([*(self._enter() or ["env"]), *settings, *bash], stdin=self.slave, stdout=self.slave, stderr=self.slave,
                           preexec_fn=_ownTerminal)  # noqa: PLW1509 (no thread has a lock that it needs)
        os.close(self.slave)  # the end of what has it open is the end of what can be read
        self.pid, self.slave = self.shell.pid, None
        self.stdin = self.stdout = os.fdopen(self.master, "rb", buffering=0)
        self.decoder = getincrementaldecoder()
        self.pollIn = self.pollOut = select.poll()
        self.pollOut.register(self.master, select.POLLIN | select.POLLHUP | select.POLLERR)
        for files in (self.inToNode, self.outToNode):
            files[self.master] = self
        self.write("unset HISTFILE; stty -echo; set +m\n")
        said = self.readbuf = ""
        while said.count(PROMPT) < 2:  # the first one, and that after the settings
            more = self.read()
            if not more:
                break
            said += more

    def terminate(self) -> None:
        """Hang up: the shell and what it runs ends."""
        shell = vars(self).get("shell")
        if shell and shell.poll() is None:
            with suppress(OSError):
                os.killpg(shell.pid, signal.SIGHUP)
        self.cleanup()

    def cleanup(self) -> None:
        """Forget the shell."""
        mine = vars(self)
        if mine.get("shell"):
            for files in (self.inToNode, self.outToNode):
                files.pop(self.stdout.fileno(), None)
            for file in {self.stdin, self.stdout}:
                file.close()
            try:
                self.shell.wait(1)
            except subprocess.TimeoutExpired:
                self.shell.kill()
                self.shell.wait()
        self._ended = True
        mine.update(dict.fromkeys(_SHELL))

    # What it prints, and what is typed

    def write(self, data: str) -> None:
        """Type something into the shell."""
        os.write(self.stdin.fileno(), encode(data))

    def sendInt(self, intr: str = chr(3)) -> None:
        """Type Ctrl-C."""
        debug("*** %s: a key that interrupts: %r\n" % (self.name, intr))
        self.write(intr)

    def read(self, size: int = 1024) -> str:
        """What the shell prints, at most size characters, as soon as there is something; '' when it has ended."""
        while not self.readbuf:
            try:
                data = os.read(self.stdout.fileno(), size)  # no more: who polls it must see that there is more
            except OSError:  # nobody has its terminal open
                data = b""
            if not data:
                break
            self.readbuf = self.decoder.decode(data)
        said, self.readbuf = self.readbuf[:size], self.readbuf[size:]
        return said

    def readline(self) -> Optional[str]:
        """A line of what the shell prints, without its end; None if it is not whole yet."""
        if "\n" not in self.readbuf:
            before, self.readbuf = self.readbuf, ""
            self.readbuf = before + self.read(4096)
        line, end, rest = self.readbuf.partition("\n")
        if not end:
            return None
        self.readbuf = rest
        return line

    def waitReadable(self, timeoutms: Optional[float] = None) -> List[Tuple[int, int]]:
        """Wait until there is something to read; returns what poll does."""
        return [(self.stdout.fileno(), select.POLLIN)] if self.readbuf else self.pollOut.poll(timeoutms)

    # Commands in the shell

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:
        """Have the shell run a command, and do not wait for its end: monitor or waitOutput do. With printPid, and where it runs in
        the background, lastPid is its process then."""
        if self._ended:
            return
        self._ready()
        if not self.shell or self.waiting:
            raise AssertionError("%s runs a command still: %s" % (self.name, self.lastCmd))
        words = args[0] if len(args) == 1 and isinstance(args[0], list) else args
        command = " ".join(map(str, words))
        self.fabric.showPorts(self, command)
        self.lastCmd, self.lastPid, self.waiting = command, None, True
        self._background = command.rstrip().endswith("&")
        if self._background:
            command += r" printf '\2%d\3' $!"
        elif kwargs.get("printPid") and not isShellBuiltin(command):
            command = r"""sh -c 'printf "\2%d\3" $$; exec "$@"' sh """ + command
        if "\n" in command:  # as one command: there is a prompt after each
            command = "eval " + shlex.quote(command)
        self.write(command + "\n")

    def monitor(self, timeoutms: Optional[float] = None, findPid: bool = True) -> str:
        """What the command prints next; '' when nothing comes for timeoutms. When the command ends, waiting is False."""
        if timeoutms is not None and not self.waitReadable(timeoutms):
            return ""
        text = self.read()
        while findPid and self._isPart(text):
            more = self.read()
            if not more:
                break
            text += more
        if not text or PROMPT in text:
            self.waiting = False
        return (self._takePid(text) if findPid else text).replace(PROMPT, "")

    def _isPart(self, text: str) -> bool:
        """Whether what tells the process is still to come."""
        return (self._background or "\x02" in text) and not _PID.search(text) and PROMPT not in text

    def _takePid(self, text: str) -> str:
        """Take what tells the process out of a text."""
        told = _PID.search(text)
        if told:
            self.lastPid = int(told.group(1))
            text = text[:told.start()] + text[told.end():]
        if self._background:
            self._background, text = False, _JOB.sub("", text, count=1)
        return text

    def waitOutput(self, verbose: bool = False, findPid: bool = True) -> str:
        """Wait for the end of the command; returns what it prints, and logs it."""
        log, said = info if verbose else debug, ""
        while self.waiting:
            more = self.monitor(findPid=findPid)
            log(more)
            said += more
        return said

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command in the shell; returns what it prints."""
        verbose = bool(kwargs.get("verbose"))
        (info if verbose else debug)("*** %s : %s\n" % (self.name, args))
        if self._ended or self.shell.poll() is not None:
            warn("%s has ended, and does not run %s\n" % (self.name, args))
            return None
        self.sendCmd(*args, **kwargs)
        return self.waitOutput(verbose)

    def cmdPrint(self, *args: Any) -> Any:
        """Run a command, and log it with what it prints."""
        return self.cmd(*args, verbose=True)

    # Programs beside it

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """A subprocess.Popen in the node, with pipes; what its shell has set does not hold for it. A text is split at its blanks;
        with shell=True it is one for a shell."""
        options = {"stdout": PIPE, "stderr": PIPE, "start_new_session": True, **kwargs}
        enter, shell = options.pop("mncmd", None), options.pop("shell", False)
        words = args[0] if len(args) == 1 else args
        if isinstance(words, str):
            words = [words] if shell else words.split()
        elif not isinstance(words, list) and not (args and all(isinstance(word, str) for word in args)):
            raise Exception("popen takes a text or a list, not %r" % (words,))
        words = [str(word) for word in words]
        if shell:
            words = [os.environ.get("SHELL") or "/bin/sh", "-c", " ".join(words)]
        self._ready()
        self.fabric.showPorts(self, " ".join(words))
        return self._popen([*(self._enter() if enter is None else enter), *words], **options)

    def _popen(self, cmd: List[str], **params: Any) -> Any:
        """A process of a list of words. Subclasses start it elsewhere."""
        return Popen(cmd, **params)

    def pexec(self, *args: Any, **kwargs: Any) -> Tuple[str, str, int]:
        """Run a command by popen; returns (stdout, stderr, exit code)."""
        process = self.popen(*args, **{**kwargs, "stdin": PIPE, "stdout": PIPE, "stderr": PIPE})
        out, err = map(decode, process.communicate())
        return out, err, process.wait()


def _ownTerminal() -> None:
    """In the shell's process: a session whose terminal is its input, and where Ctrl-C ends programs even if this one ignores it."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
