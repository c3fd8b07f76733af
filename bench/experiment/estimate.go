package experiment

import (
	"fmt"
	"sort"
	"time"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
)

// aroundGroup is the time of a group besides its probes: for the watch, and writing.
const aroundGroup = 50 * time.Millisecond

// estimate estimates the duration of each run, and of all: its probes, and bringing a lab up and
// down if it cannot use that of the run before (see Runner.run).
func (p *Plan) estimate() {
	p.Estimate = 0
	lab := ""
	kept := make([][][]Probe, len(p.Cells))
	for i := range p.Cells {
		kept[i] = p.kept(&p.Cells[i])
	}
	for i := range p.Runs {
		cell := &p.Cells[p.Runs[i].Cell]
		each, groups := time.Duration(0), kept[p.Runs[i].Cell]
		for _, group := range groups {
			longest := time.Duration(0)
			for _, probe := range group {
				longest = max(longest, probe.Estimate)
			}
			each += time.Duration(p.WarmUp+1) * (longest + aroundGroup)
		}
		if key := cell.Lab.Key(); !cell.Bare && len(groups) > 0 && (key != lab || p.Experiment.Fresh) {
			each += p.Experiment.vocabulary.upDown(&cell.Lab)
			lab = key
		}
		if len(cell.Schedule) > 0 {
			lab = "" // something happened to it
		}
		p.Runs[i].Estimate = each
		p.Estimate += each
	}
}

// Fit lowers the repetitions to the maximum whose estimate is within the budget. If one repetition
// of each cell takes longer, it returns an error that says how long.
func (e *Experiment) Fit(budget time.Duration) error {
	written, until := e.Repetitions, e.Until
	e.Until = false // few repetitions, which would decide nothing
	defer func() { e.Until = until }()
	estimate := func(repetitions int) time.Duration {
		e.Repetitions = repetitions
		p, problems := e.Plan()
		if problems.Err() != nil {
			return 0 // the caller's own Plan reports it
		}
		return p.Estimate
	}
	if least := estimate(1); least > budget {
		e.Repetitions = written
		return fmt.Errorf("one repetition of each cell takes about %s, but the budget is %s; give it more time, or fewer levels", About(least), About(budget))
	}
	e.Repetitions = sort.Search(written-1, func(more int) bool { return estimate(more+2) > budget }) + 1
	if until && e.Repetitions < leastMost {
		fit := e.Repetitions
		e.Repetitions = written
		return fmt.Errorf("in %s there is time for %s, and nothing is decided by fewer than %d; give it more time, or fewer levels",
			About(budget), words.Plural(fit, "repetition"), leastMost)
	}
	return nil
}

func (v *Vocabulary) upDown(l *Lab) time.Duration {
	if v.Up == nil {
		return 0
	}
	return v.Up(*l)
}

// labCost is the time to bring a lab up and down: a constant, and a time for each switch or router.
// The values only have to distinguish minutes from hours; they were measured on two processors with
// other work.
type labCost struct{ lab, each time.Duration }

// labCosts are by target and datapath.
var labCosts = map[string]labCost{
	"local embedded": {400 * time.Millisecond, 4 * time.Millisecond},
	"local ovs":      {500 * time.Millisecond, 6 * time.Millisecond},
	"local bridge":   {100 * time.Millisecond, 20 * time.Millisecond},
	"local kernel":   {100 * time.Millisecond, 20 * time.Millisecond},
	"local frr":      {300 * time.Millisecond, 50 * time.Millisecond},
	"mininet ovs":    {1500 * time.Millisecond, 200 * time.Millisecond},
	"mininet bridge": {time.Second, 120 * time.Millisecond},
}

// controllerCosts are the additional times for starting foreign controllers.
var controllerCosts = map[string]time.Duration{"os-ken": 600 * time.Millisecond, "pox": 400 * time.Millisecond,
	"faucet": 2 * time.Second, "floodlight": 2 * time.Second, "ovs-testcontroller": 200 * time.Millisecond}

// usualNodes is the assumed number of nodes of a topology in a file, which a plan does not read.
const usualNodes = 20

// UpDown estimates how long a lab takes to come up and go down.
func UpDown(l Lab) time.Duration {
	c, known := labCosts[l.Options["target"]+" "+l.Options["datapath"]]
	if !known {
		c = labCost{time.Second, 20 * time.Millisecond}
	}
	hosts, switches := l.Size()
	more := max(0, hosts-switches) / 5 // hosts at one switch take less time than switches
	return c.lab + time.Duration(switches+more)*c.each + controllerCosts[l.Options["controller"]] + verifying(l)
}

// VerifyTime is about how long it takes to verify a lab of Trivet's with impaired links before
// measuring in it.
const VerifyTime = 3 * time.Second

// verifying returns that time for a lab; a topology in a file, which a plan does not read, is
// assumed to have impaired links.
func verifying(l Lab) time.Duration {
	if l.Options["target"] != "local" || l.Generate != "" && len(l.Links) == 0 && len(l.Changes) == 0 {
		return 0
	}
	return VerifyTime
}

// Size returns the numbers of a lab's hosts, and of its switches or routers. Plan.Check reports
// errors in a specification.
func (l *Lab) Size() (hosts, others int) {
	if l.Generate != "" {
		if hosts, others, err := topology.Size(l.Generate); err == nil {
			return hosts, others
		}
	}
	return usualNodes, usualNodes
}

// timeout returns the timeout of a probe whose file has none: long enough for a slow machine, and
// short enough for a probe that hangs not to hold up an experiment for long; at most an hour,
// unless the probe is expected to take longer.
func (k *ProbeKind) timeout(o Options, estimate time.Duration) time.Duration {
	least := time.Duration(0)
	if k.Patience != nil {
		least = k.Patience(o)
	}
	return max(least, min(2*estimate, max(estimate, longestTimeout-spareTime))+spareTime)
}

const (
	spareTime      = 30 * time.Second
	longestTimeout = time.Hour
)
