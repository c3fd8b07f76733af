// Package vm runs routers in virtual machines: QEMU, by KVM where that works, with a kernel that is
// installed on this machine. A guest sees the machine's files as they are and keeps what it writes
// to itself; its first process is this program (see guest.go), which does in it what a topology
// asks, starts FRR, and runs commands for those who ask from outside (see agent.go).
//
// A machine has one TAP device in its node's namespace for each interface, joined to the link's own
// device there by two eBPF programs (see internal/qemu). So a link is made, impaired and captured
// as any other.
package vm

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/topology"
)

// Memory is the memory of a machine in megabytes, enough for a kernel, FRR, and some tens of
// thousands of routes.
const Memory = 256

// Files of a machine in the directory of its node.
const (
	SpecFile   = "spec.json" // below etc, which the guest can read
	rootDir    = "root"      // where the guest's file system is mounted, in QEMU's namespace only
	rootSocket = "root.sock"
)

// Spec is the specification by which a guest sets itself up.
type Spec struct {
	Name       string             `json:"name"`
	Interfaces []Interface        `json:"interfaces"`
	Loopback   []netip.Prefix     `json:"loopback,omitempty"`
	Routes     []topology.Route   `json:"routes,omitempty"`
	Settings   []datapath.Setting `json:"settings"`
	Modules    string             `json:"modules"` // the kernel's directory for /lib/modules

	// The programs that run in it, as in routerd.Family.
	Home       string    `json:"home"`
	Run        string    `json:"run"`  // a directory below Home that belongs to Owner
	Logs       string    `json:"logs"` // another, where they may write logs; "": nowhere
	Owner      [2]int    `json:"owner"`
	Client     string    `json:"client"` // path; ClientArgs tell it where the programs are
	ClientArgs []string  `json:"client_args"`
	Programs   []Program `json:"programs"`

	Loading *routerd.Loading `json:"loading,omitempty"` // nil: the programs run at once
}

// Settles says whether a running guest can be changed from the Spec in one file to that in another:
// by its buffers (see Buffers), and by the programs and addresses of the author's configuration
// (see Load).
func Settles(was, is string) bool {
	var a, b Spec
	if json.Unmarshal([]byte(was), &a) != nil || json.Unmarshal([]byte(is), &b) != nil {
		return false
	}
	return reflect.DeepEqual(a.lasting(), b.lasting())
}

// lasting returns the part of a Spec that cannot be changed while the guest runs.
func (s Spec) lasting() Spec {
	s.Settings = left(s.Settings, isBuffer)
	if s.Loading == nil {
		return s
	}
	given := func(device string) func(netip.Prefix) bool {
		return func(p netip.Prefix) bool { return slices.Contains(s.Loading.Gives[device], p) }
	}
	s.Loopback, s.Interfaces = left(s.Loopback, given("lo")), slices.Clone(s.Interfaces)
	for i, f := range s.Interfaces {
		s.Interfaces[i].Addresses = left(f.Addresses, given(f.Name))
	}
	s.Programs, s.Loading = nil, &routerd.Loading{}
	return s
}

// left returns a list without the elements that without selects; nil if none is left.
func left[T any](list []T, without func(T) bool) []T {
	return lists.Filter(list, func(x T) bool { return !without(x) })
}

// Buffers are the settings that can be changed in a guest that runs, and have to be: they follow
// from the delays of all links of a lab.
func (s *Spec) Buffers() []datapath.Setting {
	return lists.Filter(s.Settings, isBuffer)
}

func isBuffer(x datapath.Setting) bool {
	return slices.Contains([]string{"tcp_rmem", "tcp_wmem"}, filepath.Base(x.Path))
}

// Interface is an interface of a guest.
type Interface struct {
	Name      string         `json:"name"`
	MAC       topology.MAC   `json:"mac"`
	MTU       int            `json:"mtu"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
}

// NICs returns the interfaces in the form for QEMU.
func (s *Spec) NICs() []qemu.NIC {
	out := make([]qemu.NIC, len(s.Interfaces))
	for i, f := range s.Interfaces {
		out[i] = qemu.NIC{ID: fmt.Sprintf("nic%d", i), Tap: fmt.Sprintf("vm%d", i), Device: f.Name, MTU: f.MTU}
	}
	return out
}

// guestName is the guest's name of its i-th device before the device gets the name of its
// interface.
func guestName(i int) string { return fmt.Sprintf("device%d", i) }

// guestNames matches these initial names.
var guestNames = regexp.MustCompile(`^device[0-9]+$`)

// Reserved says whether an interface must not have a name.
func Reserved(name string) bool { return topology.OfMachine(name) || guestNames.MatchString(name) }

// ReservedMAC says whether an interface must not have an address.
func ReservedMAC(m topology.MAC) bool { return m.String() == agentMAC }

// Program is a daemon of a guest.
type Program struct {
	Path  string            `json:"path"`
	Args  []string          `json:"args"`
	Files map[string]string `json:"files"` // below Home
	Ready string            `json:"ready"` // in Run; it exists once the program answers
}
