"""Machines: the processes that emulate them."""
import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from kernels import Failure

# Architecture: QEMU's program, its package, the machine, the serial console.
ARCHES = {
    "amd64": ("qemu-system-x86_64", "qemu-system-x86", "pc,vmport=off,hpet=off", "ttyS0"),
    "arm64": ("qemu-system-aarch64", "qemu-system-arm", "virt,gic-version=3", "ttyAMA0"),
}

# This machine's own.
NATIVE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine)


def check(options):
    """Fail where something is missing."""
    if options.kernel == "uml" and amx() and not shutil.which("cc"):
        raise Failure("a C compiler is missing, which uml needs on a processor with AMX; install the package gcc, or use --kernel cloud")
    if options.kernel != "uml":
        if os.geteuid() != 0:
            raise Failure(f"--kernel {options.kernel} needs root, for virtiofsd to read every file; use sudo, or --kernel uml")
        program, package, _, _ = ARCHES[options.arch]
        if not shutil.which(program):
            raise Failure(f"{program} is missing; install the package {package}")
        virtiofsd()


def start(options, kernel, job, ports, console, processes):
    """Start the machine and what it needs; append every process to processes; return the machine's."""
    if options.kernel == "uml":
        command = uml(options, kernel, job, ports)
    else:
        (job / "initrd").write_bytes(kernel.initramfs((job / "init").read_text()))
        command = qemu(options, kernel, job, ports)
        share(shares(options, kernel, job), job, processes)
    processes.append(spawn(command, console, [p.guest.fileno() for p in ports]))
    return processes[-1]


def registers(job):
    """Where the processors of a machine of QEMU's are, for whoever looks for the reason why it hangs."""
    told = b""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as monitor:
        monitor.settimeout(5)
        monitor.connect(str(job / "monitor"))
        monitor.sendall(b"info registers -a\n")
        while data := monitor.recv(1 << 16):
            told += data
    return "\n  ".join(line for line in told.decode(errors="replace").splitlines() if re.match(r"CPU#|RIP=|PC=", line.strip()))


def end(processes):
    """End what start started."""
    for p in reversed(processes):
        if p.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, signal.SIGKILL)
        p.wait()


def spawn(command, console, fds=()):
    """Start a process that ends with us, however we end; as root in a PID namespace, so that its children do too.
    There a shell is process 1: as such User-Mode Linux could not end itself by a signal, as it does after a panic."""
    if os.geteuid() == 0:
        command = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", "--",
                   "sh", "-c", 'ulimit -c 0; "$@"; exit $?', "sh", *command]
    return subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                            pass_fds=fds, start_new_session=True, preexec_fn=die_with_parent)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)     # PR_SET_PDEATHSIG


def amx():
    """Whether the processor has registers that User-Mode Linux 6.1 does not know (xstate.c)."""
    return " amx_tile" in Path("/proc/cpuinfo").read_text()


def uml(options, kernel, job, ports):
    known = ["env", f"LD_PRELOAD={kernel.library(Path(__file__).parent / 'xstate.c')}"] if amx() else []
    nics = [f"vec{n}:transport=fd,fd={p.guest.fileno()},mac={p.mac}" for n, p in enumerate(ports)]
    return [*known, kernel.linux, f"mem={options.mem}M", "rootfstype=hostfs", f"rootflags={options.root}", "ro",
            f"init={job}/init", "con=null", "con0=null,fd:1", f"uml_dir={job}/", "umid=vm", "panic=-1",
            "initcall_blacklist=raid6_select_algo,calibrate_xor_blocks",       # two seconds of benchmarks
            f"loglevel={loglevel(options)}", *nics]


def qemu(options, kernel, job, ports):
    """Emulated, never accelerated: so a machine is the same wherever it runs, inside other machines too. One thread
    emulates all processors: with one for each QEMU 7.2 may go on executing the int3 that another processor has written,
    and replaced since, while the kernel patches its code: both then take that exception for ever."""
    program, _, machine, tty = ARCHES[options.arch]
    command = [program, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
               "-machine", machine, "-accel", "tcg,thread=single", "-cpu", "max",
               "-smp", options.cpus, "-m", options.mem, "-monitor", f"unix:{job}/monitor,server=on,wait=off",
               "-object", f"memory-backend-memfd,id=mem,size={options.mem}M,share=on", "-numa", "node,memdev=mem",
               "-kernel", kernel.linux, "-initrd", job / "initrd",
               "-append", f"console={tty} panic=-1 oops=panic mitigations=off nokaslr tsc=reliable no_timer_check "
                          f"rcupdate.rcu_expedited=1 loglevel={loglevel(options)}"]
    for tag, _, _ in shares(options, kernel, job):
        command += ["-chardev", f"socket,id={tag},path={job}/{tag}.sock",
                    "-device", f"vhost-user-fs-pci,chardev={tag},tag={tag}"]
    for n, p in enumerate(ports):
        command += ["-netdev", f"dgram,id=net{n},local.type=fd,local.str={p.guest.fileno()}",
                    "-device", f"virtio-net-pci,netdev=net{n},mac={p.mac},romfile="]
    return command


def loglevel(options):
    return 7 if options.verbose else 4


def shares(options, kernel, job):
    """(tag, directory, ro or rw) of each file system that QEMU's guest mounts."""
    return [("root", options.root, "ro"), ("modules", kernel.modules.parent, "ro"), ("job", job, "rw"),
            *((f"share{n}", d, mode) for n, (d, mode) in enumerate(options.share))]


def virtiofsd():
    """The command that shares directories with QEMU's guest: the program of its own package, which must be told
    not to show mounts below a directory as file systems of their own (an overlay refuses them), or QEMU's."""
    for program, options in (("/usr/libexec/virtiofsd", ["--no-announce-submounts"]), ("/usr/lib/qemu/virtiofsd", [])):
        if os.access(program, os.X_OK):
            return [program, *options]
    raise Failure("virtiofsd is missing; install the package virtiofsd (up to Debian 12: qemu-system-common)")


def share(directories, job, processes):
    """Start a virtiofsd for each directory and wait until they listen."""
    with open(job / "virtiofsd.log", "wb") as log:
        for tag, path, mode in directories:
            processes.append(spawn([*virtiofsd(), f"--socket-path={job}/{tag}.sock", "-o", f"source={path}", "-f",
                                    "-o", "sandbox=chroot", "-o", "cache=" + ("always" if mode == "ro" else "auto"),
                                    "-o", "xattr"], log))
    while not all((job / f"{tag}.sock").exists() for tag, _, _ in directories):
        if any(p.poll() is not None for p in processes):
            raise Failure("virtiofsd ended: " + (job / "virtiofsd.log").read_text(errors="replace").strip())
        time.sleep(0.01)
