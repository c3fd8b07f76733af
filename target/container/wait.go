package container

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/patience"
)

// What waits in a container, compiled for each kind of processor: see waiter.c.
//
//go:generate -command waiter clang -Os -Wall -Wextra -Werror -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables -fno-pic -nostdlib -static -fuse-ld=lld -Wl,--build-id=none,-z,noseparate-code,-n,-s -o
//go:generate waiter waiter/amd64 --target=x86_64-linux-gnu waiter/waiter.c
//go:generate waiter waiter/arm64 --target=aarch64-linux-gnu waiter/waiter.c
//go:generate waiter waiter/arm --target=armv6-linux-gnueabi waiter/waiter.c
//go:generate sh -c "cd waiter && sha256sum amd64 arm arm64 waiter.c >generated.sha256"
//go:embed waiter/a*
var waiters embed.FS

// What a container sees of the lab, which its user may only read: the waiting program, and two
// named pipes. The program waits until somebody writes to the first pipe. To the second it writes
// why the container's program could not start; it is closed when that has started.
const (
	waiting = "/.trivet/wait"
	gates   = "/.trivet/gates"
	begin   = "begin"
	began   = "began"
)

// waiter returns the file of the program that waits in the lab's containers. It is on a file system
// of its own: on many machines programs cannot be executed from /run, and no container may write to
// it.
func (k *containers) waiter() (string, error) {
	dir := filepath.Join(k.Dir, "ns", ".wait") // removed with the other mounts there
	file := filepath.Join(dir, "wait")
	program, err := waiters.ReadFile("waiter/" + runtime.GOARCH)
	if err != nil {
		return "", fmt.Errorf("containers on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	if is, err := os.ReadFile(file); err == nil && bytes.Equal(is, program) {
		return file, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("trivet", dir, "tmpfs", flags, "mode=755,size=64k"); err != nil {
		return "", fmt.Errorf("mount %s: %w", dir, err)
	}
	if err := os.WriteFile(file, program, 0o755); err != nil {
		return "", err
	}
	if err := os.Chmod(file, 0o755); err != nil { // whatever the umask
		return "", err
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY|flags, ""); err != nil {
		return "", fmt.Errorf("protect %s: %w", file, err)
	}
	return file, nil
}

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

// open lets a container's program start, unless it has started already, when only one of the two
// pipes in dir is left. The error says why it could not; waits reports whether the first process
// exists.
func open(ctx context.Context, dir, program string, waits func() bool) (opened bool, err error) {
	ctx, cancel := patience.Container.Context(ctx)
	defer cancel()
	answer, err := unix.Open(filepath.Join(dir, began), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("let the container begin: %w", err)
	}
	defer unix.Close(answer)
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
			return false, errEndedBefore
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("the container's first process does not wait for the lab: %w", context.Cause(ctx))
		case <-wakeUp():
		}
	}
	return true, begun(ctx, answer, dir, program)
}

// mostAnswer is how long the waiting program may take to execute the container's program. If the
// pipe is still open after that, a process of the container's program holds it.
const mostAnswer = 2 * time.Second

// cannotRun says why a container's program has not started.
type cannotRun struct{ program, reason string }

func (e cannotRun) Error() string {
	return fmt.Sprintf("the container's program %s cannot be run: %s", e.program, e.reason)
}

// begun waits until the program has started. Reading a pipe that nobody has opened yet also returns
// its end at once.
func begun(ctx context.Context, fd int, dir, program string) error {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for last := time.Now().Add(mostAnswer); time.Now().Before(last); {
		if n, err := unix.Poll(poll, 50); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		} else if n > 0 { // POLLHUP occurs only once somebody had opened it
			break
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the container's program does not begin: %w", context.Cause(ctx))
		}
	}
	text := make([]byte, 4096)
	switch n, err := unix.Read(fd, text); { // the program writes its message at once
	case n > 0:
		return cannotRun{program, reason(string(text[:n]))}
	case err != nil && !errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("the container's program does not begin: %w", err)
	}
	return os.Remove(filepath.Join(dir, begin))
}

// reason returns why a program has not started, as written to the pipe by the waiting program, or
// by anything else in the container.
func reason(said string) string {
	n, err := strconv.ParseUint(said, 10, 12)
	switch errno := syscall.Errno(n); {
	case err != nil:
		return strings.TrimSpace(said)
	case errno == unix.ENOENT:
		return "it is not in the container, or what it needs is not"
	default:
		return errno.Error()
	}
}

// wakeUp is the interval of polling.
func wakeUp() <-chan time.Time { return time.After(100 * time.Millisecond) }
