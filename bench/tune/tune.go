// Package tune changes a machine so that measurements on it are disturbed less (the measures of
// paper 3): processors that only the lab may use, processors for its nodes, its datapath and its
// controller, one thread per core, the frequency governor, no sleep states, no IPv6 on new devices.
// It uses cgroups, sysctls and sysfs; the former state is written to disk first, so that it can be
// restored even if the process that changed it was killed. Keeping processors from sleeping ends
// with that process.
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

// Settings say what to change. Processors are written 1-3,5; what is empty, or none, stays as it
// is.
type Settings struct {
	Lab     string // which is up; needed for Nodes, Datapath and Controller
	Isolate string // processors on which only the lab's processes may run
	Nodes   string // processors for programs in hosts and routers
	// For Open vSwitch, or for the lab's daemon, whose embedded switches forward the packets that
	// the kernel passes to them.
	Datapath   string
	Controller string // for the programs that the lab started as controllers, or for the daemon
	SMT        string // on or off: whether all threads of a core are used
	Governor   string // of all processors' frequency: performance
	Awake      bool   // keep processors from sleep states, which take time to leave; never Permanent
	// No IPv6 on network devices made from now on in the machine's own namespace: those of
	// Mininet's switches.
	IPv6Off bool

	Permanent bool // it stays when this process ends, until Restore
}

// Any says whether there is anything to change.
func (s Settings) Any() bool {
	return s.Processors() || given(s.SMT, s.Governor) || s.Awake || s.IPv6Off
}

// Processors says whether processes get processors assigned.
func (s Settings) Processors() bool { return given(s.Isolate, s.Nodes, s.Datapath, s.Controller) }

// given says whether any of the settings is set.
func given(settings ...string) bool {
	return slices.ContainsFunc(settings, func(s string) bool { return s != "" && s != none })
}

// Apply changes the machine, and the processes of a lab that is up. restore undoes it, before the
// lab goes down or after. If Apply fails, nothing stays changed. Only one set of changes can be in
// force.
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

// Restore undoes the changes of a process that has ended, or that has set Permanent. It returns a
// description of them; none if nothing was changed.
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

// Recover undoes the changes of a process that was killed, except permanent ones.
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

// plan is Settings with everything resolved.
type plan struct {
	groups  cgroup.Hierarchies // where labs have their cgroups
	mounts  cgroup.Hierarchies // where the same hierarchies are mounted
	isolate CPUs
	all     CPUs // online
	lab     string
	pins    map[part]CPUs
	nodes   []string        // cgroups of the lab's nodes
	cores   map[string]CPUs // of nodes to which the topology assigns processors
	daemon  int             // process, if it is to be pinned
	serves  []part          // the parts that the daemon is
	machine hardware
	awake   bool
	ipv6Off bool
}

// part is a part of a lab.
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

// read parses the lists of processors and checks them against the machine's.
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

// cpus parses a list and checks that all its processors exist.
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

// meet looks up the processes and cgroups of the lab.
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

// parts records which parts of a topology can be given processors. It fails if the settings are
// incompatible with the topology's own.
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

// own records the processors that the topology assigns to a node, which keeps them.
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

// of returns where a part may run.
func (p *plan) of(which part) CPUs {
	if c := p.pins[which]; len(c) > 0 {
		return c
	}
	if len(p.isolate) > 0 {
		return p.isolate
	}
	return p.all
}

// ofDaemon returns where the daemon may run, which may be both datapath and controller. If one of
// these is pinned, the other is pinned with it. A daemon that is neither runs with the nodes.
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

// what describes the changes for users.
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
