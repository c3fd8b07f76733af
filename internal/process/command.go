package process

import (
	"errors"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Command returns a process that another one has started, for signalling it; Wait waits for its
// end.
func Command(pid int) (*exec.Cmd, error) {
	p, err := os.FindProcess(pid)
	return &exec.Cmd{Process: p}, err
}

// Wait waits until a command, including one returned by Command, has ended. It returns how it
// ended, if that can be known.
func Wait(cmd *exec.Cmd) string {
	if cmd.Path != "" {
		_ = cmd.Wait()
		return ": " + cmd.ProcessState.String()
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return ""
		}
	}
}
