"""Sends to an address through an interface until stdin ends, and says as JSON what was answered.

An echo each 4 ms is a flow that is known; an ARP request each 60 ms, each of a host that nobody
has heard of, is a new one. However soon stdin ends, as many echoes are sent as a result rests on.
"""
import json, os, select, socket, struct, sys, time

interface, address = sys.argv[1:3]
arp = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
arp.bind((interface, 0))
echo = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def ask_echo(n):
    rest = struct.pack("!HHI", os.getpid() & 0xFFFF, n & 0xFFFF, n)
    echo.sendto(b"\x08\x00" + struct.pack("!H", checksum(b"\x08\x00\x00\x00" + rest)) + rest, (address, 0))
    return n


def ask_new(n):
    mac = b"\x06" + os.urandom(5)
    arp.send(b"\xff" * 6 + mac + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + mac + bytes(10) + socket.inet_aton(address))
    return mac


class Kind:
    def __init__(self, period, ask):
        self.period, self.ask, self.due, self.asked, self.answered = period, ask, time.monotonic(), {}, {}

    def turn(self):
        if time.monotonic() >= self.due:
            self.asked[self.ask(len(self.asked))] = time.monotonic()
            self.due = max(self.due + self.period, time.monotonic())

    def answer(self, what):
        if what in self.asked:
            self.answered.setdefault(what, time.monotonic())

    def all(self):
        return len(self.answered) == len(self.asked)

    def result(self):
        blackout, since = 0, None
        for what, at in self.asked.items():
            since = None if what in self.answered else since or at
            blackout = max(blackout, at + self.period - since if since else 0)
        slowest = max((at - self.asked[what] for what, at in self.answered.items()), default=0)
        return {"sent": len(self.asked), "lost": len(self.asked) - len(self.answered), "blackout": round(blackout, 2), "slowest": round(slowest, 3)}


enough = 500
known, new, end, ends = Kind(0.004, ask_echo), Kind(0.06, ask_new), None, False
print("sending", flush=True)
while end is None or time.monotonic() < end and not (known.all() and new.all()):
    if end is None:
        known.turn()
        new.turn()
    ready, _, _ = select.select([arp, echo] + ([] if ends else [sys.stdin]), [], [], 0.002)
    if arp in ready:
        frame = arp.recv(200)
        if frame[20:22] == b"\x00\x02":
            new.answer(frame[:6])
    if echo in ready:
        kind, _, _, ident, _, n = struct.unpack("!BBHHHI", echo.recv(2000)[20:32])
        if kind == 0 and ident == os.getpid() & 0xFFFF:
            known.answer(n)
    ends = ends or sys.stdin in ready
    if ends and end is None and len(known.asked) >= enough:
        end = time.monotonic() + 20
print(json.dumps({"known": known.result(), "new": new.result()}))
