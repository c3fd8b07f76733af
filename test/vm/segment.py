"""Layer-2 segments between machines: how several of them make a rack."""
import contextlib
import hashlib
import socket
import threading
from pathlib import Path


def vlan(frame):
    """The VLAN of a frame with a tag; 0: it has none."""
    return int.from_bytes(frame[14:16], "big") & 0xfff if frame[12:14] == b"\x81\x00" else 0


class Port:
    """One NIC's port on a segment: a directory in which every port is a Unix datagram socket.

    There is no switch process: each port sends a frame to the port that its destination address was last
    heard on in the same VLAN, or else to all of them. Frames stay in the directory: nothing reaches a network
    of the host."""

    def __init__(self, segment, name):
        self.path = Path(segment, name + ".port").absolute()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self.mac = "52:54:00:" + hashlib.sha256(str(self.path).encode()).digest()[:3].hex(":")
        self.wire = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.wire.bind(str(self.path))
        self.inside, self.guest = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for s in (self.wire, self.inside, self.guest):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.heard = {}     # (VLAN, address) -> path of the port it is behind
        threading.Thread(target=self.outward, daemon=True).start()
        threading.Thread(target=self.inward, daemon=True).start()

    def outward(self):
        while frame := self.inside.recv(1 << 16):
            port = self.heard.get((vlan(frame), frame[:6]))
            for path in [port] if port else [str(p) for p in self.path.parent.glob("*.port") if p != self.path]:
                try:
                    self.wire.sendto(frame, path)
                except OSError:                     # that port is gone
                    self.heard = {a: p for a, p in self.heard.items() if p != path}

    def inward(self):
        while True:
            frame, sender = self.wire.recvfrom(1 << 16)
            if not frame[6] & 1:
                self.heard[vlan(frame), frame[6:12]] = sender
            with contextlib.suppress(OSError):
                self.inside.send(frame)

    def close(self):
        self.path.unlink(missing_ok=True)
