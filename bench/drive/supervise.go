package drive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/process"
)

// SuperviseCommand is the argument by which the program knows that it is to supervise a command:
// see Supervise.
const SuperviseCommand = "__supervise"

// lifeline is the descriptor of a pipe whose other end the process has that wants the command. The
// pipe ends when that process does.
const lifeline = 3

// killTime is how long the processes of a command that is cancelled may take to end.
const killTime = 5 * time.Second

// supervised returns a command that is killed, with all that it has started, when ctx ends or this
// process does, even by SIGKILL. What it leaves in the background is killed when it ends. The
// caller calls release once it has ended.
func supervised(ctx context.Context, argv []string) (cmd *exec.Cmd, release func(), err error) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil, nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.CommandContext(ctx, "/proc/self/exe", append([]string{SuperviseCommand}, argv...)...)
	cmd.ExtraFiles = []*os.File{read}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours to handle
	cmd.Cancel, cmd.WaitDelay = write.Close, killTime
	return cmd, func() { read.Close(); write.Close() }, nil
}

// Supervise runs a command and exits with its exit code, or with 128 plus the number of the signal
// that ended it; it returns only if the command does not start. Before it exits it kills all
// processes that descend from the command, and it does so at once when lifeline ends.
func Supervise(argv []string) error {
	if len(argv) == 0 {
		return errors.New("there is no command")
	}
	unix.CloseOnExec(lifeline)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // orphans become its children
		return fmt.Errorf("supervise %s: %w", argv[0], err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(lifeline, "lifeline"))
		endChildren()
		os.Exit(128 + int(unix.SIGKILL))
	}()
	code := 0
	var ended *exec.ExitError
	if errors.As(cmd.Wait(), &ended) {
		code = ended.ExitCode()
		if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = 128 + int(status.Signal())
		}
	}
	endChildren()
	os.Exit(code)
	return nil
}

// endChildren ends all processes below this one: the children of one that is ended become its own.
func endChildren() {
	for {
		none := true
		all, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range all {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && process.Parent(pid) == os.Getpid() {
				none = false
				_ = unix.Kill(pid, unix.SIGKILL)
				_, _ = unix.Wait4(pid, nil, 0, nil)
			}
		}
		if none {
			return
		}
	}
}
