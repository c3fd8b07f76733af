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

// TestEstimate proves that an estimate knows what the Runner does: runs that share a lab bring it
// up once, those that do not each time; what brings up labs by itself needs no other; pings of all
// pairs take longer with more hosts, and labs with more switches.
func TestEstimate(t *testing.T) {
	const ping = "topology: linear,4\nprobes: [ping: {from: h1, to: h2, size: '${size}'}]\nfactors: {size: [64, 128]}\nlab: {datapath: ovs}\n"
	up := UpDown(Lab{Generate: "linear,4", Options: Options{"target": "local", "datapath": "ovs"}})
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
	if a, b := UpDown(Lab{Generate: "line,10", Options: Options{"target": "mininet", "datapath": "ovs"}}), UpDown(Lab{Generate: "line,100", Options: Options{"target": "mininet", "datapath": "ovs"}}); b <= a {
		t.Errorf("10 switches take %s, 100 %s", a, b)
	}
}

// TestDerivedTimeouts proves that a probe without timeout: gets one by how many hosts its topology
// has, whatever other numbers describe it: always as long as it is to take, and no longer than an
// hour where that is enough.
func TestDerivedTimeouts(t *testing.T) {
	of := func(topology, probe string) Probe {
		return mustPlan(t, "topology: '"+topology+"'\nprobes: ["+probe+"]\n").Cells[0].Groups[0][0]
	}
	for _, same := range [][2]string{
		{"waxman,60", "waxman,60,seed=2026"}, {"waxman,60", "waxman,60,0.25,beta=0.125,7"}, {"erdos-renyi,30,0.5", "erdos-renyi,30,0.125,9"},
		{"tree,8", "tree,depth=8,fanout=2"}, {"tree,8", "single,256"}, {"fat-tree,8,4", "single,128"}, {"grid,4,3,every=6", "single,2"},
	} {
		a, b := of(same[0], "ping: {all: true}"), of(same[1], "ping: {all: true}")
		if a.Timeout != b.Timeout || a.Estimate != b.Estimate {
			t.Errorf("%s takes %s of %s, %s takes %s of %s", same[0], a.Estimate, a.Timeout, same[1], b.Estimate, b.Timeout)
		}
	}
	const all, long = "ping: {all: true, count: 2, interval: 10ms}", "ping: {from: h1, to: h2, interval: 1s, count: "
	for _, c := range []struct {
		topology, probe string
		want            time.Duration
	}{
		{"single,2", all, 10 * time.Minute},
		{"fat-tree,8,4", all, 10 * time.Minute},
		{"linear,2", "ping: {from: h1, to: h2, count: 1}", 30*time.Second + 10*time.Millisecond},
		{"linear,2", long + "3001}", time.Hour},
		{"linear,2", long + "7201}", 2*time.Hour + 30*time.Second + 5*time.Millisecond},
	} {
		if p := of(c.topology, c.probe); p.Timeout != c.want {
			t.Errorf("%s, %s: given up after %s, not %s", c.topology, c.probe, p.Timeout, c.want)
		}
	}
	if p := of("single,900000", all); p.Estimate <= time.Hour || p.Timeout < p.Estimate {
		t.Errorf("900,000 hosts: %s, %s", p.Estimate, p.Timeout)
	}
}

// TestFit proves of any budget that the repetitions are the most that fit into it, and that one
// which has no time for a repetition of each cell is refused, with the time that it takes.
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

// Proves of an experiment that goes on until it is decided that a budget too small for that is an
// error which says so, at one repetition and at a few, and that a larger one lowers the most.
func TestFitUntil(t *testing.T) {
	const text = "topology: linear,2\nprobes: [ping: {from: h1, to: h2}]\nrepetitions: 30\n" +
		"paper: {trends: [{metric: rtt, is: below, than: 1, unit: s}]}\n"
	until := func() *Experiment {
		e := *mustPlan(t, text).Experiment
		e.GoOn(0)
		return &e
	}
	p, _ := mustPlan(t, text).Experiment.Plan()
	each := p.Estimate / 30
	for budget, want := range map[time.Duration]string{each / 3: "takes about", 3 * each: "nothing is decided by fewer than 5"} {
		e := until()
		if err := e.Fit(budget); err == nil || !strings.Contains(err.Error(), want) || !e.Until || e.Repetitions != 30 {
			t.Errorf("%v: %v (%d repetitions), want %q", budget, err, e.Repetitions, want)
		}
	}
	e := until()
	if err := e.Fit(12 * each); err != nil || !e.Until || e.Repetitions < 5 || e.Repetitions > 20 {
		t.Errorf("%d repetitions: %v", e.Repetitions, err)
	}
}

func planOf(e *Experiment) (*Plan, error) {
	p, problems := e.Plan()
	return p, problems.Err()
}
