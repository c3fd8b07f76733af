package ovs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/topology"
)

// DatapathType says where Open vSwitch forwards packets.
type DatapathType string

const (
	System DatapathType = "system" // in the kernel: needs the module openvswitch
	Netdev DatapathType = "netdev" // in the process ovs-vswitchd: works everywhere, about 1 Gbit/s
)

// class is the datapath_type of the bridges. Open vSwitch has its user-space datapath under two
// names, which differ in what a bridge's own port is: under "netdev" a tap device in the kernel,
// under "dummy" nothing. Nobody uses that port in a lab, and taps (and a measurement of the
// processor's clock, 100 ms) are most of the cost of bringing up bridges. Packets are handled by
// the same code.
func (d DatapathType) class() string {
	if d == Netdev {
		return "dummy"
	}
	return string(d)
}

// options are the options of ovs-vswitchd for that class.
func (d DatapathType) options() []string {
	if d == Netdev {
		return []string{"--enable-dummy"} // adds a class and removes none
	}
	return nil
}

// Info is what this machine offers.
type Info struct {
	Version string // of ovs-vswitchd: "3.1.0"
	VSwitch string // path of ovs-vswitchd
	Kernel  error  // why the kernel datapath cannot be used, and what to do; nil when it can
}

// Datapath returns the fastest datapath type that works here.
func (i Info) Datapath() DatapathType {
	if i.Kernel == nil {
		return System
	}
	return Netdev
}

// Probe looks for Open vSwitch and tries whether the kernel can forward for it. It loads the kernel
// module if there is one, and starts no daemon. The error says what to install.
func Probe() (Info, error) {
	p, err := findPrograms()
	if err != nil {
		return Info{}, err
	}
	out, err := exec.Command(p.vswitch, "--version").Output()
	if err != nil {
		return Info{}, fmt.Errorf("%s --version: %w", p.vswitch, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	words := strings.Fields(first)
	if len(words) == 0 {
		return Info{}, fmt.Errorf("%s --version printed nothing", p.vswitch)
	}
	return Info{Version: words[len(words)-1], VSwitch: p.vswitch, Kernel: probeKernel()}, nil
}

// lacks says what to install if a topology has switches of Open vSwitch and this machine lacks it.
func lacks(t *topology.Topology) error {
	if !slices.ContainsFunc(t.Nodes, is) {
		return nil
	}
	_, err := findPrograms()
	return err
}

// programs are the paths of the programs of a private Open vSwitch.
type programs struct {
	server, vswitch, tool, ofctl string
	schema                       string
}

// Where packages (and "make install") put daemons and schema; not always in the PATH of a user who
// becomes root.
var (
	programDirs = []string{"/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/sbin", "/bin"}
	schemaFiles = []string{"/usr/share/openvswitch/vswitch.ovsschema", "/usr/local/share/openvswitch/vswitch.ovsschema"}
)

const installHint = "install Open vSwitch (apt install openvswitch-switch, dnf install openvswitch), or use another datapath"

func findPrograms() (programs, error) {
	var p programs
	var missing []string
	for name, path := range map[string]*string{
		"ovsdb-server": &p.server, "ovs-vswitchd": &p.vswitch, "ovsdb-tool": &p.tool, "ovs-ofctl": &p.ofctl,
	} {
		if *path = findProgram(name); *path == "" {
			missing = append(missing, name)
		}
	}
	for _, f := range schemaFiles {
		if _, err := os.Stat(f); err == nil {
			p.schema = f
			break
		}
	}
	if p.schema == "" {
		missing = append(missing, "vswitch.ovsschema")
	}
	if len(missing) > 0 {
		return p, lack.New(strings.Join(missing, ", ")+": not found", "; ", installHint)
	}
	return p, nil
}

func findProgram(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range programDirs {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

// probeKernel asks for the generic netlink family through which ovs-vswitchd talks to the kernel.
// The kernel loads the module itself when its family is asked for; modprobe is for kernels that do
// not, and for its error message.
func probeKernel() error {
	const family = "ovs_datapath"
	if _, err := netlink.GenlFamilyGet(family); err == nil {
		return nil
	}
	modprobe := findProgram("modprobe")
	if modprobe == "" {
		return errors.New("the kernel has no openvswitch module loaded, and there is no modprobe to load it; " +
			kernelHint)
	}
	out, err := exec.Command(modprobe, "openvswitch").CombinedOutput()
	if err != nil {
		return fmt.Errorf("the kernel's module openvswitch cannot be loaded: %s; %s", bytes.TrimSpace(out), kernelHint)
	}
	if _, err := netlink.GenlFamilyGet(family); err != nil {
		return fmt.Errorf("openvswitch is loaded, but the kernel answers a request for %s: %w; %s", family, err,
			kernelHint)
	}
	return nil
}

const kernelHint = "install the kernel's modules (Ubuntu: apt install linux-modules-extra-$(uname -r)), or let Open vSwitch forward in user space (netdev)"
