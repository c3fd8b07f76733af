package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/leader"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// Start starts a command in a node: in its namespaces and its cgroup. A switch's namespace is the
// one that all switches share, with the machine's own files.
func (l *Lab) Start(node string, cmd *exec.Cmd) error { return l.startIn(node, cmd, true) }

// StartInNetwork starts a command as Start does, but with the machine's programs and files where
// the node has others of its own: there it is in the node's network and cgroup only. The network of
// a guest is in the guest.
func (l *Lab) StartInNetwork(node string, cmd *exec.Cmd) error { return l.startIn(node, cmd, false) }

// StartAround starts a command in the namespaces and the cgroup of a node, but not enclosed as the
// node's own commands are. If before is not nil, it is called first, on the thread that starts the
// command.
func (l *Lab) StartAround(n *topology.Node, cmd *exec.Cmd, before func() error) error {
	return l.onNodeThread(n, func() error {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		return l.bear(n, cmd)
	})
}

// startGroup is the cgroup, below the node's, of all processes that its start command began.
const startGroup = "start"

// RunStart starts a node's start command in a cgroup by which all its processes can be found.
func (l *Lab) RunStart(node string, cmd *exec.Cmd) error {
	return l.startIn(node, cmd, true, startGroup)
}

func (l *Lab) startIn(node string, cmd *exec.Cmd, enclosed bool, below ...string) error {
	n := l.Topology().Node(node)
	if n == nil {
		return fmt.Errorf("there is no node %s in lab %s", node, l.Name)
	}
	if made := n.Made(); enclosed || !made.Files || made.Foreign() {
		// The path of the program on this machine means nothing in the guest.
		if !enclosed && made.Foreign() && len(cmd.Args) > 0 && cmd.Args[0] != lab.ThisProgram {
			cmd.Args[0] = filepath.Base(cmd.Args[0])
		}
		if err := l.nodesOf(n).Enclose(n, cmd); err != nil {
			return err
		}
	}
	return l.onNodeThread(n, func() error { return l.bear(n, cmd, below...) })
}

// HasStarted says whether a node's start command has run since the node was made, or since
// EndStart.
func (l *Lab) HasStarted(node string) bool {
	_, err := os.Stat(filepath.Join(l.Cgroups.Of(l.Name), node, startGroup))
	return err == nil
}

// EndStart ends all processes that a node's start command began, as going down would.
func (l *Lab) EndStart(node string) error { return l.Cgroups.Remove(l.Name, node, startGroup) }

// bear starts a command in a node's cgroup, or one below it, and in the namespaces of the calling
// thread, which starts nothing else. A command on a terminal cannot insert input there (TIOCSTI),
// and is started by a leader: see leader.OnTerminal.
func (l *Lab) bear(n *topology.Node, cmd *exec.Cmd, below ...string) error {
	// The cgroup is made only when something runs there: there may be thousands of routing nodes.
	if withoutProcesses(n) {
		if err := l.Cgroups.Make(l.Name, n); err != nil {
			return err
		}
	}
	if err := l.showDevices(); err != nil {
		return err
	}
	dir, err := l.Cgroups.Bear(cmd, l.Name, n.Name, below...)
	if err != nil {
		return err
	}
	defer dir.Close()
	if len(below) == 0 { // a start command's tools must not ask the lab, which waits for it
		l.lend(n, cmd)
	}
	if t, ok := l.fabricOf(n).(datapath.Telling); ok {
		t.Tell(cmd)
	}
	if a := cmd.SysProcAttr; a != nil && a.Setctty {
		if process.DeniesTIOCSTI() {
			if err := process.DenyTIOCSTI(); err != nil {
				return err
			}
		}
		leader.Lead(cmd)
	}
	return cmd.Start()
}

// OnNode runs f on a thread that is in the node's namespaces: a socket opened there stays in the
// node. Nothing that f starts or locks may outlive the thread.
func (l *Lab) OnNode(node string, f func() error) error {
	n := l.Topology().Node(node)
	if n == nil {
		return fmt.Errorf("there is no node %s in lab %s", node, l.Name)
	}
	return l.onNodeThread(n, f)
}

func (l *Lab) onNodeThread(n *topology.Node, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that a thread that has changed namespaces ends with its goroutine
		err := l.nodesOf(n).Enter(n)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// ownsNamespaces says whether a node has a network namespace other than that of the switches.
func ownsNamespaces(n *topology.Node) bool { return n.Made().Own }
