package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"trivet.dev/trivet/bench/drive"
	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

// Values of --again: what is measured once more.
const (
	againFailed = "failed" // the default
	againBad    = "bad"    // also samples whose verdict is bad
)

// benchRunning holds the flags of `trivet bench run`.
type benchRunning struct {
	file, out, on string
	dryRun, quick bool
	published     bool
	resume        bool
	again         string // failed, bad; "": nothing
	unwatched     bool
	commands      bool // the user has agreed to what root does for topologies of other formats
	repetitions   int
	until         string // decided
	atMost        int    // repetitions, with until
	budget        string
	seed          uint64
	seeded        bool
	every         string // of a campaign
	times         int
}

func (a *app) benchRun() *cobra.Command {
	var b benchRunning
	cmd := &cobra.Command{
		Use:   "run EXPERIMENT.yaml",
		Short: "Carry out an experiment: bring labs up, measure in them, write the results",
		Long: "Carry out an experiment (see trivet bench list and docs/experiments.md): bring up the lab of each cell, run its probes,\n" +
			"take it down, and write what was measured to a file of JSON Lines (docs/results.md). Ctrl-C stops it and takes everything down;\n" +
			"--resume continues, also after a crash. It exits with 1 when something could not be measured.",
		Example: "  sudo trivet bench run experiments/own/failures.yaml --quick\n  sudo trivet bench run hops.yaml --out monday.jsonl\n" +
			"  sudo trivet bench run hops.yaml --out monday.jsonl --resume\n  sudo trivet bench run hops.yaml --on rack.yaml --out rack.jsonl\n  sudo trivet bench run hops.yaml --every 1w --times 10 --out weeks.jsonl\n  sudo trivet bench run hops.yaml --until decided --at-most 50\n  trivet bench run hops.yaml --dry-run",
		Args: func(cmd *cobra.Command, args []string) error {
			if n := len(args); n == 2 && b.again == againFailed && (args[n-1] == againBad || args[0] == againBad) {
				return nil // the user wrote "--again bad"
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				b.again = againBad
				args = slices.DeleteFunc(args, func(a string) bool { return a == againBad })
			}
			if len(args) != 1 {
				return errors.New("name one experiment")
			}
			b.file, b.seeded = args[0], cmd.Flags().Changed("seed")
			return a.runBench(cmd.Context(), b)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&b.dryRun, "dry-run", false, "only check the experiment and show what would run")
	f.StringVar(&b.on, "on", lab.OnThisMachine, "where its labs are: on this machine only (local), or also on others: a file that lists them, such as a rack, or describes instances of a cloud, or their names for ssh, with commas")
	f.BoolVar(&b.quick, "quick", false, "run it as the file's key quick says: fewer levels, fewer repetitions")
	f.BoolVar(&b.published, "as-published", false,
		"run it as its key as_published says: for as long and as often as was published")
	cmd.MarkFlagsMutuallyExclusive("quick", "as-published")
	f.StringVarP(&b.out, "out", "o", "",
		"file for the results (default: the experiment's name with .jsonl, and that of --on, in this directory)")
	f.BoolVar(&b.commands, "run-commands", false,
		"do not ask: let topologies in formats other than Trivet's do all that they want done as root")
	f.BoolVar(&b.resume, "resume", false, "continue the run whose results are in the file of --out")
	f.StringVar(&b.again, "again", "",
		"with --resume: repeat failed runs; --again=bad: also those whose verdict is bad")
	f.Lookup("again").NoOptDefVal = againFailed
	f.BoolVar(&b.unwatched, "unwatched", false,
		"do not watch the machine during the run; all figures then count as doubtful")
	f.IntVar(&b.repetitions, "repetitions", 0, "repetitions of each cell, instead of the file's")
	f.StringVar(&b.until, "until", "",
		"decided: add repetitions until all statements of its keys paper and report.compare are decided, or --at-most is reached; their error rate stays 5 %")
	f.IntVar(&b.atMost, "at-most", 0, "with --until: the most repetitions of each cell, instead of the file's")
	f.StringVar(&b.budget, "budget", "", "reduce the repetitions to what fits into this time, but not below one: 20min")
	f.StringVar(&b.every, "every", "",
		"with --times: how long after the beginning of one round the next begins: 1w, 12h, 90s")
	f.IntVar(&b.times, "times", 0, "with --every: do the whole experiment so many times, each in a round of its own")
	cmd.MarkFlagsRequiredTogether("every", "times")
	for _, other := range []string{"every", "quick", "as-published", "repetitions", "resume"} {
		cmd.MarkFlagsMutuallyExclusive("until", other)
		cmd.MarkFlagsMutuallyExclusive("at-most", other)
	}
	cmd.MarkFlagsMutuallyExclusive("every", "budget")
	cmd.MarkFlagsMutuallyExclusive("every", "resume")
	f.Uint64Var(&b.seed, "seed", 0, "seed of the order, instead of the file's")
	_ = cmd.MarkFlagFilename("out", "jsonl")
	return cmd
}

// plan reads the experiment and reports everything that is wrong with it.
func (b *benchRunning) plan() (*experiment.Plan, topology.Problems, error) {
	e, problems := experiment.ReadFile(b.file, drive.Vocabulary())
	if err := problems.Err(); err != nil {
		return nil, nil, err
	}
	form, problems := definition.ReadFor(b.file, []byte(e.Text), knownOf(e))
	if problems.Err() != nil {
		return nil, nil, problems.Err() // report errors now rather than after everything was measured
	}
	if b.quick {
		e = e.Quick()
	}
	if b.published {
		if e.Published() == e {
			return nil, nil, fmt.Errorf("%s: has no key as_published, which says how long and how often that was done elsewhere", b.file)
		}
		e = e.Published()
	}
	if err := b.move(e); err != nil {
		return nil, nil, err
	}
	if b.out == "" {
		b.out = e.Name + b.suffix() + ".jsonl"
	}
	if b.seeded {
		e.Seed = b.seed
	}
	if err := errors.Join(b.goOn(e, form), b.repeat(e), b.campaign(e)); err != nil {
		return nil, nil, err
	}
	p, problems := e.Plan()
	if err := problems.Err(); err != nil {
		return nil, nil, err
	}
	if e.Until && slices.ContainsFunc(form.Compares, func(c definition.Compare) bool { return len(c.Margins) == 0 }) {
		problems.Warn(topology.Position{File: b.file}, "state a margin",
			"compare: has no margin, so what does not differ is never decided, and takes the most repetitions")
	}
	if round := p.Estimate / time.Duration(max(1, e.Times)); e.Times > 0 && round > e.Every {
		problems.Warn(topology.Position{File: b.file}, "let more time pass between them, or take fewer repetitions",
			"a round takes about %s, and one is to begin every %s: some will begin later",
			experiment.About(round), words.Period(e.Every))
	}
	checked := p.Check(lab.Defaults)
	if err := checked.Err(); err != nil {
		return nil, nil, err
	}
	return p, append(problems.Warnings(), checked.Warnings()...), drive.Check(p)
}

// move makes the experiment use the machines of --on. A file becomes its full path, as names in the
// experiment are relative to the experiment.
func (b *benchRunning) move(e *experiment.Experiment) error {
	if b.on == lab.OnThisMachine {
		return nil
	}
	on := b.on
	if path, err := filepath.Abs(on); err == nil {
		if _, err := os.Stat(path); err == nil {
			on = path
		}
	}
	return e.Move(on)
}

// suffix distinguishes the results of other machines from the result of this one.
func (b *benchRunning) suffix() string {
	if b.on == lab.OnThisMachine {
		return ""
	}
	place := environment.Place{On: filepath.Base(b.on)}
	return "-" + place.Name()
}

// knownOf returns the levels, probes and metrics that an experiment will have.
func knownOf(e *experiment.Experiment) definition.Known {
	known := definition.Known{Levels: e.Levels(), Probes: map[string]map[string]definition.Measured{}}
	p, _ := e.Plan()
	if p == nil {
		return known
	}
	for i := range p.Cells {
		for _, probe := range slices.Concat(p.Cells[i].Groups...) {
			if known.Probes[probe.Name] == nil {
				known.Probes[probe.Name] = map[string]definition.Measured{}
			}
			for _, m := range probe.Measures() {
				known.Probes[probe.Name][m.Name] = definition.Measured{Unit: m.Unit, Labels: m.Labels}
			}
		}
	}
	return known
}

// repeat sets the repetitions: those given, those for which the budget has time, or those of the
// result that is resumed.
func (b *benchRunning) repeat(e *experiment.Experiment) error {
	if b.repetitions > 0 {
		e.Repetitions = b.repetitions
	} else if b.resume && b.budget == "" {
		if before, err := result.ReadFile(b.out); err == nil && before.Header.Experiment.Repetitions > 0 {
			e.Repetitions = before.Header.Experiment.Repetitions / max(1, before.Header.Experiment.Rounds)
		}
	}
	if b.budget == "" {
		return nil
	}
	budget, err := topology.ParseDuration(b.budget)
	if err != nil {
		return fmt.Errorf("--budget: %w", err)
	}
	return e.Fit(time.Duration(budget))
}

// goOn makes the experiment continue until it is decided, if the command line or the file asks for
// that, or the result that is resumed is of that kind.
func (b *benchRunning) goOn(e *experiment.Experiment, form *definition.Definition) error {
	switch {
	case b.resume:
		if before, err := result.ReadFile(b.out); err == nil { // Start reports what is wrong with it
			e.Until = before.Header.Experiment.Until != nil
		}
		return nil
	case b.repetitions > 0:
		e.Fix()
	case b.until != "":
		if err := experiment.CheckUntil(b.until); err != nil {
			return fmt.Errorf("--until: %w", err)
		}
		e.GoOn(b.atMost)
	case b.atMost != 0 && !e.Until:
		return errors.New("--at-most goes with --until decided; for a number of repetitions that is fixed: --repetitions")
	case b.atMost != 0:
		e.GoOn(b.atMost)
	}
	if e.Until && len(form.Compares) == 0 && (form.Paper == nil || len(form.Paper.Trends) == 0) {
		return topology.Mistaken("write paper: {trends: [...]} or report: {compare: {factor: ..., margin: ...}} into the file",
			"%s: nothing is stated that could be decided", b.file)
	}
	return nil
}

// campaign makes the experiment a campaign: the one that is asked for, or that of the result which
// is resumed.
func (b *benchRunning) campaign(e *experiment.Experiment) (err error) {
	if b.resume {
		// Start reports what is wrong with it.
		if before, err := result.ReadFile(b.out); err == nil && before.Header.Experiment.Rounds > 0 {
			e.Times, e.Every = before.Header.Experiment.Rounds,
				time.Duration(before.Header.Experiment.Every*float64(time.Second))
		}
		return nil
	}
	if b.every == "" {
		return nil
	}
	if b.times < 1 {
		return topology.Mistaken("write --times 10", "--times %d: a campaign has one round or more", b.times)
	}
	if e.Budget > 0 {
		return fmt.Errorf("%s: has a budget, which is for what is done once; leave budget: out, or --every and --times",
			b.file)
	}
	e.Times = b.times
	if e.Every, err = experiment.ParsePeriod(b.every); err != nil {
		return fmt.Errorf("--every: %w", err)
	}
	return nil
}

func (a *app) runBench(ctx context.Context, b benchRunning) error {
	switch {
	case b.again != "" && b.again != againFailed && b.again != againBad:
		return fmt.Errorf("--again=%s: write %s or %s", b.again, againFailed, againBad)
	case b.again != "" && !b.resume:
		return errors.New("--again goes with --resume")
	case b.budget != "" && b.resume:
		return errors.New("--budget is for a new run; one that is resumed keeps its repetitions")
	}
	p, warnings, err := b.plan()
	if p == nil {
		return err
	}
	for _, w := range warnings {
		a.warn(w)
	}
	for _, line := range p.MissingText() {
		a.warn(line)
	}
	if b.dryRun {
		return errors.Join(a.showPlan(p), err)
	}
	if err != nil {
		return err
	}
	if err := needRoot("bench run"); err != nil {
		return err
	}
	if _, err := os.Stat(b.out); err == nil && !b.resume {
		return fmt.Errorf("%s already exists; continue it with --resume, or choose another name with --out", b.out)
	}
	if errands := p.Asking(); len(errands) > 0 && !b.commands {
		if err := a.askFor(ctx, b.file, errands,
			"run_commands: false next to the topology's file leaves it out"); err != nil {
			return err
		}
	}
	a.say("%s  %s", p.Name, p.Headline())
	if until := p.UntilText(); until != "" {
		a.say("%s", until)
	}
	for _, line := range p.MakesText() {
		a.say("%s", line)
	}
	before := environment.Take(ctx, environment.Options{Tools: drive.Tools(p), Ask: drive.Asks(p)})
	places, unreached := drive.Places(ctx, p)
	before.Missing = append(before.Missing, unreached...)
	if before.Places = places; len(places) == 1 {
		for _, only := range places {
			before.Place, before.Places = only, nil
		}
	}
	told := p.MissingText()
	if err := drive.LeaveOutThere(p, places); err != nil {
		return err
	}
	if !b.holds() {
		if err := drive.LeaveOutUnmade(ctx, p); err != nil {
			return err
		}
	}
	for _, line := range p.MissingText() {
		if !slices.Contains(told, line) {
			a.warn(line)
		}
	}
	w, old, err := experiment.Start(b.out, p, b.resume, os.Args, before)
	if errors.Is(err, os.ErrNotExist) && b.resume {
		return fmt.Errorf("%s does not exist, so there is nothing to resume; leave --resume out", b.out)
	}
	if err != nil {
		return err
	}
	defer w.Close()
	// It belongs to the caller, not to root; Lchown, so that no symlink put there by somebody else
	// is followed.
	_ = os.Lchown(b.out, lab.Owner(), -1)
	a.say("results go to %s", b.out)
	return a.carryOut(ctx, b, p, w, old)
}

func (a *app) showPlan(p *experiment.Plan) error {
	if a.json {
		return a.printJSON(p)
	}
	return a.plainly(p.WriteText)
}

// carryOut runs the rest of a plan, and shows the results.
func (a *app) carryOut(ctx context.Context, b benchRunning, p *experiment.Plan, w *result.Writer,
	old *result.Run) error {
	prefix, err := drive.PrefixOf(b.out)
	if err != nil {
		return err
	}
	view := newBenchView(a.err)
	defer view.end()
	driver := &drive.Driver{Dir: p.Experiment.Dir(), Prefix: prefix,
		Captures: strings.TrimSuffix(b.out, ".jsonl") + "-captures",
		Tools:    drive.ProbeTools(p), Note: w.Machines, Say: view.say, Step: view.passing}
	left, err := driver.Clean(ctx)
	if len(left) > 0 {
		a.say("took down what an earlier run left: %s", strings.Join(left, ", "))
	}
	if err != nil {
		return fmt.Errorf("labs left by an earlier run: %w", err)
	}
	if old != nil {
		if err := driver.CleanMachines(ctx, old.Held()); err != nil {
			return fmt.Errorf("machines left by an earlier run: %w", err)
		}
	}
	r := &experiment.Runner{Plan: p, Driver: driver, Writer: w, Before: old, Again: b.again != "",
		AgainBad: b.again == againBad, Unwatched: b.unwatched, Progress: view.step, Say: view.say}
	r.Judge = func(int) (result.Look, error) {
		run, err := result.ReadFile(b.out)
		if err != nil {
			return result.Look{}, err
		}
		return report.Judge(run), nil
	}
	began := time.Now()
	summary, ended := r.Run(ctx)
	view.end()
	run, err := result.ReadFile(b.out)
	if err != nil {
		return errors.Join(ended, err)
	}
	if err := a.showBench(p, b.out, run, summary, time.Since(began)); err != nil {
		return errors.Join(ended, err)
	}
	if summary.Left > 0 || ended != nil {
		return b.stopped(summary, ended)
	}
	if failures(run) > 0 {
		fmt.Fprintf(a.err, "to measure again what failed:  %s --again\n", b.resumption())
		return exitCode(exitError)
	}
	return nil
}

// holds says whether the run that is resumed still has machines, which count towards the user's
// limit.
func (b *benchRunning) holds() bool {
	if !b.resume {
		return false
	}
	before, err := result.ReadFile(b.out)
	return err == nil && len(before.Held()) > 0
}

// stopped says why not everything has run, and how to continue.
func (b *benchRunning) stopped(s experiment.Summary, err error) error {
	why := "interrupted"
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil:
		why = err.Error()
	}
	return fmt.Errorf("%s; %s of %d left; to continue:  %s", why, words.Plural(s.Left, "run"), s.Runs, b.resumption())
}

// resumption returns the command that continues.
func (b *benchRunning) resumption() string {
	words := []string{"sudo", "trivet", "bench", "run", b.file, "--out", b.out, "--resume"}
	if b.on != lab.OnThisMachine {
		words = append(words, "--on", b.on)
	}
	if b.quick {
		words = append(words, "--quick")
	}
	if b.published {
		words = append(words, "--as-published")
	}
	if b.seeded {
		words = append(words, "--seed", fmt.Sprint(b.seed))
	}
	return strings.Join(words, " ")
}

// benchView shows the progress of a run: on a terminal, a line that changes; elsewhere, a line for
// each run.
type benchView struct {
	out  io.Writer
	live bool

	mu    sync.Mutex
	last  experiment.Progress
	doing string    // the current part of the step, if known; or what is done before the first
	at    time.Time // of the last step; zero: there is none to show
	drawn bool
	ended bool
	stop  chan struct{}
}

func newBenchView(out io.Writer) *benchView {
	v := &benchView{out: out, live: isTerminal(out), stop: make(chan struct{})}
	if v.live {
		go v.tick()
	}
	return v
}

// tick updates the elapsed time.
func (v *benchView) tick() {
	for {
		select {
		case <-time.After(time.Second):
			v.mu.Lock()
			v.draw()
			v.mu.Unlock()
		case <-v.stop:
			return
		}
	}
}

func (v *benchView) step(p experiment.Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last, v.at, v.doing = p, time.Now(), ""
	switch {
	case v.live:
		v.draw()
	case p.Step == "done":
		fmt.Fprintln(v.out, v.line())
	}
}

// passing shows the current part of a step; elsewhere than on a terminal, each in a line.
func (v *benchView) passing(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if text == v.doing {
		return
	}
	if v.doing = text; v.live {
		v.draw()
	} else {
		fmt.Fprintln(v.out, harmlessText(text))
	}
}

func (v *benchView) line() string {
	p := v.last
	if p.Cell == nil {
		return v.doing
	}
	number := p.Done
	if p.Step != "done" {
		number = min(number+1, p.Runs)
	}
	line := fmt.Sprintf("%d/%d  %s", number, p.Runs, p.Cell.ID)
	if v.live {
		line += "  " + cmp.Or(v.doing, p.Step)
	}
	if left := p.Left - time.Since(v.at); p.Left > 0 {
		line += fmt.Sprintf("  about %s left", experiment.About(max(0, left)))
	}
	return line
}

func (v *benchView) draw() {
	if v.at.IsZero() && v.doing == "" {
		return
	}
	line := []rune("  " + v.line())
	if width, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && width > 1 && len(line) >= width {
		line = append(line[:width-2], '…')
	}
	v.clear()
	fmt.Fprint(v.out, string(line))
	v.drawn = true
}

func (v *benchView) clear() {
	if v.drawn {
		fmt.Fprint(v.out, "\r\033[K")
		v.drawn = false
	}
}

func (v *benchView) say(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clear()
	v.doing = ""
	fmt.Fprintln(v.out, harmlessText(fmt.Sprintf(format, args...)))
}

// end clears the line; nothing is shown any more.
func (v *benchView) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.ended {
		close(v.stop)
	}
	v.clear()
	v.at, v.doing, v.ended = time.Time{}, "", true
}
