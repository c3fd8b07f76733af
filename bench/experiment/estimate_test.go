package experiment

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func estimateOf(t *testing.T, text string) time.Duration {
	t.Helper()
	return mustPlan(t, text).Estimate
}

// TestEstimate proves that an estimate knows what the Runner does: runs that share a lab bring it up once, those that do not each time; what
// brings up labs by itself needs no other; pings of all pairs take longer with more hosts, and labs with more switches.
func TestEstimate(t *testing.T) {
	const ping = "topology: linear,4\nprobes: [ping: {from: h1, to: h2, size: '${size}'}]\nfactors: {size: [64, 128]}\nlab: {datapath: ovs}\n"
	up := upDown(Lab{Generate: "linear,4", Options: Options{"target": "local", "datapath": "ovs"}})
	shared, fresh := estimateOf(t, ping), estimateOf(t, ping+"fresh: true\n")
	if up <= 0 || fresh-shared != up {
		t.Errorf("a shared lab takes %s, a fresh one for each run %s, and a lab %s", shared, fresh, up)
	}
	if happens := estimateOf(t, ping+"schedule: [at 1s: s1 -- s2 down]\n"); happens != fresh {
		t.Errorf("labs to which something happens are each new: %s, not %s", happens, fresh)
	}
	p := mustPlan(t, "topology: linear,4\nprobes: [up_down]\nlab: {datapath: ovs}\n")
	if !p.Cells[0].Bare || p.Estimate != up+aroundGroup {
		t.Errorf("%s for a lab that takes %s", p.Estimate, up)
	}
	if p := mustPlan(t, "topology: linear,4\nprobes: [up_down, ping: {from: h1, to: h2}]\n"); p.Cells[0].Bare {
		t.Error("a ping needs a lab that is up")
	}
	all := func(hosts string) time.Duration {
		return estimateOf(t, "topology: 'single,"+hosts+"'\nprobes: [ping: {all: true, interval: 10ms}]\n")
	}
	if few, many := all("10"), all("100"); many < 50*few/10 {
		t.Errorf("10 hosts take %s, 100 hosts %s", few, many)
	}
	if a, b := upDown(Lab{Generate: "line,10", Options: Options{"target": "mininet", "datapath": "ovs"}}), upDown(Lab{Generate: "line,100", Options: Options{"target": "mininet", "datapath": "ovs"}}); b <= a {
		t.Errorf("10 switches take %s, 100 %s", a, b)
	}
}

// TestFit proves of any budget that the repetitions are the most that fit into it, and that one which has no time for a
// repetition of each cell is refused, with the time that it takes.
func TestFit(t *testing.T) {
	const text = "topology: linear,${n}\nfactors: {n: [2, 3]}\nprobes: [ping: {from: h1, to: h2}]\nrepetitions: 30\n"
	with := func(repetitions int) *Experiment {
		e := *mustPlan(t, text).Experiment
		if repetitions > 0 {
			e.Repetitions = repetitions
		}
		return &e
	}
	estimate := func(e *Experiment) time.Duration {
		p, _ := e.Plan()
		return p.Estimate
	}
	least := estimate(with(1))
	rapid.Check(t, func(t *rapid.T) {
		budget := time.Duration(rapid.Int64Range(int64(least)/2, 40*int64(least)).Draw(t, "budget"))
		e := with(0)
		err := e.Fit(budget)
		switch {
		case budget < least:
			if err == nil || !strings.Contains(err.Error(), "takes about "+About(least)) || e.Repetitions != 30 {
				t.Fatalf("%v, %d repetitions", err, e.Repetitions)
			}
		case err != nil:
			t.Fatal(err)
		case estimate(e) > budget || e.Repetitions < 30 && estimate(with(e.Repetitions+1)) <= budget:
			t.Fatalf("%d repetitions of %s for %s", e.Repetitions, least, budget)
		}
		p, err := planOf(e)
		if e.Repetitions < 30 != strings.Contains(p.Headline(), "of the file's 30 repetitions)") || e.Repetitions < 30 != (p.Describe().Wanted == 30) {
			t.Fatal(p.Headline(), p.Describe().Wanted, err)
		}
	})
}

func planOf(e *Experiment) (*Plan, error) {
	p, problems := e.Plan()
	return p, problems.Err()
}
