package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// workbench has devices on it, each with a root file system of its own over this machine's, systemd
// as its first process, and sshd: a machine, as far as programs can tell, that boots in seconds.
type workbench struct{ *machine }

// baseImage makes what the disks of devices have in common: this machine's files, with nothing
// enabled but sshd, and packages that devices and gateways have or are given.
const baseImage = `
mkdir disk && mount -t tmpfs disk disk && cd disk && mkdir base work root && mount -t overlay base -o lowerdir=/,upperdir=$PWD/base,workdir=$PWD/work root
rm -rf root/etc/systemd/system/*.wants root/etc/systemd/network root/etc/ssh/ssh_host_* root/etc/network root/etc/dnsmasq* root/etc/sudoers.d root/etc/netplan
mkdir -p root/etc/network/interfaces.d root/etc/systemd/network root/etc/sudoers.d && : >root/etc/machine-id
printf '#!/bin/sh\nexit 101\n' >root/usr/sbin/policy-rc.d && chmod 755 root/usr/sbin/policy-rc.d
for f in proc sys dev; do mount --rbind /$f root/$f; done
apt() { chroot root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends -o APT::Sandbox::User=root "$@" </dev/null >>apt.log 2>&1; }
packages='ansible-core sshpass chrony dnsmasq ifupdown sudo dbus openssh-server python3-apt nftables systemd-sysv'
apt install $packages || { apt update && apt install $packages; } || { tail -n 20 apt.log; exit 1; }
rm -rf root/etc/systemd/system/*.wants root/etc/systemd/system/chronyd.service root/etc/rc?.d/*chrony root/etc/rc?.d/*dnsmasq
systemctl --quiet --root=$PWD/root enable ssh 2>/dev/null
for unit in systemd-logind.service systemd-resolved.service apt-daily.timer apt-daily-upgrade.timer; do ln -sf /dev/null root/etc/systemd/system/$unit; done
echo 'DAEMON_OPTS="-F 1 -x"' >root/etc/default/chrony # the clock is not its own
printf 'PasswordAuthentication yes\nUsePAM no\nPermitRootLogin no\nSubsystem sftp internal-sftp\n' >root/etc/ssh/sshd_config
umount -l root`

// bootDevice is what switching a device on does, up to systemd. Each boot has an identity of its
// own, as a machine's has.
const bootDevice = `set -e
read -r network
mount --make-rprivate / && mount -t overlay $2 -o lowerdir=disk/base:/,upperdir=$1/up,workdir=$1/work $1/root && cd $1/root
mount -t proc proc proc && mount -t sysfs -o ro sysfs sys && mount -t tmpfs -o mode=755 run run && mount -t tmpfs dev dev
for n in null zero full random urandom tty; do : >dev/$n && mount --bind /dev/$n dev/$n; done
mkdir dev/pts dev/shm && mount -t devpts -o newinstance,ptmxmode=666 pts dev/pts && ln -s pts/ptmx dev/ptmx && : >dev/console && ln -s /proc/self/fd dev/fd
cat /proc/sys/kernel/random/uuid >run/boot && mount --bind run/boot proc/sys/kernel/random/boot_id
mount -t tmpfs cgroup sys/fs/cgroup && mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd 2>/dev/null || { umount sys/fs/cgroup; mount -t cgroup2 cgroup sys/fs/cgroup; }
hostname $2 && mkdir -p old && pivot_root . old && umount -l /old
exec env -i container=trivet PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target --log-level=err --log-target=null`

// device is a machine on the workbench.
type device struct {
	*workbench
	name  string
	wires []string // bridges at which its eth0, eth1 and so on are
	boots atomic.Int32
	pid   atomic.Int32
	off   chan struct{} // closed once it is switched off
}

func newWorkbench(t *testing.T) *workbench {
	t.Helper()
	for _, program := range []string{"/lib/systemd/systemd", "/usr/bin/apt-get"} {
		if _, err := os.Stat(program); err != nil {
			t.Skipf("there is no %s, of which devices are made", program)
		}
	}
	w := &workbench{newMachine(t)}
	// The packages come by this machine's own network.
	install := w.command("nsenter", "--net=/dev/fd/3", "/bin/sh", "-ec", baseImage)
	network, err := os.Open("/proc/self/ns/net")
	must(t, err)
	defer network.Close()
	install.ExtraFiles = []*os.File{network}
	if r := w.do(install); r.code != 0 {
		t.Fatal(r)
	}
	w.sh("ip link add hub type bridge && ip link set hub up; ip link add wan type bridge && ip addr add 192.0.2.1/24 dev wan && ip link set wan up")
	return w
}

// add puts a device onto the bench and switches it on; prepare is a script that makes its disk what
// it is, run in its root.
func (w *workbench) add(name, prepare string, wires ...string) *device {
	w.t.Helper()
	d := &device{workbench: w, name: name, wires: wires, off: make(chan struct{})}
	w.sh(fmt.Sprintf("cd disk && mkdir -p %[1]s/up %[1]s/work %[1]s/root && mount -t overlay %[1]s -o lowerdir=base:/,upperdir=%[1]s/up,workdir=%[1]s/work %[1]s/root && cd %[1]s/root\n"+
		"ssh-keygen -q -A -f . && echo %[1]s >etc/hostname && printf '127.0.0.1 localhost %[1]s\\n' >etc/hosts\n%[2]s\ncd ../.. && umount %[1]s/root", name, prepare))
	must(w.t, d.boot())
	return d
}

// boot switches a device on. One that says that it reboots is switched on again.
func (d *device) boot() error {
	cmd := d.command("unshare", "-m", "-p", "-n", "-u", "-i", "-C", "--fork", "/bin/sh", "-c", bootDevice, "boot", "disk/"+d.name, d.name)
	cmd.Stderr = os.Stderr
	network, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := d.inside(cmd.Start); err != nil {
		return err
	}
	first, err := onlyChild(cmd.Process.Pid)
	if err != nil {
		return err
	}
	for i, wire := range d.wires {
		port := fmt.Sprintf("%s-%d", d.name, i)
		plug := fmt.Sprintf("ip link del %[1]s 2>/dev/null; ip link add %[1]s type veth peer name eth%[2]d netns %[3]d && ip link set %[1]s master %[4]s up", port, i, first, wire)
		ip := exec.Command("nsenter", "--net=/proc/"+strconv.Itoa(d.init.Process.Pid)+"/ns/net", "sh", "-c", plug)
		if out, err := ip.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %s", err, out)
		}
	}
	if _, err := network.Write([]byte("there\n")); err != nil {
		return err
	}
	d.pid.Store(int32(first))
	d.boots.Add(1)
	go func() {
		_ = cmd.Wait()
		network.Close()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if status.Signaled() && status.Signal() == syscall.SIGHUP && d.boot() == nil { // reboot(2)
			return
		}
		close(d.off)
	}()
	return nil
}

// onlyChild waits until a process has one.
func onlyChild(pid int) (child int, err error) {
	for range 1000 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))
		if err != nil {
			return 0, err
		}
		if words := strings.Fields(string(text)); len(words) == 1 {
			return strconv.Atoi(words[0])
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0, fmt.Errorf("process %d has no child", pid)
}

// at runs a shell script at a device, as root.
func (d *device) at(script string) result {
	d.t.Helper()
	cmd := exec.Command("nsenter", "-t", strconv.Itoa(int(d.pid.Load())), "-m", "-u", "-i", "-n", "-p", "--", "/bin/sh", "-ec", "cd /root; "+script)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	must(d.t, cmd.Start())
	wait(d.t, cmd)
	return result{d.name + ": " + script, out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// does is at, which must succeed.
func (d *device) does(script string) string {
	d.t.Helper()
	r := d.at(script)
	if r.code != 0 {
		d.t.Fatal(r)
	}
	return r.out
}

const firstPassword = `rasp {{ 6 * 7 }} '"$HOME`

// newUser is the user of a vendor's image: root with a password.
const newUser = `useradd --root $PWD -m -s /bin/sh -G sudo pi && printf '%s' "pi:$PASSWORD" | chroot . chpasswd`

// watchPassword runs the bootstrap while all command lines and environments are looked through.
const watchPassword = `cat >/run/watch <<'END'
while [ ! -e /run/done ]; do
	for f in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do if grep -qsFf /run/pattern $f; then echo "$f: $(tr '\0' ' ' <$f)"; fi; done
	n=$((n + 1))
done
echo looked $n
END
head -c 7 /run/right >/run/pattern
sh /run/watch >/run/seen 2>&1 & trivet rack bootstrap rack.yaml --password-file /run/right; touch /run/done; wait; cat /run/seen`

// TestRackProvision proves that blank devices become those of a rack: the gateway lends them
// addresses; they are entered by password, which nothing else sees, once their host keys are agreed
// to; the roles do what they say with two kinds of network, and leave the vendor's files alone; a
// second run changes nothing; what was set holds after a reboot, which is waited for; a device with
// another host key is refused, and a wrong password explained.
func TestRackProvision(t *testing.T) {
	w := newWorkbench(t)
	w.env = append(w.env, "PASSWORD="+firstPassword)
	g := w.add("gw", `cp `+trivet+` usr/local/bin/trivet && mkdir -p root/.ssh && ssh-keygen -q -t ed25519 -N '' -f root/.ssh/id_ed25519 && : >root/.bashrc
printf '[Match]\nName=eth0\n[Network]\nAddress=192.0.2.2/24\nGateway=192.0.2.1\n' >etc/systemd/network/eth0.network
printf '[Match]\nName=eth1\n[Network]\nAddress=10.42.0.1/24\n' >etc/systemd/network/eth1.network
systemctl --quiet --root=$PWD enable systemd-networkd 2>/dev/null
printf 'gateway: {inner: eth1, outer: eth0}\ndevices:\n  if-1: pi@10.42.0.101\n  nd-1: {ssh: pi@10.42.0.102, labels: [pi]}\n' >root/rack.yaml`, "wan", "hub")
	eventually(t, "the gateway has its addresses", func() bool {
		out := g.at("ip -4 addr; ip route").out
		return strings.Contains(out, "default via 192.0.2.1") && strings.Contains(out, "10.42.0.1/24")
	})
	rack := func(args string) result {
		t.Helper()
		begun := time.Now()
		r := g.at("trivet rack " + args)
		t.Logf("%s: %s", args, time.Since(begun).Round(100*time.Millisecond))
		return r
	}
	succeeds := func(args string, words ...string) {
		t.Helper()
		r := rack(args)
		if r.code != 0 {
			t.Fatal(r)
		}
		contains(t, r.out, words...)
	}
	succeeds("provision rack.yaml gateway", "gateway", "changes made")

	a := w.add("if-1", newUser+`
printf 'auto eth0\niface eth0 inet static\n  address 10.42.0.101/24\nsource /etc/network/interfaces.d/*\n' >etc/network/interfaces
systemctl --quiet --root=$PWD enable networking 2>/dev/null`, "hub")
	b := w.add("nd-1", newUser+`
printf '[Match]\nName=e*\n[Network]\nDHCP=yes\n' >etc/systemd/network/80-vendor.network
systemctl --quiet --root=$PWD enable systemd-networkd 2>/dev/null`, "hub")
	devices := []*device{a, b}
	eventually(t, "the devices answer", func() bool {
		return g.at("for i in 101 102; do ssh-keyscan -T 2 -t ed25519 10.42.0.$i 2>/dev/null | grep -q ed25519; done").code == 0
	})
	contains(t, b.does("ip -4 addr show eth0"), "10.42.0.102/24", "dynamic")
	const vendors = "cat /etc/network/interfaces /etc/systemd/network/80-vendor.network 2>/dev/null || true"
	were := []string{a.does(vendors), b.does(vendors)}

	if r := rack("bootstrap rack.yaml"); r.code != 2 || !strings.Contains(r.err, "SHA256:") || !strings.Contains(r.err, "--accept-host-keys") {
		t.Errorf("without a terminal: %s", r)
	}
	if r := g.at("ls .ssh/known_hosts"); r.code == 0 {
		t.Error("host keys were pinned without a yes")
	}
	g.does("install -m 600 /dev/null wrong && echo wrong >wrong")
	if r := rack("bootstrap rack.yaml --accept-host-keys --password-file wrong"); r.code != 1 || !strings.Contains(r.out, "2 devices of 2 failed") {
		t.Errorf("a wrong password: %s", r)
	} else {
		t.Logf("a wrong password: %s", r.out)
	}
	g.does("install -m 600 /dev/null /run/right && cat >/run/right <<'END'\n" + firstPassword + "\nEND")
	watched := g.does(watchPassword)
	contains(t, watched, "changes made", "looked ")
	if strings.Contains(watched, "/proc/") {
		t.Errorf("the password was seen: %s", watched)
	}
	if found := w.sh("grep -rlF 'rasp {{' disk/gw/up disk/if-1/up disk/nd-1/up || true"); found != "" {
		t.Errorf("the password is in %s", found)
	}
	succeeds("bootstrap rack.yaml", "nothing changed")

	const roles = "provision rack.yaml --only gateway,time,address,binary"
	succeeds(roles, "changes made", "from its next boot on")
	for _, d := range devices {
		d.does("trivet --version && touch /run/before")
	}
	succeeds("reboot rack.yaml", "if-1", "nd-1")
	for i, d := range devices {
		if n := d.boots.Load(); n != 2 || d.at("ls /run/before").code == 0 {
			t.Errorf("%s has booted %d times", d.name, n)
		}
		if now := d.does(vendors); now != were[i] {
			t.Errorf("%s: the vendor's files were %s, and are %s", d.name, were[i], now)
		}
		if out := d.does("ip -4 addr show eth0; ip route"); !strings.Contains(out, fmt.Sprintf("10.42.0.10%d/24", i+1)) || strings.Contains(out, "dynamic") || !strings.Contains(out, "default via 10.42.0.1") {
			t.Errorf("%s: %s", d.name, out)
		}
		d.does("ping -c 2 -W 2 192.0.2.1") // which knows no way to 10.42.0.0/24
		eventually(t, "the gateway's time counts", func() bool { return strings.Contains(d.at("chronyc -n sources").out, "^* 10.42.0.1") })
	}
	succeeds(roles, "nothing changed")

	a.does("rm /etc/ssh/ssh_host_* && ssh-keygen -q -A && systemctl restart ssh")
	if r := rack("provision rack.yaml if-1 --only time"); r.code != 1 || !strings.Contains(r.out, "unreachable") {
		t.Errorf("another host key: %s", r)
	}
	if r := rack("bootstrap rack.yaml --accept-host-keys"); r.code != 1 || !strings.Contains(r.out, "its host key is not the one that is known") {
		t.Errorf("another host key: %s", r)
	}
	succeeds("shutdown rack.yaml nd-1", "nd-1")
	<-b.off
}
