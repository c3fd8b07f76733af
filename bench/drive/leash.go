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

// LeashCommand is the argument by which the program knows that it is to hold another: see Leash.
const LeashCommand = "__leash"

// leashFile is the descriptor that ends where the one who holds the leash does.
const leashFile = 3

// hold is how long the processes of a command that is ended have for it.
const hold = 5 * time.Second

// leashed is a command that ends, with all that it has started, when ctx does, and when this
// process does, be it by SIGKILL. What it leaves in the background ends with it, too. release is to
// be called when it has ended.
func leashed(ctx context.Context, argv []string) (cmd *exec.Cmd, release func(), err error) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil, nil, err
	}
	held, leash, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.CommandContext(ctx, "/proc/self/exe", append([]string{LeashCommand}, argv...)...)
	cmd.ExtraFiles = []*os.File{held}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours to handle
	cmd.Cancel, cmd.WaitDelay = leash.Close, hold
	return cmd, func() { held.Close(); leash.Close() }, nil
}

// Leash runs a command and exits as that does, or with 128 and the signal that ended it. It returns
// only where the command does not start. All processes that come of it end before, and at once
// where leashFile ends.
func Leash(argv []string) error {
	if len(argv) == 0 {
		return errors.New("there is no command")
	}
	unix.CloseOnExec(leashFile)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // what loses its parent becomes ours
		return fmt.Errorf("hold %s: %w", argv[0], err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(leashFile, "leash"))
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
