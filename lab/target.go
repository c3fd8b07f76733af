package lab

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// Target makes a lab and answers for it: on this machine, target/local does. Its methods are called
// one at a time, with daemon.changing locked, except for those whose implementation says otherwise;
// the implementations also document them.
type Target interface {
	life
	runner
	switches
	looks
}

// life is how a lab comes up, changes and is released. A change that fails is undone; the error
// ErrHalf says that undoing it failed as well.
type life interface {
	Topology() *topology.Topology
	Up(context.Context, *topology.Topology, Stage) error
	Resume(context.Context, *topology.Topology, Stage) error
	TakeOver() // ends Resume
	Apply(context.Context, *topology.Topology, Stage) error
	SetLink(ctx context.Context, index int, c topology.LinkChange) error
	Announce(context.Context, []topology.OwnedAddress) error // once packets are delivered
	// Also then: waits for nodes that derive addresses from router advertisements.
	WaitAddresses(context.Context) error
	Again(ctx context.Context, node string) error              // remakes a node that has ended
	Replaced(*topology.Topology) (gone, made []*topology.Node) // by Apply
	CheckSwitches() error                                      // before Apply
	Heal(context.Context) error
	Close()
}

// runner runs programs: in nodes, and controllers beside the switches.
type runner interface {
	Start(node string, cmd *exec.Cmd) error
	StartInNetwork(node string, cmd *exec.Cmd) error
	RunStart(node string, cmd *exec.Cmd) error
	HasStarted(node string) bool
	EndStart(node string) error
	OnNode(node string, f func() error) error

	FreePort() (int, error)
	ListenInside(port int) (net.Listener, error)
	DialInside(ctx context.Context, port int) (net.Conn, error)
	StartProgram(name string, cmd *exec.Cmd) error
	LimitProgram(name string, cpu topology.CPU) error
	Listens(name, address string)
	ProgramProcesses(name string) []int
	EndProgram(name string) error
}

// switches connects switches to controllers, and waits for what controllers do to them.
type switches interface {
	Control(socket string, meet func(name string, join func(datapath.Peer) datapath.Session) error)
	Controllers(context.Context) ([]datapath.SwitchStatus, error)
	WaitControllers(context.Context) error
	WaitFlows(context.Context, []*topology.Node) error
	WaitPorts(context.Context, []*topology.Node, []*topology.Link) error
	WaitRoutes(ctx context.Context, knows func(router string, to netip.Addr) bool) error
	Settle(context.Context) error
	LoadAgain(context.Context) error
}

// looks is what can be observed of a lab.
type looks interface {
	Dead() []string
	Remarks() []string
	Present(ctx context.Context, nodes []string) ([]Present, error)
	Addresses(ctx context.Context, nodes []string) ([]Present, error) // nothing but addresses
	Devices() map[string]string
	Accelerators() map[string]string // of virtual machines here, by node
	Drops(context.Context) ([]datapath.Drop, error)
	Ends() ([][2]End, error)
	Traffic(context.Context) ([][2]LinkDirection, error) // in the order of the topology's links
	Models() ([]ModelledNode, error)                     // in the order of the topology's nodes
	WiresOf(*topology.Topology) []datapath.Wire
	NeedsDevices(*topology.Link) bool
	NamespaceOf(number uint64, nodes []string) (machine, switches bool, node string)
	LineQueues(of func(node string) bool) []LineQueue
	Note(resumed bool)
	Renew(nodes []string, f func() error) error
	Changed(context.Context) ([]Changed, error)
	Look(index int, see func(frame []byte)) (mirrored bool, done func())
}

// Stage reports the progress of a stage. It is called from several goroutines.
type Stage func(stage string, done, total int)

// Hooks are a target's callbacks to its owner.
type Hooks struct {
	// OnFabric is called when the switches' namespace exists but no switches do: programs can now
	// be started beside them.
	OnFabric func(context.Context) error

	// OnUndo is called before a change that has failed is undone.
	OnUndo func()

	// OnEnd is called when a routing daemon or Open vSwitch has ended by itself, or another machine
	// is lost or back; OnLoop when packets loop back to an embedded switch. They must return soon,
	// and not call the lab, which may be changing and wait for the caller.
	OnEnd, OnLoop func(what string)

	// OnAgain is called when a node has ended and is to be remade: see Again. It must not wait for
	// that.
	OnAgain func(node string)

	// ByHand says whether a flow entry was made by hand: see datapath.Running.
	ByHand func(cookie uint64) (again uint64, is bool)
}

// ErrHalf says that a change of a lab has failed halfway and could not be undone.
var ErrHalf = errors.New("what was changed could not be undone")

// Maker begins a target for a lab, and removes what a target has made, even if its process has
// died: see target/local.
type Maker struct {
	Begin  func(State, Hooks) (Target, error)
	Remove func(s State, progress Stage, lost func(string)) error

	// Only OnThisMachine has these. Check says what a resolved topology needs and this machine
	// lacks, before anything is made. Room returns the topology with a subnet for the management
	// network that this machine does not use, if nobody has chosen one; if the lab is up already
	// (now is not nil), it keeps its subnet.
	Check func(*topology.Topology) error
	Room  func(t, now *topology.Topology) (*topology.Topology, error)
}

// remover is a target that needs what it holds, such as connections to other machines, to remove
// its lab. It is called once the target is closed, and again if that fails. The maker's Remove does
// the same for a target whose process has died.
type remover interface {
	Remove(s State, progress Stage, lost func(string)) error
}

// Targets are the makers, by State.Target. Packages add theirs in init.
var Targets = map[string]Maker{}

// maker returns the maker of a lab. A lab whose daemon was killed before its state was written has
// nothing on other machines.
func (s State) maker() Maker {
	if m, ok := Targets[s.Target]; ok {
		return m
	}
	return here()
}

// here is the maker for this machine, which has a part of every lab.
func here() Maker {
	m, ok := Targets[OnThisMachine]
	if !ok {
		panic("this program has been made without target/local")
	}
	return m
}

// OnThisMachine is the target of labs that have this machine only.
const OnThisMachine = "local"
