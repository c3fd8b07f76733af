package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// ToolCommand is the argument by which the program stands for a tool of the machine, before the
// lab's directory, the tool's name and its arguments.
const ToolCommand = "__tool"

// StandsForTools says that this program is one that stands for a tool when it is called with
// ToolCommand, which only its main function can know. Without it labs leave tools as they are.
var StandsForTools bool

// tools are programs that are asked about network devices by their names, or about all there are.
// In their place, the lab lends nodes and scripts programs that know where its devices are.
var tools = []string{"tc", "ip", "ifconfig", "tcpdump", "tshark", "dumpcap", "wireshark", "ethtool", "bwm-ng", "ifstat",
	"iftop", "nload", "brctl", "bridge"}

// ToolsDir is where programs on the machine and in switches find those that stand for the tools, in
// a lab's directory. Everybody may run them.
func ToolsDir(dir string) string { return filepath.Join(dir, "tools") }

// hostTools is where hosts find theirs: of their own devices they only lack what a delay line
// knows.
func hostTools(dir string) string { return filepath.Join(ToolsDir(dir), "host") }

// writeTools makes the programs that stand for tools that the machine has.
func (l *Lab) writeTools() error {
	if !StandsForTools {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(hostTools(l.Dir), 0o755); err != nil {
		return err
	}
	for _, tool := range tools {
		real, err := exec.LookPath(tool)
		if err != nil {
			continue
		}
		ours := words.Shell(self)
		text := fmt.Sprintf("#!/bin/sh\n[ ! -x %s ] || exec %s %s %s %s \"$@\"\nexec %s \"$@\"\n",
			ours, ours, ToolCommand, words.Shell(l.Dir), tool, words.Shell(real))
		dirs := []string{ToolsDir(l.Dir)}
		if tool == "tc" {
			dirs = append(dirs, hostTools(l.Dir))
		}
		for _, dir := range dirs {
			if err := os.WriteFile(filepath.Join(dir, tool), []byte(text), 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// lend has a command in a node find the programs that stand for tools, where they know more.
func (l *Lab) lend(n *topology.Node, cmd *exec.Cmd) {
	switch {
	case !StandsForTools:
	case !ownsNamespaces(n):
		datapath.Lend(cmd, ToolsDir(l.Dir))
	case !l.Record.Netem && !n.Made().Whole && l.fabricOf(n) == nil:
		datapath.Lend(cmd, hostTools(l.Dir))
	}
}

// Join moves the calling process, which becomes another program right away, to the switches of a
// lab: into their namespace, and into a node's group, so that it ends with the lab. Root may.
func Join(lab, dir, node string) error {
	groups, err := cgroup.Find()
	if err == nil {
		err = groups.Enter(lab, node)
	}
	if err != nil {
		return err
	}
	return EnterSwitches(dir)
}

// EnterSwitches moves the calling thread, which stays locked, into the namespace of a lab's
// switches.
func EnterSwitches(dir string) error {
	runtime.LockOSThread()
	return switched{&Lab{Dir: dir}}.Enter(nil)
}

// NamespaceOf says in which of the lab's network namespaces a process is, by the namespace's
// number: in that of the machine, in that of the switches, or in that of one of some nodes, which
// it names. It may be called at any time.
func (l *Lab) NamespaceOf(number uint64, nodes []string) (machine, switches bool, node string) {
	is := func(path string) bool {
		var st unix.Stat_t
		return unix.Stat(path, &st) == nil && st.Ino == number
	}
	for _, n := range nodes {
		if n := l.node(n); n != nil && ownsNamespaces(n) && !n.Made().Whole && is(l.netPath(n.Name)) {
			return false, false, n.Name
		}
	}
	return is(machineNet), is(l.fabricPath()), ""
}

// LineQueues returns the delay lines' queues behind devices of the nodes for which of says so.
func (l *Lab) LineQueues(of func(node string) bool) (out []lab.LineQueue) {
	keys := topology.LinkKeys(l.Topology())
	for i, link := range l.Topology().Links {
		line := l.lines[keys[i]]
		if line == nil || !of(link.Ends[0].Node) && !of(link.Ends[1].Node) {
			continue
		}
		for end, s := range line.Stats() {
			if end == carried(link) || !of(link.Ends[end].Node) {
				continue
			}
			q := lab.LineQueue{Direction: lab.LinkDirection{From: lab.PlaceOf(link.Ends[end]),
				To: lab.PlaceOf(link.Ends[1-end])}, Flying: s.Flying,
				Impairment: link.Egress(end), Hooked: l.node(link.Ends[end].Node).Datapath == topology.Embedded}
			ofLine(&q.Direction, s, q.Impairment)
			out = append(out, q)
		}
	}
	return out
}
