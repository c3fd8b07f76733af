package local

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// Kind is a kind of nodes that labs on this machine can have. Another one is a package that
// registers it.
type Kind struct {
	topology.NodeKind
	New func(*Lab) Nodes

	// Lacks says what a topology with such nodes needs that this machine does not have. Remove
	// removes what a lab has made of them that is neither below its directory nor in its cgroups,
	// whatever state that is in, once the lab's processes have ended; before they do, Drain does
	// what it needs some of them for. Each may be nil.
	Lacks  func(*topology.Topology) error
	Drain  func(lab, dir string) error
	Remove func(lab, dir string) error
}

// Nodes are the nodes of one kind in a lab. Make, Configure and Remove change the lab; the others
// may be called at any time.
type Nodes interface {
	// Make makes nodes, without devices, and calls made for each. Remove removes what there is of
	// one, which may not be whole; its devices and processes of the lab are gone.
	Make(nodes []*topology.Node, made func(*topology.Node)) error
	Remove(*topology.Node) error

	// Network is the file of the network namespace in which a node's devices are. Configure is
	// called on a thread in there: it sets them up, and gives the node its addresses and routes in
	// place of those of an old one, which may be nil.
	Network(*topology.Node) string
	Configure(n, old *topology.Node, ends []*topology.Endpoint) error

	// Enter moves the calling thread, which is locked and will end, to a node. Where no thread can
	// go all the way, Enclose makes a command one that runs it there; this is started from where
	// Enter leads.
	Enter(*topology.Node) error
	Enclose(*topology.Node, *exec.Cmd) error
}

// Dropping are nodes that are told before the processes of one are ended, as it is removed.
type Dropping interface{ Drop(*topology.Node) }

// named are nodes with copies of their own of Lab.NamesFile, which are told that one has changed.
type named interface {
	NamesChanged(file string, was, is []byte) error
}

// background are nodes that something is done for in the background. That ends when the lab is let
// go of, and before Drain; the nodes stay.
type background interface{ LetGo() }

// Preparer are nodes for which something is brought to the machine before anything of the lab is
// made or changed.
type Preparer interface {
	Prepare(ctx context.Context, nodes []*topology.Node, progress lab.Stage) error
}

// Filed are nodes that are given files.
type Filed interface {
	// Files are those that a node was given, as they are now, without those that remarks say
	// something of. It may be called at any time.
	Files(context.Context, *topology.Node) (files []topology.NodeFile, remarks []string, err error)
}

// Program are nodes with a program of their own. Begin is called once the lab's network is there,
// and those nodes are ready that a node comes after, whatever kind they are of: it lets the program
// begin, unless that has, and returns when the node is ready. What a node is ends with its program:
// then Ended names what has, as "the container of host h1", and a change of the lab makes the node
// anew. Both may be called at any time, for several nodes at once.
type Program interface {
	Begin(context.Context, *topology.Node) error
	Ended(*topology.Node) (what string)
}

// withPrograms are the nodes of a topology that have a program of their own.
func (l *Lab) withPrograms(t *topology.Topology) (out []*topology.Node) {
	for _, n := range t.Nodes {
		if _, has := l.nodesOf(n).(Program); has {
			out = append(out, n)
		}
	}
	return out
}

// OnAgain asks whoever has begun the lab to make a node anew, if it still has ended then.
func (l *Lab) OnAgain(node string) {
	if !l.closing.Load() {
		l.owner.OnAgain(node)
	}
}

// endedOf names what has ended of a node; "": nothing.
func (l *Lab) endedOf(n *topology.Node) string {
	if p, ok := l.nodesOf(n).(Program); ok {
		return p.Ended(n)
	}
	return ""
}

// eachKind calls step for the nodes of all kinds that implement T, up to the first that fails.
func eachKind[T any](l *Lab, step func(name string, nodes T) error) error {
	for _, name := range slices.Sorted(maps.Keys(l.kinds)) {
		if t, ok := l.kinds[name].(T); ok {
			if err := step(name, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepare brings to the machine what new nodes need.
func (l *Lab) prepare(ctx context.Context, made []*topology.Node, progress lab.Stage) error {
	return eachKind(l, func(name string, p Preparer) error {
		nodes := slices.DeleteFunc(slices.Clone(made), func(n *topology.Node) bool { return n.Made().Name != name })
		if len(nodes) == 0 {
			return nil
		}
		return p.Prepare(ctx, nodes, progress)
	})
}

// kinds are those of topology, by their names.
var kinds = map[string]*Kind{
	"machine":    {New: func(l *Lab) Nodes { return machine{switched{l}} }, Remove: removeNative},
	"vm":         {New: func(l *Lab) Nodes { return guests{Namespaces{l}} }},
	"namespaces": {New: func(l *Lab) Nodes { return Namespaces{l} }},
	"switched":   {New: func(l *Lab) Nodes { return switched{l} }},
	"provided":   {New: func(l *Lab) Nodes { return switched{l} }}, // none is here: see NoNetworks
}

// Register makes a kind known. It must be called in an init function.
func Register(k Kind) {
	topology.RegisterNodeKind(k.NodeKind)
	kinds[k.Name] = &k
}

// nodesOf makes nodes like one. What is not a node, as the namespace of all switches, is like them.
func (l *Lab) nodesOf(n *topology.Node) Nodes {
	if n == nil {
		return l.kinds["switched"]
	}
	return l.kinds[n.Made().Name]
}

// switched are switches, routing nodes and controllers. They share a namespace, with the machine's
// own files, and fabrics make of its devices what they are.
type switched struct{ *Lab }

func (switched) Make(nodes []*topology.Node, made func(*topology.Node)) error {
	for _, n := range nodes {
		made(n)
	}
	return nil
}

func (switched) Remove(*topology.Node) error                                 { return nil }
func (k switched) Network(*topology.Node) string                             { return k.fabricPath() }
func (switched) Configure(_, _ *topology.Node, _ []*topology.Endpoint) error { return nil }
func (switched) Enclose(*topology.Node, *exec.Cmd) error                     { return nil }

func (k switched) Enter(*topology.Node) error {
	fabric, err := os.Open(k.fabricPath())
	if err != nil {
		return err
	}
	defer fabric.Close()
	return unix.Setns(int(fabric.Fd()), unix.CLONE_NEWNET)
}

// guests are routers in virtual machines, which their fabric runs as daemons of their nodes.
type guests struct{ Namespaces }

func (k guests) Configure(n, _ *topology.Node, ends []*topology.Endpoint) error {
	return k.SetUp(n, ends)
}

func (k guests) Enclose(n *topology.Node, cmd *exec.Cmd) error {
	return k.fabricOf(n).(datapath.Enclosing).Enclose(n, cmd)
}

// SetUp is Configure for a node whose addresses are those of another kernel: it only sets the
// devices up that lead there.
func (k Namespaces) SetUp(n *topology.Node, ends []*topology.Endpoint) error {
	bare := make([]*topology.Endpoint, len(ends))
	for i, e := range ends {
		bare[i] = &topology.Endpoint{Interface: e.Interface}
	}
	return k.Configure(&topology.Node{Name: n.Name}, nil, bare)
}
