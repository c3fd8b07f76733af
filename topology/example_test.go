package topology_test

import (
	"fmt"

	"trivet.dev/trivet/topology"
)

// A topology says what its author cares about. Resolve fills in the rest, always in the same way,
// and reports what is wrong.
func ExampleResolve() {
	t := &topology.Topology{}
	t.AddNode(topology.Router, "r1")
	t.AddNode(topology.Host, "h1")
	t.AddNode(topology.Host, "h2")
	t.AddLink("h1", "r1")
	t.AddLink("h2", "r1")
	resolved, problems := topology.Resolve(t, topology.Defaults{Datapath: topology.Kernel, Controller: topology.ControllerNone})
	fmt.Println(problems.Err())
	for _, l := range resolved.Links {
		for _, e := range l.Ends {
			fmt.Println(e.Interface, e.Addresses)
		}
	}

	t.AddLink("h2", "r7")
	_, problems = topology.Resolve(t, topology.Defaults{})
	fmt.Println(problems.Err())
	// Output:
	// <nil>
	// h1-eth0 [10.0.1.2/24]
	// r1-eth0 [10.0.1.1/24]
	// h2-eth0 [10.0.2.2/24]
	// r1-eth1 [10.0.2.1/24]
	// link h2 -- r7: there is no node r7; did you mean r1?
}
