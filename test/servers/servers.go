// Package servers starts what a cluster is made of for a test alone: etcd and RabbitMQ as the
// distribution has them, and certificates for them. They listen on loopback only, and end with the
// test, or with its process.
package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"trivet.dev/trivet/test/until"
)

// process is a server that can be ended and started again, with what it keeps.
type process struct {
	t       testing.TB
	dir     string // that it has to itself
	listens string // HOST:PORT
	command func() *exec.Cmd
	cmd     *exec.Cmd
	ended   chan struct{}
}

// Free is an address of this machine at which nothing listens, and which the kernel gives no client
// (net.ipv4.ip_local_port_range begins at 32768): one that asks for a server that was killed could
// be given its port, and the server could not be started again.
func Free(t testing.TB) string {
	t.Helper()
	for try := 0; ; try++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.N(22_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
		if try == 100 {
			t.Fatal(err)
		}
	}
}

// begin starts it for the first time.
func (p *process) begin() {
	p.t.Helper()
	p.Start()
	p.t.Cleanup(p.Kill)
}

// Start starts it, after Kill again, and waits until it listens.
func (p *process) Start() {
	p.t.Helper()
	p.Launch()
	until.True(p.t, "it listens: "+p.cmd.Path+", "+p.Log(), func() bool {
		select {
		case <-p.ended:
			text, _ := os.ReadFile(p.Log())
			p.t.Fatalf("%s has ended by itself:\n%s", p.cmd.Path, text[max(0, len(text)-2000):])
		default:
		}
		c, err := net.Dial("tcp", p.listens)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// Launch is Start without waiting.
func (p *process) Launch() {
	p.t.Helper()
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd, ended := p.command(), make(chan struct{})
	p.cmd, p.ended = cmd, ended
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() { // the thread that starts it must last: Pdeathsig is of the thread
		runtime.LockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatal(err)
	}
}

// Log is the file with what it says.
func (p *process) Log() string { return filepath.Join(p.dir, "log") }

// Pause stops it so that it answers nothing, though its connections stay; Resume lets it go on. The
// signal is sent before all threads have stopped, so Pause waits for them.
func (p *process) Pause() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	until.True(p.t, "all threads of "+p.cmd.Path+" have stopped", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		return len(threads) > 0 && !slices.ContainsFunc(threads, func(file string) bool {
			text, err := os.ReadFile(file)
			_, state, ok := strings.Cut(string(text), ") ")
			return err == nil && (!ok || state[0] != 'T')
		})
	})
}

// Resume is the opposite of Pause.
func (p *process) Resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends it at once, if it has not ended.
func (p *process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}
