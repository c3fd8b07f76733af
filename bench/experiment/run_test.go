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

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// shell is a driver whose labs are directories and whose probes are shell commands in them, which
// print numbers.
type shell struct {
	root  string
	first string // a file in them for which events wait
	makes bool   // labs of a generator share something, which is noted, and cannot be made with controller: unmade
	held  []string
	stuck bool // what labs share cannot be removed
	mu    sync.Mutex
	log   []string // what was done
}

func (s *shell) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *shell) Prepare(_ context.Context, cell *Cell) error {
	if what := cell.Lab.Generate; s.makes && !slices.Contains(s.held, what) {
		s.note("make for %s", what)
		s.held = append(s.held, what)
	}
	if cell.Lab.Options["controller"] == "unmade" {
		return errors.New("the quota is used up")
	}
	return nil
}

func (s *shell) Release(ctx context.Context) error {
	if s.held == nil {
		return ctx.Err()
	}
	s.note("remove %d", len(s.held))
	s.held = nil
	if s.stuck {
		return errors.New("the cloud does not answer")
	}
	return ctx.Err()
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
func (d *directory) Run(ctx context.Context, p Probe, _ time.Time, looking func()) (Measured, error) {
	d.shell.note("run %s", p.Name)
	if p.Kind == "look" {
		time.Sleep(200 * time.Millisecond)
		d.shell.note("%s looks", p.Name)
		if p.Options.Text("run") != "false" {
			looking()
		}
	}
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

func (d *directory) Do(ctx context.Context, e Event) error {
	for ; ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(d.dir, d.shell.first)); err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
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

// vocabulary has one probe, which prints a number, and one that looks at others, besides.
func vocabulary() Vocabulary {
	v := Trivets()
	sh := ProbeKind{Name: "sh", Options: []Option{{Name: "run", Type: Text, Required: true}},
		Estimate: func(Options, Lab) time.Duration { return 100 * time.Millisecond }}
	look := sh
	look.Name, look.Looks = "look", true
	v.Probes = append(slices.Clone(v.Probes), sh, look)
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
  - - sh: {name: early, run: "sh -c 'test -e event; echo $?; test -e warm && touch looked; touch warm'"}
    - sh: {name: late, run: "sh -c 'test -e event; echo $?'", after: 5s}
schedule: ["at 1ms: s1 -- h1 down"]
warm_up: 1
`, filepath.Join(t.TempDir(), "a.jsonl"), false)
	b.driver.first = "looked" // by the early one, on a busy machine maybe only after a while
	if e := b.Plan.Estimate; e < 5*time.Second {
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
			if s.Seconds < 5 {
				t.Errorf("it began early: %+v", s)
			}
		}
		if got := s.Values("x"); len(got) != 1 || got[0] != missing {
			t.Errorf("%s, warm-up %t: it found no event: %v", s.Probe, s.WarmUp, got)
		}
	}
}

// TestLooks proves that a group begins, and its events happen, once the probes look that look at
// others, also where one fails before that; and that one which is to come later holds up nothing.
func TestLooks(t *testing.T) {
	b := newBench(t, `
topology: linear,1
probes:
  - - sh: {name: seen, run: "sh -c 'while ! test -e event; do sleep 0.01; done; echo 1'"}
    - look: {name: one, run: "echo 1"}
    - look: {name: other, run: "false"}
    - look: {name: late, run: "echo 1", after: 10ms}
schedule: ["at 1ms: s1 -- h1 down"]
`, filepath.Join(t.TempDir(), "a.jsonl"), false)
	_, run, err := b.finish(context.Background())
	if err != nil || len(run.Counted()) != 4 {
		t.Fatalf("%v, %v", run.Samples, err)
	}
	at := func(what string) int { return slices.Index(b.driver.log, what) }
	for _, probe := range []string{"one", "other"} {
		if looks := at(probe + " looks"); looks < 0 || at("run seen") < looks || at("event s1 -- h1 down") < looks {
			t.Errorf("%s does not look yet when others begin: %q", probe, b.driver.log)
		}
	}
	for _, s := range run.Counted() {
		if (s.Failure != "") != (s.Probe == "other") {
			t.Errorf("%s: %q", s.Probe, s.Failure)
		}
	}
}

const many = `
topology: linear,${n}
factors: {n: [1, 2, 3]}
probes: [sh: {name: a, run: "sh -c 'sleep 0.02; echo 1'"}, sh: {name: b, run: "echo ${n}"}]
repetitions: 4
seed: 5
`

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
