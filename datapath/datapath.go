// Package datapath is the seam between a lab and what forwards its packets: for each datapath, a
// lab has a Fabric, which knows how to make the datapath's switches and routers on a machine.
// Another datapath is a package that registers itself.
package datapath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// Fabric makes the switches and routers of one datapath in a lab on this machine. Its methods are
// called one at a time, except Dead, Drops and those that say so, which may be called at any time.
// All fabrics of a lab complete a step before any begins the next. A step is complete when its
// method returns, and can be repeated without harm.
type Fabric interface {
	// Leave lets go of devices that are about to be taken away or made anew.
	Leave(ctx context.Context, s plan.Steps) error
	// Drop removes what exists of one of the fabric's nodes, which may never have been made.
	Drop(n *topology.Node) error
	// Make makes what must be there before links are.
	Make(ctx context.Context, s plan.Steps) error

	// Hold keeps links that must not forward from doing so. The devices exist by now, and some are
	// not up yet.
	Hold(ctx context.Context, f plan.Forwarding) error
	// Apply makes the switches and routers match the lab's topology; from now on, links that may
	// forward do.
	Apply(ctx context.Context, f plan.Forwarding) error

	// Carried says what its links without devices (Wire.Inner) have carried so far: what the first
	// end has sent, and what the second has. A link of which that is not known is left out.
	Carried(ctx context.Context) (map[*topology.Link][2]Carried, error)
	// Drops says what has been dropped so far.
	Drops(ctx context.Context) ([]Drop, error)
	// Dead lists the programs that should be running but are not, by the names that people use.
	Dead() []string
	// Close lets go of everything, and leaves it running.
	Close()
}

// Base is a fabric that does nothing. Others embed it, and leave out the methods they do not need.
type Base struct{}

func (Base) Leave(context.Context, plan.Steps) error       { return nil }
func (Base) Drop(*topology.Node) error                     { return nil }
func (Base) Make(context.Context, plan.Steps) error        { return nil }
func (Base) Hold(context.Context, plan.Forwarding) error   { return nil }
func (Base) Apply(context.Context, plan.Forwarding) error  { return nil }
func (Base) Drops(context.Context) (out []Drop, err error) { return nil, nil }
func (Base) Dead() []string                                { return nil }
func (Base) Close()                                        {}

func (Base) Carried(context.Context) (map[*topology.Link][2]Carried, error) { return nil, nil }

// Resumer is a fabric that takes over what another process, now dead, has made of the site's
// topology.
type Resumer interface {
	Resume(ctx context.Context) error
}

// Keeper is a Resumer that, until TakeOver, keeps forwarding as it did when the other process died.
// TakeOver ends a resumption: it is called once the controllers have installed their state again.
type Keeper interface{ TakeOver() }

// Mounter is a fabric that gives nodes files of their own.
type Mounter interface {
	// Mount is called on a thread in the mount namespace of a node that is being made, by several
	// goroutines.
	Mount(n *topology.Node) error
}

// Runner is a fabric that runs programs in its nodes, once their links are ready.
type Runner interface {
	// Running is how many nodes have such programs. Run starts those that are not running and tells
	// the others what has changed. It calls done for each node. When ctx ends it may leave what it
	// has not started.
	Running(t *topology.Topology) int
	Run(ctx context.Context, done func()) error
}

// Converger is a fabric whose routers run routing protocols.
type Converger interface {
	// WaitRoutes waits until its routers have routes to all networks of the routers that they are
	// connected to, until routing nodes among those have them, too (knows says whether one has a
	// route), and until none of this has changed for a while. The error, once ctx ends, names a
	// missing route.
	WaitRoutes(ctx context.Context, knows func(router string, to netip.Addr) bool) error
}

// Controlled is a fabric whose switches have controllers.
type Controlled interface {
	// Meet connects switches to their controllers, when all fabrics are ready.
	Meet() error
	// Wait waits until every switch with a foreign controller is connected to one. The error, once
	// ctx ends or a controller refuses, names those that are not, and why.
	Wait(ctx context.Context) error
	// Status is the state of the connections between switches and controllers. It may be called at
	// any time.
	Status(ctx context.Context) ([]SwitchStatus, error)
	// Flows counts the flow entries that controllers have installed in a switch: all of them or,
	// given a port, those for packets received on it.
	Flows(ctx context.Context, n *topology.Node, inPort uint32) (int, error)
	// Settle waits until packets are handled by the present flow entries, and by no others.
	Settle(ctx context.Context) error
}

// SwitchStatus is the state of a switch's connections to its controllers.
type SwitchStatus struct {
	Switch      string             `json:"switch"`
	Controllers []ControllerStatus `json:"controllers"`
}

// ControllerStatus is a switch's connection to one controller.
type ControllerStatus struct {
	Address   string `json:"address"`
	Connected bool   `json:"connected"`
	Role      string `json:"role,omitempty"`
	Error     string `json:"error,omitempty"`
}

// Still returns a context for a question that is asked when ctx may be about to end: it does not
// end with ctx, but later, in case whoever is asked hangs.
func Still(ctx context.Context) (context.Context, context.CancelFunc) {
	return patience.Query.Context(context.WithoutCancel(ctx))
}

// Checker is a fabric that cannot be changed once a part of it has ended. The error says what to do
// about that.
type Checker interface{ Check() error }

// Summing is a fabric that may need complete checksums in the packets sent through it; devices
// leave checksums to others where they can.
type Summing interface{ NeedsChecksums() bool }

// Telling is a fabric that tells programs in its nodes, by their environment, where it is.
type Telling interface{ Tell(*exec.Cmd) }

// Lend has a command, and what it runs, find programs in a directory before all others.
func Lend(cmd *exec.Cmd, dir string) {
	env := cmd.Environ()
	path := os.Getenv("PATH")
	if i := slices.IndexFunc(env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }); i >= 0 {
		path = strings.TrimPrefix(env[i], "PATH=")
	}
	cmd.Env = append(env, "PATH="+dir+":"+path)
	if strings.Contains(cmd.Args[0], "/") {
		return
	}
	tool := filepath.Join(dir, cmd.Args[0]) // it was looked for before
	if info, err := os.Stat(tool); err == nil && info.Mode().IsRegular() {
		cmd.Path, cmd.Err = tool, nil
	}
}

// Enclosing is a fabric some of whose nodes are machines of their own: Enclose makes a command of
// such a node one that runs in its machine. The command is started in the node all the same, and
// stands for the one inside.
type Enclosing interface {
	Enclose(n *topology.Node, cmd *exec.Cmd) error
}

// Ported is a fabric that knows more about its ports than their devices show.
type Ported interface {
	Port(topology.Endpoint) PortState
}

// PortState is the state of a port.
type PortState struct {
	Shut bool // a controller has taken it down
	Dark bool // it has no carrier, or is shut
}

// Mirror is a fabric that can show the packets on its links. For a link without devices, see gets
// each packet until done is called, and must copy what it keeps; Look then returns true. For any
// other link, packets can be captured at its devices until then.
type Mirror interface {
	Look(link *topology.Link, see func(frame []byte)) (mirrored bool, done func())
}

// Plugger is a fabric that can by itself pull or plug a link of routers that has no devices, as the
// link says; Plug says whether it did.
type Plugger interface{ Plug(*topology.Link) bool }

// Remarker is a fabric that may have a remark on how it forwards here.
type Remarker interface{ Remark() string }

// Described is a fabric that describes how it forwards on this machine, as named values. It may be
// asked at any time.
type Described interface{ About() map[string]string }

// Accelerated is a fabric some of whose nodes are virtual machines: it says what emulates the
// processors of one (qemu.Accelerator); "" of others. It may be asked at any time.
type Accelerated interface {
	AcceleratorOf(*topology.Node) string
}

// Drop is how many packets something in a lab has dropped so far.
type Drop struct {
	Where    string `json:"where"`
	Dropped  uint64 `json:"dropped"`
	Passed   uint64 `json:"passed,omitempty" doc:"Packets that it has passed on; 0: not known"`
	Expected bool   `json:"expected,omitempty" doc:"By what the topology asks for: a loss, a full queue, a link that is down"`
}

// Carried is what has passed a link in one direction, with bytes as of an Ethernet frame without
// FCS, and how many packets were dropped at its two ports.
type Carried struct{ Packets, Bytes, Dropped uint64 }

// Site is where a fabric is made: a lab on this machine. The switches of all fabrics share one
// network namespace of the lab.
type Site interface {
	Topology() *topology.Topology
	Node(name string) *topology.Node

	// Dir is the directory of the lab's files. Group makes a group of processes of the lab:
	// commands started after prepare belong to it; started must be called once they have all been
	// started. Limit is how much of the processors all of them together may take; zero is all.
	Dir() string
	Group(name string) (prepare func(*exec.Cmd), started func() error, err error)
	Limit(group string, cpu topology.CPU) error

	// Wire says how a link is made; WiresOf, how those of another topology would be.
	Wire(*topology.Link) Wire
	WiresOf(*topology.Topology) []Wire

	// Controllers are the addresses of a switch's controllers; Programs are those of controllers
	// that the lab runs in the switches' namespace, which may take their time to answer.
	Controllers(*topology.Node) []string
	Programs() []string
	// Meet connects a switch of this process to Trivet's controller, if the lab has one. Join is
	// given the controller's end of the session and returns the switch's end; nil if the switch is
	// gone.
	HasController() bool
	Meet(name string, join func(Peer) Session) error

	// Namespace is the network namespace of the switches.
	Namespace() *os.File
	// NewDevice returns an index for a device about to be made there; Device returns that of an
	// existing one, or 0.
	NewDevice(name string) (index int)
	Device(name string) (index int)
	ForgetDevice(name string)
	// AwaitRunning waits until devices have a carrier, for as long as that may take.
	AwaitRunning(names []string) error

	// Settings are those of a node's kernel.
	Settings(*topology.Node) []Setting

	// NodeDir is a directory for files of a node, removed with the node. Processes are those of a
	// node. Start starts a program in the node's namespaces and group, on a thread on which before,
	// which may be nil, is called first.
	NodeDir(node string) string
	Processes(node string) []int
	Start(node string, cmd *exec.Cmd, before func() error) error
	// OnNode runs f on a thread in the node's namespaces, which ends with f.
	OnNode(node string, f func() error) error

	// Ended reports that something has ended by itself, Looped that packets come back. They may be
	// called at any time.
	Ended(what string)
	Looped(what string)
}

// Setting is a file of the kernel, like /proc/sys/net/ipv4/ip_forward, and what it is to contain.
// An Optional one is skipped if the kernel lacks it.
type Setting struct {
	Path     string `json:"path"`
	Value    string `json:"value"`
	Optional bool   `json:"optional,omitempty"`
}

// Peer is a controller's end of a session in memory: see controller.Memory.
type Peer interface {
	Reply(openflow.Message)
	Asynchronous(openflow.Message)
	Closed()
}

// Session is a switch's end.
type Session interface {
	Handle(openflow.Message)
	Close()
}

// Kind is a datapath that labs can have.
type Kind struct {
	Names []topology.Datapath // names that its nodes can have: see topology.DatapathKind
	New   func(Site) Fabric

	// Lacks says what a topology needs of this datapath that this machine does not have; Refuses,
	// what it asks of this datapath that the datapath cannot do on any machine. Either may be nil.
	Lacks   func(*topology.Topology) error
	Refuses func(*topology.Topology) topology.Problems

	// Inner is how an unimpaired link between two of its nodes is made, without devices, if Joins
	// says that it can be; without Joins, none is.
	Inner Wire
	Joins func(a, b *topology.Node, nodes map[string]*topology.Node) bool

	// Irreplaceable is Dead's name for a program that cannot be restarted without losing what it
	// carried.
	Irreplaceable string
}

// Wire is how a link is made on a machine. Datapaths may have wires of their own: see Kind.Inner.
type Wire string

const (
	Veth     Wire = "veth"      // a pair of virtual Ethernet devices, shaped by the kernel
	Line     Wire = "line"      // two TAP devices and the delay line of the lab's daemon
	External Wire = "interface" // a real interface of the machine, moved into the lab, or the end of a tunnel
	Tunnel   Wire = "vxlan"     // between two sites, seen from both
	Tagged   Wire = "vlan"      // the same, on a wire that the sites share
	Cable    Wire = "wire"      // a real one between two sites
	Network  Wire = "network"   // one of a cloud between two sites, for this link alone
	Plugged  Wire = "plugged"   // into the switch of who has the network at the other end
	Attached Wire = "attached"  // a port there, of the instance that the node is at
)

// Inner says whether a link runs inside a datapath, without devices.
func (w Wire) Inner() bool {
	return !slices.Contains([]Wire{Veth, Line, External, Tunnel, Tagged, Cable, Network, Plugged, Attached}, w)
}

var kinds []Kind

// Register makes a kind known. It must be called in an init function of a package that datapath/all
// imports.
func Register(k Kind) {
	for _, name := range k.Names {
		if name.Kind().Name == "" || Of(name) != nil {
			panic(fmt.Sprintf("datapath: %q is not known to package topology, or has a fabric already", name))
		}
	}
	kinds = append(kinds, k)
}

// Kinds returns all registered kinds.
func Kinds() []Kind { return kinds }

// Of returns the kind that makes nodes of a datapath, or nil.
func Of(name topology.Datapath) *Kind {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return slices.Contains(k.Names, name) })
	if i < 0 {
		return nil
	}
	return &kinds[i]
}

// Lacks says what a topology's datapaths need that this machine does not have.
func Lacks(t *topology.Topology) error {
	var errs []error
	for _, k := range kinds {
		if k.Lacks != nil {
			errs = append(errs, k.Lacks(t))
		}
	}
	return errors.Join(errs...)
}

// Refuses says what a topology asks of its datapaths that they cannot do.
func Refuses(t *topology.Topology) (problems topology.Problems) {
	for _, k := range kinds {
		if k.Refuses != nil {
			problems = append(problems, k.Refuses(t)...)
		}
	}
	return append(problems, checkConfigs(t)...)
}
