package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/patience"
)

// child is Trivet's controller in a process of its own, so that its processor time is counted
// separately.
type child struct {
	cmd     *exec.Cmd
	address string
	what    string // name in messages
	says    *tail
	ended   chan struct{}
}

// startOwn starts it on a free port of the loopback, and waits until it listens.
func (a *app) startOwn(ctx context.Context, b controllerBench) (*child, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{address: fmt.Sprintf("tcp:127.0.0.1:%d", port), says: &tail{}, ended: make(chan struct{})}
	c.cmd = exec.Command(program, b.ownArguments(c.address)...)
	c.cmd.Stdout, c.cmd.Stderr = c.says, c.says
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM} // we handle Ctrl-C ourselves
	where, err := c.start(b.pin)
	if err != nil {
		return nil, fmt.Errorf("start the controller: %w", err)
	}
	c.what = fmt.Sprintf("Trivet's own controller (%s), process %d%s", strings.Join(b.apps, ", "), c.pid(), where)
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	return c, c.listens(ctx, fmt.Sprintf("127.0.0.1:%d", port))
}

// start starts the process, pinned if there are at least two processors, and says where it runs.
func (c *child) start(pin bool) (where string, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil || !pin || allowed.Count() < 2 {
		return ", not pinned to a processor", c.cmd.Start()
	}
	var cpus []int
	for i := 0; len(cpus) < 2; i++ {
		if allowed.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	if err := pinnedTo(cpus[0], &allowed, c.cmd.Start); err != nil {
		return "", err
	}
	if err := pinSelf(cpus[1]); err != nil {
		c.end()
		return "", err
	}
	return fmt.Sprintf(" on processor %d, the generator on %d", cpus[0], cpus[1]), nil
}

// pinnedTo calls f on a thread that may run on one processor only; what it starts inherits that.
func pinnedTo(cpu int, back *unix.CPUSet, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("pin to processor %d: %w", cpu, err)
	}
	defer unix.SchedSetaffinity(0, back)
	return f()
}

// pinSelf binds all threads of this process to a processor; later ones inherit it.
func pinSelf(cpu int) error {
	var one unix.CPUSet
	one.Set(cpu)
	runtime.GOMAXPROCS(1)
	for range 2 { // the second pass finds threads that others have just started
		tasks, _ := filepath.Glob("/proc/self/task/*")
		for _, t := range tasks {
			id, err := strconv.Atoi(filepath.Base(t))
			if err != nil {
				continue
			}
			if err := unix.SchedSetaffinity(id, &one); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("pin the generator to processor %d: %w", cpu, err)
			}
		}
	}
	return nil
}

// listens waits until the controller listens.
func (c *child) listens(ctx context.Context, address string) error {
	for listens := patience.ControllerStart.Begin(); ; {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-c.ended:
			return fmt.Errorf("the controller exited immediately:\n%s", c.says)
		case <-ctx.Done():
			c.end()
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		if listens.Over() {
			c.end()
			return fmt.Errorf("the controller is not listening after %s: %w\n%s", listens, err, c.says)
		}
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// end asks the controller to end, and kills it after a while.
func (c *child) end() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(5 * time.Second):
		_ = c.cmd.Process.Kill()
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 4096
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if len(t.end) > most {
		t.end = append(t.end[:0], t.end[len(t.end)-most:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.end))
}
