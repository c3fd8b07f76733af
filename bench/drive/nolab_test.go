package drive

import (
	"context"
	"testing"

	"trivet.dev/trivet/bench/experiment"
)

// TestNowhere proves that a cell whose only probe brings up labs by itself is measured without
// another that is up, and says so to whoever asks for one; and, with more ports at a switch of
// Mininet's than fit into a line of a terminal, that Mininet has them all.
func TestNowhere(t *testing.T) {
	t.Parallel()
	for _, lab := range []string{"{datapath: bridge, controller: none}", "{target: mininet, datapath: ovs, controller: none}"} {
		t.Run(lab, func(t *testing.T) {
			t.Parallel()
			if lab != "{datapath: bridge, controller: none}" {
				needs(t, "mn", "ovs-vswitchd")
			}
			i, probes := bring(t, "topology: single,62\nlab: "+lab+"\nprobes: [up_down]\n")
			if _, ok := i.(*instance).lab.(noLab); !ok {
				t.Fatalf("the lab is a %T", i.(*instance).lab)
			}
			if err := i.Do(context.Background(), experiment.Event{Kill: "s1"}); err == nil {
				t.Error("something happens to a lab that is not there")
			}
			if _, v := run(t, i, probes["up_down"]); len(v["up"]) != 1 || v["up"][0] <= 0 || v["down"][0] <= 0 {
				t.Errorf("up_down: %v", v)
			}
		})
	}
}
