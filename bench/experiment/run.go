package experiment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/measure/environment"
)

// Driver brings labs up. It hides from a Runner where they run.
type Driver interface {
	// Prepare makes what the lab of a cell needs and shares with other labs, such as machines of a
	// cloud, unless it exists. If something cannot be made, it does not try again: each cell that
	// needs it then fails.
	Prepare(ctx context.Context, cell *Cell) error
	// Up brings up the lab of a cell; if that fails, it leaves nothing behind.
	Up(ctx context.Context, cell *Cell) (Instance, error)
	// Release removes everything that Prepare has made. No lab is up then.
	Release(ctx context.Context) error
}

// Instance is a lab that is up.
type Instance interface {
	// Run runs a probe until it ends or ctx does. It returns what has been measured by then, also
	// with an error. The times of the cell's schedule count from began. A probe that observes
	// others calls looking when it is ready; the others wait for that.
	Run(ctx context.Context, p Probe, began time.Time, looking func()) (Measured, error)
	// Do executes an event.
	Do(ctx context.Context, e Event) error
	// Watch says what to watch besides the machine.
	Watch() environment.WatchOptions
	// Down takes the lab down.
	Down(ctx context.Context) error
}

// Measured is the result of a probe.
type Measured struct {
	Measurements []result.Measurement
	Events       []result.Event // that the probe itself has caused
	Links        []environment.LinkCheck
	Drops        []environment.Drops
	Reasons      []environment.Reason // further reasons to doubt the figures
	Details      json.RawMessage
}

// Runner executes a plan, and writes the results.
type Runner struct {
	Plan   *Plan
	Driver Driver
	Writer *result.Writer
	Before *result.Run // the result of an earlier run; nil: none

	// Judge judges the statements of an experiment that continues until it is decided, after a
	// number of repetitions of all cells.
	Judge func(repetitions int) (result.Look, error)

	Again     bool // measure once more what failed before
	AgainBad  bool // also samples whose verdict is bad
	Unwatched bool // do not watch the machine; all verdicts will be doubtful
	Limits    environment.Limits
	Progress  func(Progress)                   // called for each step; may be nil
	Say       func(format string, args ...any) // called for problems besides the samples; may be nil

	Grace       time.Duration // how long a probe may take to end after its timeout; 0 is 10 s
	UpTimeout   time.Duration // 0 is 5 min
	DownTimeout time.Duration // 0 is 2 min

	campaign campaign
	before   map[probeRun]bool // measured before; true: to be measured again
	instance Instance
	lab      string // of the current instance
	began    time.Time
	prepared time.Duration // time of Prepare in the current run
	took     time.Duration // time of the runs so far, without Prepare
	expected time.Duration // estimated time of the same
	summary  Summary
	looked   int  // after how many repetitions it was last judged
	ended    bool // it is decided, or there are no more repetitions

	unwritten bool  // the last result could not be written
	lost      error // why results can no longer be written
}

// probeRun is a probe in a run.
type probeRun struct {
	run   int
	probe string
}

// Progress is the progress of a Runner.
type Progress struct {
	Run     Run
	Cell    *Cell
	Done    int    // runs, including those of before
	Runs    int    // in all
	Step    string // "up", "warm-up", "rtt+throughput", "down", "done"
	Elapsed time.Duration
	Left    time.Duration // estimate, corrected by how long runs took so far
}

// Summary says how much of a plan was run.
type Summary struct {
	Runs   int `json:"runs"`   // in the plan, without those that are left out
	Before int `json:"before"` // measured earlier, and not again
	Done   int `json:"done"`   // now, including those that failed
	Failed int `json:"failed"` // of Done, those in which something failed
	Left   int `json:"left"`   // not run, as the budget was used up or the run interrupted
}

// ErrBudget says that the time budget was used up before all was run.
var ErrBudget = errors.New("the time budget is used up; resume to continue")

// Start opens the result file of a plan: a new one, or one to resume, which must be of the same
// plan.
func Start(path string, p *Plan, resume bool, command []string,
	env environment.Record) (*result.Writer, *result.Run, error) {
	if !resume {
		w, err := result.Create(path,
			result.Header{Experiment: p.Describe(), Seed: p.Seed, Command: command, Started: time.Now().UTC(),
				Environment: env, LeftOut: p.LeftOut})
		return w, nil, err
	}
	w, before, err := result.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if before.Header.Experiment.Plan != p.Hash() {
		err = p.changed(path, before.Header.Experiment)
	} else {
		p.Until = before.Header.Experiment.Until // with the levels of its earlier looks
		err = w.Resume(result.Resume{Time: time.Now().UTC(), Command: command, Environment: env, LeftOut: p.LeftOut})
	}
	if err != nil {
		return nil, nil, errors.Join(err, w.Close())
	}
	return w, before, nil
}

// changed says why a result cannot be resumed.
func (p *Plan) changed(path string, before result.Experiment) error {
	now := p.topologies()
	for _, was := range before.Topologies {
		i := slices.IndexFunc(now, func(t result.TopologyFile) bool { return t.File == was.File && t.Topo == was.Topo })
		if i >= 0 && now[i].Hash != was.Hash {
			return fmt.Errorf("%s: was measured on another topology: %s has changed since; undo the change (the result keeps the old text), or begin a new file", path, was.File)
		}
	}
	return fmt.Errorf("%s: was measured with a different plan from that of %s now; give --on, --quick, --repetitions and --seed as before, undo what was changed, or begin a new file", path, p.Experiment.File)
}

// Run runs the rest of the plan. A run that fails is recorded with its reason, and the next begins.
// Run returns early, with everything taken down, if an experiment that continues until it is
// decided is, ctx ends, the budget is used up, or results cannot be written.
func (r *Runner) Run(ctx context.Context) (Summary, error) {
	r.began, r.summary = time.Now(), Summary{Runs: r.Plan.toRun()}
	r.before = map[probeRun]bool{}
	if r.Before != nil {
		for _, s := range r.Before.Counted() {
			bad := r.AgainBad && s.Verdict != nil && s.Verdict.Level == environment.Bad
			r.before[probeRun{s.Run, s.Probe}] = s.Failure != "" || bad
		}
	}
	r.campaign = campaignOf(r.Plan.Experiment.Every, r.Before)
	if r.Limits == (environment.Limits{}) {
		r.Limits = environment.DefaultLimits
	}
	r.goOn()
	for _, run := range r.Plan.Runs {
		if r.after(run) && len(r.Plan.kept(&r.Plan.Cells[run.Cell])) > 0 {
			r.summary.Runs--
		}
	}
	todo := r.todo()
	r.summary.Before = r.summary.Runs - len(todo)
	var err error
	ends := false
	for i, run := range todo {
		if ends, err = r.look(run.Repetition); ends || err != nil {
			break
		}
		if err = r.await(ctx, run, todo[i:]); err == nil && r.overBudget() {
			err = ErrBudget
		}
		if err != nil {
			break
		}
		left := todo[i:]
		began := time.Now()
		r.prepared = 0
		ok := r.run(ctx, run, left)
		if err = ctx.Err(); err != nil {
			break // interrupted runs are not in the file
		}
		if err = r.lost; err != nil {
			break
		}
		r.measuredLast(run)
		r.took, r.expected = r.took+time.Since(began)-r.prepared, r.expected+run.Estimate
		r.summary.Done++
		if !ok {
			r.summary.Failed++
		}
		if !ok || i+1 == len(todo) || r.Plan.Cells[todo[i+1].Cell].Lab.Key() != r.lab || r.Plan.Experiment.Fresh {
			r.step(run, left[1:], "down")
			r.down()
		}
		r.step(run, left[1:], "done")
	}
	if err == nil && !ends {
		_, err = r.look(r.Plan.Experiment.Repetitions + 1)
	}
	r.down()
	if ends {
		r.summary.Runs = r.summary.Before + r.summary.Done
	}
	r.summary.Left = r.summary.Runs - r.summary.Before - r.summary.Done
	return r.summary, cmp.Or(err, r.release())
}

func (r *Runner) overBudget() bool {
	budget := r.Plan.Experiment.Budget
	return budget > 0 && time.Since(r.began) >= budget
}

// todo returns the runs with probes that have not been measured.
func (r *Runner) todo() []Run {
	return lists.Filter(r.Plan.Runs, func(run Run) bool { return !r.after(run) && len(r.missing(run)) > 0 })
}

// missing returns the groups of a run that have not been measured.
func (r *Runner) missing(run Run) (out [][]Probe) {
	for _, group := range r.Plan.kept(&r.Plan.Cells[run.Cell]) {
		if slices.ContainsFunc(group, func(p Probe) bool { return !r.measured(run, p) }) {
			out = append(out, group)
		}
	}
	return out
}

func (r *Runner) measured(run Run, p Probe) bool {
	again, done := r.before[probeRun{run.Number, p.Name}]
	return done && !(again && r.Again)
}

// step reports a step; left are the remaining runs, including this one until it is done.
func (r *Runner) step(run Run, left []Run, what string) {
	if r.Progress == nil {
		return
	}
	p := Progress{Run: run, Cell: &r.Plan.Cells[run.Cell], Done: r.summary.Before + r.summary.Done,
		Runs: r.summary.Runs, Step: what, Elapsed: time.Since(r.began)}
	for _, l := range left {
		p.Left += l.Estimate
	}
	if r.expected > 0 {
		p.Left = time.Duration(float64(p.Left) * float64(r.took) / float64(r.expected))
	}
	r.Progress(p)
}

func (r *Runner) say(format string, args ...any) {
	if r.Say != nil {
		r.Say(format, args...)
	}
}

// run brings the lab up, unless that of the run before can be used, and runs the groups. The lab of
// a failed run is not used again, as it may be the cause.
func (r *Runner) run(ctx context.Context, run Run, left []Run) (ok bool) {
	cell, groups := &r.Plan.Cells[run.Cell], r.missing(run)
	if err := r.up(ctx, run, left); err != nil {
		if ctx.Err() == nil {
			r.fail(run, groups, fmt.Sprintf("the lab did not come up: %s", err))
		}
		return false
	}
	if len(cell.Schedule) > 0 {
		defer r.down() // the next run must not see the effects of events
	}
	ok = true
	for i, group := range groups {
		g := &batch{runner: r, run: run, cell: cell, probes: group, left: left}
		state := g.measure(ctx)
		if ctx.Err() != nil {
			return false
		}
		ok = ok && state == measured
		if state == hung {
			r.down()
			r.fail(run, groups[i+1:], "an earlier probe of this run hung, and its lab was given up")
			return false
		}
	}
	return ok
}

func (r *Runner) up(ctx context.Context, run Run, left []Run) error {
	cell := &r.Plan.Cells[run.Cell]
	if r.instance != nil && r.lab == cell.Lab.Key() {
		return nil
	}
	r.down()
	r.step(run, left, "up")
	began := time.Now()
	err := r.prepare(ctx, run, left) // has its own timeouts
	if r.prepared = time.Since(began); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.UpTimeout, patience.ExperimentUp.Duration()))
	defer cancel()
	instance, err := r.Driver.Up(ctx, cell)
	if err != nil {
		return err
	}
	r.instance, r.lab = instance, cell.Lab.Key()
	return nil
}

// prepare makes what the lab of a run shares with others; before that, it does the same for the
// runs that must be measured directly after it, as making machines between them would separate them
// in time.
func (r *Runner) prepare(ctx context.Context, run Run, left []Run) error {
	for _, next := range left {
		if run.Pair != "" && next.Pair == run.Pair && next.Repetition == run.Repetition && next.Number != run.Number {
			_ = r.Driver.Prepare(ctx, &r.Plan.Cells[next.Cell]) // its own run reports the error
		}
	}
	return r.Driver.Prepare(ctx, &r.Plan.Cells[run.Cell])
}

// down takes the lab down, even if the context has ended.
func (r *Runner) down() {
	if r.instance == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(r.DownTimeout, patience.ExperimentDown.Duration()))
	defer cancel()
	if err := r.instance.Down(ctx); err != nil {
		r.say("the lab did not go down: %s", err)
	}
	r.instance, r.lab = nil, ""
}

// errUnreleased ends a run that has left something behind that costs money.
var errUnreleased = errors.New("not all is removed that was made for the run")

// release removes what labs shared, even if the context has ended.
func (r *Runner) release() error {
	if err := r.Driver.Release(context.Background()); err != nil {
		r.say("%s", err)
		return errUnreleased
	}
	return nil
}

// fail records why probes were not run.
func (r *Runner) fail(run Run, groups [][]Probe, reason string) {
	var samples []result.Sample
	for _, p := range slices.Concat(groups...) {
		s := r.sample(run, p, time.Now())
		s.Fail(reason)
		samples = append(samples, s)
	}
	r.write(samples)
}

// sample returns a probe's sample without measurements.
func (r *Runner) sample(run Run, p Probe, started time.Time) result.Sample {
	cell := &r.Plan.Cells[run.Cell]
	s := result.Sample{Run: run.Number, Cell: cell.ID, Block: run.Block, Pair: run.Pair, Repetition: run.Repetition,
		Round: run.Round, Probe: p.Name, Kind: p.Kind, Started: started.UTC()}
	if len(cell.Levels) > 0 {
		s.Factors = map[string]any{}
		for _, l := range cell.Levels {
			s.Factors[l.Factor] = l.Value
		}
	}
	return s
}

// write appends samples. If they cannot be written, for instance as the disk is full, it at least
// records that; the second time in a row it gives up, so that a resumed run measures the rest
// rather than finding it failed.
func (r *Runner) write(samples []result.Sample) (ok bool) {
	err := r.Writer.Append(samples...)
	if err == nil {
		r.unwritten = false
		return true
	}
	if !r.unwritten {
		r.unwritten = true
		for i := range samples {
			s := &samples[i]
			s.Measurements, s.Usage, s.Details, s.Events = nil, nil, nil, nil
			s.Fail(fmt.Sprintf("its result could not be written: %s", err))
		}
		if err = r.Writer.Append(samples...); err == nil {
			return false
		}
	}
	r.lost = fmt.Errorf("results can no longer be written: %w; make room and resume", err)
	return false
}
