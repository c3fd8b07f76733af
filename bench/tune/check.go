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
// lab of a topology: invalid lists, processors that this machine does not have or that the topology
// assigns otherwise, a machine without cpusets or that is tuned already, labs that are up and would
// run on the processors to be isolated. Labs of experiments are ignored: those that an earlier run
// has left are taken down first. It needs no privileges.
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

// others reports labs that are up and would run on the processors to be isolated: in version 2 all
// labs, as their groups are one partition; in version 1 those whose topology assigns these
// processors to nodes.
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
