"""The packages that the stack is made of: all are the distribution's (Debian 12 has OpenStack Zed)."""
import os
import subprocess
import tempfile
from pathlib import Path

from place import Failure

WANTED = """
    mariadb-server rabbitmq-server memcached uwsgi-core uwsgi-plugin-python3 openvswitch-switch
    keystone neutron-server neutron-openvswitch-agent neutron-linuxbridge-agent neutron-l3-agent neutron-dhcp-agent python3-sqlalchemy-ext
    placement-api glance-api nova-api nova-scheduler nova-conductor nova-compute
    python3-libvirt libvirt-daemon libvirt-daemon-driver-qemu qemu-system-x86 qemu-utils genisoimage
    busybox-static cpio kmod openssh-server python3-openstackclient python3-pymysql python3-yaml ethtool iproute2
""".split()

POLICY = Path("/usr/sbin/policy-rc.d")      # what packages ask before they start a service


def missing():
    known = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n", *WANTED], capture_output=True, text=True).stdout
    return [p for p in WANTED if f"installed {p}" not in known.splitlines()]


def install(logs):
    if not (wanted := missing()):
        return
    before = units()
    print(f"installing {len(wanted)} packages and what they need, which takes minutes", flush=True)
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as detour, open(logs / "apt.log", "w") as log:
        # No service is started, and Python files are not compiled ahead of use, which would take longer than all the rest.
        program(Path(detour, "py3compile"), "exit 0")
        ours = not POLICY.exists()
        if ours:
            program(POLICY, "exit 101")
        try:
            for command in (["update"], ["install", "--no-install-recommends", *wanted]):
                if subprocess.run(["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600", "-o", "Dpkg::Options::=--force-unsafe-io",
                                   "-o", "Dpkg::Use-Pty=0", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                  env=os.environ | {"DEBIAN_FRONTEND": "noninteractive", "PATH": f"{detour}:{os.environ['PATH']}"}).returncode:
                    raise Failure(f"apt-get {command[0]} failed; what it said is in {log.name}")
        finally:
            if ours:
                POLICY.unlink()
    if os.path.isdir("/run/systemd/system") and (new := units() - before):
        subprocess.run(["systemctl", "disable", "--quiet", *new])       # nor is any started when the machine boots


def units():
    return {file.name for file in Path("/lib/systemd/system").glob("*.service")}


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
