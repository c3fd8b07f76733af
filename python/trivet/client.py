"""The API of a lab's daemon: HTTP and JSON on its Unix socket, or on TCP (trivet schema api describes it)."""
from __future__ import annotations

import hashlib
import http.client
import io
import ipaddress
import json
import os
import select
import socket
import ssl
import threading
from typing import Any, Dict, Iterator, Optional, Tuple, Union
from urllib.parse import urlencode, urlsplit

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
        self.headers: Dict[str, str] = {}  #: of each request
        self.host = "lab"  #: that requests name

    @property
    def here(self) -> bool:
        """Whether the lab is asked on this machine's socket, by a user of this machine."""
        return True

    def connect(self) -> http.client.HTTPConnection:
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

    def _gone(self) -> str:
        return "the daemon of lab %s has ended without an answer (its log: %s/daemon.log)" % (self.name, self.directory)

    def _ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: Any) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, body=data, headers={"Content-Type": "application/json", **self.headers})
            response = connection.getresponse()
        except (http.client.HTTPException, OSError):
            raise NoLab(self._gone()) from None
        if response.status >= 300:
            raise TrivetError(problem("%d %s" % (response.status, response.reason), response.read()))
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


class RemoteClient(Client):
    """Requests to a lab's daemon on TCP, as `trivet api on` has opened it; wherever that is.

    certificate is a file with the daemon's, or with that of the CA which has signed it; fingerprint is the SHA-256 of the
    daemon's own, in hexadecimal, which then need not be signed by anybody.
    """

    def __init__(self, url: str, token: str, certificate: Union[None, str, "os.PathLike[str]"] = None,
                 fingerprint: Optional[str] = None) -> None:
        at = urlsplit(url)
        try:
            port = at.port
        except ValueError:
            port = None
        if at.scheme not in ("http", "https") or not at.hostname or not port or at.path not in ("", "/") or at.query or at.username:
            raise TrivetError("%r is not where a lab's API is; trivet api on says it, as https://192.0.2.1:8443" % url)
        if at.scheme == "http" and not _own(at.hostname):
            raise TrivetError("%s: plain HTTP would show the token to others on the way; a lab's API has HTTPS there" % url)
        if at.scheme == "http" and (certificate or fingerprint):
            raise TrivetError("%s is not encrypted, and has no certificate; write https" % url)
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise TrivetError("the token is one word; it is in the file that trivet api names")
        super().__init__(at.netloc)
        self.url, self.host, self.headers = url, at.netloc, {"Authorization": "Bearer " + token}
        self._at: Tuple[str, int] = (at.hostname, port)
        self._fingerprint = (fingerprint or "").replace(":", "").lower()
        self._tls: Optional[ssl.SSLContext] = None
        if at.scheme == "https":
            self._tls = ssl.create_default_context(cafile=None if certificate is None else os.fspath(certificate))
            if self._fingerprint:
                self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self.name = str(self.call("GET", "/v1/lab")["name"])

    @property
    def here(self) -> bool:
        return False

    def _gone(self) -> str:
        return "the API at %s has ended without an answer" % self.url

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(*self._at, timeout=_CONNECT)
        try:
            connection.connect()
            if self._tls:
                connection.sock = self._tls.wrap_socket(connection.sock, server_hostname=self._at[0])
                mine = connection.sock.getpeercert(True) or b""
                if self._fingerprint and hashlib.sha256(mine).hexdigest() != self._fingerprint:
                    raise NoLab("%s has another certificate than the one with the fingerprint %s: it is not asked" % (self.url, self._fingerprint))
            connection.sock.settimeout(None)
        except NoLab:
            connection.close()
            raise
        except ssl.SSLCertVerificationError as e:
            connection.close()
            raise NoLab("the certificate of %s: %s; give the certificate, or its fingerprint, that trivet api names" % (self.url, e.verify_message)) from None
        except OSError as e:
            connection.close()
            raise NoLab("the API at %s does not answer: %s" % (self.url, e.strerror or e)) from None
        return connection


_CONNECT = 20.0  # seconds


def _own(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Encrypted(io.RawIOBase):
    """An encrypted connection on which one thread reads while others write: OpenSSL's state is used by one at a time,
    and nobody holds it while waiting."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket, self._lock = sock, threading.Lock()
        sock.setblocking(False)

    def readable(self) -> bool:
        return True

    def _until(self, act: Any) -> Any:
        while True:
            try:
                with self._lock:
                    return act()
            except ssl.SSLWantReadError:
                wait = select.POLLIN
            except ssl.SSLWantWriteError:
                wait = select.POLLOUT
            ready = select.poll()
            ready.register(self._socket.fileno(), wait)
            ready.poll()

    def readinto(self, buffer: Any) -> int:
        return int(self._until(lambda: self._socket.recv_into(buffer)))

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._until(lambda: self._socket.send(view)):]

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def close(self) -> None:
        super().close()
        self._socket.close()


def _with(path: str, query: Dict[str, Any]) -> str:
    given = {k: v for k, v in query.items() if v not in (None, "", False, [])}
    for k, v in given.items():
        given[k] = "true" if v is True else ",".join(map(str, v)) if isinstance(v, (list, tuple)) else v
    return path + ("?" + urlencode(given) if given else "")


def problem(status: str, body: bytes) -> str:
    """What a refusal says."""
    text = body.decode(errors="replace")
    try:
        said = json.loads(text)
        parts = [said["detail"]]
    except (ValueError, KeyError, TypeError):
        return "the lab's daemon answers %s: %s" % (status, text.strip())
    for e in said.get("errors") or []:
        parts.append(" ".join(filter(None, [e.get("location"), e.get("message")])))
    return "; ".join(parts)
