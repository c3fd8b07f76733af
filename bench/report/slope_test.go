package report_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// hopsOf makes a result of costs over hops, in s: of each repetition both levels of who over 0 to
// 10 hops, the one directly after the other. A repetition has an offset of its own, which is half
// of what ten hops cost, and a pace of its own, 3 % more or less; what is measured is off by 1 % of
// what ten hops cost.
func hopsOf(repetitions int, cost map[string]func(hops float64) float64) (result.Header, []result.Sample) {
	h := result.Header{Experiment: result.Experiment{Name: "x", Factors: []result.Factor{
		{Name: "hops", Levels: []string{"0", "2", "4", "6", "8", "10"}}, {Name: "who", Levels: []string{"a", "b"}}}}}
	rng := rand.New(rand.NewPCG(3, 4))
	var samples []result.Sample
	run := 0
	for i := range repetitions {
		offset, pace := 5e-6*rng.Float64(), 1+0.03*rng.NormFloat64()
		for _, hops := range []float64{0, 2, 4, 6, 8, 10} {
			for _, who := range []string{"a", "b"} {
				run++
				v := offset + pace*cost[who](hops) + 0.1e-6*rng.NormFloat64()
				samples = append(samples, result.Sample{Run: run, Cell: fmt.Sprint(hops, who), Factors: map[string]any{"hops": hops, "who": who},
					Block: i, Repetition: i + 1, Pair: fmt.Sprintf("hops=%v", hops), Probe: "p", Kind: "p", Verdict: &environment.Verdict{Level: environment.Good},
					Measurements: []result.Measurement{{Metric: "m", Unit: "s", Values: []float64{v}}}})
			}
		}
	}
	return h, samples
}

// line costs so many microseconds a hop, beside what it costs without any.
func line(without, each float64) func(float64) float64 {
	return func(hops float64) float64 { return 1e-6 * (without + each*hops) }
}

// TestSlopes proves what statements about slopes come to: a change of 5 % planted in what a hop
// costs is found, among offsets that differ by far more, and is not where there is none; whatever
// it costs without any hop; by pairs only where there are pairs; and what cannot be told says how
// many repetitions could.
func TestSlopes(t *testing.T) {
	planted := map[string]func(float64) float64{"a": line(3, 1.05), "b": line(9, 1)}
	none := map[string]func(float64) float64{"a": line(3, 1), "b": line(9, 1)}
	for _, c := range []struct {
		trend  string
		costs  map[string]func(float64) float64
		n      int
		single bool // nothing was measured directly beside anything
		want   report.Outcome
		why    string
	}{
		{"at: {who: a}, is: above, than: {who: b}", planted, 20, false, report.Holds, "µs per hops (+"},
		{"at: {who: b}, is: above, than: {who: a}", planted, 20, false, report.Fails, ""},
		{"at: {who: a}, is: above, than: {who: b}", none, 20, false, report.CannotTell, "repetitions would tell"},
		{"at: {who: a}, is: below, than: {who: b}", none, 20, false, report.CannotTell, "repetitions would tell"},
		{"at: {who: a}, is: times, factor: 1.05, within: 2%, than: {who: b}", planted, 20, false, report.Holds, "µs per hops)"},
		{"at: {who: a}, is: times, factor: 1, within: 2%, than: {who: b}", planted, 20, false, report.Fails, "1.05"},
		{"at: {who: a}, is: times, factor: 1, within: 2%, than: {who: b}", none, 20, false, report.Holds, ""},
		{"at: {who: a}, is: times, factor: 1.05, within: 2%, than: {who: b}", none, 20, false, report.Fails, ""},
		{"at: {who: a}, is: times, factor: 1.05, within: 2%, than: {who: b}", planted, 20, true, report.CannotTell, "repetitions would tell"},
		{"at: {who: a}, is: times, factor: 1.05, within: 1%, than: {who: b}", planted, 8, false, report.CannotTell, "; about "},
		{"at: {who: a}, is: times, factor: 1.05, than: {who: b}", planted, 4, false, report.CannotTell, "too few: 4 repetitions"},
		{"at: {who: a, hops: [0, 10]}, is: times, factor: 1.05, within: 4%, than: {who: b}", planted, 20, false, report.Holds, ""},
		{"at: {who: a}, is: below, than: 1.2, unit: us", planted, 20, false, report.Holds, "per hops ["},
		{"at: {who: a}, is: above, than: 1200, unit: ns", planted, 20, false, report.Fails, ""},
		{"at: {who: a}, is: below, than: 1.05, unit: us", planted, 20, false, report.CannotTell, "repetitions would tell"},
		{"at: {who: c}, is: above, than: {who: b}", planted, 20, false, report.NotMeasured, "no values of both"},
		{"at: {who: a}, is: above, than: {who: c}", planted, 20, false, report.NotMeasured, ""},
		{"at: {who: a, hops: 2}, is: above, than: {who: b}", planted, 20, false, report.NotMeasured, ""},
	} {
		h, samples := hopsOf(c.n, c.costs)
		if c.single {
			for i := range samples {
				samples[i].Pair = ""
			}
		}
		h.Experiment.Text = "paper: {trends: [{metric: m, of: slope, along: hops, " + c.trend + "}]}"
		r := build(t, h, samples)
		if c.trend == "at: {who: a, hops: 2}, is: above, than: {who: b}" {
			if len(r.Paper.Trends) != 0 {
				t.Errorf("a slope of one level was read: %+v", r.Paper.Trends)
			}
			continue
		}
		if len(r.Paper.Trends) != 1 {
			t.Fatalf("%s: %v", c.trend, r.Problems)
		}
		if got := r.Paper.Trends[0]; got.Outcome != c.want || !strings.Contains(got.Why, c.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", c.trend, got.Outcome, got.Why, c.want, c.why)
		}
	}
}

// TestSlopesIncomplete proves that a repetition of which a level failed is in no slope, and neither
// is its partner, if it has one; and that a level that only one side has is in neither's.
func TestSlopesIncomplete(t *testing.T) {
	for _, paired := range []bool{true, false} {
		incomplete(t, paired)
	}
}

func incomplete(t *testing.T, paired bool) {
	h, samples := hopsOf(7, map[string]func(float64) float64{"a": line(3, 2), "b": line(9, 1)})
	h.Experiment.Text = "paper: {trends: [{metric: m, of: slope, along: hops, at: {who: a}, is: times, factor: 2, than: {who: b}}]}"
	kept := samples[:0]
	for _, s := range samples {
		switch {
		case s.Factors["who"] == "b" && s.Factors["hops"] == 10.0:
			continue
		case s.Factors["who"] == "a" && s.Factors["hops"] == 4.0 && s.Repetition <= 3:
			s.Measurements, s.Failure = nil, "it broke"
		case s.Factors["who"] == "a" && s.Factors["hops"] == 10.0:
			s.Measurements[0].Values[0] *= 50 // which would be seen
		}
		if !paired {
			s.Pair = ""
		}
		kept = append(kept, s)
	}
	if got := build(t, h, kept).Paper.Trends[0]; got.Outcome != report.CannotTell || !strings.Contains(got.Why, "too few: 4 repetitions") || !strings.HasPrefix(got.Why, "1.9") && !strings.HasPrefix(got.Why, "2.0") {
		t.Errorf("paired %v: %+v", paired, got)
	}
}

// TestCurvature proves that a line is told from what bends by a share of its rise, whatever offset
// and pace repetitions have, and which of both it cannot tell from few.
func TestCurvature(t *testing.T) {
	bent := func(share float64) func(float64) float64 { // by so much of its rise of 10 us below the chord, at 5 hops
		return func(hops float64) float64 { return 1e-6 * (3 + hops - 4*share*10*(hops/10)*(1-hops/10)) }
	}
	for _, c := range []struct {
		share float64
		n     int
		more  string
		want  report.Outcome
		why   string
	}{
		{0, 20, "", report.Holds, " of its rise ["},
		{0.05, 20, "", report.Holds, ""},
		{0.2, 20, "", report.Fails, "it bends by "},
		{-0.2, 20, "", report.Fails, "it bends by -"},
		{0.2, 20, ", within: 30%", report.Holds, ""},
		{0.1, 20, "", report.CannotTell, "would tell"},
		{0, 4, "", report.CannotTell, "too few: 4 repetitions with all levels"},
	} {
		h, samples := hopsOf(c.n, map[string]func(float64) float64{"a": bent(c.share), "b": line(0, 0)})
		h.Experiment.Text = "paper: {trends: [{metric: m, is: linear, of: curvature, along: hops, at: {who: a}" + c.more + "}, {metric: m, is: linear, of: curvature, along: hops, at: {who: b}}]}"
		all := build(t, h, samples).Paper.Trends
		if got := all[0]; got.Outcome != c.want || !strings.Contains(got.Why, c.why) {
			t.Errorf("%v: %s (%s), want %s (%s)", c.share, got.Outcome, got.Why, c.want, c.why)
		}
		if got := all[1]; got.Outcome != report.CannotTell {
			t.Errorf("what does not rise: %+v", got)
		}
	}
}

// TestNeedsKVM proves that a statement about virtual machines, where it says that it needs KVM, is
// neither shown nor refuted where their processors were emulated on either side; that it says what
// was measured all the same; that with KVM, and of other samples, it is judged; and that the report
// says which accelerator was used.
func TestNeedsKVM(t *testing.T) {
	const statement = "{metric: m, needs: kvm, at: {who: b, hops: 10}, is: times, factor: 1, than: {who: a}, within: 1%}"
	for _, c := range []struct {
		who, by string
		trend   string
		want    report.Outcome
	}{
		{"b", "tcg", statement, "needs KVM"},
		{"a", "tcg", statement, "needs KVM"},
		{"b", "kvm", statement, report.Fails},
		{"", "", statement, report.Fails},
		{"b", "tcg", strings.Replace(statement, "needs: kvm, ", "", 1), report.Fails},
		{"b", "tcg", "{metric: m, needs: kvm, at: {who: a}, along: hops, is: rises}", report.Holds},
		{"b", "tcg", "{metric: m, needs: kvm, at: {who: c}, along: hops, is: rises}", report.NotMeasured},
	} {
		h, samples := hopsOf(8, map[string]func(float64) float64{"a": line(3, 1), "b": line(3, 40)})
		for i := range samples {
			samples[i].Usage = &environment.Usage{Looks: 1}
			if samples[i].Factors["who"] == c.who {
				samples[i].Usage.Accelerators = map[string]string{"r1": c.by, "r2": c.by}
			}
		}
		h.Experiment.Text = "paper: {trends: [" + c.trend + "]}"
		r := build(t, h, samples)
		got := r.Paper.Trends[0]
		if got.Outcome != c.want || c.want.Needing() && !(strings.Contains(got.Why, "the processors of r1, r2,") && strings.Contains(got.Why, " times [")) {
			t.Errorf("%+v: %s (%s)", c, got.Outcome, got.Why)
		}
		if n := strings.Join(r.Notes, " "); strings.Contains(n, "accelerator "+c.by+".") != (c.by != "") || strings.Contains(n, "slower by far") != (c.by == "tcg") {
			t.Errorf("%+v: %q", c, r.Notes)
		}
		if n := r.Paper.Outcomes(); len(n) != 1 || n[0].Outcome != c.want {
			t.Errorf("%+v: counted as %v", c, n)
		}
	}
}
