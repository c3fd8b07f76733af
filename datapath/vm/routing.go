package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/internal/patience"
)

// routing are the routing daemons of a guest; for loading a configuration it is the routerd.Place
// where they run.
type routing struct {
	agent *agent
	ended chan error // receives an error when a daemon ends unexpectedly: the machine stops

	mu      sync.Mutex // held while these are changed or read
	spec    *Spec
	daemons map[string]*daemon
	old     string // the configuration that was last loaded, or tried
	shown   string // what the client showed when one had just been loaded; "": none has been
}

// daemon is a daemon that runs, or has run.
type daemon struct {
	routerd.Program
	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended
	runs atomic.Bool   // it has answered, and was not told to end
}

func newRouting(a *agent, s *Spec) *routing {
	return &routing{agent: a, ended: make(chan error, 1), spec: s, daemons: map[string]*daemon{}}
}

// programs returns the daemons of a guest.
func (s *Spec) programs() (out []routerd.Program) {
	for _, p := range s.Programs {
		out = append(out, routerd.Program{Name: filepath.Base(p.Path), Args: p.Args, Files: p.Files, Ready: p.Ready})
	}
	return out
}

// converse answers requests about the configuration of the topology's author.
func (a *agent) converse(ch ssh.Channel, kind string) {
	defer ch.Close()
	text, err := io.ReadAll(io.LimitReader(ch, longest))
	var is answer
	if err == nil {
		is.Shown, err = a.routing.answer(context.Background(), kind, text)
	}
	var failure *routerd.Failure
	switch {
	case errors.As(err, &failure):
		is.Error, is.Program, is.Said = failure.Err.Error(), failure.Program, failure.Said
	case err != nil:
		is.Error = err.Error()
	}
	if said, err := json.Marshal(is); err == nil {
		_, _ = ch.Write(said)
	}
}

// answer executes such a request.
func (r *routing) answer(ctx context.Context, kind string, text []byte) (shown string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kind == askShown {
		if r.spec.Loading == nil {
			return "", errors.New("its routing daemons have no configuration of its owner's")
		}
		return r.spec.Loading.Shown(ctx, r)
	}
	var s Spec
	if err := json.Unmarshal(text, &s); err != nil {
		return "", err
	}
	if s.Loading == nil {
		return "", errors.New("there is no configuration to load")
	}
	r.spec = &s
	err = s.Loading.Into(ctx, r, s.programs())
	return r.shown, err
}

func (r *routing) Write(files map[string]string) (changed bool, err error) {
	return r.spec.write(files)
}

func (r *routing) Old() string { return r.old }

func (r *routing) Loaded() bool { return r.shown != "" }

func (r *routing) Forget() { r.shown, r.old = "", r.spec.own() }

func (r *routing) Note(shown string) error {
	r.shown = shown
	return nil
}

// own returns the author's configuration as it is loaded.
func (s *Spec) own() string {
	for _, p := range s.Programs {
		if text, ok := p.Files[routerd.FRRFile]; ok {
			return text
		}
	}
	return ""
}

// Free also handles devices of links: they stay while the machine runs.
func (r *routing) Free(old string) error {
	given := map[string][]netip.Prefix{"lo": r.spec.Loopback}
	for _, f := range r.spec.Interfaces {
		given[f.Name] = f.Addresses
	}
	return routerd.FreeAddresses(old, given)
}

func (r *routing) Start(programs []routerd.Program, all bool) (started []string, err error) {
	for name, d := range r.daemons {
		if !slices.ContainsFunc(programs, func(want routerd.Program) bool { return want.Name == name }) {
			d.end()
			delete(r.daemons, name)
		}
	}
	for _, want := range programs {
		if d := r.daemons[want.Name]; d != nil {
			if !all && slices.Equal(d.Args, want.Args) && d.alive() {
				continue
			}
			d.end()
			delete(r.daemons, want.Name)
		}
		if err := r.start(want); err != nil {
			return started, err
		}
		started = append(started, want.Name)
	}
	return started, nil
}

// alive says whether a daemon has not ended.
func (d *daemon) alive() bool {
	select {
	case <-d.over:
		return false
	default:
		return true
	}
}

// start starts a daemon and returns when it answers.
func (r *routing) start(want routerd.Program) error {
	i := slices.IndexFunc(r.spec.Programs, func(p Program) bool { return filepath.Base(p.Path) == want.Name })
	cmd := exec.Command(r.spec.Programs[i].Path, want.Args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = os.Stdout, os.Stderr, "/"
	if r.spec.Loading != nil && r.spec.Logs != "" { // names of logs are relative to it
		cmd.Dir = r.spec.Logs
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	ready := filepath.Join(r.spec.Home, r.spec.Run, want.Ready)
	_ = os.Remove(ready) // of one that was killed
	if err := r.agent.start(cmd); err != nil {
		return err
	}
	d := &daemon{Program: want, cmd: cmd, over: make(chan struct{})}
	go func() {
		r.agent.wait(cmd)
		close(d.over)
		if d.runs.Load() {
			select {
			case r.ended <- fmt.Errorf("%w; the machine stops", d.how()):
			default:
			}
		}
	}()
	for answers := patience.GuestProgram.Begin(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Lstat(ready); err == nil {
			break
		}
		select {
		case <-d.over:
			return d.how()
		default:
		}
		if answers.Over() {
			d.end()
			return fmt.Errorf("%s does not answer", want.Name)
		}
	}
	d.runs.Store(true)
	r.daemons[want.Name] = d
	select {
	case <-d.over:
		return d.how()
	default:
		return nil
	}
}

// how returns an error that says how a daemon has ended.
func (d *daemon) how() error {
	return fmt.Errorf("%s has ended: %s", d.Name, d.cmd.ProcessState)
}

// end ends a daemon and returns when it has ended.
func (d *daemon) end() {
	d.runs.Store(false)
	_ = d.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-d.over:
	case <-time.After(patience.Terminated.Duration()):
		_ = d.cmd.Process.Kill()
		<-d.over
	}
}

func (r *routing) Run(ctx context.Context, command []string) (string, error) {
	name := filepath.Base(command[0])
	ctx, cancel := patience.GuestProgram.Context(ctx)
	defer cancel()
	var said strings.Builder
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env, cmd.WaitDelay = &said, &said, "/", routerd.Environment, lastWords
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true,
		Credential: &syscall.Credential{Uid: uint32(r.spec.Owner[0]), Gid: uint32(r.spec.Owner[1])}}
	if err := r.agent.start(cmd); err != nil {
		return "", fmt.Errorf("run %s: %w", name, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	r.agent.wait(cmd)
	switch {
	case !stop():
		return "", fmt.Errorf("%s does not end: %w", name, context.Cause(ctx))
	case !cmd.ProcessState.Success():
		return "", &routerd.Failure{Program: name, Said: said.String(), Err: errors.New(cmd.ProcessState.String())}
	}
	return said.String(), nil
}
