package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/topology"
)

// InitCommand is the argument that makes the program run as the first process of a node with a PID
// namespace.
const InitCommand = "__init"

// startInit starts the first process of a node's own PID namespace, which keeps the namespace
// alive.
func (l *Lab) startInit(n *topology.Node) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ready, signal, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(self, InitCommand)
	cmd.ExtraFiles = []*os.File{signal}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Setsid: true}
	err = l.Start(n.Name, cmd)
	signal.Close()
	if err != nil {
		return fmt.Errorf("start the first process of %s: %w", n.Name, err)
	}
	pid := cmd.Process.Pid
	if err := os.WriteFile(l.initFile(n.Name), fmt.Appendf(nil, "%d %d\n", pid, process.Started(pid)),
		0o644); err != nil {
		return err
	}
	if n, _ := ready.Read(make([]byte, 1)); n != 1 {
		return fmt.Errorf("the first process of the node could not mount /proc: %w", cmd.Wait())
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

func (l *Lab) initFile(node string) string { return filepath.Join(l.nsDir(), "pid-"+node) }

// pidNamespace opens a node's PID namespace; nil: it has none of its own.
func (l *Lab) pidNamespace(node string) (*os.File, error) {
	b, err := os.ReadFile(l.initFile(node))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pid int
	var started uint64
	if _, err := fmt.Sscan(string(b), &pid, &started); err != nil {
		return nil, fmt.Errorf("%s: %w", l.initFile(node), err)
	}
	ended := fmt.Errorf("the first process of %s has ended, and all others with it; take the lab down and bring it up again", node)
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ended
	}
	if err != nil {
		return nil, fmt.Errorf("enter %s: %w", node, err)
	}
	if process.Started(pid) != started { // only now: what is open belongs to the process that is compared
		f.Close()
		return nil, ended
	}
	return f, nil
}

// RunInit is the first process of a PID namespace: it mounts /proc in the node's mount namespace,
// reports that on descriptor 3, and reaps orphans until it is killed.
func RunInit() error {
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	ready := os.NewFile(3, "ready")
	if _, err := ready.Write([]byte{1}); err != nil {
		return err
	}
	ready.Close()
	children := make(chan os.Signal, 16)
	signal.Notify(children, syscall.SIGCHLD)
	for range children {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if err != nil || pid <= 0 {
				break
			}
		}
	}
	return nil
}
