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

// What a container sees of the lab, which its user may read and no more: what waits, and two named
// pipes. As long as nobody writes to the first, it waits. What it writes to the second says why the
// container's program could not begin; it is closed when that has.
const (
	waiting = "/.trivet/wait"
	gates   = "/.trivet/gates"
	begin   = "begin"
	began   = "began"
)

// waiter returns the file of what waits in the lab's containers. It is in a file system of its own:
// programs do not run in /run on many machines, and none in a container may write to it.
func (k *containers) waiter() (string, error) {
	dir := filepath.Join(k.Dir, "ns", ".wait") // goes with what else is mounted there
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

// open lets a container's program begin, unless it did so before. Once it has, there is only one of
// the pipes left, which are in a directory. The error says why it could not; waits, whether the
// first process is there.
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

// mostAnswer is how long what waits may take from being told to begin until its program has begun.
// Whoever has kept the pipe open for longer is in the container's program.
const mostAnswer = 2 * time.Second

// cannotRun is why a container's program has not begun.
type cannotRun struct{ program, reason string }

func (e cannotRun) Error() string {
	return fmt.Sprintf("the container's program %s cannot be run: %s", e.program, e.reason)
}

// begun waits until the program has begun: a pipe that nobody has opened yet ends at once, too.
func begun(ctx context.Context, fd int, dir, program string) error {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for last := time.Now().Add(mostAnswer); time.Now().Before(last); {
		if n, err := unix.Poll(poll, 50); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		} else if n > 0 { // POLLHUP only once somebody had opened it
			break
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the container's program does not begin: %w", context.Cause(ctx))
		}
	}
	text := make([]byte, 4096)
	switch n, err := unix.Read(fd, text); { // what waits writes all at once
	case n > 0:
		return cannotRun{program, reason(string(text[:n]))}
	case err != nil && !errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("the container's program does not begin: %w", err)
	}
	return os.Remove(filepath.Join(dir, begin))
}

// reason is why a program has not begun, from what waited for it, or from whatever else in the
// container has written to the pipe.
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

// wakeUp is how long to wait before looking again.
func wakeUp() <-chan time.Time { return time.After(100 * time.Millisecond) }
