package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/patience"
)

// WaitCommand is the argument by which this program is a container's first process, before the
// container's own program and its arguments. It waits until its network is there.
const WaitCommand = "__wait"

// What a container sees of the lab, which its user may read and no more: this program, and two
// named pipes. As long as nobody writes to the first, its program waits. What it writes to the
// second says why it could not begin; it is closed when it has.
const (
	waiting = "/.trivet/wait"
	gates   = "/.trivet/gates"
	begin   = "begin"
	began   = "began"
)

// makeGates makes the pipes of a container in a directory.
func makeGates(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, mode := range map[string]uint32{begin: 0o644, began: 0o666} {
		file := filepath.Join(dir, name)
		if err := unix.Mkfifo(file, mode); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.Chmod(file, os.FileMode(mode)); err != nil { // whatever the umask
			return err
		}
	}
	return nil
}

// Wait waits, and becomes the container's program.
func Wait(argv []string) error { return waitAt(gates, argv) }

func waitAt(gates string, argv []string) error {
	if len(argv) == 0 {
		return errors.New("no program to become")
	}
	fd, err := untilOpen(filepath.Join(gates, begin), unix.O_RDONLY)
	if err != nil {
		return err
	}
	unix.Close(fd)
	if fd, err = untilOpen(filepath.Join(gates, began), unix.O_WRONLY); err != nil {
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err == nil || errors.Is(err, exec.ErrDot) {
		err = syscall.Exec(path, argv, os.Environ())
	}
	err = fmt.Errorf("%s: %w", argv[0], err)
	_, _ = unix.Write(fd, []byte(err.Error()))
	return err
}

// untilOpen opens a pipe, which waits for somebody at its other end.
func untilOpen(path string, mode int) (int, error) {
	for {
		fd, err := unix.Open(path, mode|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// open lets the container's program begin whose pipes are in a directory, unless it did so before.
// Once it has begun, there is only one pipe left. The error says why it could not; waits, whether
// its first process is there.
func open(ctx context.Context, dir string, waits func() bool) (opened bool, err error) {
	ctx, cancel := patience.Container.Context(ctx)
	defer cancel()
	answer, err := unix.Open(filepath.Join(dir, began), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("let the container begin: %w", err)
	}
	said := os.NewFile(uintptr(answer), began)
	defer said.Close()
	for {
		fd, err := unix.Open(filepath.Join(dir, begin), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		if err == nil {
			defer unix.Close(fd)
			break
		}
		if !errors.Is(err, unix.ENXIO) { // nobody waits yet
			return false, fmt.Errorf("let the container begin: %w", err)
		}
		if !waits() {
			return false, errors.New("the container has ended before its program began")
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("the container's first process does not wait for the lab: %w", context.Cause(ctx))
		case <-wakeUp():
		}
	}
	return true, begun(ctx, said, answer, dir)
}

// begun waits until the program has begun: a pipe that nobody has opened yet ends at once, too.
func begun(ctx context.Context, said *os.File, fd int, dir string) error {
	stop := context.AfterFunc(ctx, func() { _ = said.SetReadDeadline(time.Now()) })
	defer stop()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} // not said.Fd(), which would make it block
	for {
		if n, err := unix.Poll(poll, 50); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		} else if n > 0 { // POLLHUP only once somebody had opened it
			break
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the container's program does not begin: %w", context.Cause(ctx))
		}
	}
	text, err := io.ReadAll(io.LimitReader(said, 4096))
	switch {
	case err != nil:
		return fmt.Errorf("the container's program does not begin: %w", err)
	case len(text) > 0:
		return fmt.Errorf("the container's program: %s", strings.TrimSpace(string(text)))
	}
	return os.Remove(filepath.Join(dir, begin))
}

// wakeUp is how long to wait before looking again.
func wakeUp() <-chan time.Time { return time.After(100 * time.Millisecond) }
