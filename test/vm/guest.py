"""What runs inside the machine: two scripts for busybox's shell."""
import os
import re
import shlex
import shutil

# What nothing loads on demand (there is no udev to create /dev/net/tun), and what other kernels have from the start;
# vlan, vrf, netem and the like load themselves.
MODULES = ["ipv6", "tun", "openvswitch", "mpls_router"]

# Process 1: mounts the root and everything below it, then runs the job in it.
INIT = r"""#!{shell} sh
B={busybox}
run() {{ $B "$@"; }}
mnt() {{ run mount -t "$1" -o "$4" "$2" "$3"; }}         # mnt TYPE SOURCE DIR OPTIONS
share() {{ run mkdir -p "$3"; {share}; }}                # share TAG HOSTDIR DIR ro|rw
{early}
run mkdir -p /dev/shm; mnt tmpfs tmpfs /dev/shm mode=755; S=/dev/shm
share root / $S/low ro
run mkdir $S/mem; mnt tmpfs tmpfs $S/mem size=75%
run mkdir $S/mem/up $S/mem/work $S/new
mnt overlay overlay $S/new lowerdir=$S/low,upperdir=$S/mem/up,workdir=$S/mem/work || exit 1
N=$S/new
run mkdir -p $N/proc $N/sys $N/dev $N/run $N/tmp
mnt proc proc $N/proc nosuid; mnt sysfs sysfs $N/sys nosuid; mnt devtmpfs dev $N/dev mode=755
run mkdir -p $N/dev/pts $N/dev/shm; mnt devpts devpts $N/dev/pts mode=620,ptmxmode=666
mnt tmpfs tmpfs $N/dev/shm mode=1777; mnt tmpfs tmpfs $N/run mode=755
run ln -sf /proc/self/fd $N/dev/fd
for p in 0:stdin 1:stdout 2:stderr; do run ln -sf /proc/self/fd/${{p%%:*}} $N/dev/${{p#*:}}; done
mnt cgroup2 cgroup $N/sys/fs/cgroup nosuid
for c in cpuset cpu io memory pids; do echo +$c >$N/sys/fs/cgroup/cgroup.subtree_control; done 2>/dev/null
mnt bpf bpf $N/sys/fs/bpf mode=700 2>/dev/null
mnt debugfs debugfs $N/sys/kernel/debug mode=700 2>/dev/null
mnt tracefs tracefs $N/sys/kernel/tracing mode=700 2>/dev/null
run mkdir -p $N/run/netns $N/run/lock $N/run/sshd $N/run/vmrun $N/var/run
run cp $B $N/run/vmrun/busybox
share modules {modules} $N/lib/modules ro
[ -x $N/sbin/modprobe ] || {{
	run ln -s busybox $N/run/vmrun/modprobe
	echo /run/vmrun/modprobe >$N/proc/sys/kernel/modprobe
}}
{shares}
share job {job} $N/run/vmrun/job rw
{enter}
"""

# How process 1 enters the final root: by changing the root of the mount namespace, not only its own, or a process
# that enters that namespace again would be outside.
ENTER = {
    "uml": """run mkdir $N/run/vmrun/old
cd $N && run pivot_root . run/vmrun/old
exec run/vmrun/busybox chroot . /run/vmrun/busybox sh /run/vmrun/job/job""",
    "qemu": "exec $B switch_root $N /run/vmrun/busybox sh /run/vmrun/job/job",
}

# Still process 1, in the final root. Pipes, not the files themselves, are CMD's standard streams, as programs
# expect; the marks tell the host that the streams are complete.
JOB = r"""J=/run/vmrun/job; B=/run/vmrun/busybox
[ ! -d /run/vmrun/old ] || $B umount -l /run/vmrun/old
while echo >>$J/alive; do $B sleep 1; done &
$B hostname {name}
$B ip link set lo up
$B modprobe -a {preload} 2>/dev/null
{nics}
while [ $($B cut -d. -f1 /proc/uptime) -lt {uptime} ]; do $B sleep 0.1; done
$B mkfifo /run/vmrun/1 /run/vmrun/2
$B cat </run/vmrun/1 >$J/out & $B cat </run/vmrun/2 >$J/err &
exec 7>/run/vmrun/1 8>/run/vmrun/2
: >$J/begun
(
{environment}
cd {cwd} && exec {command}
) </dev/null >&7 2>&8 7>&- 8>&-
status=$?
printf '{mark}%d\n' $status >&7; printf '{mark}%d\n' $status >&8
$B sleep 5          # the host powers us off as soon as it has read the marks
$B poweroff -f
"""


def write(options, kernel, job, mark):
    """Write the scripts `init` and `job` into the directory job."""
    (job / "init").write_text(init_script(options, kernel, job))
    (job / "init").chmod(0o755)
    (job / "job").write_text(job_script(options, mark))


def init_script(options, kernel, job):
    if options.kernel == "uml":
        shell = busybox = str(kernel.busybox)
        share = 'mnt hostfs none "$3" "$4,$2"'
        early = f"mnt proc proc /proc nosuid; run insmod {shlex.quote(str(kernel.module('overlay')))}"
    else:
        shell = busybox = "/bin/busybox"
        share = 'mnt virtiofs $1 "$3" $4'
        early = ("mnt proc proc /proc nosuid; mnt sysfs sysfs /sys nosuid; mnt devtmpfs dev /dev mode=755\n"
                 "for m in /modules/*.ko; do run insmod $m || echo cannot load $m; done")
    shares = "\n".join(f"share share{n} {shlex.quote(d)} $N{shlex.quote(d)} {mode}"
                       for n, (d, mode) in enumerate(options.share))
    return INIT.format(shell=shell, busybox=shlex.quote(busybox), share=share, early=early, shares=shares,
                       enter=ENTER["uml" if options.kernel == "uml" else "qemu"],
                       modules=shlex.quote(str(kernel.modules.parent)), job=shlex.quote(str(job)))


def job_script(options, mark):
    nics = []
    for n, _ in enumerate(options.net):
        if options.kernel == "uml":
            nics.append(f"$B ip link set vec{n} name eth{n}")
        nics.append(f"$B ip link set eth{n} up")
    environment = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in os.environ.items()
                            if re.fullmatch(r"[A-Za-z_]\w*", name, re.A) and name not in ("PWD", "OLDPWD", "SHLVL"))
    return JOB.format(name=options.name, preload=" ".join(MODULES + options.module), nics="\n".join(nics),
                      uptime=int(options.uptime), environment=environment, mark=mark.replace("\x1e", r"\036"),
                      cwd=shlex.quote(directory(options)),
                      command=shlex.join([program(options), *options.command[1:]]))


def directory(options):
    """Where CMD runs: in the current directory if it is there."""
    here = os.getcwd()
    return here if options.root == "/" or any(os.path.commonpath([here, d]) == d for d, _ in options.share) else "/"


def program(options):
    """CMD with its directory: left to itself, busybox's shell would run its own `sh`, `ip` or `ping`."""
    name, root = options.command[0], options.root.rstrip("/")
    path = ":".join(root + d for d in os.environ.get("PATH", os.defpath).split(":") if d.startswith("/"))
    found = shutil.which(name, path=path)
    return found.removeprefix(root) if found and "/" not in name else name
