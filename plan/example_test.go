package plan_test

import (
	"fmt"

	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// What brings a lab up, what an edit of its file changes in it, and the way back if that fails.
func ExampleMake() {
	file := func(delay string, hosts ...string) *topology.Topology {
		t := &topology.Topology{}
		t.AddNode(topology.Switch, "s1")
		for _, h := range hosts {
			t.AddNode(topology.Host, h)
			l := t.AddLink("s1", h)
			if err := l.Delay.UnmarshalText([]byte(delay)); err != nil {
				panic(err)
			}
		}
		resolved, problems := topology.Resolve(t, topology.Defaults{Datapath: topology.Bridge, Controller: topology.ControllerNone})
		if err := problems.Err(); err != nil {
			panic(err)
		}
		return resolved
	}
	show := func(s plan.Steps) {
		fmt.Printf("drop %d, add %d, set %d nodes; drop %d, add %d, set %d links\n",
			len(s.DropNodes), len(s.AddNodes), len(s.SetNodes), len(s.DropLinks), len(s.AddLinks), len(s.SetLinks))
	}
	same := func(_, _ *topology.Link) bool { return true } // every link is made as it was, of the same devices

	never := func(*topology.Node) bool { return false } // no node has ended by itself

	first, edited := file("1ms", "h1", "h2"), file("5ms", "h1", "h2", "h3")
	show(plan.Make(&topology.Topology{}, first, same, never))
	change := plan.Make(first, edited, same, never)
	show(change)
	show(change.Undone(first)) // once what the change has made is gone
	// Output:
	// drop 0, add 3, set 0 nodes; drop 0, add 2, set 0 links
	// drop 0, add 1, set 0 nodes; drop 0, add 1, set 2 links
	// drop 0, add 0, set 0 nodes; drop 0, add 0, set 2 links
}
