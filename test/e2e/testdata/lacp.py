"""python3 lacp.py INTERFACE  is the active end of an aggregated link: it sends a LACPDU each second (IEEE 802.1AX, 6.4.2.3; short
timeout) and says when an answer comes. It ends 3 s after the first."""

import socket
import struct
import sys
import time

SLOW = 0x8809
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(SLOW))
s.bind((sys.argv[1], SLOW))
s.setsockopt(263, 1, struct.pack("IHH8s", socket.if_nametoindex(sys.argv[1]), 0, 6, bytes.fromhex("0180c2000002")))
mac = s.getsockname()[4]
s.settimeout(1)


def tlv(kind, port, state):
    return struct.pack("!BBH6sHHHB3x", kind, 20, 65535, mac if port else bytes(6), 1, 255, port, state)


pdu = b"\x01\x01" + tlv(1, 1, 0x47) + tlv(2, 0, 0) + struct.pack("!BBH12x", 3, 16, 0) + b"\0\0" + bytes(50)
frame = bytes.fromhex("0180c2000002") + mac + struct.pack("!H", SLOW) + pdu
answered = None
while answered is None or time.time() < answered + 3:
    s.send(frame)
    try:
        got = s.recvfrom(2000)
        if got[1][2] != socket.PACKET_OUTGOING and answered is None:
            answered = time.time()
            print("an answer", flush=True)
        time.sleep(0.5)
    except socket.timeout:
        pass
