package trivet

import (
	"fmt"
	"reflect"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// guestOptions describe topology.Guest.
type guestOptions struct {
	Image      string               `yaml:"image" doc:"File of the machine's disk, qcow2 or raw. It is only read: what the machine writes goes with it."`
	Kernel     string               `yaml:"kernel" doc:"File of a kernel that is booted in place of the disk."`
	Initrd     string               `yaml:"initrd" doc:"File with the kernel's first file system."`
	Append     string               `yaml:"append" doc:"The kernel's command line: console=ttyS0."`
	Boot       string               `yaml:"boot" as:"boot" doc:"network: the machine boots from its first interface; from its disk, or the kernel, when missing."`
	Disks      []topology.GuestDisk `yaml:"disks" as:"disk" doc:"Further disks, in the order in which the guest sees them: files like image, or {size: 10GB}, an empty one."`
	Firmware   string               `yaml:"firmware" as:"firmware" doc:"uefi: the machine boots by UEFI; by a BIOS when missing."`
	UserData   topology.TextFile    `yaml:"user_data" doc:"What cloud-init is to do in the guest: a file below this one's directory, in which * is the node's name; what has several lines is the text itself."`
	User       string               `yaml:"user" doc:"Who Trivet logs in as, by SSH; root when missing."`
	Password   string               `yaml:"password" doc:"Password of that user, where the guest does not know Trivet's key."`
	Ready      string               `yaml:"ready" doc:"What the machine's console prints once it is ready: login:"`
	NIC        string               `yaml:"nic" as:"nic" doc:"Model of its interfaces: virtio, e1000, e1000e, rtl8139, vmxnet3; virtio when missing."`
	Processors int                  `yaml:"processors" as:"count" doc:"Processors of the machine, 1 to 64; 1 when missing."`
	NoDHCP     bool                 `yaml:"dhcp" as:"unless off" doc:"off: nobody answers the guest when it asks for its addresses."`
	Unmanaged  bool                 `yaml:"management" as:"unless off" doc:"off: it has no interface beside those of links, by which Trivet logs in."`
}

// guestDiskOptions describe topology.GuestDisk.
type guestDiskOptions struct {
	Image string         `yaml:"image" doc:"File of the disk, qcow2 or raw. It is only read: what the machine writes goes with it."`
	Size  topology.Bytes `yaml:"size" doc:"Size of a disk that is empty at first: 10GB."`
}

// diskShort is a disk of a file.
var diskShort = Short{Pattern: `^.+$`, Example: "data.qcow2", Parse: func(into any, text string) bool {
	into.(*topology.GuestDisk).Image = text
	return true
}, Write: func(v any) string {
	d := v.(topology.GuestDisk)
	if d.Size != 0 || strings.ContainsAny(d.Image, "\r\n\u2028\u2029") {
		return ""
	}
	return yamlfile.Quote(d.Image)
}}

// noGuest is how a node is written that is no virtual machine although the defaults have one. A
// file of that name is ./none.
const noGuest = "none"

// guestShort is a machine of which only the disk is said.
var guestShort = Short{Pattern: `^.+$`, Example: "images/debian.qcow2", Parse: func(into any, text string) bool {
	into.(*topology.Guest).Image = text
	return true
}, Write: func(v any) string {
	g := v.(topology.Guest)
	if g.Image == "" || g.Image == noGuest || strings.ContainsAny(g.Image, "\r\n\u2028\u2029") ||
		!reflect.DeepEqual(g, topology.Guest{Image: g.Image}) {
		return ""
	}
	return yamlfile.Quote(g.Image)
}}

// guest reads a virtual machine, or none. One of which nothing could be read that it boots is left
// out: what is wrong with it is said already.
func (d *decoder) guest(v *yamlfile.Value, into reflect.Value, f field, label string) {
	if v.Shape == yamlfile.Scalar && v.Text == noGuest {
		into.SetZero() // that of the defaults
		return
	}
	before := len(d.problems)
	d.single(v, into, f, label)
	if g := into.Interface().(*topology.Guest); len(d.problems) > before && g.Image == "" && g.Kernel == "" &&
		g.Boot == "" {
		into.SetZero()
	}
}

// unlessOff reads on and off for fields that are true where something is off.
var unlessOff = leaf{words: []string{"on", "off"}, parse: func(_ *decoder, s string) (any, error) {
	on, err := parseBool(s)
	if err != nil {
		return nil, fmt.Errorf("%q is neither on nor off", s)
	}
	return !on, nil
}, write: func(v any) string {
	if v.(bool) {
		return "off"
	}
	return "on"
}}
