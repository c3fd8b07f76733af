package lab

import (
	"context"
	"net/netip"
	"os/exec"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// Target is what makes a lab and answers for it: on this machine, target/local. Its methods are
// called one at a time, by a caller that has locked daemon.changing, except for those that say
// otherwise where they are implemented; they are documented there, too.
type Target interface {
	life
	runner
	switches
	looks
}

// life is how a lab comes into being, changes and is let go. A change that fails is undone; the
// error local.ErrHalf says that this failed, too.
type life interface {
	Topology() *topology.Topology
	Up(context.Context, *topology.Topology, local.Progress) error
	Resume(context.Context, *topology.Topology, local.Progress) error
	TakeOver() // ends Resume
	Apply(context.Context, *topology.Topology, local.Progress) error
	SetLink(ctx context.Context, index int, c topology.LinkChange) error
	Replaced(*topology.Topology) (gone, made []*topology.Node) // by Apply
	CheckSwitches() error                                      // before Apply
	Heal(context.Context) error
	Close()
}

// runner runs programs: in nodes, and controllers beside the switches.
type runner interface {
	Start(node string, cmd *exec.Cmd) error
	RunStart(node string, cmd *exec.Cmd) error
	HasStarted(node string) bool
	EndStart(node string) error
	OnNode(node string, f func() error) error

	FreePort() (int, error)
	StartProgram(name string, cmd *exec.Cmd) error
	LimitProgram(name string, cpu topology.CPU) error
	Listens(name, address string)
	ProgramProcesses(name string) []int
	EndProgram(name string) error
}

// switches ties switches to controllers, and waits for what controllers tell them.
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
	Present(ctx context.Context, nodes []string) ([]local.Present, error)
	Devices() map[string]string
	Drops(context.Context) ([]datapath.Drop, error)
	Ends() ([][2]local.End, error)
	Queues() ([][2]local.LinkDirection, error)
	WiresOf(*topology.Topology) []datapath.Wire
	NeedsDevices(*topology.Link) bool
	NamespaceOf(number uint64, nodes []string) (machine, switches bool, node string)
	LineQueues(of func(node string) bool) []local.LineQueue
	Note(resumed bool)
	Renew(nodes []string, f func() error) error
	Changed(context.Context) ([]local.Changed, error)
	Look(index int, see func(frame []byte)) (mirrored bool, done func())
}

// Maker begins a target for a lab, and removes what a target has made, even if its process has
// died: see local.New and local.Remove.
type Maker struct {
	Begin  func(State, local.Owner) (Target, error)
	Remove func(s State, progress local.Progress, lost func(string)) error
}

// remover is a target that removes its lab over what it holds, as connections to other machines. It
// is called once the target is closed, and again if that fails; the maker's Remove does the same
// for a target whose process has died.
type remover interface {
	Remove(s State, progress local.Progress, lost func(string)) error
}

// Targets are the makers by the Target of a lab's state.
var Targets = map[string]Maker{OnThisMachine: {
	Begin: func(s State, owner local.Owner) (Target, error) {
		l, err := local.New(s.Name, Dir(s.Name), owner)
		if err == nil && s.Part != nil {
			l.Secure, l.Management = s.Part.Secure, s.Part.Management
		}
		return l, err
	},
	Remove: func(s State, progress local.Progress, lost func(string)) error {
		return local.Remove(s.Name, Dir(s.Name), progress, lost)
	},
}}

// maker is that of a lab. One that was killed before its state was written has nothing elsewhere.
func (s State) maker() Maker {
	if m, is := Targets[s.Target]; is {
		return m
	}
	return Targets[OnThisMachine]
}

// OnThisMachine is the target of labs that have this machine only.
const OnThisMachine = "local"
