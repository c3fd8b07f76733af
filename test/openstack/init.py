#!/usr/bin/python3
"""The first process of the stack's namespaces (`stack start` starts it): it sets up what all services see, has setup.py
start them, and buries what ends. When it ends, all in the namespaces does: processes, bridges, taps, Neutron's
namespaces.

    init.py MODE NETNS      NETNS is a file descriptor: the network namespace of the head"""
import contextlib
import os
import signal
import subprocess
import sys
import time

from place import ENVIRONMENT, HERE, STATE


def main():
    mode, netns = sys.argv[1:]
    # Before the change of /proc this is the process as the outside knows it.
    pid = os.readlink("/proc/self")
    with open(f"/proc/{pid}/stat") as stat:
        began = stat.read().rsplit(")", 1)[1].split()[19]
    (STATE / "pid").write_text(f"{pid} {began} {mode}\n")
    mounts(mode)
    setup = subprocess.Popen([sys.executable, "-B", HERE / "setup.py", mode, f"/proc/1/fd/{netns}"], env=ENVIRONMENT, cwd="/")
    signal.signal(signal.SIGTERM, lambda *_: stop(setup.pid))
    while True:
        ended, status = os.wait()
        if ended == setup.pid:
            if status:
                stop()
            (STATE / "ready").touch()
            continue
        for file in (STATE / "run").glob("*"):
            if file.read_text() == str(ended):
                file.write_text(f"ended with status {os.waitstatus_to_exitcode(status)}")


def mounts(mode):
    """What is the stack's own: /run, with Neutron's namespaces and all sockets, and what the kernel says about processes."""
    def run(*command):
        subprocess.run(command, check=True)
    run("mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run")
    for d in ("lock", "openvswitch", "neutron"):
        os.mkdir(f"/run/{d}")
    run("mount", "-t", "proc", "proc", "/proc")
    if mode == "bridges":       # the agent reads in /sys which interfaces there are
        os.mkdir("/run/fs")
        run("mount", "--rbind", "/sys/fs", "/run/fs")
        run("mount", "-t", "sysfs", "sysfs", "/sys")
        for at in ("bpf", "cgroup"):
            run("mount", "--rbind", f"/run/fs/{at}", f"/sys/fs/{at}")
        run("umount", "--lazy", "/run/fs")
    run("ip", "link", "set", "lo", "up")
    run("hostname", "openstack")


def stop(setup=None):
    """End at once, but for the database, which is to be opened again."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        if setup:
            os.kill(setup, signal.SIGKILL)      # what it started is now ours to bury
            os.waitpid(setup, 0)
    services = {file.name: int(text) for file in (STATE / "run").glob("*") if (text := file.read_text()).isdigit()}
    mariadb = services.pop("mariadb", None)
    for pid in services.values():
        os.kill(pid, signal.SIGKILL)
    if mariadb:
        os.kill(mariadb, signal.SIGTERM)
        end = time.monotonic() + 15
        while time.monotonic() < end and os.waitpid(mariadb, os.WNOHANG) == (0, 0):
            time.sleep(0.05)
    os._exit(1 if setup is None else 0)


main()
