package e2e

import (
	"os"
	"os/exec"
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
