package topology

// Guest says what a node is that is a virtual machine of its owner's: a host, or a router with
// datapath kernel. (A router with datapath vm is one of Trivet's.)
type Guest struct {
	Image  string `json:"image,omitempty"`  // file of a disk, qcow2 or raw: read only, what is written goes with the machine
	Kernel string `json:"kernel,omitempty"` // file that is booted in place of the disk
	Initrd string `json:"initrd,omitempty"`
	Append string `json:"append,omitempty"` // the kernel's command line
	Boot   string `json:"boot,omitempty"`   // "network": from its first interface; empty: from the disk, or the kernel

	UserData   string `json:"user_data,omitempty"`  // cloud-init's: a file, or the text itself, of several lines
	User       string `json:"user,omitempty"`       // who logs in by SSH; empty: root
	Password   string `json:"password,omitempty"`   // where the guest knows no key of Trivet's
	Ready      string `json:"ready,omitempty"`      // what its console prints once it is ready
	NIC        string `json:"nic,omitempty"`        // model of its interfaces; empty: virtio
	Processors int    `json:"processors,omitempty"` // 0: 1
	NoDHCP     bool   `json:"no_dhcp,omitempty"`    // its interfaces are not told their addresses by DHCP
	Unmanaged  bool   `json:"unmanaged,omitempty"`  // it has no further interface through which Trivet logs in
}

// BootNetwork is Guest.Boot of a machine that boots from the network.
const BootNetwork = "network"

// NICs are the models of interfaces that virtual machines can have.
var NICs = []string{"virtio", "e1000", "e1000e", "rtl8139", "vmxnet3"}
