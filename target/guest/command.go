package guest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/topology"
)

// defaultMemory is a machine's memory in bytes if the topology does not say.
const defaultMemory = 512 << 20

// The additional interface by which Trivet logs in is in a network that QEMU emulates, and that is
// reached only from a port of the loopback device in the node's namespace.
const (
	loginAt           = "127.0.0.1:22"
	managementNet     = "169.254.231.0/24"
	managementAddress = "169.254.231.15/24"
)

// QEMU drops what a guest sends by UDP in such a network (restrict=on). So where UDP ports lead to
// a guest, a TAP device of the node's namespace is in that network, too, through which they are
// reached.
const (
	portsTap     = "vm0"
	portsAddress = "169.254.231.254/24"
)

// command returns the arguments of a machine that is started in its directory and in its node's
// namespaces. QEMU opens its files and devices as root, and then drops all rights.
func command(n *topology.Node, how qemu.Accelerator, interfaces []Interface, seeded bool) (args []string, err error) {
	g := n.Guest
	args = append(qemu.Common(how), "-name", "guest="+qemu.Value(n.Name),
		"-m", strconv.FormatInt(cmp.Or(int64(n.Memory), defaultMemory)>>20, 10), "-smp",
		strconv.Itoa(max(1, g.Processors)), "-machine", "graphics=off", // its BIOS and boot loader use the console
		"-runas", "nobody", "-sandbox", "on,obsolete=deny,spawn=deny,resourcecontrol=deny",
		"-chardev", "socket,id=console,path="+consoleSocket+",server=on,wait=off,logfile="+consoleLog+",logappend=on",
		"-serial", "chardev:console", "-qmp", "unix:"+qemu.MonitorSocket+",server=on,wait=off",
		"-device", "virtio-rng-pci")
	if g.Kernel != "" {
		args = append(args, "-kernel", g.Kernel)
		if g.Initrd != "" {
			args = append(args, "-initrd", g.Initrd)
		}
		if g.Append != "" {
			args = append(args, "-append", g.Append)
		}
	}
	if g.Boot == topology.BootNetwork { // its server may be a host yet to run its start command
		args = append(args, "-boot", "reboot-timeout=1000")
	}
	if g.Firmware == topology.FirmwareUEFI {
		code, variables, err := qemu.UEFI()
		if err != nil {
			return nil, err
		}
		args = append(args, "-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+qemu.Value(code),
			"-drive", "if=pflash,unit=1,format=raw,snapshot=on,file="+qemu.Value(variables))
	}
	if g.Image != "" {
		if args, err = addDisk(args, "disk", topology.GuestDisk{Image: g.Image}, ",bootindex=1"); err != nil {
			return nil, err
		}
	}
	for i, d := range g.Disks {
		name := fmt.Sprintf("disk%d", i+1)
		if args, err = addDisk(args, name, d, ",serial="+name); err != nil {
			return nil, err
		}
	}
	if seeded {
		args = append(args, "-drive", "if=none,id=seed,driver=vvfat,dir="+seedDir+",label="+seedLabel+",read-only=on",
			"-device", "virtio-blk-pci,drive=seed")
	}
	for i, f := range interfaces {
		device := fmt.Sprintf("%s,id=%s,netdev=%s,mac=%s", model(g), f.ID, netdev(f), f.MAC)
		switch {
		case g.Boot != topology.BootNetwork:
			device += ",romfile="
		case i == 0:
			device += ",bootindex=0"
		}
		if f.MTU > topology.MTU && model(g) == "virtio-net-pci" {
			device += fmt.Sprintf(",host_mtu=%d", f.MTU)
		}
		args = append(args, "-netdev",
			fmt.Sprintf("tap,id=%s,ifname=%s,script=no,downscript=no,vhost=%s", netdev(f), f.Tap, how.VHost()),
			"-device", device)
	}
	if !g.Unmanaged {
		network := fmt.Sprintf("user,id=management,restrict=on,ipv6=off,net=%s,hostfwd=tcp:%s-:22", managementNet,
			loginAt)
		for _, p := range forwarded(n) {
			network += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-:%d", p, p)
		}
		if hasDatagrams(n) {
			args = append(args, "-netdev", strings.Replace(network, "id=management", "id=login", 1),
				"-netdev", "tap,id=ports,ifname="+portsTap+",script=no,downscript=no,vhost=off",
				"-netdev", "hubport,id=login0,hubid=0,netdev=login", "-netdev",
				"hubport,id=ports0,hubid=0,netdev=ports")
			network = "hubport,id=management,hubid=0"
		}
		args = append(args, "-netdev", network,
			"-device", model(g)+",netdev=management,romfile=,mac="+topology.GuestManagementMAC.String())
	}
	return args, nil
}

// hasDatagrams says whether UDP ports lead to a guest.
func hasDatagrams(n *topology.Node) bool {
	return slices.ContainsFunc(n.Ports, func(p topology.Port) bool { return p.UDP })
}

// DatagramsTo is the guest's address for UDP ports, as reached from the namespace of its node.
func (k *guests) DatagramsTo(*topology.Node) netip.Addr {
	return netip.MustParsePrefix(managementAddress).Addr()
}

// joinPorts makes, in the calling thread's namespace, the device through which a guest's UDP ports
// are reached.
func joinPorts() error {
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: portsTap}, Mode: netlink.TUNTAP_MODE_TAP,
		Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_ONE_QUEUE}
	if err := netlink.LinkAdd(tap); err != nil {
		return err
	}
	address, err := netlink.ParseAddr(portsAddress)
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrAdd(tap, address), netlink.LinkSetUp(tap))
}

// forwarded returns the TCP ports of a guest to which ports of the machine lead, each once, without
// that of SSH, which is always forwarded.
func forwarded(n *topology.Node) (out []uint16) {
	for _, p := range n.Ports {
		if !p.UDP && p.Node != 22 && !slices.Contains(out, p.Node) {
			out = append(out, p.Node)
		}
	}
	return out
}

// addDisk adds the arguments for a disk. Writes, even to a raw device, go to a temporary file of
// QEMU's without a name.
func addDisk(args []string, name string, d topology.GuestDisk, options string) ([]string, error) {
	source := emptySource(d.Size)
	if d.Image != "" {
		format, err := formatOf(d.Image)
		if err != nil {
			return nil, err
		}
		if source, err = diskSource(format, d.Image); err != nil {
			return nil, err
		}
	}
	return append(args, "-drive", "if=none,id="+name+",snapshot=on,cache=unsafe,file=json:"+qemu.Value(source),
		"-device", "virtio-blk-pci,drive="+name+options), nil
}

// emptySource describes a disk of zeroes to QEMU (BlockdevOptions of its QMP reference).
func emptySource(size topology.Bytes) string {
	return fmt.Sprintf(`{"driver":"raw","file":{"driver":"null-co","size":%d,"read-zeroes":true}}`, size)
}

// diskSource describes the image of a disk to QEMU (BlockdevOptions of its QMP reference). formatOf
// has examined the file by its name, which may denote another file by now: so QEMU is told to open
// no device in its place, and no backing file of a qcow2.
func diskSource(format, image string) (string, error) {
	source := map[string]any{"driver": format, "file": map[string]any{"driver": "file", "filename": image}}
	if format == "qcow2" {
		source["backing"] = nil
	}
	text, err := json.Marshal(source)
	return string(text), err
}
