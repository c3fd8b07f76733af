package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGuestNetboot proves that the example's machine boots over the lab's network, from the DHCP
// and TFTP server that is there and not from Trivet's, with interfaces of two models; and that one
// that finds no server asks again until there is one.
func TestGuestNetboot(t *testing.T) {
	tiny := guestImage(t, "tiny")
	if _, err := exec.LookPath("dnsmasq"); err != nil {
		t.Skip(err)
	}
	for nic, driver := range map[string]string{"virtio": "virtio_net", "e1000": "e1000"} {
		t.Run(nic, func(t *testing.T) {
			m := newMachine(t)
			for name, from := range map[string]string{"dnsmasq.conf": example("netboot/dnsmasq.conf"), "boot.ipxe": example("netboot/boot.ipxe"),
				"linux": tiny["kernel"], "initrd.gz": tiny["initrd"]} {
				text, err := os.ReadFile(from)
				must(t, err)
				m.file("netboot/"+name, string(text))
			}
			text, err := os.ReadFile(example("netboot.yaml"))
			must(t, err)
			lab := strings.Replace(string(text), "{boot: network}", "{boot: network, nic: "+nic+"}", 1)
			const server = "dnsmasq --conf-file=/srv/tftp/dnsmasq.conf"
			late := nic == "e1000"
			if late {
				lab = strings.Replace(lab, "start: "+server, "start: 'true'", 1)
			}
			before := m.snapshot()
			m.up(m.file("netboot.yaml", lab))
			if late {
				eventually(t, "h1 finds nothing to boot", func() bool { return strings.Contains(m.ok("logs", "h1"), "No bootable device") })
				m.exec("server", server+" >/dev/null 2>&1")
			}
			eventually(t, "h1 has booted", func() bool { return strings.Contains(m.ok("logs", "h1"), "tiny is ready") })

			y := m.terminal("shell", "--console", "h1")
			y.sees("\rudhcpc -i eth0 -n -q -f -s /bin/true 2>&1 | sed s/lease/got/\r", "got of 10.0.0.11 obtained from 10.0.0.1,")
			y.sees("readlink -f /sys/class/net/eth0/device/driver\r", "/drivers/"+driver+"\r\n")
			y.types("\x1d")
			y.ends(0)
			m.reaches("server", "h1")
			if !late {
				contains(t, m.ok("logs", "server"), "sent /srv/tftp/initrd.gz to 10.0.0.11")
			}
			contains(t, m.ok("down"), "nothing left")
			m.unchanged(before)
		})
	}
}

// TestGuestAfter proves that a virtual machine begins once those machines and containers are ready
// that it comes after, and a container once those machines are; that one that is added later finds
// them ready; and that a circle is told where it stands in the file, and makes nothing.
func TestGuestAfter(t *testing.T) {
	tiny := guestImage(t, "tiny")
	m := newMachine(t)
	engines["podman"](t, m)
	m.image("image")
	must(t, os.Mkdir(filepath.Join(m.dir, "at"), 0o755))
	guest := "{host: {vm: {kernel: " + tiny["kernel"] + ", initrd: " + tiny["initrd"] + `, append: "console=ttyS0 quiet", ready: tiny is ready, password: tiny}, memory: 128MB`
	lab := func(more string) string {
		return m.file("lab.yaml", "nodes:\n  v1: "+guest+"}}\n  v2: "+guest+", after: [c1, v1]}}\n"+
			"  c1: {host: {build: ./image, cmd: [sh, -c, 'touch /at/began; sleep 1; touch /at/ready; cat'], dirs: {/at: ./at}, health: test -e /at/ready, after: [v1]}}\n"+more+"  s1: switch\nlinks: [s1 -- v1, s1 -- v2, s1 -- c1]\n")
	}
	file := lab("")
	m.up(file, "--wait", "300s")
	when := func(file string) string { return strings.TrimSpace(m.sh("stat -c %.9Y " + file)) }
	guests, at := "/run/trivet/"+m.name+"/guests/", filepath.Join(m.dir, "at")
	order := []string{when(guests + "v1/started"), when(guests + "v1/ready"), when(at + "/began"), when(at + "/ready"), when(guests + "v2/started"), when(guests + "v2/ready")}
	if !slices.IsSorted(order) {
		t.Errorf("v1 began and was ready, c1, and v2 at %v", order)
	}
	contains(t, m.ok("apply", lab("  c2: {host: {build: ./image, cmd: cat, after: [v2]}}\n")), "1 change")
	m.exec("c2", "true")
	m.sh("sed -i 's/health: test/after: [v2], health: test/; s/, after: .v1.}}$/}}/' lab.yaml")
	contains(t, m.want(1, "apply", file).err, "lab.yaml:3:3  host v2: after: it waits for itself")
	contains(t, m.ok("down"), "nothing left")
}

// TestGuestDisks proves that a virtual machine has further disks, of a file and empty, of the order
// and size that the topology says, on which the guest writes, and not in the file; that it boots by
// UEFI, and that a machine without that firmware says what to install; and that a file that is no
// disk is told with where the topology's has it.
func TestGuestDisks(t *testing.T) {
	tiny := guestImage(t, "tiny")
	if _, err := os.Stat("/usr/share/OVMF/OVMF_CODE_4M.fd"); err != nil {
		t.Skip("no firmware: ", err)
	}
	m := newMachine(t)
	data := m.file("data.img", "walnut"+strings.Repeat("\x00", 1<<20))
	lab := func(disk string) string {
		return m.file("lab.yaml", "nodes:\n  v1: {host: {vm: {kernel: "+tiny["kernel"]+", initrd: "+tiny["initrd"]+
			`, append: "console=ttyS0 quiet", ready: tiny is ready, password: tiny, firmware: uefi, disks: [`+disk+", {size: 3GB}]}}}\n  h1: host\nlinks: [v1 -- h1]\n")
	}
	contains(t, m.want(1, "up", lab("nothing.img")).err, "lab.yaml:2:3  host v1: vm: stat ", "nothing.img: no such file")
	file := lab("data.img")
	m.sh("mount -t tmpfs none /usr/share/OVMF")
	contains(t, m.want(1, "up", file).err, "host v1: firmware: OVMF, by which virtual machines boot by UEFI, is not installed: apt install ovmf")
	m.sh("umount /usr/share/OVMF")

	before, digest := m.snapshot(), fileDigest(t, data)
	contains(t, m.ok("validate", file), "disk "+data)
	m.up(file, "--wait", "300s")
	contains(t, m.exec("v1", "ls -d /sys/firmware/efi; cat /sys/block/vd[ab]/serial /sys/block/vdb/size; head -c 6 /dev/vda"),
		"/sys/firmware/efi\ndisk1disk26291456\nwalnut")
	m.exec("v1", "echo almond >/dev/vda; echo cashew | dd of=/dev/vdb seek=6291455 2>/dev/null; sync; echo 3 >/proc/sys/vm/drop_caches")
	contains(t, m.exec("v1", "head -c 7 /dev/vda; dd if=/dev/vdb skip=6291455 2>/dev/null | head -c 7"), "almond\ncashew")
	if now := fileDigest(t, data); now != digest {
		t.Error("what the guest has written is in the file")
	}
	m.pingAll(2)
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}
