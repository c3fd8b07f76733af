"""The guest `debian`: a disk with Debian, systemd, cloud-init and an SSH server, as the images of clouds have them, which boots by BIOS.

It is written as files are: a root file system from a directory (mke2fs -d), and a FAT file system with SYSLINUX, kernel and
initramfs (mtools). So nothing is mounted but what mmdebstrap wants in the directory, and there are no loop devices."""
import os
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import kernels

# The kernel, and what of it the initramfs loads to find the root on a disk of QEMU's: virtio, SCSI or IDE.
KERNEL = "cloud"
MODULES = ["virtio_pci", "virtio_blk", "virtio_scsi", "ata_piix", "sd_mod"]

PACKAGES = ["cloud-init", "dbus", "iperf3", "iproute2", "iputils-ping", "kmod", "netplan.io", "openssh-server", "systemd-resolved", "systemd-sysv", "udev"]

# What no test reads.
EXCLUDED = ["/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/i18n/*", "/usr/share/man/*"]

# What would make emulated machines slow, or changes them behind a test's back.
MASKED = ["apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer", "getty@tty1.service",
          "networkd-dispatcher.service", "systemd-pstore.service", "systemd-timesyncd.service"]

LABEL = "debian"    # of the root file system

# The password of root is "debian", on the console alone: sshd takes keys only.
PASSWORD = "$6$trivet$yBPrHDmjphy36Srak/9LM8fHzfWOP8sJuazxi1BSlFFpE5d8GFA6MJAdsCr2yQarZNYcZe82fYEkS6fHc3Bgc0"

FILES = {
    "etc/fstab": f"LABEL={LABEL} / ext4 noatime 0 0\n",
    "etc/hostname": "debian\n",
    "etc/machine-id": "",       # each machine makes its own
    "etc/systemd/journald.conf.d/volatile.conf": "[Journal]\nStorage=volatile\n",
    # Nobody waits long for a link that is down, or for an address that no one gives.
    "etc/systemd/system/systemd-networkd-wait-online.service.d/short.conf":
        "[Service]\nExecStart=\nExecStart=/lib/systemd/systemd-networkd-wait-online --any --timeout=5\n",
    # Stages as they are in Debian's, without what takes long or needs the Internet. RSA keys take a minute to make.
    "etc/cloud/cloud.cfg.d/90-test.cfg": """datasource_list: [NoCloud, None]
ssh_genkeytypes: [ed25519]
cloud_init_modules: [bootcmd, write-files, set_hostname, update_hostname, update_etc_hosts, users-groups, ssh]
cloud_config_modules: [set-passwords, runcmd]
cloud_final_modules: [write-files-deferred, scripts-per-once, scripts-per-boot, scripts-per-instance, scripts-user, final-message, power-state-change]
""",
}

# The first process: finds the root, however late its disk appears, and goes on there.
INIT = f"""#!/bin/busybox sh
B=/bin/busybox
$B mount -t devtmpfs dev /dev
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
for m in /modules/*.ko; do $B insmod $m; done
n=0
until root=$($B findfs LABEL={LABEL} 2>/dev/null) || [ $n -gt 100 ]; do n=$((n + 1)); $B sleep 0.1; done
$B mount -t ext4 -o noatime $root /new || {{ echo "there is no file system labelled {LABEL}" >/dev/console; exec $B sh </dev/console >/dev/console 2>&1; }}
for d in dev proc sys; do $B mount -o move /$d /new/$d; done
exec $B switch_root /new /sbin/init
"""

SYSLINUX = """DEFAULT debian
SERIAL 0 115200
LABEL debian
LINUX linux
INITRD initrd
APPEND console=tty0 console=ttyS0,115200 loglevel=4 systemd.show_status=true mitigations=off audit=0
"""

# The disk: (type, first sector, number of sectors) of both partitions. The first is the one to boot.
MIB = 2048
PARTITIONS = BOOT, ROOT = (0x0e, 1 * MIB, 31 * MIB), (0x83, 32 * MIB, 1248 * MIB)
NEEDED = {"mmdebstrap": "mmdebstrap", "mformat": "mtools", "syslinux": "syslinux", "mke2fs": "e2fsprogs", "qemu-img": "qemu-utils"}
MBR = Path("/usr/lib/syslinux/mbr/mbr.bin")     # of the package syslinux-common


def make(cache, home):
    """Write disk.qcow2 into the directory home."""
    missing = [package for program, package in NEEDED.items() if not shutil.which(program)] + ["syslinux-common"] * (not MBR.exists())
    if missing:
        raise kernels.Failure(f"for debian, {', '.join(missing)} is missing; install with scripts/bootstrap --images")
    if os.geteuid():
        raise kernels.Failure("debian is made of files of several users, which takes root: run it by sudo")
    kernel = kernels.Kernel.get(cache, KERNEL, "amd64")
    with tempfile.TemporaryDirectory(dir=home.parent) as tmp:
        root, disk = Path(tmp, "root"), Path(tmp, "disk")
        fill(root, kernel)
        with open(disk, "wb") as file:
            file.write(master_boot_record())
            file.truncate(sum(ROOT[1:]) * 512)
        boot = f"{disk}@@{BOOT[1] * 512}"
        run("mformat", "-i", boot, "-T", BOOT[2], "-h", 64, "-s", 32, "-H", BOOT[1], "-v", "BOOT", "::")
        for name, data in {"linux": kernel.linux.read_bytes(), "initrd": initramfs(kernel), "syslinux.cfg": SYSLINUX.encode()}.items():
            Path(tmp, name).write_bytes(data)
            run("mcopy", "-i", boot, Path(tmp, name), f"::{name}")
        run("syslinux", "--install", "--offset", BOOT[1] * 512, disk)
        run("mke2fs", "-q", "-t", "ext4", "-L", LABEL, "-m", 0, "-J", "size=8", "-d", root, "-E", f"offset={ROOT[1] * 512},lazy_itable_init=0",
            disk, f"{ROOT[2] // 2}k")
        run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", disk, home / "disk.qcow2")


def fill(root, kernel):
    """Make the root file system's directory. What mmdebstrap mounts there ends with it, whatever ends it: no one removes the machine's /dev with the
    directory."""
    run("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "mmdebstrap", "--variant=apt", "--include=" + ",".join(PACKAGES), *(f"--dpkgopt=path-exclude={p}" for p in EXCLUDED),
        kernels.SUITE, root, f"deb [signed-by={kernels.KEYRING}] {kernels.mirror()} {kernels.SUITE} main")
    shutil.copytree(kernel.modules, root / "usr/lib/modules" / kernel.modules.name)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for unit in MASKED:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    run("chpasswd", "-R", root, "-e", input=f"root:{PASSWORD}\n")
    for directory in ("etc", "var"):    # systemd: nothing is to be brought up to date at the first boot (systemd-update-done.service(8))
        stamp = root / directory / ".updated"
        stamp.touch()
        os.utime(stamp, (time.time(), (root / "usr").stat().st_mtime))


def initramfs(kernel):
    entries = [(d, 0o040755, b"") for d in ("bin", "dev", "proc", "sys", "new", "modules")]
    entries.append(("bin/busybox", 0o100755, kernel.busybox.read_bytes()))
    entries += kernel.module_files(MODULES)
    entries.append(("init", 0o100755, INIT.encode()))
    return kernels.cpio(entries)


def master_boot_record():
    """SYSLINUX's code and a table of PARTITIONS, without the addresses in cylinders that nothing reads any more."""
    table = b"".join(struct.pack("<B3sB3sII", 0x80 * (p is BOOT), b"\xfe\xff\xff", p[0], b"\xfe\xff\xff", *p[1:]) for p in PARTITIONS)
    return MBR.read_bytes()[:440].ljust(446, b"\0") + table.ljust(64, b"\0") + b"\x55\xaa"


def run(program, *args, input=None):
    done = subprocess.run([program, *map(str, args)], input=input, capture_output=True, text=True)
    if done.returncode:
        raise kernels.Failure(f"{program} failed: {done.stderr.strip()[-2000:] or done.returncode}")
