// Package tune is what can be done to a machine so that measuring on it disturbs less (the measures
// of paper 3): processors that only the lab may use, processors for its nodes, its datapath and its
// controller, one thread a core, the governor of their frequency, no sleep, no IPv6 on new devices.
// All of it is by cgroups, sysctls and files of sysfs; what was before is written to disk first, so
// that it comes back also where the process that changed it was killed. What keeps processors from
// sleep ends with that process.
package tune

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

// Settings are what is to be changed. Processors are written 1-3,5; what is empty, or none, stays
// as it is.
type Settings struct {
	Lab     string // that is up; needed for Nodes, Datapath and Controller
	Isolate string // processors on which only the lab's processes may run
	Nodes   string // processors for what runs in hosts and routers
	// For Open vSwitch, or for the lab's daemon, whose embedded switches forward what the kernel
	// passes on to them.
	Datapath   string
	Controller string // for the programs that the lab started as controllers, or for the daemon
	SMT        string // on or off: whether the two or more threads of a core are processors
	Governor   string // of the frequency of all processors: performance
	Awake      bool   // processors do not sleep, from which they take time to wake; never Permanent
	// Network devices made from now on in the machine's own namespace have no IPv6: those of
	// Mininet's switches.
	IPv6Off bool

	Permanent bool // it stays when this process ends, until Restore
}

// Any says whether anything is to be changed.
func (s Settings) Any() bool {
	return s.Processors() || given(s.SMT, s.Governor) || s.Awake || s.IPv6Off
}

// Processors says whether processes are to be given processors.
func (s Settings) Processors() bool { return given(s.Isolate, s.Nodes, s.Datapath, s.Controller) }

// given says whether any of some settings is.
func given(settings ...string) bool {
	return slices.ContainsFunc(settings, func(s string) bool { return s != "" && s != none })
}

// Apply changes the machine, and the processes of a lab that is up. restore undoes it: before the
// lab goes down or after. Where Apply fails, nothing stays changed. Only one can be in force.
func Apply(s Settings) (restore func() error, err error) {
	if !s.Any() {
		return func() error { return nil }, nil
	}
	p, err := s.plan()
	if err != nil {
		return nil, err
	}
	if p.groups, err = cgroup.Find(); err != nil {
		return nil, err
	}
	p.mounts = p.groups
	undo, err := p.apply(journalFile(), s.Permanent)
	if err != nil || !s.Awake {
		return undo, err
	}
	end, err := keepAwake(p.all)
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	return func() error { return errors.Join(end(), undo()) }, nil
}

// Restore undoes what a process that has ended, or one with Settings.Permanent, changed. It says
// what that was; nothing where nothing was changed.
func Restore() ([]string, error) {
	j, err := load(journalFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case j.Owner != 0 && process.Started(j.Owner) == j.Started:
		return nil, fmt.Errorf("process %d is measuring on the machine that it has tuned, and will undo that when it ends; stop it to have it undone now", j.Owner)
	}
	return j.What, j.undo()
}

// Recover undoes what a process changed that was killed, and leaves alone what somebody wants to
// stay.
func Recover() error {
	j, err := load(journalFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case j.Owner == 0 && len(j.Changes) > 0 || j.Owner != 0 && process.Started(j.Owner) == j.Started:
		return nil
	}
	return j.undo()
}

func journalFile() string { return filepath.Join(lab.RunDir(), "tuned.json") }

// plan is Settings with everything looked up.
type plan struct {
	groups  cgroup.Hierarchies // where labs have their cgroups
	mounts  cgroup.Hierarchies // where the same hierarchies are mounted
	isolate CPUs
	all     CPUs // processors that run
	lab     string
	pins    map[part]CPUs
	nodes   []string        // cgroups of the lab's nodes
	cores   map[string]CPUs // of nodes to which the topology gives processors
	daemon  int             // process, if it is to be pinned
	serves  []part          // what the daemon is
	machine hardware
	awake   bool
	ipv6Off bool
}

// part of a lab.
type part string

const (
	nodes      part = "nodes"
	datapath   part = "datapath"
	controller part = "controller"
)

func (s Settings) plan() (*plan, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("tuning changes the machine and needs root; run it with sudo")
	}
	all, err := online()
	if err != nil {
		return nil, err
	}
	p, err := s.read(all)
	if err != nil {
		return nil, err
	}
	if s.Lab == "" || !s.Processors() {
		if len(p.pins) > 0 {
			return nil, errors.New("a lab must be up for its nodes, datapath and controller to be pinned; name it with --lab")
		}
		return p, nil
	}
	return p, p.meet()
}

// read reads the lists of processors, of those of the machine.
func (s Settings) read(all CPUs) (*plan, error) {
	p := &plan{lab: s.Lab, all: all, pins: map[part]CPUs{}, cores: map[string]CPUs{}, awake: s.Awake,
		ipv6Off: s.IPv6Off}
	var err error
	if p.machine, err = readHardware(s); err != nil {
		return nil, err
	}
	p.all = p.machine.left(p.all)
	if p.isolate, err = p.cpus("isolate", s.Isolate, p.all); err != nil {
		return nil, err
	}
	if len(p.isolate) > 0 && len(p.isolate) >= len(p.all) {
		return nil, lack.New(fmt.Sprintf("isolate: %s are all the processors there are", p.isolate), "; ",
			"leave one to the rest of the machine")
	}
	if s.Awake && s.Permanent {
		return nil, errors.New("processors are kept awake only for as long as a process asks for it")
	}
	if s.Awake && len(p.isolate) > 0 && AwakeBy() == environment.ByLoops {
		return nil, lack.New("awake: this machine has no sleep states that a program could forbid, "+
			"and loops would not be let onto isolated processors", "; ", "leave isolate out")
	}
	within := p.all
	if len(p.isolate) > 0 {
		within = p.isolate
	}
	for which, text := range map[part]string{nodes: s.Nodes, datapath: s.Datapath, controller: s.Controller} {
		c, wrong := p.cpus("pin "+string(which), text, within)
		if len(c) > 0 {
			p.pins[which] = c
		}
		err = errors.Join(err, wrong)
	}
	return p, err
}

// cpus reads a list and checks that all of it is there.
func (p *plan) cpus(what, text string, within CPUs) (CPUs, error) {
	c, err := ParseCPUs(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if lacking := c.without(within); len(lacking) > 0 {
		if len(within) < len(p.all) && len(c.without(p.all)) == 0 {
			return nil, fmt.Errorf("%s: processor %s is not among the isolated ones, %s", what, lacking, within)
		}
		return nil, lack.New(fmt.Sprintf("%s: processor %s is not among those of this machine, %s", what,
			c.without(p.all), p.all), "", "")
	}
	return c, nil
}

// meet looks up what the lab is made of.
func (p *plan) meet() error {
	s, err := lab.Load(p.lab)
	if err != nil {
		return err
	}
	if s.Status != lab.Up || s.Topology == nil {
		return fmt.Errorf("lab %s is %s, but only one that is up can be pinned", p.lab, s.Status)
	}
	p.daemon = s.PID
	return p.parts(s.Topology)
}

// parts notes what of a topology can be given processors. It fails where the topology's own wishes
// cannot be met with them.
func (p *plan) parts(t *topology.Topology) error {
	var errs []error
	for _, n := range t.Nodes {
		if n.Made().Own {
			p.nodes = append(p.nodes, n.Name)
			errs = append(errs, p.own(n))
		}
		if !n.IsDatapath() {
			continue
		}
		if n.Datapath == topology.Embedded && !slices.Contains(p.serves, datapath) {
			p.serves = append(p.serves, datapath)
		}
		if slices.Contains(n.Controllers, topology.ControllerTrivet) && !slices.Contains(p.serves, controller) {
			p.serves = append(p.serves, controller)
		}
	}
	if d, c := p.pins[datapath], p.pins[controller]; len(p.serves) == 2 && len(d) > 0 && len(c) > 0 &&
		!slices.Equal(d, c) {
		errs = append(errs,
			fmt.Errorf("pin datapath to %s and controller to %s: both are the lab's daemon, one process; give them the same processors, or take datapath: ovs or another controller", d, c))
	}
	return errors.Join(errs...)
}

// own notes the processors that the topology gives a node: it keeps them.
func (p *plan) own(n *topology.Node) error {
	if len(n.Cores) == 0 {
		return nil
	}
	p.cores[n.Name] = CPUs(nil).with(n.Cores)
	if lacking := p.cores[n.Name].without(p.of(nodes)); len(lacking) > 0 {
		return fmt.Errorf("%s: the topology gives it processors %s, and the lab's nodes are to run on %s only: change its cores, isolate or pin_nodes", n.Name, p.cores[n.Name], p.of(nodes))
	}
	return nil
}

// of is where a part may run.
func (p *plan) of(which part) CPUs {
	if c := p.pins[which]; len(c) > 0 {
		return c
	}
	if len(p.isolate) > 0 {
		return p.isolate
	}
	return p.all
}

// ofDaemon is where the daemon may run, which may be datapath and controller in one. Of these, one
// that is pinned is pinned with the other. One that is neither goes with the nodes.
func (p *plan) ofDaemon() CPUs {
	for _, which := range p.serves {
		if c := p.pins[which]; len(c) > 0 {
			return c
		}
	}
	if len(p.serves) > 0 {
		return p.of("")
	}
	return p.pins[nodes] // it sends nodes' echoes
}

// what is changed, for people.
func (p *plan) what() (out []string) {
	if len(p.isolate) > 0 {
		out = append(out, fmt.Sprintf("processors %s isolated", p.isolate))
	}
	for _, which := range []part{nodes, datapath, controller} {
		if c := p.pins[which]; len(c) > 0 {
			out = append(out, fmt.Sprintf("%s of lab %s on processors %s", which, p.lab, c))
		}
	}
	out = append(out, p.machine.what()...)
	if p.awake {
		out = append(out, "processors kept awake")
	}
	if p.ipv6Off {
		out = append(out, "no IPv6 on new devices")
	}
	return out
}
