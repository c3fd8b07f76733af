package experiment

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const sharing = `
topology: linear,${n}
lab: {controller: "${c}"}
factors: {n: [1, 2], c: [none, ovs-testcontroller]}
probes: [sh: {run: "echo 1"}]
repetitions: 2
order: given
`

// made are what a driver made and removed for labs to share, and the labs: "make for linear,1",
// "up linear,1".
func (s *shell) made() []string {
	return slices.DeleteFunc(slices.Clone(s.log), func(l string) bool { return strings.HasPrefix(l, "run") })
}

// TestPrepared proves that what labs share is made before the first that needs it, once for the
// whole run, and removed once after the last lab is down, in whatever way the run ends.
func TestPrepared(t *testing.T) {
	full := []string{"make for linear,1", "up linear,1", "down linear,1", "up linear,1", "down linear,1", "make for linear,2", "up linear,2", "down linear,2", "up linear,2", "down linear,2",
		"up linear,1", "down linear,1", "up linear,1", "down linear,1", "up linear,2", "down linear,2", "up linear,2", "down linear,2", "remove 2"}
	stopped := errors.New("any")
	for what, c := range map[string]struct {
		set  func(b *bench, cancel func())
		want []string // the whole, or what the end is
		err  error
	}{
		"done": {func(*bench, func()) {}, full, nil},
		"interrupted": {func(b *bench, cancel func()) {
			b.Progress = func(p Progress) {
				if p.Step == "sh" && p.Run.Number == 3 {
					cancel()
				}
			}
		}, []string{"up linear,2", "down linear,2", "remove 2"}, context.Canceled},
		"budget": {func(b *bench, _ func()) {
			b.Progress = func(p Progress) {
				if p.Step == "sh" {
					b.Plan.Experiment.Budget = 1
				}
			}
		}, []string{"up linear,1", "down linear,1", "remove 1"}, ErrBudget},
		"nowhere to write": {func(b *bench, _ func()) { b.Writer.Close() }, []string{"up linear,1", "down linear,1", "remove 1"}, stopped},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, sharing, filepath.Join(t.TempDir(), "a.jsonl"), false)
			b.driver.makes = true
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.set(b, cancel)
			_, err := b.Run(ctx)
			if (err == nil) != (c.err == nil) || c.err != nil && c.err != stopped && !errors.Is(err, c.err) {
				t.Errorf("it ended with %v", err)
			}
			log := b.driver.made()
			if end := log[max(0, len(log)-len(c.want)):]; !slices.Equal(end, c.want) {
				t.Errorf("%q, want at the end %q", log, c.want)
			}
		})
	}
}

// TestUnprepared proves that where what labs share cannot be made, their runs fail with the reason,
// and the others go on; and that what cannot be removed ends the run with an error, so that nobody
// takes it for clean, with all that was measured in the file.
func TestUnprepared(t *testing.T) {
	b := newBench(t, strings.ReplaceAll(sharing, "ovs-testcontroller", "unmade"), filepath.Join(t.TempDir(), "a.jsonl"), false)
	b.driver.makes, b.driver.stuck = true, true
	summary, run, err := b.finish(t.Context())
	if !errors.Is(err, errUnreleased) || summary != (Summary{Runs: 8, Done: 8, Failed: 4}) {
		t.Errorf("%+v, %v", summary, err)
	}
	if said := strings.Join(b.said, "\n"); !strings.Contains(said, "the cloud does not answer") {
		t.Errorf("said: %s", said)
	}
	for _, s := range run.Samples {
		if failed := s.Factors["c"] == "unmade"; failed != strings.Contains(s.Failure, "the quota is used up") || !failed && s.Failure != "" {
			t.Errorf("%s: %q", s.Cell, s.Failure)
		}
	}
}

// TestPreparedPairs proves that what the runs of a pair need is made before the first of them, not
// between them.
func TestPreparedPairs(t *testing.T) {
	b := newBench(t, sharing+"paired: n\n", filepath.Join(t.TempDir(), "a.jsonl"), false)
	b.driver.makes = true
	if _, _, err := b.finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if log := b.driver.made(); len(log) < 3 || !strings.HasPrefix(log[0], "make for") || !strings.HasPrefix(log[1], "make for") || !strings.HasPrefix(log[2], "up") {
		t.Errorf("%q", log)
	}
}

// TestPreparedRounds proves that what labs share is removed while a campaign waits, and made again.
func TestPreparedRounds(t *testing.T) {
	e, problems := Read("x.yaml", []byte(sharing), vocabulary())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	const every = 2 * time.Second // so that the second round is waited for
	path := filepath.Join(t.TempDir(), "a.jsonl")
	b := newBench(t, sharing, path, false)
	e.Times, e.Every = 2, every
	b.Plan, _ = e.Plan()
	b.driver.makes, b.Unwatched = true, true
	waited := false
	b.Progress = func(p Progress) {
		if waited = waited || p.Step == "waiting"; p.Step == "waiting" && len(b.driver.held) > 0 {
			t.Errorf("it waits with %q", b.driver.held)
		}
	}
	if _, _, err := b.finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	removed, want := 0, 1
	for _, l := range b.driver.log {
		if l == "remove 2" {
			removed++
		}
	}
	if waited { // a machine that stood still for so long has not
		want = 2
	}
	if removed != want {
		t.Errorf("removed %d times: %s", removed, fmt.Sprint(b.driver.log))
	}
}
