package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/topology"
)

// program is a foreign controller that the lab runs. It is in a cgroup of the lab, through which
// down finds it even if this daemon has died.
type program struct {
	*foreign.Controller
	dir   string // its own; its log is next to it
	port  int    // on 127.0.0.1 of the switches' namespace
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended

	unwanted atomic.Bool // it is being ended by us
}

// startPrograms starts the foreign controllers that a topology names and that are not running yet,
// and gives those that are running the topology. It returns once all are listening, and says
// whether it started any.
func (d *daemon) startPrograms(ctx context.Context, t *topology.Topology) (started bool, err error) {
	if err := d.startCluster(ctx, t); err != nil {
		return false, err
	}
	for _, c := range foreign.Of(t) {
		p := d.programs[c.Name]
		if p == nil {
			p = &program{Controller: c, dir: filepath.Join(Dir(d.state().Name), "controllers", c.Name)}
		}
		if p.alive() {
			if err := p.reload(t); err != nil {
				return started, err
			}
			continue
		}
		d.progress.stage("controller "+c.Name, 0, 0)
		if err := d.startProgram(p, t); err != nil {
			return started, fmt.Errorf("start %s: %w", c.Name, err)
		}
		started = true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(d.state().Wait))
	defer cancel()
	for _, p := range d.programs {
		if err := p.waitListening(ctx); err != nil {
			return started, err
		}
	}
	return started, nil
}

// reloadPrograms gives the running foreign controllers a topology.
func (d *daemon) reloadPrograms(t *topology.Topology) error {
	var errs []error
	for _, p := range d.programs {
		if p.alive() {
			errs = append(errs, p.reload(t))
		}
	}
	return errors.Join(errs...)
}

func (d *daemon) startProgram(p *program, t *topology.Topology) (err error) {
	places := foreign.PlacesOf(d.state().Owner)
	found, err := p.Find(places)
	if err != nil {
		return err
	}
	if p.port == 0 {
		if p.port, err = d.target().FreePort(); err != nil {
			return err
		}
	}
	if err := errors.Join(os.MkdirAll(p.dir, 0o755), p.Write(p.dir, t)); err != nil {
		return err
	}
	// Before the program runs: see findPrograms.
	if err := os.WriteFile(p.portFile(), []byte(strconv.Itoa(p.port)), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = p.Command(places, found, p.dir, p.port, p.SwitchesOf(t))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := d.target().StartProgram(p.Name, p.cmd); err != nil {
		return err
	}
	d.addProgram(p)
	return nil
}

// addProgram registers a running controller.
func (d *daemon) addProgram(p *program) {
	p.ended = make(chan struct{})
	go d.watchProgram(p, p.cmd, p.ended)
	d.programs[p.Name] = p
	d.target().Listens(p.Name, fmt.Sprintf("tcp:127.0.0.1:%d", p.port))
}

// findPrograms finds the foreign controllers that an earlier daemon started and that still run.
func (d *daemon) findPrograms(t *topology.Topology) {
	for _, c := range foreign.Of(t) {
		p := &program{Controller: c, dir: filepath.Join(Dir(d.state().Name), "controllers", c.Name)}
		b, _ := os.ReadFile(p.portFile())
		port, err := strconv.Atoi(string(b))
		if err != nil {
			continue // the daemon died before it started this one
		}
		p.port = port
		for _, pid := range d.target().ProgramProcesses(c.Name) {
			if session, err := unix.Getsid(pid); err != nil || session != pid {
				continue // a child of the controller
			}
			if p.cmd, err = process.Command(pid); err == nil {
				d.addProgram(p)
				break
			}
		}
	}
}

func (p *program) portFile() string { return p.dir + ".port" }

// ControllerPort returns the TCP port on which a controller that a lab runs listens, in the
// namespace of the switches. It is known before the controller starts.
func ControllerPort(name, controller string) (uint16, error) {
	b, err := os.ReadFile(filepath.Join(Dir(name), "controllers", controller+".port"))
	if err != nil {
		return 0, err
	}
	port, err := strconv.ParseUint(string(b), 10, 16)
	return uint16(port), err
}

// watchProgram reports a controller that ends while the lab is up.
func (d *daemon) watchProgram(p *program, cmd *exec.Cmd, ended chan struct{}) {
	how := process.Wait(cmd)
	close(ended)
	if d.ctx.Err() == nil && !p.unwanted.Load() {
		d.ended(fmt.Sprintf("the controller %s has ended%s", p.Name, how))
	}
}

// endPrograms ends the controllers that a topology no longer has.
func (d *daemon) endPrograms(t *topology.Topology) error {
	var errs []error
	for name, p := range d.programs {
		if len(p.SwitchesOf(t)) > 0 && t.IsControllerProgram(name) {
			continue
		}
		p.unwanted.Store(true)
		delete(d.programs, name)
		errs = append(errs, d.target().EndProgram(name), os.RemoveAll(p.dir))
	}
	return errors.Join(errs...)
}

// waitForeign waits until every switch is connected to its foreign controller, and until the
// foreign controllers that the lab runs have set up each switch so that its packets are forwarded.
func (d *daemon) waitForeign(ctx context.Context, t *topology.Topology) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(d.state().Wait))
	defer cancel()
	if err := d.target().WaitControllers(ctx); err != nil {
		return err
	}
	var errs []error
	for _, p := range d.programs {
		var err error
		if greeted := p.Greeted(t); len(greeted) > 0 {
			err = d.target().WaitFlows(ctx, greeted)
		}
		if p.PerPort && err == nil { // the entries of ports are the last it installs
			embedded := slices.DeleteFunc(p.Greeted(t),
				func(n *topology.Node) bool { return n.Datapath != topology.Embedded })
			err = d.target().WaitPorts(ctx, embedded, t.Links)
		}
		if p.Says != nil {
			err = p.waitLog(ctx, p.SwitchesOf(t))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// followForeign waits until the foreign controllers that the lab runs have followed a change of
// links, if they handle ports at all.
func (d *daemon) followForeign(links []*topology.Link) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	ctx, cancel := context.WithTimeout(d.ctx, time.Duration(d.state().Wait))
	defer cancel()
	for _, p := range d.programs {
		if !p.PerPort || !p.alive() || d.state().Wait == 0 {
			continue
		}
		if err := d.target().WaitPorts(ctx, p.SwitchesOf(d.target().Topology()), links); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// waitLog waits until the controller's log mentions each of the switches.
func (p *program) waitLog(ctx context.Context, switches []*topology.Node) error {
	for {
		log, err := os.ReadFile(p.log())
		if err != nil {
			return err
		}
		silent := slices.IndexFunc(switches,
			func(s *topology.Node) bool { return !bytes.Contains(log, []byte(p.Says(s))) })
		if silent < 0 {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("its log does not mention switch %s", switches[silent].Name)
		}
	}
}

func (p *program) log() string { return p.dir + ".log" }

func (p *program) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return p.ended != nil
	}
}

// reload gives a running controller another topology, if it reads one.
func (p *program) reload(t *topology.Topology) error {
	if !p.Reloads {
		return nil
	}
	if err := p.Write(p.dir, t); err != nil {
		return err
	}
	return p.cmd.Process.Signal(unix.SIGHUP)
}

// waitListening waits until switches can connect.
func (p *program) waitListening(ctx context.Context) error {
	// Looking takes processor time, which it needs itself.
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		if p.listens() {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("the controller %s exited immediately; the end of its log:\n%s", p.Name,
				process.LastWords(p.log()))
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("the controller %s is not listening yet; give it more time, such as --wait 30s. The end of its log:\n%s", p.Name, process.LastWords(p.log()))
		}
	}
}

func (p *program) listens() bool { return listening(p.cmd.Process.Pid, p.port) }

// listening looks for a port in the namespace of a process. /proc/<pid>/net/tcp is described in
// proc(5): address and port in hexadecimal; state 0A is LISTEN.
func listening(pid, port int) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/net/tcp", pid))
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) > 3 && words[3] == "0A" && strings.HasSuffix(words[1], fmt.Sprintf(":%04X", port)) {
			return true
		}
	}
	return false
}

// checkLink says why a change of the i-th link would close a loop that a foreign controller cannot
// handle, or give it an MTU with which what is spoken over it does not work, or options that do not
// go together.
func checkLink(t *topology.Topology, i int, c topology.LinkChange) error {
	l := t.Links[i].Clone()
	c.Apply(l)
	if err := l.CheckOptions(); err != nil {
		return err
	}
	if c.MTU != nil {
		if problems := l.CheckMTU(t.Node); problems.Err() != nil {
			return problems.Err()
		}
	}
	if !t.Links[i].Down || len(foreign.Of(t)) == 0 {
		return nil
	}
	after := t.Clone()
	c.Apply(after.Links[i])
	return foreign.Check(after).Err()
}
