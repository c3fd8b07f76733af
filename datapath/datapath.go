// Package datapath is the seam between a lab and what forwards its packets: a lab has a Fabric for
// each datapath, which knows how its switches and routers are made on a machine. A second one of
// its kind is a package that registers itself.
package datapath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"time"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// Fabric is what one datapath makes of the switches and routers of a lab on this machine. Its
// methods are called one after the other, but Dead, Drops and those that say so, which may be
// called at any time. All of a lab's fabrics take a step before any takes the next one; what each
// step does is whole, and does no harm when it is taken again.
type Fabric interface {
	// Leave lets go of devices that are about to be taken away or made anew.
	Leave(ctx context.Context, s plan.Steps) error
	// Drop takes away what there is of a node of the fabric's that goes, which may never have been
	// made.
	Drop(n *topology.Node) error
	// Make makes what links need to be there.
	Make(ctx context.Context, s plan.Steps) error

	// Hold keeps links that must not forward from it. The devices are there by now, and some are
	// not up yet.
	Hold(ctx context.Context, f plan.Forwarding) error
	// Apply makes the switches and routers those of the lab's topology; links that may forward do
	// now.
	Apply(ctx context.Context, f plan.Forwarding) error

	// Drops says what has been dropped so far.
	Drops(ctx context.Context) ([]Drop, error)
	// Dead lists the programs that are to run and do not, as people call them.
	Dead() []string
	// Close lets go of all, which stays as it is.
	Close()
}

// Base is a fabric that has nothing to do. Others embed it, and leave out what they do not need.
type Base struct{}

func (Base) Leave(context.Context, plan.Steps) error       { return nil }
func (Base) Drop(*topology.Node) error                     { return nil }
func (Base) Make(context.Context, plan.Steps) error        { return nil }
func (Base) Hold(context.Context, plan.Forwarding) error   { return nil }
func (Base) Apply(context.Context, plan.Forwarding) error  { return nil }
func (Base) Drops(context.Context) (out []Drop, err error) { return nil, nil }
func (Base) Dead() []string                                { return nil }
func (Base) Close()                                        {}

// Resumer is a fabric that takes over what another process, which has died, has made of the site's
// topology.
type Resumer interface {
	Resume(ctx context.Context) error
}

// Keeper is a Resumer whose packets go on as they did when the other process died until TakeOver,
// which ends a resumption: it is time for it when controllers have said again what there is to say.
type Keeper interface{ TakeOver() }

// Mounter is a fabric that shows nodes files of their own.
type Mounter interface {
	// Mount is called on a thread in the mount namespace of a node that is being made, by several
	// goroutines.
	Mount(n *topology.Node) error
}

// Runner is a fabric that runs programs in its nodes, once their links are as they are to be.
type Runner interface {
	// Running is how many nodes have such programs, Run starts those that do not run, and tells
	// others what has changed. It calls done for each node.
	Running(t *topology.Topology) int
	Run(done func()) error
}

// Converger is a fabric whose routers tell each other where networks are.
type Converger interface {
	// WaitRoutes waits until its routers have routes to all networks of the routers that they are
	// joined to, the routing nodes beside them as well (knows says of one whether it has a route),
	// and all that has not changed for a while. The error, once ctx ends, names a route that is
	// missing.
	WaitRoutes(ctx context.Context, knows func(router string, to netip.Addr) bool) error
}

// Controlled is a fabric for whose switches controllers decide.
type Controlled interface {
	// Meet ties switches to their controllers, when all fabrics are as they are to be.
	Meet() error
	// Wait waits until every switch with a controller of others is connected to one. The error,
	// once ctx ends or a controller refuses, names those that are not, and why.
	Wait(ctx context.Context) error
	// Status says how switches and their controllers get on. It may be called at any time.
	Status(ctx context.Context) ([]SwitchStatus, error)
	// Flows counts the flow entries that controllers have given a switch: all, or with a port those
	// for what comes in by it.
	Flows(ctx context.Context, n *topology.Node, inPort uint32) (int, error)
	// Settle waits until packets go by the flow entries that there are, and by no others.
	Settle(ctx context.Context) error
}

// SwitchStatus says how a switch and its controllers get on.
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

// Still lets a question that is asked when ctx may end be answered all the same, by who does not
// hang.
func Still(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
}

// Checker is a fabric that cannot be changed once something of it has ended. The error says what is
// to be done then.
type Checker interface{ Check() error }

// Summing is a fabric that may want what is sent through it to have its checksums, which devices
// leave to others where they can.
type Summing interface{ NeedsChecksums() bool }

// Telling is a fabric that tells programs in its nodes where it is, by their environment.
type Telling interface{ Tell(*exec.Cmd) }

// Ported is a fabric that knows more of its ports than their devices say.
type Ported interface {
	Port(topology.Endpoint) PortState
}

// PortState is what a port is.
type PortState struct {
	Shut bool // a controller has taken it down
	Dark bool // it has no carrier, or is shut
}

// Mirror is a fabric that shows what goes over its links. See gets each packet of a link without
// devices, until done, and must copy what it keeps; then the link is mirrored. Of another one
// packets can be seen at its devices for as long.
type Mirror interface {
	Look(link *topology.Link, see func(frame []byte)) (mirrored bool, done func())
}

// Plugger is a fabric that can pull and plug a link of routers without devices by itself, as the
// link says, and says whether it has.
type Plugger interface{ Plug(*topology.Link) bool }

// Remarker is a fabric that may have something to say of how it forwards here.
type Remarker interface{ Remark() string }

// Described is a fabric that says how it forwards on this machine, by a word for the question. It
// may be asked at any time.
type Described interface{ About() map[string]string }

// Drop is how many packets something in a lab has dropped so far.
type Drop struct {
	Where    string `json:"where"`
	Dropped  uint64 `json:"dropped"`
	Passed   uint64 `json:"passed,omitempty" doc:"Packets that it has passed on; 0: not known"`
	Expected bool   `json:"expected,omitempty" doc:"By what the topology asks for: a loss, a full queue, a link that is down"`
}

// Site is what a fabric stands on: a lab on this machine. The switches of all fabrics are in one
// network namespace of the lab.
type Site interface {
	Topology() *topology.Topology
	Node(name string) *topology.Node

	// Dir is where the lab's files are. Group makes a group of processes of the lab: what is
	// started after prepare is in it; started is to be called when all of it has been.
	Dir() string
	Group(name string) (prepare func(*exec.Cmd), started func() error, err error)

	// Wire says how a link is made, WiresOf how those of another topology would be.
	Wire(*topology.Link) Wire
	WiresOf(*topology.Topology) []Wire

	// Controllers are the addresses of a switch's controllers; Programs are those of controllers
	// that the lab runs in the switches' namespace, which may take their time.
	Controllers(*topology.Node) []string
	Programs() []string
	// Meet lets Trivet's controller meet a switch of this process, if the lab has it. Join takes
	// its end of the session, and gives that of the switch; nil: it has gone.
	HasController() bool
	Meet(name string, join func(Peer) Session) error

	// Namespace is that of the switches.
	Namespace() *os.File
	// NewDevice gives a device that is to be made in there a number; Device returns that of one
	// that is, or 0.
	NewDevice(name string) (index int)
	Device(name string) (index int)
	ForgetDevice(name string)
	// AwaitRunning waits until devices have a carrier, for as long as that may take.
	AwaitRunning(names []string) error

	// NodeDir is where files of a node may lie, which go with it. Processes are those of a node.
	// Start starts a program in its namespaces and group, on a thread on which before, which may be
	// nil, is called first.
	NodeDir(node string) string
	Processes(node string) []int
	Start(node string, cmd *exec.Cmd, before func() error) error

	// Ended says that something has ended by itself, Looped that packets come back. They may be
	// called at any time.
	Ended(what string)
	Looped(what string)
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
	Names []topology.Datapath // that its nodes can have: see topology.DatapathKind
	New   func(Site) Fabric

	// Lacks says what this machine does not have of what a topology needs, Refuses what the
	// datapath cannot do, on any machine, of what it asks for; without them nothing.
	Lacks   func(*topology.Topology) error
	Refuses func(*topology.Topology) topology.Problems

	// Inner is how a link between two of its nodes is made, without devices, where nothing impairs
	// it and Joins says so; without Joins there are none such.
	Inner Wire
	Joins func(a, b *topology.Node, nodes map[string]*topology.Node) bool

	// Irreplaceable is what Dead calls what cannot be started again under what it carries.
	Irreplaceable string
}

// Wire is how a link is made on a machine. Datapaths may have wires of their own: see Kind.Inner.
type Wire string

const (
	Veth     Wire = "veth"      // a pair of virtual Ethernet devices, shaped by the kernel
	Line     Wire = "line"      // two TAP devices and the delay line of the lab's daemon
	External Wire = "interface" // a real interface of the machine, moved into the lab
)

// Inner says whether a link is within a datapath, without devices.
func (w Wire) Inner() bool { return w != Veth && w != Line && w != External }

var kinds []Kind

// Register makes a kind known. It is to be called in an init function, of a package that
// datapath/all imports.
func Register(k Kind) {
	for _, name := range k.Names {
		if name.Kind().Name == "" || Of(name) != nil {
			panic(fmt.Sprintf("datapath: %q is not known to package topology, or has a fabric already", name))
		}
	}
	kinds = append(kinds, k)
}

// Kinds are all that there are.
func Kinds() []Kind { return kinds }

// Of returns the kind that makes nodes of a datapath, or nil.
func Of(name topology.Datapath) *Kind {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return slices.Contains(k.Names, name) })
	if i < 0 {
		return nil
	}
	return &kinds[i]
}

// Lacks says what this machine does not have for a topology's datapaths.
func Lacks(t *topology.Topology) error {
	var errs []error
	for _, k := range kinds {
		if k.Lacks != nil {
			errs = append(errs, k.Lacks(t))
		}
	}
	return errors.Join(errs...)
}

// Refuses says what a topology's datapaths cannot do of what it asks for.
func Refuses(t *topology.Topology) (problems topology.Problems) {
	for _, k := range kinds {
		if k.Refuses != nil {
			problems = append(problems, k.Refuses(t)...)
		}
	}
	return problems
}
