package experiment

import (
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/bench/result"
)

const growing = `
topology: linear,${n}
factors: {n: [1, 2]}
probes: [sh: {run: "echo ${n}"}]
until: decided
at_most: 20
paired: n
seed: 3
`

// judgedBench is a bench whose result is judged by a function of the repetitions.
func judgedBench(t *testing.T, path string, resume bool, open func(repetitions int) bool) (*bench, *[]int) {
	t.Helper()
	b, looks := newBench(t, growing, path, resume), &[]int{}
	b.Judge = func(n int) (result.Look, error) {
		run, err := result.ReadFile(path)
		if err != nil {
			return result.Look{}, err
		}
		if got := len(run.Counted()); got != 2*n {
			t.Errorf("at the look after %d repetitions %d runs of 2 cells are in the file", n, got)
		}
		*looks = append(*looks, n)
		return result.Look{Level: 0.01, Statements: []result.Judged{{What: "x", Open: open(n)}, {What: "y"}}}, nil
	}
	return b, looks
}

// TestUntilDecided proves that an experiment ends at the first look at which all is decided, goes
// on where it is not, and ends with the most repetitions; that looks come after whole repetitions,
// in the plan's order; and that the result says how it ended and has no run after that.
func TestUntilDecided(t *testing.T) {
	for _, c := range []struct {
		decided int
		looks   []int
		ends    string
	}{{6, []int{6}, result.EndsDecided}, {9, []int{6, 8, 10}, result.EndsDecided}, {20, []int{6, 8, 10, 12, 14, 16, 18, 20}, result.EndsDecided}, {99, []int{6, 8, 10, 12, 14, 16, 18, 20}, result.EndsMost}} {
		b, looks := judgedBench(t, filepath.Join(t.TempDir(), "a.jsonl"), false, func(n int) bool { return n < c.decided })
		order := b.Plan.Runs
		summary, run, err := b.finish(t.Context())
		last := c.looks[len(c.looks)-1]
		if err != nil || summary != (Summary{Runs: 2 * last, Done: 2 * last}) || !slices.Equal(*looks, c.looks) {
			t.Errorf("decided after %d: %+v, looks %v, %v", c.decided, summary, *looks, err)
		}
		for i, s := range run.Samples {
			if s.Run != order[i].Number || s.Repetition > last {
				t.Errorf("decided after %d: sample %d is of run %d, repetition %d", c.decided, i, s.Run, s.Repetition)
			}
		}
		end := run.Ended()
		if end == nil || end.Ends != c.ends || end.Repetitions != last || end.Level != 0.01 || len(end.Statements) != 2 || run.Expected() != 2*last || len(run.Looks) != len(c.looks) {
			t.Errorf("decided after %d: %+v, %d runs expected", c.decided, run.Looks, run.Expected())
		}
		if u := run.Header.Experiment.Until; u == nil || !reflect.DeepEqual(*u, result.Until{Rule: "decided", Looks: []int{6, 8, 10, 12, 14, 16, 18, 20}, Spending: "obrien-fleming", Level: 0.05}) || run.Header.Experiment.Repetitions != 20 {
			t.Errorf("the header says %+v", run.Header.Experiment)
		}
	}
}

// TestUntilResumed proves that a resumed run goes on by the rule and with the looks that are in
// its file, whatever the experiment says now: after an interruption with the next look, one that
// was due and not made at once, and after its end with nothing, except for what failed.
func TestUntilResumed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	b, looks := judgedBench(t, path, false, func(int) bool { return true })
	b.Plan.Experiment.Budget = time.Hour
	b.Progress = func(p Progress) {
		if p.Step == "sh" && p.Run.Repetition == 9 {
			b.Plan.Experiment.Budget = 1
		}
	}
	if summary, _, err := b.finish(t.Context()); !errors.Is(err, ErrBudget) || summary.Done < 17 || summary.Left != 40-summary.Done || !slices.Equal(*looks, []int{6, 8}) {
		t.Fatalf("%+v, looks %v, %v", summary, *looks, err)
	}

	b, looks = judgedBench(t, path, true, func(n int) bool { return n < 12 })
	if b.Plan.Until = b.Before.Header.Experiment.Until; b.Plan.Until == nil {
		t.Fatal("the rule is lost")
	}
	if summary, run, err := b.finish(t.Context()); err != nil || !slices.Equal(*looks, []int{10, 12}) || summary.Left != 0 || summary.Before+summary.Done != 24 || run.Ended() == nil {
		t.Fatalf("%+v, looks %v, %v", summary, *looks, err)
	}

	b, looks = judgedBench(t, path, true, func(int) bool { return true })
	if summary, run, err := b.finish(t.Context()); err != nil || len(*looks) > 0 || summary != (Summary{Runs: 24, Before: 24}) || len(run.Counted()) != 24 {
		t.Fatalf("after its end: %+v, looks %v, %v", summary, *looks, err)
	}

	// What failed in it is measured again, and nothing else.
	w, _, err := result.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	one := result.Sample{Run: 3, Cell: "n=1", Repetition: 2, Probe: "sh", Kind: "sh", Started: time.Now()}
	one.Fail("for the test")
	if err := errors.Join(w.Append(one), w.Close()); err != nil {
		t.Fatal(err)
	}
	b, looks = judgedBench(t, path, true, func(int) bool { return true })
	b.Again = true
	if summary, _, err := b.finish(t.Context()); err != nil || len(*looks) > 0 || summary != (Summary{Runs: 24, Before: 23, Done: 1}) {
		t.Fatalf("what failed: %+v, looks %v, %v", summary, *looks, err)
	}
}

// TestUntilOfTheFile proves that a resumed run is judged by the file's rule where the experiment
// has another or none, so that nobody looks more often than was said; and a fixed one by none.
func TestUntilOfTheFile(t *testing.T) {
	dir := t.TempDir()
	fixed := strings.Replace(strings.Replace(growing, "until: decided\n", "", 1), "at_most", "repetitions", 1)
	for i, texts := range [][2]string{{growing, fixed}, {fixed, growing}} {
		path := filepath.Join(dir, strconv.Itoa(i)+".jsonl")
		first := newBench(t, texts[0], path, false)
		first.close()
		second := newBench(t, texts[1], path, true)
		if was, now := first.Plan.Until, second.Plan.Until; (was == nil) != (now == nil) {
			t.Errorf("begun by %+v, resumed by %+v", was, now)
		}
		second.close()
	}
}

// TestLooksOf proves after how many repetitions is looked: from five on, after each tenth of the
// most, always at the most, and never twice.
func TestLooksOf(t *testing.T) {
	for most, want := range map[int][]int{5: {5}, 6: {5, 6}, 10: {5, 6, 7, 8, 9, 10}, 25: {5, 8, 10, 13, 15, 18, 20, 23, 25}, 50: {5, 10, 15, 20, 25, 30, 35, 40, 45, 50}, 1000: {100, 200, 300, 400, 500, 600, 700, 800, 900, 1000}} {
		if got := untilDecided(most).Looks; !slices.Equal(got, want) {
			t.Errorf("at most %d: %v, want %v", most, got, want)
		}
	}
}

// TestUntilRead proves what the keys mean, that a quick look and what was published have fixed
// repetitions, and what is refused, where it is and with what to do.
func TestUntilRead(t *testing.T) {
	const rest = "topology: linear,2\nprobes: [ping: {from: h1, to: h2}]\n"
	read := func(text string) *Experiment {
		t.Helper()
		e, problems := Read("x.yaml", []byte(rest+text), Trivets())
		if err := problems.Err(); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return e
	}
	for text, want := range map[string][2]int{"until: decided\nat_most: 40\nrepetitions: 7": {40, 7}, "until: decided\nrepetitions: 12": {12, 12}, "until: decided\nat_most: 40": {40, 1}} {
		e := read(text)
		p, _ := e.Plan()
		if len(p.Runs) != want[0] || p.Until == nil || !strings.Contains(p.Headline(), "at most ") {
			t.Errorf("%s: %s, %+v", text, p.Headline(), p.Until)
		}
		e.Fix()
		if p, _ := e.Plan(); len(p.Runs) != want[1] || p.Until != nil || p.Headline() != strings.TrimPrefix(p.Headline(), "at most ") || strings.Contains(p.Headline(), "of the file's") {
			t.Errorf("%s, fixed: %s", text, p.Headline())
		}
	}
	e := read("until: decided\nat_most: 40\nrepetitions: 7\nquick: {warm_up: 1}\nas_published: {warm_up: 2}")
	for what, other := range map[string]*Experiment{"quick": e.Quick(), "as published": e.Published()} {
		if other.Until || other.Repetitions != 7 {
			t.Errorf("%s: %d repetitions, until %t", what, other.Repetitions, other.Until)
		}
	}
	if e.GoOn(15); e.Repetitions != 15 || e.Wanted != 15 {
		t.Errorf("at most 15: %d of %d", e.Repetitions, e.Wanted)
	}
	a, _ := read("repetitions: 12").Plan()
	b, _ := read("repetitions: 12\nuntil: decided").Plan()
	if a.Hash() != b.Hash() {
		t.Error("the rule tells plans apart")
	}
	for text, want := range map[string]string{
		"until: bored\nat_most: 40":                            `x.yaml:3:8  until: "bored": an experiment goes on until it is decided; write decided`,
		"until: decided":                                       "at most 1 repetition cannot decide anything; say how many repetitions there may be at most: at_most: 40",
		"until: decided\nat_most: 4":                           `at_most: "4" is not a number from 5`,
		"at_most: 40":                                          "x.yaml:3:10  at_most: is of an experiment that goes on until it is decided; write until: decided as well",
		"until: decided\nat_most: 40\norder: random":           "order: random mixes; write order: blocked",
		"until: decided\nat_most: 40\nquick: {until: decided}": "until: no such key of quick",
	} {
		_, problems := Read("x.yaml", []byte(rest+text), Trivets())
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngave %v\nwant %s", text, err, want)
		}
	}
	e.Times = 3
	if _, problems := e.Plan(); problems.Err() == nil || !strings.Contains(problems.Err().Error(), "a campaign has as many rounds as it is told to") {
		t.Errorf("%v", problems)
	}
}
