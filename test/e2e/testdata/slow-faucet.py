#!/usr/bin/env python3
"""Faucet (at $FAUCET) behind a relay that lets a switch have its flow entries one by one, with time between, once there
is a file $SLOW."""
import os
import signal
import socket
import subprocess
import sys
import threading
import time

PORT = "--ryu-ofp-tcp-listen-port="
FLOW_MOD = 14
FIRST, PAUSE = 1, 0.02  # seconds


def exactly(sock, count):
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data


def to_controller(switch, controller):
    while data := switch.recv(65536):
        controller.sendall(data)


def to_switch(controller, switch):
    pause = FIRST
    while True:
        head = exactly(controller, 8)
        body = exactly(controller, int.from_bytes(head[2:4], "big") - 8)
        if head[1] == FLOW_MOD and os.path.exists(os.environ["SLOW"]):
            time.sleep(pause)
            pause = PAUSE
        switch.sendall(head + body)


def until_closed(carry, source, target):
    try:
        carry(source, target)
    except OSError:
        pass
    for sock in source, target:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def connect(port):
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:  # Faucet does not listen yet
            time.sleep(0.05)


def main():
    port = next(int(a[len(PORT):]) for a in sys.argv if a.startswith(PORT))
    with socket.create_server(("127.0.0.1", 0)) as free:
        behind = free.getsockname()[1]
    args = [PORT + str(behind) if a.startswith(PORT) else a for a in sys.argv[1:]]
    faucet = subprocess.Popen([os.environ["FAUCET"], *args])
    signal.signal(signal.SIGHUP, lambda number, _: faucet.send_signal(number))
    server = socket.create_server(("127.0.0.1", port), backlog=64)
    while True:
        switch, _ = server.accept()
        controller = connect(behind)
        for args in (to_controller, switch, controller), (to_switch, controller, switch):
            threading.Thread(target=until_closed, args=args, daemon=True).start()


main()
