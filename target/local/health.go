package local

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/kernel"
	"trivet.dev/trivet/topology"
)

// Health is what a machine of a rack reports about itself, besides what is checked on every machine
// (Examine).
type Health struct {
	Model     string       `json:"model,omitempty"` // of the board, if it says so
	NIC       string       `json:"nic,omitempty"`   // the interface that carries the VLANs
	MAC       string       `json:"mac,omitempty"`   // its MAC address
	MACs      []string     `json:"macs"`            // of all its interfaces
	Addresses []netip.Addr `json:"addresses"`       // the machine's own, of labs or not
	Lab       string       `json:"lab,omitempty"`   // whose host the machine is now
	DHCP      bool         `json:"dhcp,omitempty"`  // it runs a DHCP server
	Findings  []Finding    `json:"findings"`
}

// HealthOf checks this machine; labs is the directory of its labs. Its VLANs are on the interface
// nic or, if that is empty, on the one with the address.
func HealthOf(nic string, address netip.Addr, labs string) Health {
	h := Health{Model: model(), Lab: nativeLab(labs, ""), DHCP: servesDHCP()}
	h.MACs, h.Addresses = namesOf()
	link := Finding{What: "interface", Needed: true}
	dev, err := nicOf(topology.Carrier{NIC: nic, Local: address})
	if err != nil {
		link.Says, link.Cure = err.Error(), "name it in the file of the rack (nic: of a device, inner: of the gateway)"
		h.Findings = append(h.Findings, link)
	} else {
		h.NIC, h.MAC = dev.Attrs().Name, dev.Attrs().HardwareAddr.String()
		h.Findings = append(h.Findings, examineLink(dev), examineMTU(dev))
	}
	h.Findings = slices.Concat(h.Findings, examinePower("/sys"), examineDisks("/proc/mounts"), examineKernel())
	return h
}

// model returns the board's model (Devicetree specification, section 3.2).
func model() string {
	b, _ := os.ReadFile("/proc/device-tree/model")
	return strings.TrimRight(string(b), "\x00")
}

func namesOf() (macs []string, addresses []netip.Addr) {
	devices, _ := netlink.LinkList()
	for _, dev := range devices {
		if mac := dev.Attrs().HardwareAddr.String(); mac != "" && !slices.Contains(macs, mac) {
			macs = append(macs, mac)
		}
	}
	list, _ := netlink.AddrList(nil, netlink.FAMILY_V4)
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok {
			addresses = append(addresses, ip)
		}
	}
	return macs, addresses
}

// servesDHCP says whether a program listens on the port of DHCP servers (proc_net(5)).
func servesDHCP() bool {
	b, _ := os.ReadFile("/proc/thread-self/net/udp")
	return udpPort(string(b), 67)
}

func udpPort(table string, port int) bool {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			return true
		}
	}
	return false
}

func examineMTU(dev netlink.Link) Finding {
	a := dev.Attrs()
	f := Finding{What: "MTU", OK: a.MTU >= MTU, Needed: true, Says: fmt.Sprintf("%d bytes on %s", a.MTU, a.Name)}
	if !f.OK {
		f.Says += fmt.Sprintf("; VLANs on it need %d", MTU)
		f.Cure = fmt.Sprintf("ip link set %s mtu %d", a.Name, MTU)
	}
	return f
}

// Free space that a disk needs: labs keep logs, captures and the program (50 MB) there.
const diskNeeds, inodesNeeded = 100 << 20, 1000

// examineDisks checks the file systems that programs and labs write to.
func examineDisks(mounts string) (out []Finding) {
	table, _ := os.ReadFile(mounts)
	seen := map[unix.Fsid]bool{}
	home, _ := os.UserHomeDir()
	for _, dir := range []string{"/", home, "/var", "/tmp", "/run"} {
		var s unix.Statfs_t
		if dir == "" || unix.Statfs(dir, &s) != nil || seen[s.Fsid] && s.Fsid != (unix.Fsid{}) {
			continue
		}
		seen[s.Fsid] = true
		out = append(out, diskFinding(dir, s, readOnly(string(table), dir)))
	}
	return out
}

func diskFinding(dir string, s unix.Statfs_t, readOnly bool) Finding {
	free := int64(s.Bavail) * int64(s.Bsize)
	f := Finding{What: "disk", OK: true, Needed: true, Says: fmt.Sprintf("%s has %.1f GB free", dir, float64(free)/1e9)}
	switch {
	case readOnly:
		f.OK, f.Says = false, dir+" cannot be written to"
		f.Cure = "a card with errors is mounted so: look at  dmesg | grep -i 'ext4\\|mmc'  and replace it; if that is meant (overlay), mount -o remount,rw " + dir
	case s.Blocks > 0 && free < diskNeeds:
		f.OK, f.Says = false,
			fmt.Sprintf("%s is full: %d MB of %d MB are free", dir, free>>20, int64(s.Blocks)*int64(s.Bsize)>>20)
		f.Cure = "look what takes it:  du -xhd2 " + dir +
			" | sort -h | tail; then  apt clean, journalctl --vacuum-size=50M, docker system prune"
	case s.Files > 0 && s.Ffree < inodesNeeded:
		f.OK, f.Says = false, fmt.Sprintf("%s is full: no more than %d files can be made", dir, s.Ffree)
		f.Cure = "look where they are:  du -x --inodes -d2 " + dir + " | sort -n | tail"
	}
	return f
}

// readOnly says whether a directory is the mount point of a read-only file system.
func readOnly(mounts, dir string) (is bool) {
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == dir {
			is = slices.Contains(strings.Split(f[3], ","), "ro")
		}
	}
	return is
}

// examineKernel checks what racks need of a kernel besides what all labs do, in a temporary network
// namespace.
func examineKernel() []Finding {
	vlan := Finding{What: "VLANs", OK: true, Needed: true, Says: "the kernel has them (802.1Q)"}
	shaping := Finding{What: "bandwidth", OK: true, Says: "the kernel can limit it (HTB)"}
	filter := Finding{What: "guard", OK: true, Needed: true,
		Says: "programs can be attached to interfaces (clsact, cls_bpf)"}
	if os.Geteuid() != 0 {
		for _, f := range []*Finding{&vlan, &shaping, &filter} {
			f.Unknown, f.Says = true, "not tried (needs root)"
		}
		return []Finding{vlan, shaping, filter}
	}
	fail := func(f *Finding, err error, says, module string) {
		if err == nil {
			return
		}
		f.OK, f.Warns, f.Says, f.Cure = false, !f.Needed, says+": "+err.Error(), moduleCure(module)
	}
	ways, err := tryKernel()
	fail(&vlan, errors.Join(err, ways.vlan), "missing: no link of a lab can reach this machine", "8021q")
	fail(&shaping, errors.Join(err, ways.htb), "missing: the bandwidth of links cannot be limited here", "sch_htb")
	fail(&filter, errors.Join(err, ways.filter), "missing: what the machine's programs send would get past a lab",
		"cls_bpf")
	return []Finding{vlan, shaping, filter}
}

// moduleCure says how to get a kernel module.
func moduleCure(module string) string {
	release := kernel.Release()
	if _, err := os.Stat("/lib/modules/" + release); errors.Is(err, os.ErrNotExist) {
		return "the modules of the running kernel (" + release + ") are gone, as after an upgrade: reboot"
	}
	return "modprobe " + module +
		"; if there is none, install the kernel's own package of modules (linux-modules-extra on Ubuntu)"
}
