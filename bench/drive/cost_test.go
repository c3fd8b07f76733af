package drive

import (
	"encoding/json"
	"math"
	"runtime"
	"strings"
	"testing"

	"trivet.dev/trivet/measure/environment"
)

// TestCost proves on a lab that what a packet costs is what there can be: more than nothing, and of
// all packets no more than the processors had; that it counts those that arrived; and that a packet
// over twelve routers costs more than one over none. Others may use this machine meanwhile, which
// costs as well: so of each the least of several counts, and what a machine without any time to
// spare says does not count.
func TestCost(t *testing.T) {
	i, probes := bring(t, `
topology:
  nodes: {'h[1-3]': host, 'r[1-12]': router}
  links: [h1 -- h2, h1 -- r1 -- r2 -- r3 -- r4 -- r5 -- r6 -- r7 -- r8 -- r9 -- r10 -- r11 -- r12 -- h3]
lab: {datapath: kernel, controller: none}
probes:
  - cost: {name: near, from: h1, to: h2, time: 1s, rate: 50000, size: 18}
  - cost: {name: far, from: h1, to: h3, time: 1s, rate: 50000, size: 18}
`)
	least := map[string]float64{}
	for try := 0; try < 8 && (try < 2 || least["far"] <= least["near"]); try++ {
		for name, to := range map[string]string{"near": "h2", "far": "h3"} {
			o, v := run(t, i, probes[name])
			cost, received, share := v["cost h1 "+to][0], v["received h1 "+to][0], v["busy h1 "+to][0]
			var details struct{ Processors environment.Spent }
			if err := json.Unmarshal(o.Details, &details); err != nil {
				t.Fatal(err)
			}
			spent := details.Processors
			if received <= 0 || received > 50_000 || cost < 50e-9 || math.Abs(cost*received-spent.Busy) > 1e-9 || spent.Share() != share {
				t.Errorf("%s: %v of %+v", name, v, spent)
			}
			if spent.Busy > spent.Seconds*float64(runtime.NumCPU())+1e-9 || spent.Seconds < 0.9 {
				t.Errorf("%s: processors cannot have done that: %+v", name, spent)
			}
			if found := share > costBusy[0]; found != strings.Contains(reasonsOf(o.Reasons), "% busy: what a packet costs") {
				t.Errorf("%s: the machine was %v busy: %v", name, share, o.Reasons)
			}
			if now := least[name]; share < costBusy[0] && (now == 0 || cost < now) {
				least[name] = cost
			}
		}
	}
	t.Logf("a packet costs %v s", least)
	switch {
	case least["near"] == 0 || least["far"] == 0:
		t.Skip("the machine was busy with something else all the time")
	case least["far"] <= least["near"]:
		t.Errorf("over twelve routers a packet costs no more than over none: %v", least)
	}
}

func reasonsOf(all []environment.Reason) string {
	var texts []string
	for _, r := range all {
		texts = append(texts, r.Code+": "+r.Text)
	}
	return strings.Join(texts, "\n")
}

// TestDear proves what speaks against a cost: a machine without time to spare, others at the same
// time, and so little of it that the kernel's steps tell.
func TestDear(t *testing.T) {
	for _, c := range []struct {
		spent environment.Spent
		alone bool
		level environment.Level
		texts []string
	}{
		{environment.Spent{Seconds: 10, Processors: 2, Busy: 8}, true, environment.Good, nil},
		{environment.Spent{Seconds: 10, Processors: 2, Busy: 12.4}, true, environment.Doubtful, []string{"62 % busy", "at most 60 %"}},
		{environment.Spent{Seconds: 10, Processors: 2, Busy: 18.4}, true, environment.Bad, []string{"92 % busy"}},
		{environment.Spent{Seconds: 10, Processors: 2, Busy: 8}, false, environment.Bad, []string{"at the same time"}},
		{environment.Spent{Seconds: 1, Processors: 2, Busy: 0.3}, true, environment.Doubtful, []string{"steps of 10 ms", "0.3 s"}},
		{environment.Spent{Seconds: 1, Processors: 2}, true, environment.Doubtful, []string{"steps of 10 ms"}},
	} {
		got := dear(c.spent, c.alone)
		level := environment.Good
		for _, r := range got {
			if level = environment.Worst(environment.Verdict{Level: level}, environment.Verdict{Level: r.Level}).Level; r.Code != "cost" {
				t.Errorf("%+v", r)
			}
		}
		if level != c.level || len(got) > 0 != (len(c.texts) > 0) {
			t.Errorf("%+v: %v, want %s", c.spent, got, c.level)
		}
		for _, text := range c.texts {
			if !strings.Contains(reasonsOf(got), text) {
				t.Errorf("%+v: %v", c.spent, got)
			}
		}
	}
}
