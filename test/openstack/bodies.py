#!/usr/bin/python3
"""Gives each server of Nova that is active a body, and takes it away when the server no longer is: with the fake driver
a server is a record only.

A body is a machine as far as its programs can tell (body.py). What is to be there is read from Nova's tables, twice a
second, which costs next to nothing; its API would take a tenth of a processor to say the same."""
import base64
import contextlib
import json
import subprocess
import sys
import time
import traceback

import pymysql

import ports
from api import Api
from place import HERE, LOGS, SOCKET

SERVERS = "select uuid, hostname, key_data, user_data from instances where deleted = 0 and vm_state = 'active' order by id"
NICS = "select instance_uuid, uuid from virtual_interfaces where deleted = 0 order by id"


def main():
    nova = pymysql.connect(unix_socket=str(SOCKET), user="root", database="nova", autocommit=True, charset="utf8")
    api, bodies = Api(), {}
    while True:
        with nova.cursor() as cursor:
            cursor.execute(SERVERS)
            wanted = {uuid: row for uuid, *row in cursor.fetchall()}
            cursor.execute(NICS)
            nics = {}
            for uuid, port in cursor.fetchall():
                nics.setdefault(uuid, []).append(port)
        for uuid in [u for u, body in bodies.items() if u not in wanted or body.ended()]:
            bodies.pop(uuid).end(api)
        new = [uuid for uuid in wanted if uuid not in bodies]
        bodies |= {uuid: Body(uuid) for uuid in new}        # all begin at the same time
        for uuid, row in wanted.items():
            # What fails is tried again next time: as a rule what it is about was deleted meanwhile.
            with complaints():
                if uuid in new:
                    bodies[uuid].boot(api, nics.get(uuid, []), *row)
                    say(f"{row[0]} ({uuid}) has a body")
                bodies[uuid].rewire(api, nics.get(uuid, []))
        time.sleep(0.5)


class Body:
    def __init__(self, uuid):
        self.name = "server-" + uuid
        with open(LOGS / f"{self.name}.log", "ab") as log:
            self.init = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount", "--net", "--uts", "--ipc",
                                          sys.executable, "-B", HERE / "body.py"],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.netns = f"/proc/{self.init.pid}/ns/net"
        self.plugged, self.next = set(), 0      # ports, and the number of the interface that comes next

    def boot(self, api, nics, hostname, key, data):
        try:
            if self.init.stdout.readline() != "namespaces\n":
                raise RuntimeError(f"the body did not start; why is in {LOGS}/{self.name}.log")
            self.plug(api, nics)
            told = {"hostname": hostname, "key": key, "user_data": base64.b64decode(data or "").decode(errors="replace")}
            self.init.stdin.write(json.dumps(told) + "\n")
            self.init.stdin.flush()
        except BaseException:
            self.init.kill()                    # so that the next round ends it
            raise

    def plug(self, api, nics):
        ports.plug(api, self.netns, self.name, nics, self.next)
        self.plugged |= set(nics)
        self.next += len(nics)

    def rewire(self, api, nics):
        """Interfaces come and go while a server runs."""
        if gone := self.plugged - set(nics):
            ports.unplug(api, {d: noted for d, noted in ports.interfaces(self.name).items() if noted["iface-id"] in gone})
            self.plugged -= gone
        if new := [nic for nic in nics if nic not in self.plugged]:
            self.plug(api, new)

    def ended(self):
        return self.init.poll() is not None

    def end(self, api):
        self.init.kill()                        # and with it (--kill-child) all in its namespaces
        self.init.wait()
        self.init.stdin.close()
        self.init.stdout.close()
        with complaints():
            ports.unplug(api, ports.interfaces(self.name))
        say(f"{self.name} has no body any more")


@contextlib.contextmanager
def complaints():
    try:
        yield
    except Exception:
        traceback.print_exc()


def say(text):
    print(time.strftime("%H:%M:%S"), text, flush=True)


main()
