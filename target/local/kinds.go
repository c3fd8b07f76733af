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

// Kind is a kind of nodes that labs on this machine can have. A package that adds one registers it.
type Kind struct {
	topology.NodeKind
	New func(*Lab) Nodes

	// Lacks says what a topology with such nodes needs and this machine does not have. Drain and
	// Remove clean up what a lab has made for them outside its directory and its cgroups, in
	// whatever state that is: Drain runs while the lab's processes still run, for what needs them,
	// and Remove after they have ended. Each may be nil.
	Lacks  func(*topology.Topology) error
	Drain  func(lab, dir string) error
	Remove func(lab, dir string) error
}

// Nodes are the nodes of one kind in a lab. Make, Configure and Remove change the lab; the others
// may be called at any time.
type Nodes interface {
	// Make makes nodes, without devices, and calls made for each. Remove removes a node, which may
	// be incomplete; its devices and the lab's processes in it are gone already.
	Make(nodes []*topology.Node, made func(*topology.Node)) error
	Remove(*topology.Node) error

	// Network is the file of the network namespace that has the node's devices. Configure is called
	// on a thread in that namespace: it sets the devices up, and replaces the addresses and routes
	// of an old node, which may be nil, by the node's.
	Network(*topology.Node) string
	Configure(n, old *topology.Node, ends []*topology.Endpoint) error

	// Enter moves the calling thread, which is locked and will end, into a node. If no thread can
	// enter it completely, Enclose wraps a command in one that runs it there and is itself started
	// where Enter leads.
	Enter(*topology.Node) error
	Enclose(*topology.Node, *exec.Cmd) error
}

// Dropping are nodes that are notified before their processes are ended for their removal.
type Dropping interface{ Drop(*topology.Node) }

// named are nodes that have their own copies of Lab.NamesFile; they are notified when one changes.
type named interface {
	NamesChanged(file string, was, is []byte) error
}

// background are nodes with goroutines in the background. LetGo ends these when the lab is
// released, and before Drain; the nodes stay.
type background interface{ LetGo() }

// Preparer are nodes that need something fetched to the machine before anything of the lab is made
// or changed.
type Preparer interface {
	Prepare(ctx context.Context, nodes []*topology.Node, progress lab.Stage) error
}

// Filed are nodes whose files the topology defines.
type Filed interface {
	// Files returns these files with their current contents; remarks say which were left out and
	// why. It may be called at any time.
	Files(context.Context, *topology.Node) (files []topology.NodeFile, remarks []string, err error)
}

// Program are nodes with a program of their own. Begin is called once the lab's network exists and
// the nodes that the node comes after, of any kind, are ready; it starts the program if it does not
// run yet, and returns when the node is ready. When its program ends, the node has ended: Ended
// then names what has ended, such as "the container of host h1", and the next change of the lab
// makes the node anew. Both may be called at any time, concurrently for several nodes.
type Program interface {
	Begin(context.Context, *topology.Node) error
	Ended(*topology.Node) (what string)
}

// withPrograms returns the nodes of a topology that have a program of their own.
func (l *Lab) withPrograms(t *topology.Topology) (out []*topology.Node) {
	for _, n := range t.Nodes {
		if _, has := l.nodesOf(n).(Program); has {
			out = append(out, n)
		}
	}
	return out
}

// OnAgain asks the lab's owner to remake a node, if it still counts as ended then.
func (l *Lab) OnAgain(node string) {
	if !l.closing.Load() {
		l.owner.OnAgain(node)
	}
}

// endedOf names what of a node has ended; "" if nothing has.
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

// prepare fetches to the machine what new nodes need.
func (l *Lab) prepare(ctx context.Context, made []*topology.Node, progress lab.Stage) error {
	return eachKind(l, func(name string, p Preparer) error {
		nodes := slices.DeleteFunc(slices.Clone(made), func(n *topology.Node) bool { return n.Made().Name != name })
		if len(nodes) == 0 {
			return nil
		}
		return p.Prepare(ctx, nodes, progress)
	})
}

// kinds are the kinds of nodes, by name.
var kinds = map[string]*Kind{
	"machine":    {New: func(l *Lab) Nodes { return machine{switched{l}} }, Remove: removeNative},
	"vm":         {New: func(l *Lab) Nodes { return guests{Namespaces{l}} }},
	"namespaces": {New: func(l *Lab) Nodes { return Namespaces{l} }},
	"switched":   {New: func(l *Lab) Nodes { return switched{l} }},
	"provided":   {New: func(l *Lab) Nodes { return switched{l} }}, // none is here: see NoNetworks
}

// Register registers a kind. It must be called in an init function.
func Register(k Kind) {
	topology.RegisterNodeKind(k.NodeKind)
	kinds[k.Name] = &k
}

// nodesOf returns the Nodes of a node's kind. The namespace of all switches counts as a switch.
func (l *Lab) nodesOf(n *topology.Node) Nodes {
	if n == nil {
		return l.kinds["switched"]
	}
	return l.kinds[n.Made().Name]
}

// switched are switches, routing nodes and controllers. They share a namespace and the machine's
// own files; fabrics turn its devices into switches.
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

// guests are routers in virtual machines, which their fabric runs as programs in their nodes.
type guests struct{ Namespaces }

func (k guests) Configure(n, _ *topology.Node, ends []*topology.Endpoint) error {
	return k.SetUp(n, ends)
}

func (k guests) Enclose(n *topology.Node, cmd *exec.Cmd) error {
	return k.fabricOf(n).(datapath.Enclosing).Enclose(n, cmd)
}

// SetUp takes the place of Configure for a node whose addresses are set by another kernel: it only
// sets up the devices that lead there.
func (k Namespaces) SetUp(n *topology.Node, ends []*topology.Endpoint) error {
	bare := make([]*topology.Endpoint, len(ends))
	for i, e := range ends {
		bare[i] = &topology.Endpoint{Interface: e.Interface}
	}
	return k.Configure(&topology.Node{Name: n.Name}, nil, bare)
}
