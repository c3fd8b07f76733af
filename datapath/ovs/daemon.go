package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/inside"
)

// daemon is one of the two processes; all that is known about it is in files of its directory.
//
// Its identity is in its pid file, which the daemon writes and keeps locked as long as it lives: so
// a pid that the system has since given to another process is never mistaken for it, and there is
// no moment without a record.
type daemon struct {
	dir  string
	name string // of the program and, with suffixes, of its files

	child  *os.Process     // if this process has started it; it may not have its pid file yet
	exited <-chan struct{} // closed when the child has ended
}

func (d *daemon) file(ending string) string { return filepath.Join(d.dir, d.name+ending) }

// control is the daemon's control socket, at the path where ovs-appctl expects it.
func (d *daemon) control() string { return d.file(fmt.Sprintf(".%d.ctl", d.pid())) }

// start runs the program in the network namespace. The program neither depends on this process nor
// ends with it.
func (d *daemon) start(cfg Config, program string, args ...string) error {
	log, err := os.OpenFile(d.file(".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, append([]string{
		"--pidfile=" + d.file(".pid"), "-vsyslog:off", "-vconsole:info",
	}, args...)...)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+d.dir, "OVS_DBDIR="+d.dir, "OVS_LOGDIR="+d.dir,
		"OVS_SYSCONFDIR="+d.dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	start := func() error {
		if cfg.Prepare != nil {
			cfg.Prepare(cmd)
		}
		// For each bridge, ovs-vswitchd looks up a device that does not exist yet, and the kernel
		// runs modprobe twice to find it: only once for a process that may not load modules.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_MODULE, 0, 0, 0); err != nil {
			return err
		}
		return cmd.Start()
	}
	if err := inside.Namespace(cfg.NetNS, start); err != nil {
		return fmt.Errorf("starting %s: %w", d.name, err)
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait() // how it ended is in its log
		close(exited)
	}()
	d.child, d.exited = cmd.Process, exited
	return nil
}

// alive reports whether the daemon runs.
func (d *daemon) alive() bool {
	if d.child == nil {
		return d.pid() != 0
	}
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// pid returns the process id of the running daemon, or 0.
func (d *daemon) pid() int {
	f, err := os.OpenFile(d.file(".pid"), os.O_RDWR, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK {
		return 0
	}
	return int(lock.Pid)
}

// kill ends the daemon and returns when it is gone.
func (d *daemon) kill(ctx context.Context) error {
	pid := d.pid()
	if pid == 0 && d.child != nil {
		d.child.Kill()
		<-d.exited
	}
	if pid == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s (process %d): %w", d.name, pid, err)
	}
	defer unix.Close(fd)
	if d.pid() != pid { // it ended before the descriptor could hold on to it
		return nil
	}
	sockets := packetSockets(fd, pid)
	defer closeAll(sockets)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending %s (process %d): %w", d.name, pid, err)
	}
	return waitGone(ctx, fd, fmt.Sprintf("%s (process %d)", d.name, pid))
}

// packetSockets returns duplicates of the sockets through which a process reads network devices. To
// close one takes the kernel a grace period (20 ms), and a process that ends closes them one after
// another: with two devices at each of 100 bridges, that is 3 s. While we hold duplicates the
// process can end at once, and we can close all of them in parallel (closeAll). If the kernel does
// not let us duplicate them, ending is slow but otherwise the same.
func packetSockets(pidfd, pid int) (sockets []int) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(dir, e.Name()))
		number, err := strconv.Atoi(e.Name())
		if err != nil || !strings.HasPrefix(target, "socket:") {
			continue
		}
		fd, err := unix.PidfdGetfd(pidfd, number, 0)
		if err != nil {
			continue
		}
		if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET,
			unix.SO_DOMAIN); err != nil || domain != unix.AF_PACKET {
			unix.Close(fd)
			continue
		}
		sockets = append(sockets, fd)
	}
	return sockets
}

func closeAll(fds []int) {
	var closing errgroup.Group
	closing.SetLimit(64) // each takes a thread
	for _, fd := range fds {
		closing.Go(func() error { return unix.Close(fd) })
	}
	closing.Wait()
}

func waitGone(ctx context.Context, pidfd int, who string) error {
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 50)
		if ready > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not end: %w", who, ctx.Err())
		}
	}
}

// call runs a command of the daemon's.
func (d *daemon) call(ctx context.Context, method string, args ...string) (string, error) {
	answer, err := call(ctx, d.control(), method, args...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", d.name, err)
	}
	return answer, nil
}

// call runs a command on a daemon's control socket, as ovs-appctl does: JSON-RPC 1.0, one answer.
func call(ctx context.Context, socket, method string, args ...string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	request := map[string]any{"id": 0, "method": method, "params": append([]string{}, args...)}
	var reply struct {
		Result string
		Error  *string
	}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return "", fmt.Errorf("%s: %w", method, err)
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return "", fmt.Errorf("%s: %w", method, err)
	}
	if reply.Error != nil {
		return "", fmt.Errorf("%s: %s", method, strings.TrimSpace(*reply.Error))
	}
	return reply.Result, nil
}

// failure is the error for a daemon that has ended by itself, with the end of its log.
func (d *daemon) failure() error {
	if err := disk.Full(d.dir); err != nil { // a full disk: the log cannot tell
		return fmt.Errorf("%s ended: %w", d.name, err)
	}
	return fmt.Errorf("%s ended; the end of %s:\n%s", d.name, d.file(".log"), tail(d.file(".log"), 2000))
}

func tail(file string, size int64) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		f.Seek(-size, io.SeekEnd)
	}
	text, _ := io.ReadAll(f)
	return "  " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  ")
}

// uptime is the time since the machine was started.
func uptime() time.Duration {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return time.Hour
	}
	first, _, _ := strings.Cut(string(text), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return time.Hour
	}
	return time.Duration(seconds * float64(time.Second))
}
