package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/topology"
)

// kept is a program that the lab runs beside its switches, and starts again whenever it ends. It is
// in a cgroup of the lab, through which down finds it even if this daemon has died.
type kept struct {
	name    string // names its cgroup, log and record
	says    string // its name in messages
	dir     string // of its log and record, which are root's
	port    int    // on the loopback device of the switches' namespace
	cpu     topology.CPU
	prepare func() (*exec.Cmd, error)

	stop     context.CancelFunc // ends its keeper
	done     chan struct{}      // its keeper has ended
	mu       sync.Mutex         // of what follows
	cmd      *exec.Cmd          // nil: it does not run
	since    time.Time          // when it was started, or taken over
	restarts int
	endings  int           // how often its processes have ended
	renewed  chan struct{} // closed when the process that renew ends has ended; or nil
	found    bool          // it was taken over
}

// How long the keeper waits before it starts a program again: longer each time, unless the program
// has run for a while.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 10 * time.Second
	aWhile     = 20 * time.Second
)

func (k *kept) log() string    { return filepath.Join(k.dir, k.name+".log") }
func (k *kept) record() string { return filepath.Join(k.dir, k.name+".pid") }

// process returns the program's process, or nil.
func (k *kept) process() *os.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cmd == nil {
		return nil
	}
	return k.cmd.Process
}

// pid returns the id of its process; 0 if there is none.
func (k *kept) pid() int {
	if p := k.process(); p != nil {
		return p.Pid
	}
	return 0
}

// begin takes over the program that an earlier daemon has started, or starts it, and restarts it
// whenever it ends, until end.
func (k *kept) begin(d *daemon) error {
	cmd, found := k.find(d.target())
	if !found {
		var err error
		if cmd, err = k.start(d.target()); err != nil {
			return fmt.Errorf("start %s: %w", k.says, err)
		}
	}
	k.found = found
	k.run(cmd)
	ctx, stop := context.WithCancel(context.Background())
	k.stop, k.done = stop, make(chan struct{})
	go k.keep(ctx, d, cmd)
	return nil
}

func (k *kept) run(cmd *exec.Cmd) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cmd, k.since = cmd, time.Now()
}

// end ends the program and its keeper; what else is in its cgroup ends with the lab.
func (k *kept) end() {
	k.stop()
	k.kill()
	<-k.done
}

// renew asks the program to end (SIGTERM), after which it is restarted at once. The channel is
// closed when it has ended.
func (k *kept) renew() (ended <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.renewed == nil {
		k.renewed = make(chan struct{})
	}
	if k.cmd == nil { // it is started again anyway
		close(k.renewed)
		defer func() { k.renewed = nil }()
		return k.renewed
	}
	_ = k.cmd.Process.Signal(unix.SIGTERM)
	return k.renewed
}

// kill kills the program's process; the program is then restarted.
func (k *kept) kill() {
	if p := k.process(); p != nil {
		_ = p.Kill()
	}
}

// ended returns how often the program has ended.
func (k *kept) ended() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.endings
}

// find looks for the program that an earlier daemon has started.
func (k *kept) find(t Target) (*exec.Cmd, bool) {
	text, err := os.ReadFile(k.record())
	if err != nil {
		return nil, false
	}
	var pid int
	var started uint64
	if _, err := fmt.Sscan(string(text), &pid, &started); err != nil {
		return nil, false
	}
	if process.Started(pid) != started || !slices.Contains(t.ProgramProcesses(k.name), pid) {
		return nil, false
	}
	cmd, err := process.Command(pid)
	return cmd, err == nil
}

// start starts the program, once no process of an earlier run is left.
func (k *kept) start(t Target) (*exec.Cmd, error) {
	for left := patience.ProcessEnd.Begin(); ; time.Sleep(5 * time.Millisecond) {
		pids := t.ProgramProcesses(k.name)
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if len(pids) == 0 {
			break
		}
		if left.Over() {
			return nil, fmt.Errorf("what is left of it does not end: process %d", pids[0])
		}
	}
	if err := t.LimitProgram(k.name, k.cpu); err != nil {
		return nil, err
	}
	cmd, err := k.prepare()
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range cmd.ExtraFiles {
			f.Close()
		}
	}()
	log, err := os.OpenFile(k.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := t.StartProgram(k.name, cmd); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	return cmd, os.WriteFile(k.record(), fmt.Appendf(nil, "%d %d", pid, process.Started(pid)), 0o600)
}

// keep restarts the program whenever it ends.
func (k *kept) keep(ctx context.Context, d *daemon, cmd *exec.Cmd) {
	defer close(k.done)
	for pause := firstPause; ; {
		how := process.Wait(cmd)
		k.mu.Lock()
		ran := time.Since(k.since)
		k.cmd = nil
		k.endings++
		renewed := k.renewed
		if k.renewed = nil; renewed != nil {
			close(renewed)
		}
		k.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if ran > aWhile || renewed != nil {
			pause = firstPause
		}
		if renewed == nil {
			d.ended(fmt.Sprintf("%s has ended%s; it is started again in %v", k.says, how, pause))
		}
		for {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, longPause)
			var err error
			if cmd, err = k.start(d.target()); err == nil {
				break
			}
			logged(fmt.Sprintf("%s cannot be started: %v; again in %v", k.says, err, pause))
		}
		k.run(cmd)
		if renewed == nil {
			k.mu.Lock()
			k.restarts++
			k.mu.Unlock()
		}
		if ctx.Err() != nil { // whoever has ended us may have seen no process
			_ = cmd.Process.Kill()
			process.Wait(cmd)
			return
		}
		d.ended(k.says + " is started again")
	}
}

// listens says whether the program accepts connections.
func (k *kept) listens() bool {
	p := k.process()
	return p != nil && listening(p.Pid, k.port)
}

// hopeless is the number of restarts after which nobody waits any longer for the program to become
// ready.
const hopeless = 4

// waitListening waits until the program accepts connections.
func (k *kept) waitListening(ctx context.Context) error {
	for wait := 10 * time.Millisecond; !k.listens(); wait = min(2*wait, 200*time.Millisecond) {
		k.mu.Lock()
		restarts := k.restarts
		k.mu.Unlock()
		if restarts >= hopeless {
			return fmt.Errorf("%s ends again and again; the end of its log:\n%s", k.says, process.LastWords(k.log()))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return k.notReady(ctx.Err())
		}
	}
	return nil
}

// notReady is the error for a program that does not accept connections in time.
func (k *kept) notReady(why error) error {
	what := "it does not run"
	if pid := k.pid(); pid != 0 {
		what = fmt.Sprintf("its process %d does not listen at 127.0.0.1:%d", pid, k.port)
	}
	return fmt.Errorf("%s is not ready: %s (%w); the end of its log:\n%s", k.says, what, why,
		process.LastWords(k.log()))
}
