"""The API of a lab's daemon: HTTP and JSON on its Unix socket (trivet schema api describes it)."""
from __future__ import annotations

import http.client
import json
import os
import socket
from typing import Any, Dict, Iterator, Optional
from urllib.parse import urlencode

from ._errors import NoLab, TrivetError


def run_dir() -> str:
    """Where labs keep their state and sockets."""
    return os.environ.get("TRIVET_RUN_DIR") or "/run/trivet"


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: Optional[float] = None) -> None:
        super().__init__("lab", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Client:
    """Requests to one lab's daemon."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = os.path.join(run_dir(), name)
        self.socket = os.path.join(self.directory, "daemon.sock")

    def connect(self) -> _Connection:
        """A new connection; each request has one of its own, so that threads do not wait for each other."""
        connection = _Connection(self.socket)
        try:
            connection.connect()
        except FileNotFoundError:
            connection.close()
            raise NoLab("there is no lab %s; trivet ls lists those that are up" % self.name) from None
        except PermissionError:
            connection.close()
            raise NoLab("lab %s belongs to another user" % self.name) from None
        except OSError as e:
            connection.close()
            raise NoLab("the daemon of lab %s does not answer: %s" % (self.name, e.strerror or e)) from None
        return connection

    def _ask(self, connection: _Connection, method: str, path: str, body: Any) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, body=data, headers={"Content-Type": "application/json"})
            response = connection.getresponse()
        except (http.client.HTTPException, OSError):
            raise NoLab("the daemon of lab %s has ended without an answer (its log: %s/daemon.log)"
                        % (self.name, self.directory)) from None
        if response.status >= 300:
            raise TrivetError(_problem(response))
        return response

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer to a request, decoded; None where there is none."""
        connection = self.connect()
        try:
            response = self._ask(connection, method, _with(path, query), body)
            text = response.read()
            return json.loads(text) if text.strip() else None
        finally:
            connection.close()

    def lines(self, method: str, path: str, body: Any = None, **query: Any) -> Iterator[bytes]:
        """The lines of an answer that comes bit by bit, until its end or until the iterator is closed."""
        connection = self.connect()
        try:
            response = self._ask(connection, method, _with(path, query), body)
            while True:
                line = response.readline()
                if not line:
                    return
                yield line
        finally:
            connection.close()


def _with(path: str, query: Dict[str, Any]) -> str:
    given = {k: v for k, v in query.items() if v not in (None, "", False)}
    return path + ("?" + urlencode({k: "true" if v is True else v for k, v in given.items()}) if given else "")


def _problem(response: http.client.HTTPResponse) -> str:
    text = response.read().decode(errors="replace")
    try:
        said = json.loads(text)
        parts = [said["detail"]]
    except (ValueError, KeyError, TypeError):
        return "the lab's daemon answers %d %s: %s" % (response.status, response.reason, text.strip())
    for e in said.get("errors") or []:
        parts.append(" ".join(filter(None, [e.get("location"), e.get("message")])))
    return "; ".join(parts)
