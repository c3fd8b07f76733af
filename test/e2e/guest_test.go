package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/internal/qemu"
)

// guestImage is what test/vm/images makes of a kind, made once on a machine: by the names of its
// files.
func guestImage(t *testing.T, kind string) (files map[string]string) {
	t.Helper()
	if err := qemu.Lacks(); err != nil {
		t.Skip(err)
	}
	out, err := exec.Command("../vm/images", kind).Output()
	if err != nil {
		t.Skip("no image of a guest: ", err)
	}
	must(t, json.Unmarshal(out, &files))
	return files
}

// tinyLab is a topology with a virtual machine whose guest has Busybox and no cloud-init, behind a
// router; more are lines of further nodes and links.
func (m *machine) tinyLab(name, nodes, links string) (file string) {
	m.t.Helper()
	tiny := guestImage(m.t, "tiny")
	return m.file(name, `
nodes:
  v1: {host: {vm: {kernel: `+tiny["kernel"]+`, initrd: `+tiny["initrd"]+`, append: "console=ttyS0 quiet", ready: tiny is ready, password: tiny}, memory: 128MB, ports: 18080:80}}
  h1: host
  r1: {router: {datapath: kernel}}
`+nodes+`
links:
  - v1 -- r1: {delay: 5ms}
  - h1 -- r1
`+links)
}

// TestGuest proves that a host that is a virtual machine is told its address and its gateway, also
// after its daemon was killed; that it is pinged, and pings, over an impaired link; that commands
// run in it with their input, output, variables and exit code; that its console is one person's at
// a time; that it sees when a cable is pulled; that it gets interfaces and loses them without being
// started anew; that one that ends is named, and made anew by apply; and that nothing is left of
// it.
func TestGuest(t *testing.T) {
	m := newMachine(t)
	file := m.tinyLab("lab.yaml", "", "")
	before := m.snapshot()
	m.up(file, "--wait", "300s")
	contains(t, m.ok("logs", "v1"), "tiny is ready")

	eventually(t, "v1 has its address and its gateway", func() bool {
		return strings.Contains(m.exec("v1", "ip route"), "default via 10.0.1.1") && strings.Contains(m.exec("v1", "ip addr"), " 10.0.1.2/24")
	})
	m.pingAll(2)
	for _, pair := range [][2]string{{"h1", "v1"}, {"v1", "h1"}} {
		if rtt := m.rtt(pair[0], pair[1]); rtt < 10 {
			t.Errorf("%v: %v ms over a link of 5 ms each way", pair, rtt)
		}
	}
	host := strings.TrimSpace(m.sh("cat /proc/sys/kernel/random/boot_id"))
	boot := strings.TrimSpace(m.exec("v1", "cat /proc/sys/kernel/random/boot_id"))
	if boot == host || len(boot) != len(host) {
		t.Errorf("the kernel of v1 is booted as %q, the machine's as %q", boot, host)
	}
	m.want(7, "exec", "v1", "--", "sh", "-c", "exit 7")
	m.want(127, "exec", "v1", "--", "no-such-program")
	if r := m.runIn(strings.NewReader("walnut\n"), "exec", "--env", "WHAT=it's a $HOME", "v1", "--", "sh", "-c", `cat; echo "$WHAT"`); r.out != "walnut\nit's a $HOME\n" {
		t.Errorf("%q, %q", r.out, r.err)
	}

	m.env = append(m.env, "SECRET=walnut")
	for _, args := range [][]string{{"exec", "v1", "--", "env"}, {"exec", "--network", "v1", "--", "env"}} {
		if out := m.ok(args...); strings.Contains(out, "walnut") {
			t.Errorf("%v: v1 gets the caller's environment: %s", args, out)
		}
	}
	m.exec("v1", "mkdir -p /srv && echo walnuts >/srv/index.html && httpd -p 80 -h /srv")
	eventually(t, "its port is published", func() bool { return m.published() == "walnuts\n" })

	first := m.terminal("shell", "--console", "v1")
	first.sees("\recho $((40+2))nuts\r", "42nuts")
	contains(t, m.run("shell", "--console", "v1").err, "somebody is at the console of v1 already")
	first.types("\x1d")
	first.ends(0)
	contains(t, m.run("shell", "--console", "h1").err, "h1 has no console")

	m.ok("link", "set", "v1-r1", "down")
	const carrier = "cat /sys/class/net/eth0/carrier"
	eventually(t, "v1 sees that the cable is pulled", func() bool { return strings.TrimSpace(m.exec("v1", carrier)) == "0" })
	m.ok("link", "set", "v1-r1", "up")
	eventually(t, "and plugged", func() bool { return strings.TrimSpace(m.exec("v1", carrier)) == "1" })

	m.kill("*_[_]daemon*")
	m.ok("resume")
	contains(t, m.exec("v1", "udhcpc -i eth0 -n -q -f -s /bin/true 2>&1"), "lease of 10.0.1.2 obtained from 169.254.255.67")
	more := m.tinyLab("lab.yaml", "  h2: host", "  - h2 -- v1")
	contains(t, m.ok("apply", more), "2 changes")
	eventually(t, "v1 has another interface", func() bool { return strings.Contains(m.exec("v1", "ls /sys/class/net"), "eth2") })
	m.tinyLab("lab.yaml", "", "")
	contains(t, m.ok("apply", file), "2 changes")
	eventually(t, "and has it no more", func() bool { return !strings.Contains(m.exec("v1", "ls /sys/class/net"), "eth2") })
	m.tinyLab("lab.yaml", "  h2: host", "  - h2 -- v1")
	contains(t, m.ok("apply", more), "2 changes")
	if now := strings.TrimSpace(m.exec("v1", "cat /proc/sys/kernel/random/boot_id")); now != boot {
		t.Errorf("v1 was booted as %s, and is as %s", boot, now)
	}
	m.tinyLab("lab.yaml", "", "")
	m.ok("apply", file)

	m.sh("kill -9 " + strings.Join(m.pids("/qemu-system*guest=v1"), " "))
	const dead = "the virtual machine of host v1"
	eventually(t, "ls says what has ended", func() bool { return strings.Contains(m.ok("ls"), dead) })
	contains(t, m.run("exec", "v1", "--", "true").err, "the virtual machine of v1 has ended")
	contains(t, m.ok("apply", file), dead+" has ended: started again")
	eventually(t, "it answers again", func() bool { return m.run("ping", "--all").code == 0 })
	told := func() int { return strings.Count(m.ok("logs"), dead+" has ended") }
	toldBefore := told()
	m.sh("sed -i 's/memory: 128MB/memory: 144MB/' lab.yaml")
	contains(t, m.ok("apply", file), "1 change")
	if now := told(); toldBefore == 0 || now != toldBefore {
		t.Errorf("ends of the machine are told %d times, and once it was made anew %d times", toldBefore, now)
	}
	if who := m.sh("ps -o user= -p " + m.pids("/qemu-system*guest=v1")[0]); strings.TrimSpace(who) != "nobody" {
		t.Errorf("QEMU runs as %s", who)
	}
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}

// TestGuestRefused proves that what cannot be a virtual machine here is said, with where the file
// says it, before anything is made; and that a file whose machines are not wanted has ordinary
// hosts in their place.
func TestGuestRefused(t *testing.T) {
	t.Parallel()
	if err := qemu.Lacks(); err != nil {
		t.Skip(err)
	}
	m := newMachine(t)
	m.sh("mkfifo pipe; ln -s pipe link; ln -s /etc etc; printf 'KDMV....' > x.vmdk; printf 'QFI\\373\\000\\000\\000\\003\\000\\000\\000\\000\\000\\000\\001\\000%0100d' 0 > backed.qcow2; : > disk.raw")
	for vm, says := range map[string]string{
		"missing.qcow2":                      "lab.yaml:1:9  host h1: vm: stat " + filepath.Join(m.dir, "missing.qcow2") + ": no such file",
		"x.vmdk":                             "x.vmdk is of the kind VMDK; convert it first",
		"backed.qcow2":                       "backed.qcow2 holds its data in another file",
		"/dev/null":                          "/dev/null is no file",
		"pipe":                               "pipe is no file",
		"link":                               "link is no file",
		"{image: disk.raw, user_data: pipe}": "lab.yaml:1:9  host h1: user_data: pipe: is not a regular file",
		"{kernel: /boot/no, initrd: x}":      "stat /boot/no: no such file",
		"{image: disk.raw, user_data: none.yaml}":   "lab.yaml:1:9  host h1: user_data: none.yaml: no such file",
		"{image: disk.raw, user_data: etc/shadow}":  "host h1: user_data: etc/shadow: ",
		"{image: disk.raw, user_data: /etc/shadow}": "user_data: \"/etc/shadow\" cannot be its file; name a file beside the topology's",
	} {
		file := m.file("lab.yaml", "nodes: {h1: {host: {vm: "+vm+"}}, h2: host}\nlinks: [h1 -- h2]\n")
		contains(t, m.want(1, "up", file).err, says)
	}
	file := m.file("lab.yaml", "nodes: {h1: {host: {vm: disk.raw}}, h2: host}\nlinks: [h1 -- h2]\n")
	m.up(file, "--no-commands")
	m.pingAll(2)
	m.ok("down")
	if _, err := os.Stat(filepath.Join(m.dir, "disk.raw")); err != nil {
		t.Error(err)
	}
}

// TestGuestUserData proves that user data are read with the topology's file, and given to the guest
// as they were then, also by a daemon that has resumed the lab; that a file for each node has its
// name; that apply makes the machine anew whose file has changed, and leaves one whose file has
// not, or was only moved; and that they are not shown.
func TestGuestUserData(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	tiny := guestImage(t, "tiny")
	lab := func(names string) string {
		return m.file("lab.yaml", `
defaults: {host: {memory: 128MB, vm: {kernel: `+tiny["kernel"]+`, initrd: `+tiny["initrd"]+`, append: console=ttyS0, password: tiny, user_data: `+names+`}}}
nodes: {"v[1-2]": host}
links: [v1 -- v2]
`)
	}
	m.sh("mkdir users moved")
	for _, v := range []string{"v1", "v2"} {
		m.file("users/"+v+".yaml", "#cloud-config\nwalnut: "+v)
	}
	m.up(lab("users/*.yaml"))
	given := func(v string) string { return m.sh("cat /run/trivet/" + m.name + "/guests/" + v + "/seed/user-data") }
	running := func(v string) string { return strings.Join(m.pids("/qemu-system*guest="+v), " ") }
	if got := given("v2"); got != "#cloud-config\nwalnut: v2" {
		t.Errorf("v2 is given %q", got)
	}
	if shown := m.ok("inspect", "--json"); strings.Contains(shown, "walnut") || !strings.Contains(shown, "users/v1.yaml") {
		t.Error("user data are shown: ", shown)
	}
	m.killDaemon()
	m.ok("resume")
	m.sh("cp users/* moved")
	was1, was2 := running("v1"), running("v2")
	m.ok("apply", lab("moved/*.yaml"))
	m.file("moved/v1.yaml", "#cloud-config\nwalnut: another")
	if given("v1") != "#cloud-config\nwalnut: v1" || running("v1") != was1 {
		t.Error("what is in the file now counts before apply")
	}
	said := m.ok("apply", filepath.Join(m.dir, "lab.yaml"))
	contains(t, said, "host v1   vm.user_data text (2 lines, ")
	if strings.Contains(said, "walnut") {
		t.Error("apply shows user data: ", said)
	}
	if got := given("v1"); got != "#cloud-config\nwalnut: another" || running("v1") == was1 || running("v2") != was2 {
		t.Errorf("v1 is given %q; QEMU was %s and %s, and is %s and %s", got, was1, was2, running("v1"), running("v2"))
	}
	contains(t, m.ok("down"), "nothing left")
}

// TestSitesGuest proves that a virtual machine of a lab over several machines runs at the one where
// its node is placed, of files that are there, and is given user data that only the head has; that
// commands, its console and its log are reached from the head; and that it is said at which machine
// a file is missing.
func TestSitesGuest(t *testing.T) {
	t.Parallel()
	tiny := guestImage(t, "tiny")
	s := newSeveral(t, 1)
	h, there := s.head, s.others[0]
	h.sh("mkdir images; cp " + tiny["kernel"] + " images/linux; cp " + tiny["initrd"] + " images/initrd")
	file := h.file("lab.yaml", `
nodes:
  v1: {host: {vm: {kernel: images/linux, initrd: images/initrd, append: "console=ttyS0 quiet", ready: tiny is ready, password: tiny, user_data: here/user}, memory: 128MB, on: m1}}
  h1: host
links: [v1 -- h1]
`)
	h.sh("mkdir here; echo walnut >here/user")
	there.sh("mount -t tmpfs images " + filepath.Join(h.dir, "images"))
	r := h.run("up", "--on", "machines.yaml", "--name", h.name, file)
	if r.code != 1 {
		t.Errorf("it comes up without files: %s", r)
	}
	t.Log(r.err)
	contains(t, r.err, "m1: ", "host v1: vm: stat "+filepath.Join(h.dir, "images/linux")+": no such file")
	there.sh("umount " + filepath.Join(h.dir, "images"))
	s.unchanged(t)
	there.sh("mount -t tmpfs here " + filepath.Join(h.dir, "here"))
	h.up("--on", "machines.yaml", file)
	h.pingAll(2)
	if len(h.pids("/qemu-system*guest=v1")) != 0 || len(there.pids("/qemu-system*guest=v1")) != 1 {
		t.Error("v1 runs elsewhere")
	}
	contains(t, h.exec("v1", "ip addr"), " 10.0.0.")
	contains(t, there.sh("cat /run/trivet/*/guests/v1/seed/user-data"), "walnut")
	contains(t, h.ok("logs", "v1"), "tiny is ready")
	first := h.terminal("shell", "--console", "v1")
	first.sees("\recho $((40+2))nuts\r", "42nuts")
	first.types("\x1d")
	first.ends(0)
	contains(t, h.ok("down"), "nothing left")
	there.sh("umount " + filepath.Join(h.dir, "here"))
	s.unchanged(t)
}

// TestGuestHostile proves that a guest that prints without end does not fill the disk, and is still
// left by its console; that one whose SSH server says nothing, or greets without end, is given up
// with a reason; and that nobody but root reaches what the lab has of it.
func TestGuestHostile(t *testing.T) {
	m := newMachine(t)
	file := m.tinyLab("lab.yaml", "", "")
	before := m.snapshot()
	m.up(file, "--wait", "300s")
	dir := filepath.Join("/run/trivet", m.name, "guests/v1")
	reached := m.sh(`setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'ls ` + dir + `; cat ` + dir + `/login.json; cat ` + dir + `/seed/user-data
		for f in ` + dir + ` ` + dir + `/qmp.sock ` + dir + `/console.log; do test -e $f && echo reached $f; done; true' 2>/dev/null`)
	if reached != "" {
		t.Error("nobody reaches: ", reached)
	}

	m.exec("v1", "setsid sh -c 'echo $$ >/run/flood; exec yes nut >/dev/ttyS0' >/dev/null 2>&1 &")
	size := func() int {
		n, err := strconv.Atoi(m.sh("stat -c %s " + dir + "/console.log"))
		must(t, err)
		return n
	}
	last, cut := 0, false
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end) && !cut; time.Sleep(time.Second) {
		now := size()
		if now > 8<<20 {
			t.Fatalf("the console's log has %d bytes", now)
		}
		last, cut = now, now < last
	}
	if !cut {
		t.Errorf("the console's log has %d bytes, and was not cut", last)
	}
	first := m.terminal("shell", "--console", "v1")
	first.waitFor(t, "nut")
	first.types("\x1d")
	first.ends(0)
	m.exec("v1", "kill $(cat /run/flood)")

	for what, server := range map[string]string{
		"nothing":   "nc -lk -p 22 -e sleep 1000",
		"greetings": "nc -lk -p 22 -e yes hello",
	} {
		m.ok("exec", "v1", "--", "sh", "-c", "setsid sh -c 'sleep 1; kill $(cat /run/dropbear.pid); echo $$ >/run/server; exec "+server+"' >/dev/null 2>&1 &")
		time.Sleep(2 * time.Second)
		began := time.Now()
		r := m.run("exec", "v1", "--", "true")
		if took := time.Since(began); r.code != 126 || took > 2*time.Minute {
			t.Errorf("%s: %s, %s", what, took, r)
		}
		contains(t, r.err, "v1 does not let root in by SSH: ", "trivet shell --console v1")
		again := m.terminal("shell", "--console", "v1")
		again.sees("\rkill $(cat /run/server); dropbear -R -P /run/dropbear.pid; echo $((40+2))nuts\r", "42nuts")
		again.types("\x1d")
		again.ends(0)
		m.exec("v1", "true")
	}
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}
