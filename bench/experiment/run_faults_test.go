package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/test/until"
)

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
		if reason != "" && (s.Verdict == nil || s.Verdict.Level != environment.Bad || !slices.ContainsFunc(s.Verdict.Reasons, func(r environment.Reason) bool {
			return r.Code == result.Failed && strings.Contains(r.Text, reason)
		})) {
			t.Errorf("%s failed, and its verdict is %+v", key, s.Verdict)
		}
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

// TestBrokenLab proves that a lab which a run has broken is not used for those that follow, which
// would fail as well.
func TestBrokenLab(t *testing.T) {
	b := newBench(t, `
topology: linear,1
factors:
  what:
    breaks: {run: "sh -c 'touch broken; exit 1'"}
    second: {run: "sh -c 'test ! -e broken && echo 2'"}
    third: {run: "sh -c 'test ! -e broken && echo 3'"}
probes: [sh: {run: "${what.run}"}]
order: given
`, filepath.Join(t.TempDir(), "a.jsonl"), false)
	summary, run, err := b.finish(context.Background())
	if err != nil || summary != (Summary{Runs: 3, Done: 3, Failed: 1}) {
		t.Errorf("%+v, %v: %+v", summary, err, run.Samples)
	}
	if ups := strings.Count(strings.Join(b.driver.log, "\n"), "up linear"); ups != 2 {
		t.Errorf("%d labs; the two runs that went well are to share one: %v", ups, b.driver.log)
	}
}

// TestKilled proves that a run that is killed (SIGKILL) goes on where it was, and that the file
// then holds every run once and in the order of the plan.
func TestKilled(t *testing.T) {
	if path := os.Getenv("TRIVET_TEST_RESULT"); path != "" { // the process that will be killed
		b := newBench(t, many, path, false)
		b.Progress = func(p Progress) {
			if p.Run.Number == 10 {
				time.Sleep(time.Minute) // not to have measured all when a busy machine gets round to killing it
			}
		}
		_, _ = b.Run(context.Background())
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
	until.True(t, "seven samples are there", func() bool { return samples() >= 7 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
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
		for _, l := range []*[2]float64{&b.Limits.Busy, &b.Limits.SoftIRQCore, &b.Limits.Pressure, &b.Limits.RunQueue,
			&b.Limits.Steal, &b.Limits.Gap, &b.Limits.Backlog, &b.Limits.Clock} {
			*l = [2]float64{math.Inf(1), math.Inf(1)} // nothing is bad
		}
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
