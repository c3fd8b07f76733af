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

// ToolCommand is the argument that makes the program the stand-in for a tool; the lab's directory,
// the tool's name and its arguments follow.
const ToolCommand = "__tool"

// StandsForTools says that this program acts as a stand-in when it is called with ToolCommand; its
// main function sets it, as only that can know. If it is not set, labs make no stand-ins.
var StandsForTools bool

// tools are programs that show or change network devices by name, or all of them. The lab gives
// nodes and scripts stand-ins for them, which first make the devices that are named, or know where
// they are.
var tools = []string{"tc", "ip", "ifconfig", "tcpdump", "tshark", "dumpcap", "wireshark", "ethtool", "bwm-ng", "ifstat",
	"iftop", "nload", "brctl", "bridge"}

// ToolsDir is the directory of the stand-ins, in a lab's directory, for programs on the machine and
// in switches. Everybody may run them.
func ToolsDir(dir string) string { return filepath.Join(dir, "tools") }

// hostTools is the directory of the stand-ins for hosts, whose tools see their own devices and lack
// only what a delay line knows.
func hostTools(dir string) string { return filepath.Join(ToolsDir(dir), "host") }

// writeTools makes stand-ins for the tools that the machine has.
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

// lend has a command in a node find the stand-ins, where these know more than the tools.
func (l *Lab) lend(n *topology.Node, cmd *exec.Cmd) {
	switch {
	case !StandsForTools:
	case !ownsNamespaces(n):
		datapath.Lend(cmd, ToolsDir(l.Dir))
	case !l.Record.Netem && !n.Made().Whole && l.fabricOf(n) == nil:
		datapath.Lend(cmd, hostTools(l.Dir))
	}
}

// Join moves the calling process, which is about to execute another program, to the switches of a
// lab: into their namespace, and into a node's cgroup, so that it ends with the lab. It takes root.
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

// NamespaceOf says which network namespace has a number: the machine's, the switches', or that of
// one of the given nodes, which it names. It may be called at any time.
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

// LineQueues returns the queues in delay lines behind the devices of the nodes that of selects.
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
