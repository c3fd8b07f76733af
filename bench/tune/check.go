package tune

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// Check finds, before anything is brought up or changed, why Apply could not do what is asked for a
// lab of a topology: lists that cannot be read, processors that this machine does not have or that
// the topology gives otherwise, a machine that has no cpusets or is tuned already, labs that are up
// and would run on the processors that are to be isolated. Labs of experiments are left out: those
// that a run before has left are taken down first. It needs no rights.
func Check(s Settings, t *topology.Topology) error {
	if !s.Any() {
		return nil
	}
	all, err := online()
	if err != nil {
		return err
	}
	p, err := s.read(all)
	if err != nil {
		return err
	}
	var errs []error
	if s.Processors() {
		errs = append(errs, p.parts(t))
	}
	if j, err := load(journalFile()); err == nil {
		errs = append(errs, j.inForce())
	}
	if !s.Processors() {
		return errors.Join(errs...)
	}
	groups, err := cgroup.Find()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	v2 := carriesCPUSets(groups.V2)
	if !v2 && groups.CPUSet == "" {
		errs = append(errs, errNoCPUSets)
	}
	labs, err := lab.List()
	return errors.Join(append(errs, err, p.others(labs, v2))...)
}

// others says which labs that are up would run on the processors that are to be isolated. In
// version 2 all labs' groups are one partition, so that all of them would; in version 1 those of
// which nodes were given them by the topology.
func (p *plan) others(labs []lab.State, v2 bool) error {
	if len(p.isolate) == 0 {
		return nil
	}
	var names []string
	for _, l := range labs {
		if !l.Alive() || l.Topology == nil || l.Source == lab.OfExperiment {
			continue
		}
		if v2 || slices.ContainsFunc(l.Topology.Nodes,
			func(n *topology.Node) bool { return len(p.isolate.without(n.Cores)) < len(p.isolate) }) {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("isolate: %s would not be the lab's alone: what runs in %s may use them, too; stop that first",
		p.isolate, strings.Join(names, ", "))
}
