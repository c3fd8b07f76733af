"""Kernels: fetched as Debian packages, unpacked into a cache, turned into an initramfs."""
import fcntl
import hashlib
import lzma
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = {"uml": "user-mode-linux", "cloud": "linux-image-cloud-{arch}", "generic": "linux-image-{arch}"}

# Where they come from, whatever release this machine has: so tests run under the same kernels everywhere, and
# User-Mode Linux is not in every release.
SUITE = "bookworm"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# What the initramfs loads before it can mount the root; the rest comes from /lib/modules.
BOOT_MODULES = ["virtio_pci", "virtiofs", "overlay", "virtio_net"]


class Failure(Exception):
    """The machine could not be started or did not survive."""


class Kernel:
    """A directory with `linux`, `busybox` (static) and lib/modules/VERSION."""

    def __init__(self, home):
        self.home = home
        self.linux, self.busybox = home / "linux", home / "busybox"
        self.modules = next((home / "lib/modules").iterdir())

    @classmethod
    def get(cls, cache, name, arch):
        """Return the kernel, fetching it on first use. The lock is for several machines that start at once."""
        home = cache / f"{name}-{arch}"
        cache.mkdir(parents=True, exist_ok=True)
        with open(cache / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not home.exists():
                print(f"vmrun: fetching the {name} kernel for {arch}", file=sys.stderr)
                with tempfile.TemporaryDirectory(dir=cache) as tmp:
                    unpack(Apt(cache, arch), PACKAGES[name].format(arch=arch), Path(tmp)).rename(home)
        return cls(home)

    def library(self, source):
        """Compile a shared library from C, once for each version of its source."""
        library = self.home / f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=self.home) as tmp:
                done = subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", f"{tmp}/new.so", source], capture_output=True, text=True)
                if done.returncode:
                    raise Failure(f"{source} does not compile: {done.stderr}")
                Path(tmp, "new.so").rename(library)
        return library

    def module(self, name):
        """The file of a module, or None where it is built in."""
        return next((p for p in self.modules.rglob("*.ko*") if module_name(p.name) == name), None)

    def initramfs(self, init):
        """A cpio archive with busybox, the modules of BOOT_MODULES in loading order, and the script init."""
        entries = [(d, 0o040755, b"") for d in ("bin", "dev", "proc", "sys", "new", "modules")]
        entries.append(("bin/busybox", 0o100755, self.busybox.read_bytes()))
        entries += self.module_files(BOOT_MODULES)
        entries.append(("init", 0o100755, init.encode()))
        return cpio(entries)

    def module_files(self, wanted):
        """The wanted modules and what they need as entries of a cpio archive, modules/NN.ko in loading order."""
        for n, path in enumerate(self.with_dependencies(wanted)):
            data = (self.modules / path).read_bytes()
            yield f"modules/{n:02}.ko", 0o100644, lzma.decompress(data) if path.endswith(".xz") else data

    def with_dependencies(self, wanted):
        """The files of the wanted modules in the order in which to load them, without the built-in ones."""
        lines = (line.partition(":") for line in (self.modules / "modules.dep").read_text().splitlines())
        depends = {path: rest.split() for path, _, rest in lines}
        by_name = {module_name(path): path for path in depends}
        order = []
        for name in wanted:
            path = by_name.get(name)
            for p in reversed([path] + depends[path]) if path else ():
                if p not in order:
                    order.append(p)
        return order


def module_name(path):
    return Path(path).name.split(".ko")[0].replace("-", "_")


class Apt:
    """apt with sources, lists and a cache of our own: needs no root and leaves the machine's alone."""

    def __init__(self, cache, arch):
        state = cache / f"apt-{arch}"
        (state / "lists/partial").mkdir(parents=True, exist_ok=True)
        (state / "archives/partial").mkdir(parents=True, exist_ok=True)
        (state / "status").touch()
        (state / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main\n")
        options = [f"APT::Architecture={arch}", f"APT::Architectures={arch}", f"Dir::State={state}",
                   f"Dir::State::status={state}/status", f"Dir::Cache={state}",
                   f"Dir::Etc::sourcelist={state}/sources.list", "Dir::Etc::sourceparts=-",
                   "APT::Sandbox::User=root", "Acquire::Languages=none"]
        self.options = [word for o in options for word in ("-o", o)]
        self.run("apt-get", "-q", "update")

    def run(self, program, *args, cwd=None):
        done = subprocess.run([program, *self.options, *args], capture_output=True, text=True, cwd=cwd)
        if done.returncode:
            raise Failure(f"{program} {' '.join(args)} failed: {done.stderr.strip() or done.returncode}")
        return done.stdout

    def unpack(self, package, into):
        """Unpack a package, or what it depends on where it is the name for the newest kernel."""
        newest = re.search(r"^Depends: (linux-image-[0-9][^ ,]*)", self.run("apt-cache", "show", package), re.M)
        with tempfile.TemporaryDirectory(dir=into.parent) as tmp:
            self.run("apt-get", "-q", "download", newest.group(1) if newest else package, cwd=tmp)
            for deb in Path(tmp).glob("*.deb"):
                subprocess.run(["dpkg", "-x", deb, into], check=True)


def mirror():
    """The Debian mirror that this machine uses."""
    uris = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True)
    for uri in uris.stdout.split():
        if uri.rstrip("/").endswith("/debian") and KEYRING.exists():
            return uri
    raise Failure("the kernels are Debian's, and this machine's apt has no Debian mirror")


def unpack(apt, package, tmp):
    """Fetch a kernel and busybox below tmp; return the directory that a Kernel is."""
    tree, new = tmp / "tree", tmp / "new"
    apt.unpack(package, tree)
    apt.unpack("busybox-static", tree)
    (new / "lib").mkdir(parents=True)
    for name, places in {"linux": ["usr/bin/linux.uml", "boot/vmlinuz-*", "boot/vmlinux-*"],
                         "busybox": ["bin/busybox", "usr/bin/busybox"],
                         "lib/modules": ["usr/lib/uml/modules", "lib/modules", "usr/lib/modules"]}.items():
        next(p for place in places for p in tree.glob(place)).rename(new / name)
    subprocess.run(["depmod", "-b", new, next((new / "lib/modules").iterdir()).name], check=True)
    new.chmod(0o755)
    return new


def cpio(entries):
    """Archive (name, mode, bytes) entries in the "newc" format (Documentation/driver-api/early-userspace)."""
    out = bytearray()
    for inode, (name, mode, data) in enumerate(entries + [("TRAILER!!!", 0, b"")], 1):
        fields = [inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out += b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0"
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return bytes(out)
