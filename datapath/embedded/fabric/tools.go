package fabric

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
)

// VSwitchCommand is the argument with which the program stands in for ovs-vsctl, followed by the
// lab's name and the arguments of ovs-vsctl.
const VSwitchCommand = "__ovs-vsctl"

// toolsDir is the directory where programs in switches find what Open vSwitch's tools need.
// ovs-ofctl takes the name of a switch for the socket NAME.mgmt there.
func (f *fabric) toolsDir() string { return filepath.Join(f.site.Dir(), "ovs") }

func (f *fabric) socketOf(n *topology.Node) string {
	return filepath.Join(f.toolsDir(), n.Name+".mgmt")
}

// Tell lets programs in switches use ovs-ofctl and ovs-vsctl, as with Open vSwitch. The first call
// makes what they need: a lab in which no one uses them has no sockets.
func (f *fabric) Tell(cmd *exec.Cmd) {
	bin := filepath.Join(f.toolsDir(), "bin")
	if s := f.now.Load(); s != nil {
		s.tools.Lock()
		if !s.tooled {
			s.tooled = true
			if err := f.writeTools(bin); err != nil {
				slog.Warn("ovs-ofctl and ovs-vsctl do not know the embedded switches", "error", err)
			}
		}
		f.listen(s)
		s.tools.Unlock()
	}
	cmd.Env = append(cmd.Environ(), "OVS_RUNDIR="+f.toolsDir())
	datapath.Lend(cmd, bin)
}

// writeTools writes wrappers for ovs-ofctl and ovs-vsctl: the former selects the only version of
// OpenFlow of embedded switches, the latter calls this program, which answers what it can.
func (f *fabric) writeTools(bin string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(f.toolsDir(), 0o700), os.MkdirAll(bin, 0o700)); err != nil {
		return err
	}
	run, name := filepath.Split(filepath.Clean(f.site.Dir()))
	write := func(tool, command string) error {
		return os.WriteFile(filepath.Join(bin, tool), []byte("#!/bin/sh\n"+command+" \"$@\"\n"), 0o755)
	}
	if ofctl, err := exec.LookPath("ovs-ofctl"); err == nil {
		if err := write("ovs-ofctl", "exec "+words.Shell(ofctl)+" -O OpenFlow13"); err != nil {
			return err
		}
	}
	return write("ovs-vsctl", fmt.Sprintf("TRIVET_RUN_DIR=%s exec %s %s %s", words.Shell(filepath.Clean(run)),
		words.Shell(self), VSwitchCommand, words.Shell(name)))
}

// listen opens the sockets of switches without one. The caller holds tools.
func (f *fabric) listen(s *switches) {
	for _, n := range f.site.Topology().Nodes {
		a := s.agent(n.Name)
		if n.Kind != topology.Switch || a == nil || s.listening[n.Name] == a {
			continue
		}
		l, err := listenAt(f.socketOf(n))
		if err != nil { // the lab works without
			slog.Warn("ovs-ofctl will not find a switch", "switch", n.Name, "error", err)
			continue
		}
		s.listening[n.Name] = a
		go func() { _ = a.Serve(l) }()
	}
}

// listenAt opens a socket, replacing one left by a dead process. Its directory belongs to root.
func listenAt(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// hadTools reports whether a process that has died made what the tools need: programs in switches
// may still use it.
func (f *fabric) hadTools() bool {
	_, err := os.Lstat(filepath.Join(f.toolsDir(), "bin"))
	return err == nil
}
