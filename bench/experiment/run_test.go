package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/bench/environment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/lab"
)

// shell is a driver whose labs are directories and whose probes are shell commands in them, which
// print numbers.
type shell struct {
	root string
	mu   sync.Mutex
	log  []string // what was done
}

func (s *shell) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *shell) Up(_ context.Context, cell *Cell) (Instance, error) {
	if cell.Lab.Options["controller"] == "broken" {
		return nil, errors.New("no controller answers")
	}
	s.note("up %s", cell.Lab.Generate)
	dir := filepath.Join(s.root, cell.Lab.Generate)
	return &directory{s, dir}, os.Mkdir(dir, 0o755)
}

type directory struct {
	shell *shell
	dir   string
}

// Run runs options.run. A probe that "hangs" does not heed its context.
func (d *directory) Run(ctx context.Context, p Probe, _ time.Time) (Measured, error) {
	d.shell.note("run %s", p.Name)
	run := p.Options.Text("run")
	if run == "hang" {
		select {} // this test's process outlives it by seconds at most
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+run)
	cmd.Dir = d.dir
	out, err := cmd.Output()
	var o Measured
	for word := range strings.FieldsSeq(string(out)) {
		if v, bad := strconv.ParseFloat(word, 64); bad == nil {
			o.Measurements = append(o.Measurements, result.Measurement{Metric: "x", Unit: "1", Values: []float64{v}})
		}
	}
	return o, err
}

func (d *directory) Do(_ context.Context, e Event) error {
	d.shell.note("event %s", e.What)
	return os.WriteFile(filepath.Join(d.dir, "event"), []byte(e.What), 0o644)
}

func (d *directory) Watch() environment.WatchOptions {
	return environment.WatchOptions{Interval: 20 * time.Millisecond, NoPerf: true}
}

func (d *directory) Down(ctx context.Context) error {
	d.shell.note("down %s", filepath.Base(d.dir))
	return errors.Join(ctx.Err(), os.RemoveAll(d.dir))
}

// vocabulary has one probe, which prints a number.
func vocabulary() Vocabulary {
	v := Trivets()
	v.Probes = append(slices.Clone(v.Probes), ProbeKind{Name: "sh", Options: []Option{{Name: "run", Type: Text, Required: true}},
		Estimate: func(Options, Lab) time.Duration { return 100 * time.Millisecond }})
	return v
}

// bench is a runner with all around it.
type bench struct {
	*Runner
	t      *testing.T
	driver *shell
	path   string
	said   []string
	steps  []Progress
}

func newBench(t *testing.T, text, path string, resume bool) *bench {
	t.Helper()
	e, problems := Read("x.yaml", []byte(text), vocabulary())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	p, _ := e.Plan()
	w, before, err := Start(path, p, resume, []string{"test"}, environment.Record{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, driver: &shell{root: t.TempDir()}, path: path}
	b.Runner = &Runner{Plan: p, Driver: b.driver, Writer: w, Before: before, Grace: 2 * time.Second,
		Say:      func(format string, args ...any) { b.said = append(b.said, fmt.Sprintf(format, args...)) },
		Progress: func(p Progress) { b.steps = append(b.steps, p) }}
	return b
}

// finish runs to the end, checks that no lab is left, and returns what is in the file.
func (b *bench) finish(ctx context.Context) (Summary, *result.Run, error) {
	b.t.Helper()
	summary, err := b.Run(ctx)
	return summary, b.close(), err
}

func (b *bench) close() *result.Run {
	b.t.Helper()
	if err := b.Writer.Close(); err != nil {
		b.t.Error(err)
	}
	if left, _ := os.ReadDir(b.driver.root); len(left) > 0 {
		b.t.Errorf("labs are left: %v", left)
	}
	run, err := result.ReadFile(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	return run
}

// TestRunner proves the way of an experiment: labs are brought up and down as needed and no more
// often, warm-ups come before and do not count, probes of a group run together, events happen and
// are marked, and all of it is in the file with what was watched.
func TestRunner(t *testing.T) {
	b := newBench(t, `
topology: linear,${n}
factors: {n: [1, 2], size: [10, 20]}
probes:
  - sh: {name: first, run: "echo ${size} ${n}"}
  - [sh: {name: slow, run: "sh -c 'sleep 0.4; echo 1'"}, sh: {name: quick, run: "echo 2"}]
warm_up: 1
order: given
`, filepath.Join(t.TempDir(), "a.jsonl"), false)
	summary, run, err := b.finish(context.Background())
	if err != nil || summary != (Summary{Runs: 4, Done: 4}) || len(b.said) > 0 {
		t.Fatalf("%+v, %v, %v", summary, err, b.said)
	}
	// Two labs for four runs: the sizes share one.
	var labs []string
	for _, l := range b.driver.log {
		if !strings.HasPrefix(l, "run") {
			labs = append(labs, l)
		}
	}
	if want := []string{"up linear,1", "down linear,1", "up linear,2", "down linear,2"}; !slices.Equal(labs, want) {
		t.Errorf("labs: %v", labs)
	}
	if len(run.Samples) != 24 || len(run.Counted()) != 12 {
		t.Fatalf("%d samples, %d count", len(run.Samples), len(run.Counted()))
	}
	for i, s := range run.Counted() {
		first := i%3 == 0
		if s.Failure != "" || s.Usage == nil || s.Verdict == nil || s.Usage.Looks == 0 || s.Run != i/3+1 || s.Repetition != 1 {
			t.Errorf("%+v", s)
		}
		if first && !slices.Equal(s.Values("x"), []float64{s.Factors["size"].(float64), s.Factors["n"].(float64)}) {
			t.Errorf("%v measured %v", s.Factors, s.Values("x"))
		}
		if s.Probe == "slow" && s.Seconds < 0.4 {
			t.Errorf("slow took %v s", s.Seconds)
		}
		if s.Probe == "quick" {
			slow := run.Counted()[i-1]
			if slow.Started.Add(time.Duration(slow.Seconds * float64(time.Second))).Before(s.Started) {
				t.Error("quick waited for slow")
			}
		}
	}
	last := b.steps[len(b.steps)-1]
	if last.Step != "done" || last.Done != 4 || last.Runs != 4 || last.Left != 0 || b.steps[0].Step != "up" || b.steps[0].Left <= 0 {
		t.Errorf("steps: first %+v, last %+v", b.steps[0], last)
	}
}

// TestSchedule proves that events happen while probes run, and only while those run that count;
// that those that come too late are told of; and that the lab to which something happened is not
// used again.
func TestSchedule(t *testing.T) {
	b := newBench(t, `
topology: linear,1
probes: [sh: {run: "sh -c 'echo 1; n=20; test -e warm && n=600; touch warm; for i in $(seq $n); do test -e event && echo 2 && break; sleep 0.1; done; true'"}]
schedule: [at 100ms: s1 -- h1 down, at 1h: kill s1]
warm_up: 1
repetitions: 2
`, filepath.Join(t.TempDir(), "a.jsonl"), false)
	_, run, err := b.finish(context.Background())
	if err != nil || len(run.Samples) != 4 {
		t.Fatalf("%v, %v", run.Samples, err)
	}
	for _, s := range run.Samples {
		if s.WarmUp {
			if len(s.Events) > 0 || len(s.Values("x")) != 1 {
				t.Errorf("the warm-up saw an event: %+v", s)
			}
			continue
		}
		if len(s.Events) != 2 || s.Events[0].What != "s1 -- h1 down" || s.Events[0].At < 0.1 || s.Events[0].Failure != "" || s.Events[1].Failure != "the probes had already ended" || len(s.Values("x")) != 2 {
			t.Errorf("%+v", s)
		}
	}
	if ups := strings.Count(strings.Join(b.driver.log, "\n"), "up linear"); ups != 2 {
		t.Errorf("%d labs for two runs", ups)
	}
}

// TestAfter proves that a probe begins as much later than its group as after: says, so behind an
// event, in what counts only; and that the estimate knows of it.
func TestAfter(t *testing.T) {
	b := newBench(t, `
topology: linear,1
probes:
  - - sh: {name: early, run: "sh -c 'test -e event; echo $?'"}
    - sh: {name: late, run: "sh -c 'test -e event; echo $?'", after: 1s}
schedule: ["at 500ms: s1 -- h1 down"]
warm_up: 1
`, filepath.Join(t.TempDir(), "a.jsonl"), false)
	if e := b.Plan.Estimate; e < time.Second {
		t.Errorf("estimated as %s", e)
	}
	_, run, err := b.finish(context.Background())
	if err != nil || len(run.Samples) != 4 {
		t.Fatalf("%v, %v", run.Samples, err)
	}
	for _, s := range run.Samples {
		missing := 1.0
		if s.Probe == "late" && !s.WarmUp {
			missing = 0
			if s.Seconds < 1 {
				t.Errorf("it began early: %+v", s)
			}
		}
		if got := s.Values("x"); len(got) != 1 || got[0] != missing {
			t.Errorf("%s, warm-up %t: it found no event: %v", s.Probe, s.WarmUp, got)
		}
	}
}

// TestFailures proves that a lab that does not come up, a probe that fails, one that measures
// nothing, one that takes too long and one that hangs each end with their reason, keep what was
// measured, and let the rest go on.
func TestFailures(t *testing.T) {
	b := newBench(t, `
topology: linear,1
lab: {controller: "${c}"}
factors:
  c: [broken, good]
  what:
    exits: {run: "sh -c 'echo 7; exit 3'", timeout: 60s}
    silent: {run: "true", timeout: 60s}
    long: {run: "sleep 60", timeout: 300ms}
    hangs: {run: hang, timeout: 300ms}
    fine: {run: "echo 1", timeout: 60s}
skip: [{c: broken, what: [silent, long, hangs, fine]}]
probes:
  - sh: {name: one, run: "${what.run}", timeout: "${what.timeout}"}
  - sh: {name: two, run: "echo 2"}
order: given
`, filepath.Join(t.TempDir(), "a.jsonl"), false)
	summary, run, err := b.finish(context.Background())
	if err != nil || summary != (Summary{Runs: 6, Done: 6, Failed: 5}) {
		t.Fatalf("%+v, %v", summary, err)
	}
	want := map[string]string{
		"1 one": "the lab did not come up: no controller answers", "1 two": "the lab did not come up: no controller answers",
		"2 one": "exit status 3", "2 two": "",
		"3 one": "probe one measured nothing", "3 two": "",
		"4 one": "did not end within", "4 two": "",
		"5 one": "it hung", "5 two": "an earlier probe of this run hung",
		"6 one": "", "6 two": "",
	}
	for _, s := range run.Samples {
		key := fmt.Sprintf("%d %s", s.Run, s.Probe)
		reason, ok := want[key]
		if !ok || !strings.Contains(s.Failure, reason) || reason == "" && s.Failure != "" {
			t.Errorf("%s: %q, want %q", key, s.Failure, reason)
		}
		delete(want, key)
		if key == "2 one" && !slices.Equal(s.Values("x"), []float64{7}) {
			t.Errorf("what was measured before the failure is lost: %+v", s)
		}
	}
	if len(want) > 0 {
		t.Errorf("not in the file: %v", want)
	}
	// What failed is not measured again, but where that is asked for.
	b = newBench(t, b.Plan.Experiment.Text, b.path, true)
	if again, _, _ := b.finish(context.Background()); again != (Summary{Runs: 6, Before: 6}) {
		t.Errorf("resumed: %+v", again)
	}
	b = newBench(t, b.Plan.Experiment.Text, b.path, true)
	b.Again = true
	if again, _, _ := b.finish(context.Background()); again != (Summary{Runs: 6, Before: 1, Done: 5, Failed: 5}) {
		t.Errorf("resumed, again: %+v", again)
	}
}

const many = `
topology: linear,${n}
factors: {n: [1, 2, 3]}
probes: [sh: {name: a, run: "sh -c 'sleep 0.02; echo 1'"}, sh: {name: b, run: "echo ${n}"}]
repetitions: 4
seed: 5
`

// TestKilled proves that a run that is killed (SIGKILL) goes on where it was, and that the file
// then holds every run once and in the order of the plan.
func TestKilled(t *testing.T) {
	if path := os.Getenv("TRIVET_TEST_RESULT"); path != "" { // the process that will be killed
		_, _ = newBench(t, many, path, false).Run(context.Background())
		return
	}
	path := filepath.Join(t.TempDir(), "a.jsonl")
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "TRIVET_TEST_RESULT="+path, "TMPDIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	samples := func() int {
		b, _ := os.ReadFile(path)
		return strings.Count(string(b), `"record":"sample"`)
	}
	for end := time.Now().Add(time.Minute); samples() < 7; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was measured")
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	before := samples()
	if before >= 24 {
		t.Skip("the machine was too quick: all was measured before it was killed")
	}
	if f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0); err == nil { // and the last line was cut short
		_, _ = f.WriteString(`{"record":"sample","run":`)
		f.Close()
	}
	summary, run, err := newBench(t, many, path, true).finish(context.Background())
	if err != nil || summary.Left != 0 || summary.Before+summary.Done != 12 || summary.Before < 3 || summary.Failed != 0 {
		t.Fatalf("%+v, %v", summary, err)
	}
	if len(run.Samples) != 24 || len(run.Resumes) != 1 {
		t.Fatalf("%d samples, %d resumes", len(run.Samples), len(run.Resumes))
	}
	for i, s := range run.Samples {
		if s.Run != i/2+1 || s.Probe != []string{"a", "b"}[i%2] || s.Failure != "" {
			t.Errorf("sample %d is run %d, probe %s: %s", i, s.Run, s.Probe, s.Failure)
		}
	}
}

// TestInterrupted proves that an interruption (Ctrl-C) takes the lab down, writes nothing of the
// run that it fell in, and is resumed; and that another plan does not resume the file.
func TestInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	b := newBench(t, many, path, false)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.Progress = func(p Progress) {
		if p.Run.Number == 5 && p.Step == "b" {
			cancel()
		}
	}
	summary, run, err := b.finish(ctx)
	if !errors.Is(err, context.Canceled) || summary != (Summary{Runs: 12, Done: 4, Left: 8}) || len(run.Samples) != 9 {
		t.Fatalf("%+v, %v, %d samples", summary, err, len(run.Samples))
	}
	e, _ := Read("x.yaml", []byte(many+"warm_up: 1\n"), vocabulary())
	p, _ := e.Plan()
	if _, _, err := Start(path, p, true, nil, environment.Record{}); err == nil || !strings.Contains(err.Error(), "with a different plan") {
		t.Errorf("another plan: %v", err)
	}
	summary, run, err = newBench(t, many, path, true).finish(context.Background())
	if err != nil || summary != (Summary{Runs: 12, Before: 4, Done: 8}) || len(run.Counted()) != 24 {
		t.Fatalf("%+v, %v, %d samples", summary, err, len(run.Samples))
	}
}

// TestBudget proves that no run begins when the budget is used up, and that the rest can be run
// later.
func TestBudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	b := newBench(t, many, path, false)
	b.Plan.Experiment.Budget = time.Nanosecond
	summary, _, err := b.finish(context.Background())
	if !errors.Is(err, ErrBudget) || summary != (Summary{Runs: 12, Left: 12}) {
		t.Fatalf("%+v, %v", summary, err)
	}
	if summary, _, err = newBench(t, many, path, true).finish(context.Background()); err != nil || summary.Done != 12 {
		t.Fatalf("%+v, %v", summary, err)
	}
}

// TestFullDisk proves, on a small disk, that a run whose result does not fit says so in the file,
// and that those that fit are kept.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	b := newBench(t, `
topology: linear,1
factors: {count: [3, 4000, 5]}
probes: [sh: {run: "seq ${count}"}]
order: given
`, filepath.Join(dir, "a.jsonl"), false)
	summary, run, err := b.finish(context.Background())
	if err != nil || summary != (Summary{Runs: 3, Done: 3, Failed: 1}) || len(run.Samples) != 3 {
		t.Fatalf("%+v, %v, %v", summary, err, b.said)
	}
	if s := run.Samples; len(s[0].Values("x")) != 3 || !strings.Contains(s[1].Failure, "could not be written") || len(s[2].Values("x")) != 5 {
		t.Errorf("%+v", s)
	}
}

// TestAgainBad proves that what is bad by its verdict is measured once more where that is asked
// for, and only then; the later sample counts.
func TestAgainBad(t *testing.T) {
	const text = "topology: linear,1\nprobes: [sh: {run: \"sh -c 'sleep 0.2; echo 1'\"}]\nrepetitions: 3\n"
	path := filepath.Join(t.TempDir(), "a.jsonl")
	b := newBench(t, text, path, false)
	b.Limits = environment.DefaultLimits
	b.Limits.RunQueue = [2]float64{-2, -1}
	_, run, err := b.finish(context.Background())
	if err != nil || run.Samples[0].Verdict.Level != environment.Bad {
		t.Fatalf("%+v, %v", run.Samples[0].Verdict, err)
	}
	for _, c := range []struct{ again, bad bool }{{true, false}, {true, true}} {
		b := newBench(t, text, path, true)
		b.Again, b.AgainBad = c.again, c.bad
		b.Limits = environment.DefaultLimits
		b.Limits.Busy, b.Limits.Pressure, b.Limits.RunQueue, b.Limits.Gap = [2]float64{2, 2}, [2]float64{2, 2}, [2]float64{1e6, 1e6}, [2]float64{1e6, 1e6} // nothing is bad
		summary, run, err := b.finish(context.Background())
		want := Summary{Runs: 3, Before: 3}
		if c.bad {
			want = Summary{Runs: 3, Done: 3}
		}
		if err != nil || summary != want || len(run.Counted()) != 3 {
			t.Errorf("%+v: %+v, %v", c, summary, err)
		}
	}
	if run, err := result.ReadFile(path); err != nil || len(run.Samples) != 6 || run.Counted()[0].Verdict.Level == environment.Bad {
		t.Errorf("%d samples, %v", len(run.Samples), err)
	}
}

// TestLeftOut proves that what the machine lacks costs an experiment the level or the probe that
// needs it, and no more: the rest is measured, nothing has failed, the file and the estimate say
// what is left out, and a run that is resumed where it is there measures it as the same plan. Where
// nothing would be left that is an error with each reason.
func TestLeftOut(t *testing.T) {
	const text = `
topology: linear,1
lab: {controller: "${c}"}
factors: {c: [good, pox], n: [1, 2]}
probes: [sh: {name: a, run: "echo ${n}"}, sh: {name: b, run: "echo 7", where: {c: good}}]
repetitions: 2
`
	path := filepath.Join(t.TempDir(), "a.jsonl")
	begin := func(resume bool, missing ...result.LeftOut) *bench {
		e, problems := Read("x.yaml", []byte(text), vocabulary())
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		p, _ := e.Plan()
		all := p.Estimate
		if err := p.LeaveOut(missing); err != nil {
			t.Fatal(err)
		}
		if (p.Estimate < all) != (len(missing) > 0) {
			t.Errorf("%s without %v, of %s", p.Estimate, missing, all)
		}
		w, before, err := Start(path, p, resume, nil, environment.Record{})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{t: t, driver: &shell{root: t.TempDir()}, path: path}
		b.Runner = &Runner{Plan: p, Driver: b.driver, Writer: w, Before: before}
		return b
	}
	pox := result.LeftOut{Why: "pox is not installed", Hint: "git clone", Cells: []string{"c=pox n=1", "c=pox n=2"}}
	tool := result.LeftOut{Why: "b's tool is not installed", Probe: "b", Cells: []string{"c=good n=1", "c=good n=2"}}
	e3, _ := Read("x.yaml", []byte(strings.Replace(text, "[good, pox]", "[good, pox, worse]", 1)), vocabulary())
	p3, _ := e3.Plan()
	both := result.LeftOut{Why: "neither is installed", Cells: append([]string{"c=worse n=1", "c=worse n=2"}, pox.Cells...)}
	if err := p3.LeaveOut([]result.LeftOut{both}); err != nil || p3.LeftOut[0].What != "c=pox or worse" {
		t.Errorf("%+v, %v", p3.LeftOut, err)
	}
	b := begin(false, pox, tool)
	if got := b.Plan.MissingText(); !slices.Equal(got, []string{"left out: c=pox (4 of 8 runs): pox is not installed:  git clone",
		"left out: probe b where c=good (4 of 8 runs): b's tool is not installed"}) {
		t.Errorf("%q", got)
	}
	summary, run, err := b.finish(context.Background())
	if err != nil || summary != (Summary{Runs: 4, Done: 4}) || len(run.Samples) != 4 || run.Expected() != 4 {
		t.Fatalf("%+v, %v, %d samples of %d runs", summary, err, len(run.Samples), run.Expected())
	}
	if l := run.LeftOut(); len(l) != 2 || l[0].What != "c=pox" || l[0].Why != pox.Why || l[0].Hint != pox.Hint || l[1].Probe != "b" {
		t.Errorf("%+v", l)
	}
	summary, run, err = begin(true).finish(context.Background())
	if err != nil || summary.Left != 0 || summary.Failed != 0 || len(run.Counted()) != 12 || len(run.LeftOut()) != 0 || run.Expected() != 8 {
		t.Fatalf("resumed where all is there: %+v, %v, %d samples", summary, err, len(run.Counted()))
	}
	e, _ := Read("x.yaml", []byte(text), vocabulary())
	p, _ := e.Plan()
	a := result.LeftOut{Why: "no a", Probe: "a", Cells: tool.Cells}
	if err := p.LeaveOut([]result.LeftOut{pox, tool, a}); err == nil || !strings.Contains(err.Error(), "nothing of this experiment can run") ||
		!strings.Contains(err.Error(), "c=pox: pox is not installed:  git clone") || !strings.Contains(err.Error(), "no a") {
		t.Errorf("nothing left: %v", err)
	}
}

// TestTopologyChanged proves that the topology's file is part of a plan and of its result: a run is
// resumed on the same topology only, told apart by what it means and not by its comments, and one
// that has begun keeps the topology that it began with.
func TestTopologyChanged(t *testing.T) {
	dir := t.TempDir()
	path, file := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "t.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	plan := func() *Plan {
		e, problems := Read(filepath.Join(dir, "x.yaml"), []byte("topology: ${t}.yaml\nfactors: {t: [t]}\nprobes: [sh: {run: echo 1}]\n"), vocabulary())
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		p, _ := e.Plan()
		return p
	}
	const text = "nodes: {\"h[1-2]\": host}\nlinks: [h1 -- h2: {delay: 1ms}]\n"
	write(text)
	p := plan()
	w, _, err := Start(path, p, false, nil, environment.Record{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run, err := result.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := run.Header.Experiment.Topologies; len(got) != 1 || got[0].File != "t.yaml" || got[0].Text != text || len(got[0].Hash) != 32 {
		t.Errorf("%+v", got)
	}
	write("# the same\n" + text)
	if w, _, err := Start(path, plan(), true, nil, environment.Record{}); err != nil {
		t.Errorf("another comment: %v", err)
	} else {
		w.Close()
	}
	write(strings.ReplaceAll(text, "1ms", "50ms"))
	if w, _, err := Start(path, plan(), true, nil, environment.Record{}); err == nil {
		w.Close()
		t.Error("resumed on another topology")
	} else if !strings.Contains(err.Error(), "t.yaml has changed since") {
		t.Error(err)
	}
	now, problems := p.Cells[0].Lab.Resolve(dir, lab.Defaults)
	if err := problems.Err(); err != nil || time.Duration(now.Links[0].Egress(0).Delay) != time.Millisecond {
		t.Errorf("a run that has begun sees %+v, %v", now, err)
	}
}

// TestHeader proves that the header of a result tells the experiment, its factors and its file, and
// how many repetitions the file has where a quick look makes fewer.
func TestHeader(t *testing.T) {
	quick, problems := Read("x.yaml", []byte(many+"quick: {repetitions: 1}\n"), vocabulary())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if p, _ := quick.Quick().Plan(); p.Describe().Repetitions != 1 || p.Describe().Wanted != 4 {
		t.Errorf("%+v", p.Describe())
	}
	run := newBench(t, many, filepath.Join(t.TempDir(), "a.jsonl"), false).close()
	e := run.Header.Experiment
	if e.Name != "x" || e.Text != many || e.Runs != 12 || len(e.Plan) != 32 || run.Header.Seed != 5 || !reflect.DeepEqual(e.Factors, []result.Factor{{Name: "n", Levels: []string{"1", "2", "3"}}}) {
		t.Errorf("%+v", e)
	}
}
