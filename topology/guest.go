package topology

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/docker/go-units"

	"trivet.dev/trivet/internal/words"
)

// Guest holds the settings of a node that is a virtual machine of its owner's: a host, or a router
// with datapath kernel. (A router with datapath vm is one of Trivet's.) Of a container's settings,
// Memory and Health also apply to it: the machine's memory, and a command that runs inside.
type Guest struct {
	// File of a disk, qcow2 or raw. It is only read: what the guest writes is lost with the
	// machine.
	Image  string `json:"image,omitempty"`
	Kernel string `json:"kernel,omitempty"` // file to boot in place of the disk
	Initrd string `json:"initrd,omitempty"`
	Append string `json:"append,omitempty"` // the kernel's command line
	Boot   string `json:"boot,omitempty"`   // BootNetwork; empty: from the disk, or the kernel

	Disks    []GuestDisk `json:"disks,omitempty"`    // additional ones
	Firmware string      `json:"firmware,omitempty"` // FirmwareUEFI; empty: a BIOS

	UserData   TextFile `json:"user_data,omitzero"`   // cloud-init's
	User       string   `json:"user,omitempty"`       // user for SSH; empty: root
	Password   string   `json:"password,omitempty"`   // for guests that do not get Trivet's key
	Ready      string   `json:"ready,omitempty"`      // text on its console that shows that it is ready
	NIC        string   `json:"nic,omitempty"`        // model of its interfaces; empty: virtio
	Processors int      `json:"processors,omitempty"` // 0: 1
	NoDHCP     bool     `json:"no_dhcp,omitempty"`    // no DHCP on its interfaces
	Unmanaged  bool     `json:"unmanaged,omitempty"`  // without the additional interface through which Trivet logs in
}

// GuestDisk is an additional disk of a virtual machine: from a file, like Guest.Image, or empty.
type GuestDisk struct {
	Image string `json:"image,omitempty"`
	Size  Bytes  `json:"size,omitzero"` // of an empty one
}

func (d GuestDisk) String() string {
	if d.Image != "" {
		return d.Image
	}
	return d.Size.String()
}

// clone returns a deep copy; g may be nil.
func (g *Guest) clone() *Guest {
	c := clonePointer(g)
	if c != nil {
		c.Disks = slices.Clone(g.Disks)
	}
	return c
}

// NICs are the supported models of interfaces of virtual machines.
var NICs = []string{"virtio", "e1000", "e1000e", "rtl8139", "vmxnet3"}

// BootNetwork makes a machine boot from its first interface.
const BootNetwork = "network"

// FirmwareUEFI makes a machine boot by UEFI.
const FirmwareUEFI = "uefi"

// Limits on virtual machines.
const (
	MinGuestMemory     Bytes = 32 * units.MiB
	MaxGuestProcessors       = 64
	MaxGuestInterfaces       = 24 // with additional disks: each is a device on the machine's bus
	MaxGuestDisks            = 8  // further ones
	MinGuestDisk       Bytes = units.MiB
	MaxGuestDisk       Bytes = 8 * units.TiB
)

// Inside says what a node's programs run in if that has its own files: "container", "virtual
// machine", or else "".
func (n *Node) Inside() string {
	switch {
	case n.Contained():
		return "container"
	case n.Guest != nil:
		return "virtual machine"
	}
	return ""
}

// loginName matches user names that Linux, and logins of other systems, accept.
var loginName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,31}$`)

// guest checks what a node says of its virtual machine.
func (v *validator) guest(n *Node, bad func(hint, format string, args ...any)) {
	g := n.Guest
	if g == nil {
		return
	}
	switch {
	case n.Kind != Host && n.Kind != Router:
		bad("make it a host or a router", "vm: it cannot be a virtual machine")
	case n.Kind == Router && n.Datapath != "" && n.Datapath != Kernel:
		bad("use datapath kernel; the image brings its own daemons",
			"vm: a router with datapath %s has no virtual machine of yours", n.Datapath)
	}
	if n.Contained() {
		key := "image"
		if n.Image == "" {
			key = "build"
		}
		bad("keep one of them", "%s and vm: it is a container or a virtual machine, not both", key)
		return
	}
	g.boots(bad)
	g.words(bad)
	g.disks(bad)
	if n.Memory != 0 && n.Memory < MinGuestMemory {
		bad("write "+MinGuestMemory.String()+" or more", "memory: a virtual machine cannot do with %s", n.Memory)
	}
	if hasNUL(n.Health) {
		bad("remove it", "health is a shell command, which cannot hold a NUL character")
	}
	type key struct {
		name  string
		given bool
	}
	keys := []key{{"isolate", len(n.Isolate) > 0}, {"dirs", len(n.Dirs) > 0}, {"config", len(n.Config) > 0},
		{"sysctls", len(n.Sysctls) > 0}, {"interfaces", len(n.Interfaces) > 0}, {"rules", len(n.Rules) > 0},
		{"neighbors", len(n.Neighbors) > 0}, {"mpls", n.MPLS}, {"labels", len(n.Labels) > 0},
		{"masquerade", len(n.Masquerade) > 0}, {"nat", n.NAT}}
	for _, p := range n.Speaks() {
		keys = append(keys, key{p.Name, true})
	}
	for _, key := range append(keys, key{"management", n.Management.IsValid()}) {
		if key.given {
			bad("leave it out; what the guest is like inside, its image and user_data say",
				"%s: not for virtual machines", key.name)
		}
	}
	if !g.Unmanaged {
		return
	}
	for _, key := range []struct {
		name  string
		given bool
	}{{"user", g.User != ""}, {"password", g.Password != ""}, {"ports", len(n.Ports) > 0}, {"health", n.Health != ""},
		{"start", n.Start != ""}, {"stop", n.Stop != ""}} {
		if key.given {
			bad("leave one of them out", "%s: Trivet cannot log in to a virtual machine with management off", key.name)
		}
	}
}

// boots checks the settings for booting.
func (g *Guest) boots(bad func(hint, format string, args ...any)) {
	switch {
	case g.Boot != "" && g.Boot != BootNetwork:
		bad("write boot: network, or leave it out", "boot: a virtual machine cannot boot from %q", clip(g.Boot))
	case g.Boot != "" && g.Kernel != "":
		bad("keep one of them", "boot and kernel: it boots from the network, or this kernel")
	case g.Boot == "" && g.Kernel == "" && g.Image == "":
		bad("write vm: images/debian.qcow2, {kernel: vmlinuz, …} or {boot: network}", "vm: nothing says what it boots")
	}
	for _, key := range []struct{ name, value string }{{"initrd", g.Initrd}, {"append", g.Append}} {
		if key.value != "" && g.Kernel == "" {
			bad("name the kernel, or leave it out", "%s: it is for a kernel that is booted in place of the image",
				key.name)
		}
	}
}

// disks checks the machine's additional disks.
func (g *Guest) disks(bad func(hint, format string, args ...any)) {
	if len(g.Disks) > MaxGuestDisks {
		bad("write fewer", "disks: a virtual machine can have %d beside the one of its image", MaxGuestDisks)
	}
	for _, d := range g.Disks {
		switch {
		case (d.Image == "") == (d.Size == 0):
			bad("write data.qcow2, or {size: 10GB}", "disks: one is of a file, or empty and of a size")
		case strings.ContainsAny(d.Image, "\x00\n\r"):
			bad("write one line", "disks: a file's name cannot hold a NUL character or a line end")
		case d.Image == "" && (d.Size < MinGuestDisk || d.Size > MaxGuestDisk):
			bad("write "+MinGuestDisk.String()+" to "+MaxGuestDisk.String(), "disks: one cannot have %s", d.Size)
		}
	}
}

// words checks the other settings of the machine.
func (g *Guest) words(bad func(hint, format string, args ...any)) {
	for _, line := range []struct{ name, value string }{{"image", g.Image}, {"kernel", g.Kernel}, {"initrd", g.Initrd},
		{"append", g.Append}, {"password", g.Password}, {"ready", g.Ready}} {
		if strings.ContainsAny(line.value, "\x00\n\r") {
			bad("write one line", "%s: it cannot hold a NUL character or a line end", line.name)
		}
	}
	if strings.Contains(g.Initrd, ",") {
		bad("rename the file", "initrd: QEMU takes a comma for the beginning of another file's name")
	}
	if g.UserData != (TextFile{}) {
		g.UserData.valid("user_data", bad)
	}
	if g.User != "" && !loginName.MatchString(g.User) {
		bad("use letters, digits, '.', '_' and '-', at most 32", "user: nobody can log in as %q", clip(g.User))
	}
	if g.Password == hiddenKey {
		bad("take another", "password: %s is what stands for one where it is not shown", hiddenKey)
	}
	if strings.TrimSpace(g.UserData.Text) == hiddenKey {
		bad("write it", "user_data: %s is what stands for one where it is not shown", hiddenKey)
	}
	if g.Firmware != "" && g.Firmware != FirmwareUEFI {
		bad("write firmware: uefi, or leave it out, for a BIOS", "firmware: there is no %q", clip(g.Firmware))
	}
	if g.NIC != "" && !slices.Contains(NICs, g.NIC) {
		bad(words.Choose(NICs), "nic: there is no model %q", clip(g.NIC))
	}
	if g.Processors < 0 || g.Processors > MaxGuestProcessors {
		bad("write 1 to 64", "processors: a virtual machine cannot have %d", g.Processors)
	}
}

// tapName matches names of the TAP devices of virtual machines (internal/qemu).
var tapName = regexp.MustCompile(`^vm([0-9]+|[0-9a-f]{12})$`)

// OfMachine says whether a device, by its name, belongs to a virtual machine rather than to a link.
func OfMachine(device string) bool { return tapName.MatchString(device) }

// GuestManagement is the name, inside, of the additional interface of a virtual machine.
const GuestManagement = "management"

// GuestManagementMAC is its MAC.
var GuestManagementMAC = MAC{0x52, 0x54, 0x00, 0x54, 0x52, 0x56}

// guestLink checks the ends of a link that are interfaces of virtual machines.
func (v *validator) guestLink(l *Link, bad func(hint, format string, args ...any)) {
	for i, e := range l.Ends {
		n := v.nodes[e.Node]
		if n == nil || n.Guest == nil {
			continue
		}
		if l.Ends[1-i].Beyond() {
			bad("put a switch between them",
				"%s is a virtual machine, which cannot have an interface of the machine, or a port in a network",
				e.Node)
		}
		if OfMachine(e.Interface) || e.Interface == GuestManagement {
			bad("name another", "%s: a device of the name %s is taken at a virtual machine", e.Node, e.Interface)
		}
		if v.guestEnds[e.Node]++; v.guestEnds[e.Node]+len(n.Guest.Disks) == MaxGuestInterfaces+1 {
			bad("leave it out", "%s is a virtual machine, which can have %d interfaces and further disks together",
				e.Node, MaxGuestInterfaces)
		}
	}
}

// guestMACs checks that the interfaces of a virtual machine have different MAC addresses, by which
// the guest identifies them.
func (r *resolver) guestMACs() {
	type address struct {
		node string
		mac  MAC
	}
	has := map[address]bool{}
	for _, l := range r.t.Links {
		for _, e := range l.Ends {
			if n := r.nodes[e.Node]; n == nil || n.Guest == nil {
				continue
			}
			if has[address{e.Node, e.MAC}] || e.MAC == GuestManagementMAC {
				r.problems.Add(l.Pos, "give it another",
					"link %s: the virtual machine %s knows its interfaces by their MAC, and another one has %s",
					l.Name(), e.Node, e.MAC)
			}
			has[address{e.Node, e.MAC}] = true
		}
	}
}

// filesFrom resolves relative names of files against a directory, except for those that are read
// with the topology.
func (g *Guest) filesFrom(dir string) {
	files := []*string{&g.Image, &g.Kernel, &g.Initrd}
	for i := range g.Disks {
		files = append(files, &g.Disks[i].Image)
	}
	for _, file := range files {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(dir, *file)
		}
	}
}

// guestErrand describes what root has QEMU run; "" if the node is no virtual machine.
func (n *Node) guestErrand() string {
	g := n.Guest
	if g == nil {
		return ""
	}
	var of []string
	for _, file := range []struct{ what, name string }{{"image", g.Image}, {"kernel", g.Kernel}, {"initrd", g.Initrd}} {
		if file.name != "" {
			of = append(of, file.what+" "+file.name)
		}
	}
	for _, d := range g.Disks {
		if d.Image != "" {
			of = append(of, "disk "+d.Image)
		}
	}
	what := "a virtual machine"
	if len(of) > 0 {
		what += " of " + strings.Join(of, ", ")
	}
	if g.Boot != "" {
		what += ", booted from the network"
	}
	if g.UserData != (TextFile{}) {
		what += ", with user data of " + g.UserData.where()
	}
	if n.Health != "" {
		what += ", looked after by " + n.Health
	}
	return what
}

// asWritten replaces settings whose JSON differs from their form in files, by their keys there.
func (g *Guest) asWritten(into map[string]string) {
	for _, not := range []struct {
		key, word string
		off       bool
	}{{"vm.no_dhcp", "vm.dhcp", g.NoDHCP}, {"vm.unmanaged", "vm.management", g.Unmanaged}} {
		if delete(into, not.key); not.off {
			into[not.word] = "off"
		}
	}
	delete(into, "vm.user_data.file")
	if delete(into, "vm.user_data.text"); g.UserData != (TextFile{}) {
		into["vm.user_data"] = g.UserData.brief("text")
	}
}
