package ovs

import (
	"fmt"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// slow returns the limit on CPU time for Open vSwitch, if the topology limits a switch (cpu) and
// the limit can be enforced: that is, if one process forwards for that switch and no other.
// Otherwise why says why it cannot.
func (f *fabric) slow() (limit topology.CPU, why string) {
	var all int
	var limited []*topology.Node
	for _, n := range f.site.Topology().Nodes {
		if !is(n) {
			continue
		}
		if all++; n.CPU != (topology.CPU{}) {
			limited = append(limited, n)
		}
	}
	switch {
	case len(limited) == 0:
		return topology.CPU{}, ""
	case f.switches.Load() != nil && f.switches.Load().Datapath() == System:
		why = "Open vSwitch forwards in the kernel here"
	case all > 1:
		why = fmt.Sprintf("the %d switches of Open vSwitch here are one process", all)
	default:
		return limited[0].CPU, ""
	}
	names := lists.Map(limited, func(n *topology.Node) string { return n.Name })
	return topology.CPU{}, fmt.Sprintf("cpu of %s limits the programs that run there, not its forwarding: %s",
		strings.Join(names, ", "), why)
}

// slowDown limits Open vSwitch as its switch is limited.
func (f *fabric) slowDown() error {
	limit, _ := f.slow()
	if limit == f.limit {
		return nil
	}
	if err := f.site.Limit(group, limit); err != nil {
		return err
	}
	f.limit = limit
	return nil
}

// Remark says which limits of switches cannot be enforced.
func (f *fabric) Remark() string {
	_, why := f.slow()
	return why
}
