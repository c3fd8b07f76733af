"""The guest `tiny`: Debian's kernel, and an initramfs with busybox and an SSH server. It boots in seconds, also emulated, and asks DHCP on each Ethernet
device. From a NoCloud seed it takes the host name, keys for root and a script, and nothing else: as cirros would."""
import fcntl
import tempfile
from pathlib import Path

import kernels

# What it loads, in this order: devices of QEMU's, then what a seed can be on. Standard's kernel has e1000, cloud's has not.
KERNEL = "generic"
MODULES = ["virtio_pci", "virtio_net", "e1000", "virtio_blk", "ata_piix", "sd_mod", "sr_mod", "isofs", "vfat", "nls_ascii", "nls_cp437", "button", "evdev"]

# Packages, and what of them goes into the initramfs. The libraries are dropbear's.
LIBRARIES = {"libc6": ["libc.so.6", "ld-linux-x86-64.so.2"], "libcrypt1": ["libcrypt.so.1"], "libgmp10": ["libgmp.so.10"],
             "libtomcrypt1": ["libtomcrypt.so.1"], "libtommath1": ["libtommath.so.1"], "zlib1g": ["libz.so.1"]}

# The password of root is "tiny".
PASSWORD = "$6$trivet$lLrromeJFfO6/NUGBIinzBWZ08lFrxyRw451k5p2SEazIMmhCxHsbyAZWJT.yvytZ69CT6qL6UxZRCFXoVYGS/"

FILES = {
    # The first process, which has no console before there are devices.
    "init": """#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox --install -s /bin
exec /bin/init
""",
    "etc/inittab": """::sysinit:/etc/rc
ttyS0::respawn:-/bin/sh
::ctrlaltdel:/bin/reboot
""",
    "etc/rc": """#!/bin/sh
mkdir -p /dev/pts; mount -t devpts devpts /dev/pts -o mode=620,ptmxmode=666
for m in /modules/*.ko; do insmod $m; done 2>/dev/null
hostname tiny
ip link set lo up
acpid                                                  # the power button
/etc/seed
for d in /sys/class/net/*; do
	[ $(cat $d/type) = 1 ] || continue             # ARPHRD_ETHER
	i=${d##*/}
	udhcpc -f -i $i -s /etc/udhcpc -O mtu -O staticroutes -x hostname:$(hostname) -t 10 -T 1 -A 3 >/run/udhcpc.$i 2>&1 &
done
dropbear -R -P /run/dropbear.pid
echo tiny is ready >/dev/console
[ ! -x /run/user-data ] || /run/user-data </dev/null >/dev/console 2>&1 &
""",
    # What udhcpc calls for each event, with the lease in the environment. Where there are classless routes, the
    # router option does not count (RFC 3442); a gateway of 0.0.0.0 there is none.
    "etc/udhcpc": """#!/bin/sh
case $1 in
deconfig)
	ip -4 addr flush dev $interface
	ip link set $interface up
	;;
bound | renew)
	[ -z "$mtu" ] || ip link set $interface mtu $mtu
	ip -4 addr show dev $interface | grep -q " $ip/$mask " || {
		ip -4 addr flush dev $interface
		ip addr add $ip/$mask broadcast + dev $interface
	}
	[ -n "$staticroutes" ] || for r in $router; do staticroutes="$staticroutes 0.0.0.0/0 $r"; done
	metric=$(cat /sys/class/net/$interface/ifindex)
	set -- $staticroutes
	while [ $# -ge 2 ]; do
		case $2 in
		0.0.0.0) ip route replace $1 dev $interface metric $metric ;;
		*) ip route replace $1 via $2 dev $interface metric $metric onlink ;;
		esac
		shift 2
	done
	[ -z "$hostname" ] || hostname "$hostname"
	{
		[ -z "$domain" ] || echo "search $domain"
		for s in $dns; do echo "nameserver $s"; done
	} >/run/resolv.$interface
	cat /run/resolv.* >/etc/resolv.conf
	;;
esac
""",
    # cloud-init's NoCloud, as far as it goes without YAML.
    "etc/seed": """#!/bin/sh
seed=$(findfs LABEL=cidata 2>/dev/null || findfs LABEL=CIDATA 2>/dev/null) || exit 0
mkdir /seed
mount -o ro $seed /seed && cd /seed || exit 1
name=$(sed -n 's/^local-hostname: *//p' meta-data | tr -d "\\"'")
[ -z "$name" ] || hostname "$name"
mkdir -m 700 /root/.ssh
grep -hv _public: meta-data user-data | grep -oE '(ssh-(rsa|ed25519)|ecdsa-sha2-nistp[0-9]+) [A-Za-z0-9+/=]+' >/root/.ssh/authorized_keys
case $(head -n 1 user-data) in '#!'*) cp user-data /run/user-data; chmod 700 /run/user-data ;; esac
cd / && umount /seed
""",
    "etc/acpi/PWRF/00000080": "#!/bin/sh\npoweroff\n",
    "etc/passwd": f"root:{PASSWORD}:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/profile": "PS1='tiny:\\w# '\n",
}


def make(cache, home):
    """Write kernel and initrd into the directory home; return the paths of both by what they are."""
    kernel = kernels.Kernel.get(cache, KERNEL, "amd64")
    directories = ["bin", "dev", "proc", "sys", "run", "tmp", "root", "modules", "lib64", "var", "var/log", "etc", "etc/dropbear", "etc/acpi", "etc/acpi/PWRF"]
    entries = [(d, 0o040755, b"") for d in directories]
    entries += [(link, 0o120777, to.encode()) for link, to in {"sbin": "bin", "lib": "lib64", "var/run": "/run"}.items()]
    entries.append(("bin/busybox", 0o100755, kernel.busybox.read_bytes()))
    entries += kernel.module_files(MODULES)
    entries += programs(cache, home)
    entries += [(name, 0o100755 if text.startswith("#!") else 0o100644, text.encode()) for name, text in FILES.items()]
    (home / "initrd").write_bytes(kernels.cpio(entries))
    (home / "linux").write_bytes(kernel.linux.read_bytes())


def programs(cache, home):
    """The entries of dropbear and of the libraries that it needs, from packages of the kernel's release."""
    with open(cache / "lock", "w") as lock, tempfile.TemporaryDirectory(dir=home.parent) as tmp:
        fcntl.flock(lock, fcntl.LOCK_EX)
        apt, tree = kernels.Apt(cache, "amd64"), Path(tmp, "tree")
        for package in ["dropbear-bin", *LIBRARIES]:
            apt.unpack(package, tree)
        yield "bin/dropbear", 0o100755, (tree / "usr/sbin/dropbear").read_bytes()
        for name in sum(LIBRARIES.values(), []):
            yield f"lib64/{name}", 0o100755, next(p for p in tree.rglob(name) if p.is_file()).read_bytes()
