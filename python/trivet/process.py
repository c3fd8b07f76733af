"""Programs in nodes: the stream that follows POST /v1/exec, as an object like subprocess.Popen."""
from __future__ import annotations

import io
import json
import os
import signal as _signal
import socket
import ssl
import struct
import subprocess
import threading
from typing import Any, Dict, IO, List, Optional, Sequence, Tuple, Union

from ._errors import TrivetError
from .client import Client, Encrypted, problem

_STDIN, _STDOUT, _STDERR, _SIGNAL, _RESIZE, _EXIT, _ERROR, _UNREAD = range(8)
_LARGEST = 1 << 20

Arguments = Union[str, Sequence[str]]


def arguments(command: Arguments) -> List[str]:
    """A text is one for the shell, a list a program and its arguments."""
    return ["/bin/sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]


class _Input(io.RawIOBase):
    """What is written goes to the program; closing it is the end of its input."""

    def __init__(self, process: "Process") -> None:
        self._process = process

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = bytes(data)
        for i in range(0, len(view), _LARGEST):
            self._process._send(_STDIN, view[i:i + _LARGEST])
        return len(view)

    def close(self) -> None:
        if not self.closed:
            try:
                self._process._send(_STDIN, b"")
            except (OSError, ValueError):
                pass  # the program has ended
        super().close()


class Process:
    """A program that runs in a node: stdin, stdout and stderr, poll, wait, communicate, send_signal, as subprocess.Popen has.

    stdin, stdout and stderr may be subprocess.PIPE, DEVNULL, or None (stdout and stderr: this program's own; stdin: none).
    stdout and stderr that are pipes have a file number, so that select and selectors take them.
    """

    def __init__(self, client: Client, node: str, command: Arguments, *, stdin: Optional[int] = None,
                 stdout: Optional[int] = None, stderr: Optional[int] = None, text: bool = False,
                 env: Optional[Dict[str, str]] = None, cwd: Optional[str] = None) -> None:
        self.node, self.args = node, arguments(command)
        self.returncode: Optional[int] = None
        self._failure: Optional[str] = None
        self._lock = threading.Lock()
        # At another machine the daemon's directory and environment are taken, unless others are given.
        directory, own = (os.getcwd(), os.environ) if client.here else ("", None)
        given = own if env is None else env
        self._socket, rest = self._open(client, {
            "node": node, "command": self.args, "dir": cwd or directory,
            "env": None if given is None else ["%s=%s" % item for item in given.items()],
            # What a script adds to its own environment, it wants there as well.
            "carry": [name for name, value in (env or {}).items() if os.environ.get(name) != value]})
        self.stdin: Optional[IO[Any]] = None
        if stdin == subprocess.PIPE:
            raw = io.BufferedWriter(_Input(self))
            self.stdin = io.TextIOWrapper(raw, write_through=True) if text else raw
        else:
            try:
                self._send(_STDIN, b"")
            except OSError:
                pass  # the program has ended already; what it said is there to read
        self._sinks: Dict[int, Optional[int]] = {}
        self.stdout = self._output(_STDOUT, stdout, 1, text)
        if stderr == subprocess.STDOUT:
            into = self._sinks[_STDOUT]
            self._sinks[_STDERR] = None if into is None else os.dup(into)
            self.stderr: Optional[IO[Any]] = None
        else:
            self.stderr = self._output(_STDERR, stderr, 2, text)
        self._reader = threading.Thread(target=self._receive, args=(rest,), daemon=True,
                                        name="trivet %s: %s" % (node, self.args[0]))
        self._reader.start()

    @staticmethod
    def _open(client: Client, request: Dict[str, Any]) -> Tuple[Union[socket.socket, Encrypted], IO[bytes]]:
        sock: Union[socket.socket, Encrypted] = client.connect().sock
        if isinstance(sock, ssl.SSLSocket):
            sock = Encrypted(sock)
        body = json.dumps(request).encode()
        head = {"Host": client.host, "Connection": "Upgrade", "Upgrade": "trivet-exec/1", "Content-Type": "application/json",
                "Content-Length": str(len(body)), **client.headers}
        sock.sendall(("POST /v1/exec HTTP/1.1\r\n" + "".join("%s: %s\r\n" % h for h in head.items()) + "\r\n").encode() + body)
        stream: IO[bytes] = sock.makefile("rb")
        status = stream.readline().decode(errors="replace").split(None, 2)
        length = 0
        while True:
            header = stream.readline().decode(errors="replace").strip()
            if not header:
                break
            name, _, value = header.partition(":")
            if name.lower() == "content-length":
                length = int(value)
        if len(status) < 2 or status[1] != "101":
            said = stream.read(length)
            sock.close()
            raise TrivetError(problem(" ".join(status[1:]).strip(), said))
        return sock, stream

    def _output(self, kind: int, wish: Optional[int], own: int, text: bool) -> Optional[IO[Any]]:
        if wish == subprocess.PIPE:
            ours, theirs = os.pipe()
            self._sinks[kind] = theirs
            return os.fdopen(ours, "r" if text else "rb", **({"errors": "replace"} if text else {}))  # type: ignore[call-overload, no-any-return]
        self._sinks[kind] = None if wish == subprocess.DEVNULL else os.dup(own if wish is None else wish)
        return None

    def _send(self, kind: int, content: bytes) -> None:
        with self._lock:
            self._socket.sendall(struct.pack(">BI", kind, len(content)) + content)

    def _receive(self, stream: IO[bytes]) -> None:
        code: Optional[int] = None
        try:
            while code is None and self._failure is None:
                head = stream.read(5)
                if len(head) < 5:
                    self._failure = "the lab's daemon has gone away"
                    break
                kind, length = struct.unpack(">BI", head)
                content = stream.read(length)
                if kind in (_STDOUT, _STDERR):
                    self._write(kind, content)
                elif kind == _EXIT:
                    code = struct.unpack(">i", content)[0]
                elif kind == _ERROR:
                    self._failure = content.decode(errors="replace")
        except OSError as e:
            self._failure = "the connection to the lab's daemon: %s" % e
        self.returncode = code if code is not None else -1
        for fd in self._sinks.values():
            if fd is not None:
                os.close(fd)
        self._sinks = {}
        stream.close()
        self._socket.close()

    def _write(self, kind: int, content: bytes) -> None:
        fd = self._sinks.get(kind)
        while fd is not None and content:
            try:
                content = content[os.write(fd, content):]
            except OSError:  # nobody reads it any more
                os.close(fd)
                self._sinks[kind] = fd = None

    def poll(self) -> Optional[int]:
        """The exit code, or None while the program runs; 128 and the signal's number where one has ended it."""
        return self.returncode if not self._reader.is_alive() else None

    def wait(self, timeout: Optional[float] = None) -> int:
        """Wait for the program's end, and return its exit code."""
        self._reader.join(timeout)
        if self._reader.is_alive():
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        if self._failure:
            raise TrivetError(self._failure)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, input: Any = None, timeout: Optional[float] = None) -> Tuple[Any, Any]:
        """Send input, read all output until the end, and return (stdout, stderr)."""
        got: List[Any] = [None, None]

        def read(i: int, stream: IO[Any]) -> None:
            got[i] = stream.read()
            stream.close()

        readers = [threading.Thread(target=read, args=(i, stream), daemon=True)
                   for i, stream in enumerate((self.stdout, self.stderr)) if stream is not None]
        for reader in readers:
            reader.start()
        if self.stdin is not None:
            try:
                if input:
                    self.stdin.write(input)
                self.stdin.close()
            except (OSError, ValueError):
                pass  # the program has ended, or does not read
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return got[0], got[1]

    def send_signal(self, signal: int) -> None:
        """Send a signal to the program and its process group."""
        if self.poll() is None:
            try:
                self._send(_SIGNAL, bytes([int(signal)]))
            except OSError:
                pass  # it has ended meanwhile

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self.send_signal(_signal.SIGINT)

    def terminate(self) -> None:
        """End the program (SIGTERM)."""
        self.send_signal(_signal.SIGTERM)

    def kill(self) -> None:
        """End the program for certain (SIGKILL)."""
        self.send_signal(_signal.SIGKILL)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: Any) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            if stream is not None:
                stream.close()
        self.wait()

    def __repr__(self) -> str:
        return "<Process %s: %s>" % (self.node, " ".join(self.args))
