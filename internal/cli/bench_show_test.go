package cli

import (
	"math"
	"testing"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/reporttest"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// TestOneRule proves that the terminal and a report say the same about the same samples: the mean,
// to which each repetition contributes once and a share contributes that of its packets, and how
// far to trust it, if some and if half of the samples are bad. The samples are skewed, so that any
// other mean would differ.
func TestOneRule(t *testing.T) {
	for bad, want := range map[int]environment.Level{1: environment.Doubtful, 2: environment.Bad} {
		var samples []result.Sample
		for i, values := range [][]float64{{1, 1, 1, 97}, {2, 2, 3}, {40}} {
			v := environment.Verdict{Level: environment.Good}
			if i < bad {
				v.Level = environment.Bad
			}
			samples = append(samples, result.Sample{Run: i + 1, Cell: "all", Block: 1, Repetition: i + 1, Probe: "ping", Kind: "ping", Verdict: &v,
				Measurements: []result.Measurement{{Metric: "rtt", Unit: "s", Values: values}, result.Share("loss", i, 10*(i+1))}})
		}
		h := reporttest.Header()
		h.Experiment.Factors, h.Experiment.Text = nil, "report: {figures: [{metric: rtt, kind: bar, unit: s}, {metric: loss, kind: bar, unit: \"1\"}]}"
		run, err := result.ReadFile(reporttest.Write(t, h, samples))
		if err != nil {
			t.Fatal(err)
		}
		figures := report.Build("x", run).Figures
		for i, f := range benchFigures(run, &experiment.Plan{}) {
			point := figures[i].Series[0].Points[0]
			if mean := []float64{(25 + 7.0/3 + 40) / 3, (0 + 1.0/20 + 2.0/30) / 3}[i]; math.Abs(float64(f.Mean)-mean) > 1e-12 || math.Abs(point.Y-mean) > 1e-12 {
				t.Errorf("%s: the terminal says %v, the report %v, and it is %v", f.Metric, f.Mean, point.Y, mean)
			}
			if f.Level != want || point.Level != want || verdictOf(run).Level != want {
				t.Errorf("%d of 3 bad: the terminal says %s and %s, the report %s", bad, f.Level, verdictOf(run).Level, point.Level)
			}
		}
	}
}

// TestFailedCounts proves that a figure of which a repetition failed is not good, in the terminal
// as in a report, and that the reason is the failure; also in a file in which the sample is called
// good.
func TestFailedCounts(t *testing.T) {
	good := func() *environment.Verdict { return &environment.Verdict{Level: environment.Good} }
	for failed, want := range map[int]environment.Level{1: environment.Doubtful, 2: environment.Bad} {
		var samples []result.Sample
		for run := 1; run <= 4; run++ {
			s := result.Sample{Run: run, Cell: "all", Block: 1, Repetition: run, Probe: "ping", Kind: "ping", Verdict: good(),
				Measurements: []result.Measurement{{Metric: "rtt", Unit: "s", Values: []float64{1}}}}
			if run <= failed {
				s.Measurements, s.Failure = nil, "no reply came"
			}
			samples = append(samples, s)
		}
		h := reporttest.Header()
		h.Experiment.Factors, h.Experiment.Text = nil, "report: {figures: [{metric: rtt, kind: bar, unit: s}]}"
		run, err := result.ReadFile(reporttest.Write(t, h, samples))
		if err != nil {
			t.Fatal(err)
		}
		r := report.Build("x", run)
		point, figure := r.Figures[0].Series[0].Points[0], benchFigures(run, &experiment.Plan{})[0]
		all := verdictOf(run)
		if figure.Level != want || point.Level != want || all.Level != want || r.Levels[environment.Bad] != failed {
			t.Errorf("%d of 4 failed: the terminal says %s and %s, the report %s and %v", failed, figure.Level, all.Level, point.Level, r.Levels)
		}
		if len(all.Reasons) != 1 || all.Reasons[0].Code != result.Failed || all.Reasons[0].Text != "ping failed: no reply came" {
			t.Errorf("%+v", all.Reasons)
		}
	}
}
