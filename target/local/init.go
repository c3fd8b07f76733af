package local

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

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
	if err := os.WriteFile(l.initFile(n.Name), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return err
	}
	if n, _ := ready.Read(make([]byte, 1)); n != 1 {
		return fmt.Errorf("the first process of the node could not mount /proc: %w", cmd.Wait())
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

func (l *Lab) initFile(node string) string { return filepath.Join(l.nsDir(), "pid-"+node) }

// initOf returns the first process of a node's PID namespace, or 0.
func (l *Lab) initOf(node string) int {
	b, _ := os.ReadFile(l.initFile(node))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
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
