"""OpenStack's APIs, as a client in Python's standard library."""
import json
import time
import urllib.error
import urllib.request

from place import PASSWORD, Failure, url

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))       # no proxy of the environment


class Api:
    """A session of an account, named like its project, which logs in when it is first used; the address is what services are asked at."""

    def __init__(self, who="admin", address="127.0.0.1"):
        self.who, self.address, self.token = who, address, None

    def call(self, method, kind, path, body=None, raw=None):
        """Call a service ("network"); the answer as JSON has it. What may pass (5xx, no connection) is an OSError, all else a Failure."""
        if not self.token:
            self.log_in()
        return self._call(method, url(kind, self.address) + path, body, raw)[1]

    def get(self, kind, path):
        return self.call("GET", kind, path)

    def log_in(self):
        scope = {"name": self.who, "domain": {"id": "default"}}
        headers, _ = self._call("POST", url("identity", self.address) + "/auth/tokens", {"auth": {
            "identity": {"methods": ["password"], "password": {"user": {**scope, "password": PASSWORD}}},
            "scope": {"project": scope}}})
        self.token = headers["X-Subject-Token"]

    def _call(self, method, address, body=None, raw=None):
        headers = {"Accept": "application/json", "Content-Type": "application/octet-stream" if raw else "application/json"}
        if self.token:
            headers["X-Auth-Token"] = self.token
        data = raw or (json.dumps(body).encode() if body is not None else None)
        try:
            with OPENER.open(urllib.request.Request(address, data, headers, method=method), timeout=60) as answer:
                text = answer.read()
                return answer.headers, json.loads(text) if text[:1] in (b"{", b"[") else None
        except urllib.error.HTTPError as e:
            text = f"{method} {address}: {e.code} {e.read().decode(errors='replace')[:300]}"
            if e.code >= 500:
                raise ConnectionError(text) from None
            raise Failure(text) from None

    def ensure(self, kind, path, what, match, more=None):
        """The id of the object (a "project") of a list that has these properties; it is made if there is none."""
        for found in next(v for v in self.get(kind, path).values() if isinstance(v, list)):
            if all(found.get(k) == v for k, v in match.items()):
                return found["id"]
        made = self.call("POST", kind, path, {what: {**match, **(more or {})}} if kind != "image" else {**match, **more})
        return (made[what] if kind != "image" else made)["id"]


def wait(what, seconds, test):
    """Wait until a test is true; an OSError is a no."""
    end = time.monotonic() + seconds
    while True:
        said = ""
        try:
            if test():
                return
        except OSError as e:
            said = f": {e}"
        if time.monotonic() > end:
            raise Failure(f"{what} is not ready after {seconds} s{said}")
        time.sleep(0.2)
