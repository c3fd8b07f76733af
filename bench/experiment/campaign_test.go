package experiment

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/measure/environment"
)

// TestDue proves when a round begins: the first at once, one that has begun at once, each other one
// in the period after that in which something was measured last; late where its time has gone by;
// and that there are never two in one period.
func TestDue(t *testing.T) {
	origin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	const week = 7 * 24 * time.Hour
	days := func(d float64) time.Time { return origin.Add(time.Duration(d * float64(24*time.Hour))) }
	for _, c := range []struct {
		what    string
		round   int     // asked for
		last    float64 // days after the origin when something was measured last; negative: nothing was
		of      int     // the round of that
		now     float64
		at      float64
		periods int
	}{
		{"the first", 1, -1, 0, 0, 0, 0},
		{"the first, resumed", 1, -1, 0, 20, 20, 0},
		{"one that has begun", 2, 7.1, 2, 7.2, 7.2, 0},
		{"one that was interrupted weeks ago", 2, 7.1, 2, 40, 40, 0},
		{"the next", 2, 0.5, 1, 0.6, 7, 1},
		{"the next, a moment late", 2, 0.5, 1, 7.01, 7.01, 1},
		{"two weeks late", 2, 0.5, 1, 22, 22, 3},
		{"after one that was late: no other in its week", 3, 22.5, 2, 22.6, 28, 1},
		{"after one that took longer than a week", 2, 8, 1, 8.1, 14, 1},
		{"a clock that was set back", 2, -0.5, 1, -0.4, 7, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			ca := campaign{every: week, origin: origin, round: c.of}
			if c.of > 0 {
				ca.last = days(c.last)
			}
			if at, periods := ca.due(c.round, days(c.now)); !at.Equal(days(c.at)) || periods != c.periods {
				t.Errorf("%v, %d; want %v, %d", at, periods, days(c.at), c.periods)
			}
		})
	}
	once := campaign{origin: origin, last: origin, round: 0}
	if at, _ := once.due(0, days(3)); !at.Equal(days(3)) {
		t.Errorf("what is no campaign waits until %v", at)
	}
}

// TestCampaign proves that a campaign measures all of a plan in each round, that rounds begin at
// whole periods after the first and not before, with no lab up meanwhile; that it goes on from its
// file after an interruption; and that rounds which were missed come one in a period, not at once.
func TestCampaign(t *testing.T) {
	const every = 400 * time.Millisecond
	path := filepath.Join(t.TempDir(), "a.jsonl")
	begin := func(resume bool) *bench {
		e, problems := Read("x.yaml", []byte("topology: linear,1\nfactors: {n: [1, 2]}\nprobes: [sh: {run: \"echo ${n}\"}]\nrepetitions: 2\n"), vocabulary())
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		e.Times, e.Every = 4, every
		p, problems := e.Plan()
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		w, before, err := Start(path, p, resume, nil, environment.Record{})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{t: t, driver: &shell{root: t.TempDir()}, path: path}
		b.Runner = &Runner{Plan: p, Driver: b.driver, Writer: w, Before: before, Unwatched: true}
		return b
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := begin(false)
	if h := b.Plan.Headline(); !strings.HasPrefix(h, "16 runs of 2 cells") || !strings.HasSuffix(h, "4 rounds, one every 400ms") {
		t.Error(h)
	}
	b.Progress = func(p Progress) {
		if p.Step == "waiting" && p.Run.Round == 3 {
			if b.Runner.instance != nil {
				t.Error("a lab is up while the campaign waits")
			}
			cancel()
		}
	}
	summary, run, err := b.finish(ctx)
	if err == nil || summary.Done != 8 || summary.Left != 8 {
		t.Fatalf("%+v, %v", summary, err)
	}
	if e := run.Header.Experiment; e.Rounds != 4 || e.Every != 0.4 || e.Repetitions != 8 || e.Runs != 16 {
		t.Errorf("%+v", e)
	}
	time.Sleep(3 * every) // the machine is off
	b = begin(true)
	var said []string
	b.Say = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	summary, run, err = b.finish(t.Context())
	if err != nil || summary.Left != 0 || summary.Done != 8 || len(run.Counted()) != 16 {
		t.Fatalf("%+v, %v, %d samples", summary, err, len(run.Counted()))
	}
	if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "round 3 of 4 is ") && strings.Contains(s, "late") }) {
		t.Errorf("%q", said)
	}
	var periods []int
	cells := map[string]int{}
	for _, s := range run.Counted() {
		cells[fmt.Sprintf("%d %s", s.Round, s.Cell)]++
		if want := (s.Repetition + 1) / 2; s.Round != want {
			t.Errorf("repetition %d is of round %d, not %d", s.Repetition, s.Round, want)
		}
		if s.Round > len(periods) {
			periods = append(periods, int(s.Started.Sub(run.Header.Started)/every))
		}
	}
	if len(cells) != 8 || slices.ContainsFunc([]int{cells["1 n=1"], cells["4 n=2"]}, func(n int) bool { return n != 2 }) {
		t.Errorf("%v", cells)
	}
	for i := 1; i < len(periods); i++ {
		if periods[i] <= periods[i-1] {
			t.Errorf("rounds begin in the periods %v", periods)
		}
	}
	if len(periods) != 4 || periods[2] < 4 {
		t.Errorf("rounds begin in the periods %v", periods)
	}
	if summary, _, err := begin(true).finish(t.Context()); err != nil || summary.Done != 0 || summary.Before != 16 {
		t.Errorf("again: %+v, %v", summary, err)
	}
}

// TestPeriod proves what is read as a period, and that the rest is refused with what to write.
func TestPeriod(t *testing.T) {
	for text, want := range map[string]string{"1w": "168h0m0s", "2d": "48h0m0s", "36h": "36h0m0s", "90s": "1m30s", "15min": "15m0s", "0": "", "0w": "", "-1d": "", "1.5w": "", "2wd": "", "60w": "", "w": "", "9999999999999w": "", "1month": ""} {
		d, err := ParsePeriod(text)
		switch {
		case want == "" && (err == nil || !strings.Contains(err.Error(), "write 1w")):
			t.Errorf("%s: %v, %v", text, d, err)
		case want != "" && (err != nil || d.String() != want):
			t.Errorf("%s: %v, %v", text, d, err)
		}
	}
}
