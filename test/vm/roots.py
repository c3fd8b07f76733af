"""Root file systems for machines of another architecture than this one, whose own cannot serve: made of Debian's packages."""
import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kernels import KEYRING, SUITE, Failure, mirror

# What a device of a rack has, with what these packages depend on. They are only unpacked: their scripts would want an emulator.
PACKAGES = ["base-files", "bash", "coreutils", "dash", "findutils", "grep", "gzip", "hostname", "iperf3", "iproute2", "iputils-ping", "kmod", "libc-bin",
            "mount", "nftables", "openssh-server", "procps", "python3-minimal", "sed", "tar", "util-linux"]

# What those scripts would have written, as far as it is needed. sshd wants a user of its own.
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def get(cache, arch):
    """Return the directory of the root, which is made on first use, and once for each version of what is in it."""
    recipe = hashlib.sha256(repr((SUITE, PACKAGES, FILES)).encode()).hexdigest()[:16]
    home = cache / f"root-{arch}-{recipe}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            make(cache, arch, home)
    return home


def make(cache, arch, home):
    if not shutil.which("mmdebstrap"):
        raise Failure("mmdebstrap is missing, which makes a root file system for another architecture; install the package, or name one by --root")
    print(f"vmrun: making a root file system for {arch}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=cache) as tmp:
        root = Path(tmp, "root")
        done = subprocess.run(["mmdebstrap", f"--arch={arch}", "--variant=extract", "--include=" + ",".join(PACKAGES), SUITE, root,
                               f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main"], capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"mmdebstrap failed: {done.stderr.strip() or done.returncode}")
        for name, text in FILES.items():
            (root / name).write_text(text)
        root.rename(home)
