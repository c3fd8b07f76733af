#!/usr/bin/python3
"""The first process of a server's body (bodies.py starts it in namespaces of its own): gives it a file system of its own,
waits for its interfaces and for what Nova says about it, does what a cloud's image does when it boots, and buries what
ends. When nothing runs any more it ends itself, and the server boots anew.

Its file system is this machine's with a layer in memory above it: the same programs are installed, and what is written
is the body's. It has no home directory, /tmp, /var/tmp or /run in common with anybody."""
import contextlib
import ctypes
import email
import json
import os
import subprocess
import sys

import yaml

SSHD = """
HostKey /etc/ssh/host_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
"""


def main():
    own_files()
    print("namespaces", flush=True)
    told = json.loads(sys.stdin.readline())
    boot(told["hostname"], told["key"], told["user_data"])
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def own_files():
    def mount(*args):
        subprocess.run(["mount", *args], check=True)
    mount("-t", "tmpfs", "own", "/run")             # that of the stack is hidden here, and goes with its root below
    for d in ("up", "work", "root"):
        os.mkdir(f"/run/{d}")
    mount("-t", "overlay", "-o", "lowerdir=/,upperdir=/run/up,workdir=/run/work", "own", "/run/root")
    os.chdir("/run/root")
    mount("--rbind", "/dev", "dev")
    mount("-t", "proc", "proc", "proc")
    mount("-t", "sysfs", "sysfs", "sys")            # with the interfaces of this namespace
    mount("--rbind", "/sys/fs/cgroup", "sys/fs/cgroup")
    for d, mode in (("run", 755), ("root", 700), ("tmp", 1777), ("var/tmp", 1777)):
        mount("-t", "tmpfs", "-o", f"mode={mode}", "own", d)
    subprocess.run(["pivot_root", ".", "."], check=True)
    ctypes.CDLL(None).umount2(b".", 2)              # MNT_DETACH: the former root, which lies above
    os.chdir("/")
    for d in ("/run/lock", "/run/mount", "/run/sshd"):
        os.mkdir(d)
    # One machine's labs set and restore this; several machines here have one kernel.
    if os.path.exists("/sys/kernel/rcu_expedited"):
        with open("/run/rcu_expedited", "w") as f:
            f.write("0\n")
        mount("--bind", "/run/rcu_expedited", "/sys/kernel/rcu_expedited")
        os.remove("/run/rcu_expedited")
    os.environ.clear()
    os.environ.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root", LC_ALL="C.UTF-8")


def boot(hostname, key, data):
    """Do as much of what cloud-init does as a lab's machines need: of a #cloud-config these keys, and scripts."""
    config, scripts = read(data)
    write("/etc/hostname", config.get("hostname", hostname) + "\n")
    subprocess.run(["hostname", "-F", "/etc/hostname"], check=True)
    write("/etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {config.get('hostname', hostname)}\n")
    keys = [key] if key else []
    keys += config.get("ssh_authorized_keys", [])
    os.mkdir("/root/.ssh", 0o700)
    write("/root/.ssh/authorized_keys", "".join(k.strip() + "\n" for k in keys), 0o600)
    given = config.get("ssh_keys", {}).get("ed25519_private")
    if given:
        write("/etc/ssh/host_key", given.strip() + "\n", 0o600)
    else:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", hostname, "-f", "/etc/ssh/host_key"], check=True)
    for file in config.get("write_files", []):
        os.makedirs(os.path.dirname(file["path"]), exist_ok=True)
        write(file["path"], file.get("content", ""), int(str(file.get("permissions", "0644")), 8))
    write("/etc/ssh/sshd_config", SSHD)
    subprocess.Popen(["/usr/sbin/sshd", "-D", "-e"], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    for command in config.get("runcmd", []):
        command = ["sh", "-c", command] if isinstance(command, str) else command
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr).wait()
    for i, script in enumerate(scripts):
        write(f"/run/user-data-{i}", script, 0o700)
        subprocess.Popen([f"/run/user-data-{i}"], stdin=subprocess.DEVNULL, stdout=sys.stderr)


def read(data):
    """The cloud-config and the scripts of user data, which may be an archive of several parts."""
    if data.startswith("#!"):
        return {}, [data]
    if data.startswith("#cloud-config"):
        return yaml.safe_load(data) or {}, []
    config, scripts = {}, []
    for part in email.message_from_string(data).walk():
        if part.get_content_type() == "text/cloud-config":
            config = yaml.safe_load(part.get_payload()) or {}
        elif part.get_content_type() == "text/x-shellscript":
            scripts.append(part.get_payload())
    return config, scripts


def write(path, text, mode=0o644):
    with open(path, "w") as f:
        os.chmod(path, mode)
        f.write(text)


main()
