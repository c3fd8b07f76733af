package local

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/topology"
)

// Healthy runs a shell command once in a node; it succeeds if the node is healthy. It returns the
// beginning of the command's output.
func (l *Lab) Healthy(ctx context.Context, n *topology.Node, command string) (said string, err error) {
	cmd := exec.Command("sh", "-c", command)
	out := &process.Beginning{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second // background processes may hold its output open
	if err := l.Start(n.Name, cmd); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	defer stop()
	if err = cmd.Wait(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return out.String(), err
}
