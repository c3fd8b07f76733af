package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/test/until"
)

// guestBoot bounds a command that waits for guests with systemd and cloud-init to boot, where QEMU
// emulates processors and others have them, too.
const guestBoot = 9 * time.Minute

// What the guests' cloud-init is to do: d1's file, a script in the topology, and a configuration
// there, whose user is the one that Trivet logs in as.
const (
	diskFile = `#cloud-config
users:
  - default
  - {name: alice, shell: /bin/bash}
write_files:
  - {path: /root/written, content: "für d1\n", permissions: "0640"}
runcmd:
  - echo ran >>/root/runcmd
`
	diskScript = `"#!/bin/sh\nid -un >/home/debian/script\n"`
	diskConfig = `"#cloud-config\nusers: [{name: bob, shell: /bin/sh}]\nwrite_files: [{path: /etc/written, content: for d2}]\nruncmd: [touch /etc/runcmd]\n"`
)

// diskLab is a topology with two virtual machines of a disk image, of which the second is as given,
// in networks of their own; more are lines of further links.
func (m *machine) diskLab(image, second, more string) (file string) {
	m.t.Helper()
	m.file("d1.yaml", diskFile)
	return m.file("lab.yaml", `
ipv6: assigned
defaults: {host: {vm: `+image+`}}
nodes:
  d1: {host: {vm: {user_data: d1.yaml}, routes: [10.77.0.0/16 via 10.0.1.9], health: test -s /root/runcmd, start: echo started >>/root/start}}
  d2: {host: `+second+`}
  h1: {host: {vm: none}}
  r1: {router: {datapath: kernel}}
links:
  - d1 -- r1: {mtu: 1400}
  - d2 -- r1
  - h1 -- r1
`+more)
}

// TestGuestDisk proves, with guests of systemd and cloud-init, that their interfaces have the
// names, addresses, MTU, routes and gateways of the topology, by both versions of IP; that their
// owner's user data does what it says, as a file, a script and a configuration, beside Trivet's key
// for root or the default user; that health and start commands run in them; that iperf measures
// between any two of them and a host; that a pipe of 10 MB loses nothing; that Ctrl-C ends a
// program in a guest and not its shell; that an interface that is plugged in is told its address by
// DHCP; that what a guest writes is there after it has rebooted, and not in the image.
func TestGuestDisk(t *testing.T) {
	image := guestImage(t, "debian")["disk"]
	m := newMachine(t)
	m.patient = guestBoot
	before, digest := m.snapshot(), fileDigest(t, image)
	const asUser = `{vm: {user: debian, user_data: ` + diskScript + `}, health: test -e /home/debian/script}`
	file := m.diskLab(image, asUser, "")
	m.up(file)

	// Also names of interfaces and addresses are cloud-init's work, which is done before health.
	contains(t, m.exec("d1", "ip addr show d1-eth0"), " mtu 1400 ", " 10.0.1.2/24 ", " fd00::2/64 ")
	contains(t, m.exec("d1", "ip route"), "default via 10.0.1.1 dev d1-eth0", "10.77.0.0/16 via 10.0.1.9 dev d1-eth0")
	contains(t, m.exec("d1", "ip -6 route"), "default via fd00::1 dev d1-eth0")
	contains(t, m.exec("d2", "ip addr show d2-eth0"), " mtu 1500 ", " 10.0.2.2/24 ")
	m.pingAll(6)
	m.pingAll(6, "-6")

	for node, commands := range map[string]map[string]string{
		"d1": {"id -un": "root", "hostname": "d1", "cat /root/written": "für d1", "stat -c %a /root/written": "640", "id -un alice; id -un debian": "alice\ndebian",
			"cat /root/runcmd": "ran", "cat /root/start": "started", "passwd -S root | cut -d ' ' -f 2": "P"},
		"d2": {"id -un": "debian", "hostname": "d2", "cat /home/debian/script": "root"},
	} {
		for command, says := range commands {
			if got := m.exec(node, command); got != says {
				t.Errorf("%s says to %s: %q, and should %q", node, command, got, says)
			}
		}
	}

	for _, pair := range [][2]string{{"h1", "d1"}, {"d1", "h1"}, {"d1", "d2"}} {
		if got := jsonOf[struct {
			BitsPerSecond float64 `json:"bits_per_second"`
		}](m, "iperf", "-t", "2", pair[0], pair[1]); got.BitsPerSecond < 1e6 {
			t.Errorf("%v: %v bit/s", pair, got.BitsPerSecond)
		}
	}

	many := make([]byte, 10e6)
	random := newRandom(t)
	for i := range many {
		many[i] = byte(random.Uint32())
	}
	if r := m.runIn(bytes.NewReader(many), "exec", "d2", "--", "cat"); r.code != 0 || !bytes.Equal([]byte(r.out), many) {
		t.Errorf("of %d bytes through d2 there came %d, not the same: exit %d, %s", len(many), len(r.out), r.code, r.err)
	}

	y := m.terminal("shell", "d1")
	y.sees("x=kept; sh -c 'echo begun$((40+2)); exec sleep 100000'\n", "begun42") // bash's child may lose what comes before it is another program
	y.types("\x03")
	y.sees("echo $x$((40+2)) $(tty)\n", "kept42 /dev/pts/")
	y.types("exit 3\n")
	y.ends(3)

	m.plugsIn(image, asUser)

	// d1 reboots while d2 is made anew.
	qemus := strings.Join(m.pids("/qemu-system*guest=d1"), " ")
	boot := m.exec("d1", "echo walnut >/root/kept; cat /proc/sys/kernel/random/boot_id; systemctl reboot")
	m.diskLab(image, `{vm: {user: bob, user_data: `+diskConfig+`}, health: test -e /etc/runcmd}`, "")
	contains(t, m.ok("apply", file), "d2")
	until.Within(t, guestBoot, "d1 has rebooted", func() bool {
		r := m.run("exec", "d1", "--", "cat", "/proc/sys/kernel/random/boot_id")
		return r.code == 0 && strings.TrimSpace(r.out) != boot
	})
	if now := strings.Join(m.pids("/qemu-system*guest=d1"), " "); now != qemus {
		t.Errorf("QEMU of d1 was process %s, and is %s", qemus, now)
	}
	if got := m.exec("d1", "cat /root/kept /root/runcmd"); got != "walnut\nran" {
		t.Errorf("after it has rebooted, d1 has %q", got)
	}
	if got := m.exec("d2", "id -un; cat /etc/written"); got != "bob\nfor d2" {
		t.Errorf("of users and files of its own d2 has %q", got)
	}
	m.pingAll(6)
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
	if now := fileDigest(t, image); now != digest {
		t.Errorf("the image was %s, and is %s", digest, now)
	}
}

// plugsIn has d1 get a further interface. Nothing inside is told of it but by DHCP, of which its
// network manager knows nothing before.
func (m *machine) plugsIn(image, second string) {
	m.t.Helper()
	file := m.diskLab(image, second, "  - d1 -- h1\n")
	contains(m.t, m.ok("apply", file), "1 change")
	links := jsonOf[lab.Info](m, "inspect").Topology.Links
	address := links[len(links)-1].Ends[0].Addresses[0].String()
	m.exec("d1", `printf '[Match]\nType=ether\n[Network]\nDHCP=ipv4\n' >/run/systemd/network/90-more.network; networkctl reload`)
	eventually(m.t, "d1 has its further address, "+address, func() bool { return strings.Contains(m.exec("d1", "ip addr"), " "+address+" ") })
}

// fileDigest is of what a file holds.
func fileDigest(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	must(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(b))
}
