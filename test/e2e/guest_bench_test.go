package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// TestGuestBench proves that one-way delays from and to a guest are those of the link, although the
// guest's clock is years off; that a result says what emulates the guest's processor; and that one
// that is emulated makes figures doubtful, and says why.
func TestGuestBench(t *testing.T) {
	m := newMachine(t)
	m.tinyLab("lab.yaml", "", "")
	m.sh("sed -i 's/memory: 128MB/memory: 256MB/; s/, ports: 18080:80/, health: date -s 2020-01-01/' lab.yaml") // the program takes some of it
	out := filepath.Join(m.dir, "x.jsonl")
	m.ok("bench", "run", m.file("x.yaml", `
topology: lab.yaml
probes:
  - packets: {name: there, from: h1, to: v1, rate: 50, time: 3s}
  - packets: {name: back, from: v1, to: h1, rate: 50, time: 3s}
`), "--out", out)
	samples := m.samples(out).Counted()
	if len(samples) != 2 {
		t.Fatalf("%d samples", len(samples))
	}
	for _, s := range samples {
		for _, one := range s.Measurements {
			// Emulated processors may be late, and clocks be told apart to some milliseconds only.
			if median := stats.Quantile(one.Values, 0.5); one.Metric == "delay" && (median < 0.003 || median > 0.2) {
				t.Errorf("%s: a link of 5 ms takes %v s", s.Probe, median)
			}
		}
		how := s.Usage.Accelerators["v1"]
		if len(s.Usage.Accelerators) != 1 || how != string(qemu.KVM) && how != environment.Emulated {
			t.Errorf("%s: accelerators %v", s.Probe, s.Usage.Accelerators)
		}
		said := slices.ContainsFunc(s.Verdict.Reasons, func(r environment.Reason) bool { return r.Code == "emulated" })
		if said != (how == environment.Emulated) || said && s.Verdict.Level == environment.Good {
			t.Errorf("%s: by %s, and the verdict is %+v", s.Probe, how, s.Verdict)
		}
		for _, r := range s.Verdict.Reasons {
			if r.Code == "link-delay" {
				t.Errorf("%s: %s", s.Probe, r.Text)
			}
		}
	}
}
