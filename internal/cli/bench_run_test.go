package cli

import (
	"bytes"
	"testing"

	"trivet.dev/trivet/bench/experiment"
)

// TestBenchView proves that what a step consists of is shown as it changes, once each time, before
// the first run as well, and that nothing is shown after the end, however often that comes.
func TestBenchView(t *testing.T) {
	var out bytes.Buffer
	v := newBenchView(&out)
	v.passing("toy: removing 1 machine")
	v.step(experiment.Progress{Step: "up", Runs: 2, Cell: &experiment.Cell{ID: "all"}})
	for _, text := range []string{"toy: 2 machines", "toy: 2 machines", "toy: waiting"} {
		v.passing(text)
	}
	v.say("toy: 2 machines in %d s", 3)
	v.step(experiment.Progress{Step: "done", Done: 1, Runs: 2, Cell: &experiment.Cell{ID: "all"}})
	v.end()
	v.end()
	want := "toy: removing 1 machine\ntoy: 2 machines\ntoy: waiting\ntoy: 2 machines in 3 s\n1/2  all\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestBenchViewLive proves that on a terminal the step is shown with what it consists of.
func TestBenchViewLive(t *testing.T) {
	v := &benchView{out: &bytes.Buffer{}, live: true, stop: make(chan struct{})}
	v.passing("toy: removing 1 machine")
	if line := v.line(); line != "toy: removing 1 machine" {
		t.Errorf("before the first run: %q", line)
	}
	v.step(experiment.Progress{Step: "up", Runs: 2, Cell: &experiment.Cell{ID: "all"}})
	if line := v.line(); line != "1/2  all  up" {
		t.Error(line)
	}
	v.passing("toy: waiting")
	if line := v.line(); line != "1/2  all  toy: waiting" {
		t.Error(line)
	}
	v.end()
}
