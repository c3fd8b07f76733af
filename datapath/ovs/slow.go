package ovs

import (
	"fmt"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// slow is how much of the processors Open vSwitch may take, where the topology limits that of a
// switch (cpu) and the limit can hold: where one process forwards for that switch and no other.
// Where it cannot hold, why says so.
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
	names := lists.Of(limited, func(n *topology.Node) string { return n.Name })
	return topology.CPU{}, fmt.Sprintf("cpu of %s limits the programs that run there, not its forwarding: %s",
		strings.Join(names, ", "), why)
}

// slowDown gives Open vSwitch the limit of its switch.
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

// Remark says which limits of switches do not hold.
func (f *fabric) Remark() string {
	_, why := f.slow()
	return why
}
