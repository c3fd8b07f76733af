package e2e

import (
	"path/filepath"
	"testing"
)

// TestControllerLoad proves that the controller of a lab is measured beside the switches that it has: it answers, rightly, and its own
// switches go on.
func TestControllerLoad(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	file := m.file("x.yaml", `
topology: linear,2
lab: {datapath: embedded, controller: trivet}
probes:
  - controller_load: {name: many, mode: throughput, switches: 2, hosts: 20, time: 1s}
  - controller_load: {name: one, mode: latency, switches: 1, hosts: 20, time: 1s}
  - ping: {all: true, count: 2, interval: 10ms}
`)
	out := filepath.Join(m.dir, "x.jsonl")
	m.ok("bench", "run", file, "--out", out)
	run := m.samples(out)
	if len(run.Samples) != 3 {
		t.Fatalf("%d samples", len(run.Samples))
	}
	for _, s := range run.Samples[:2] {
		if s.Failure != "" {
			t.Fatalf("%s: %s", s.Probe, s.Failure)
		}
		rate, wrong, times := s.Values("answers_rate"), s.Values("wrong"), s.Values("answer_time")
		if len(rate) != 1 || rate[0] <= 0 || wrong[0] != 0 || len(times) != 4 || times[0] <= 0 || times[3] < times[0] || len(s.Values("controller_cpu")) != 1 {
			t.Errorf("%s: %+v", s.Probe, s.Measurements)
		}
	}
	for _, loss := range run.Samples[2].Values("loss") {
		if loss != 0 {
			t.Errorf("pings were lost: %+v", run.Samples[2].Measurements)
		}
	}
	m.unchanged(before)
}
