package report_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/reporttest"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// build writes samples to a file, reads it, and makes its report.
func build(t *testing.T, h result.Header, samples []result.Sample) *report.Report {
	t.Helper()
	path := reporttest.Write(t, h, samples)
	run, err := result.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return report.Build(path, run)
}

// TestReport proves what a report says of a result whose content is known: how much was measured
// and how well, tables whose means are those of the samples, figures of all kinds, and the paper's
// numbers and statements.
func TestReport(t *testing.T) {
	samples := reporttest.Samples()
	r := build(t, reporttest.Header(), samples)
	if len(r.Problems) > 0 {
		t.Error(r.Problems)
	}
	if r.Done != 100 || r.Samples != 200 || r.Repetitions != 10 || r.Topology != "linear,${hops}" || r.Levels[environment.Bad] != 3 || r.FailedSamples() != 1 {
		t.Errorf("%d runs, %d samples, %d repetitions of %q, %v, %d failed", r.Done, r.Samples, r.Repetitions, r.Topology, r.Levels, r.FailedSamples())
	}
	var kinds []string
	for _, f := range r.Figures {
		kinds = append(kinds, f.Kind)
	}
	if want := []string{"line", "bar", "box", "cdf", "time"}; !slices.Equal(kinds, want) {
		t.Errorf("figures %v, want %v", kinds, want)
	}
	latency := r.Tables[0]
	if want := []string{"datapath", "", "hops 2", "hops 4", "hops 6", "hops 8", "hops 10"}; !slices.Equal(latency.Columns, want) {
		t.Errorf("columns %q", latency.Columns)
	}
	embedded, ovs := meanRTT(samples, "embedded", 2), meanRTT(samples, "ovs", 2)
	for row, want := range map[int]float64{0: embedded, 3: ovs, 6: ovs - embedded} {
		got, err := strconv.ParseFloat(latency.Rows[row].Cells[2].Text, 64)
		if err != nil || math.Abs(got/(want*1000)-1) > 1e-3 {
			t.Errorf("row %d says %s, want %v ms: %+v", row, latency.Rows[row].Cells[2].Text, want*1000, latency.Rows[row])
		}
	}
	if events := r.Figures[4].Events; len(events) != 2 || events[0].What != "s2 -- s3 down" || events[0].At != 4.01 {
		t.Errorf("events %+v", events)
	}
	if !slices.ContainsFunc(r.Outliers, func(o report.Outlier) bool { return o.Run == 42 }) {
		t.Errorf("the outlier of run 42 is not reported: %+v", r.Outliers)
	}
	var outcomes []report.Outcome
	for _, trend := range r.Paper.Trends {
		outcomes = append(outcomes, trend.Outcome)
	}
	if want := []report.Outcome{report.Holds, report.Fails, report.Fails, report.Holds, report.CannotTell, report.NotMeasured}; !slices.Equal(outcomes, want) {
		t.Errorf("statements came to %q, want %q", outcomes, want)
	}
	numbers := r.Paper.Numbers
	if len(numbers) != 7 || numbers[5].Outcome != report.Fails || numbers[6].Ours != "" || numbers[0].Theirs != "14.5" {
		t.Errorf("%+v", numbers)
	}
}

// meanRTT is the mean of the means of repetitions, in seconds.
func meanRTT(samples []result.Sample, datapath string, hops float64) float64 {
	sum, n := 0.0, 0.0
	for _, s := range samples {
		if s.Probe != "ping" || s.Factors["datapath"] != datapath || s.Factors["hops"] != hops {
			continue
		}
		one := 0.0
		for _, v := range s.Values("rtt") {
			one += v / 20
		}
		sum, n = sum+one, n+1
	}
	return sum / n
}

// TestFidelity proves that a point is doubtful where any of its samples is, bad where half of them
// are, and that a figure is as its worst point.
func TestFidelity(t *testing.T) {
	for bad, want := range map[int]environment.Level{0: environment.Good, 1: environment.Doubtful, 4: environment.Doubtful, 5: environment.Bad} {
		var samples []result.Sample
		for _, s := range reporttest.Samples() {
			if s.Failure != "" {
				continue // which makes its point doubtful
			}
			v := environment.Verdict{Level: environment.Good}
			if s.Factors["hops"] == 6.0 && s.Repetition <= bad {
				v = environment.Verdict{Level: environment.Bad, Reasons: []environment.Reason{{Level: environment.Bad, Code: "x", Text: "y"}}}
			}
			s.Verdict = &v
			samples = append(samples, s)
		}
		h := reporttest.Header()
		h.Experiment.Text = "report: {figures: [{metric: throughput, x: hops, series: datapath}]}"
		f := build(t, h, samples).Figures[0]
		if f.Fidelity.Level != want || f.Series[0].Points[2].Level != want || f.Series[0].Points[0].Level != environment.Good {
			t.Errorf("%d of 10 bad: the figure is %s, its points %s and %s", bad, f.Fidelity.Level, f.Series[0].Points[2].Level, f.Series[0].Points[0].Level)
		}
	}
}

// TestFidelityByRound proves that one bad sample in a round of many makes that doubtful, and not
// bad, as where repetitions count one by one; and that in both the reasons count bad and doubtful
// samples apart, each sample once.
func TestFidelityByRound(t *testing.T) {
	for _, byRound := range []bool{false, true} {
		samples := reporttest.Samples()
		for i := range samples {
			samples[i].Round, samples[i].Verdict = 1+(samples[i].Repetition-1)/5, &environment.Verdict{Level: environment.Good}
			if s := &samples[i]; s.Factors["hops"] == 6.0 && s.Factors["datapath"] == "ovs" && s.Repetition%5 == 1 {
				s.Verdict = &environment.Verdict{Level: environment.Bad, Reasons: []environment.Reason{{Level: environment.Doubtful, Code: "x", Text: "y"}, {Level: environment.Bad, Code: "x", Text: "z"}}}
			} else if s.Factors["hops"] == 8.0 && s.Factors["datapath"] == "ovs" && s.Repetition == 1 {
				s.Verdict = &environment.Verdict{Level: environment.Doubtful, Reasons: []environment.Reason{{Level: environment.Doubtful, Code: "x", Text: "y"}, {Level: environment.Doubtful, Code: "x", Text: "z"}}}
			}
		}
		h := reporttest.Header()
		h.Experiment.Rounds, h.Experiment.Every = 2, 60
		h.Experiment.Text = "report: {figures: [{metric: throughput, x: hops, series: datapath, where: {datapath: ovs}}]}"
		f := report.Build("x", &result.Run{Header: h, Samples: samples, ByRound: byRound}).Figures[0]
		if p := f.Series[0].Points[2]; p.Level != environment.Doubtful || f.Fidelity.Level != environment.Doubtful || f.Fidelity.Suspect != 3 {
			t.Errorf("by round %v: 2 of 10 bad: the point is %s, the figure %+v", byRound, p.Level, f.Fidelity)
		}
		if want := []report.Reason{{Level: environment.Bad, Code: "x", Text: "z", Samples: 2}, {Level: environment.Doubtful, Code: "x", Text: "y", Samples: 1}}; !slices.Equal(f.Fidelity.Reasons, want) {
			t.Errorf("by round %v: the reasons are %+v, not %+v", byRound, f.Fidelity.Reasons, want)
		}
		if said := f.Fidelity.String(); said != "doubtful: 3 of 50 samples not good (for example: z)" {
			t.Errorf("by round %v: it says %q", byRound, said)
		}
	}
}

// TestProbesTogether proves that samples of one run count once where probes are taken together,
// also where one was measured again later, and that the run is as bad as the worst of them.
func TestProbesTogether(t *testing.T) {
	var samples []result.Sample
	for _, s := range []struct {
		run   int
		probe string
		level environment.Level
	}{{1, "a", environment.Good}, {2, "a", environment.Good}, {1, "b", environment.Bad}} {
		samples = append(samples, result.Sample{Run: s.run, Repetition: s.run, Cell: "all", Probe: s.probe, Kind: "ping", Factors: map[string]any{"hops": 2.0, "datapath": "ovs"},
			Measurements: []result.Measurement{{Metric: "rtt", Unit: "s", Values: []float64{1}}}, Verdict: &environment.Verdict{Level: s.level}})
	}
	h := reporttest.Header()
	h.Experiment.Text = "report: {tables: [{metric: rtt, rows: hops, values: n}]}"
	r := build(t, h, samples)
	if len(r.Tables) != 1 || r.Tables[0].Rows[0].Cells[1].Text != "2" || r.Tables[0].Fidelity.Level != environment.Bad {
		t.Errorf("%+v, %v", r.Tables, r.Problems)
	}
}

// TestDefaults proves that without report: there is a table and a figure of each metric, over the
// factor of numbers.
func TestDefaults(t *testing.T) {
	h := reporttest.Header()
	h.Experiment.Text = "factors: {hops: [2]}\n"
	r := build(t, h, reporttest.Samples())
	if len(r.Figures) != 3 || len(r.Tables) != 3 || r.Paper != nil {
		t.Fatalf("%d figures, %d tables", len(r.Figures), len(r.Tables))
	}
	f := r.Figures[0]
	if f.Title != "throughput" || f.X.Label != "hops" || f.Kind != "line" || len(f.Series) != 2 || f.Series[0].Name != "embedded" || f.Y.Unit != "Gbit/s" {
		t.Errorf("%+v", f)
	}
	if loss := r.Figures[2]; loss.Y.Unit != "%" || float64(loss.Series[0].Points[0].High) < 1 || !strings.Contains(loss.Caption, "Wilson") {
		t.Errorf("no loss in 200 packets leaves up to 1.9 %%: %+v", loss.Series[0].Points[0])
	}
}

// TestNothing proves that an empty result, one in which all failed, and figures of what was not
// measured are reported as that.
func TestNothing(t *testing.T) {
	h := reporttest.Header()
	if r := build(t, h, nil); len(r.Figures)+len(r.Tables) != 0 || len(r.Problems) != 7 || !strings.Contains(r.Problems[0], "was not measured") {
		t.Errorf("of nothing: %+v", r.Problems)
	}
	failed := result.Sample{Run: 1, Cell: "all", Probe: "ping", Kind: "ping", Failure: "it hung"}
	if r := build(t, h, []result.Sample{failed}); len(r.Failures) != 1 || r.Failures[0].Text != "it hung" {
		t.Errorf("%+v", r.Failures)
	}
	failed.Measurements = []result.Measurement{{Metric: "rtt", Unit: "s", Values: []float64{1}}} // until then
	if r := build(t, h, []result.Sample{failed}); len(r.Figures)+len(r.Tables) != 0 || len(r.Failures) != 1 {
		t.Errorf("what a failed probe measured is shown: %+v", r.Tables)
	}
}

// TestManyFailures proves that all failed samples are counted, also where there are more different
// reasons than a page lists.
func TestManyFailures(t *testing.T) {
	var samples []result.Sample
	for run := 1; run <= 700; run++ {
		samples = append(samples, result.Sample{Run: run, Cell: "all", Probe: "ping", Kind: "ping", Failure: fmt.Sprintf("process %d ended", run)})
	}
	r := build(t, reporttest.Header(), samples)
	if r.FailedSamples() != 700 || len(r.Failures) != 500 || r.UnlistedFailures() != 200 {
		t.Errorf("%d failed, %d reasons are listed, %d are not", r.FailedSamples(), len(r.Failures), r.UnlistedFailures())
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "700 failed") {
		t.Errorf("it says %q, %v", text.String(), err)
	}
}

// TestText proves that a terminal gets numbers under their heads, with marks of those that are not
// to be trusted.
func TestText(t *testing.T) {
	var b strings.Builder
	if err := build(t, reporttest.Header(), reporttest.Samples()).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"100 of 100 runs, 200 samples, 20 doubtful, 3 bad, 1 failed", "ovs − embedded", "16.04?", "Our values are means of the repetitions", "holds?              throughput of Open vSwitch falls with hops: 14.58 → 11.94 Gbit/s"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	lines := strings.Split(text, "\n")
	head := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "hops 2") })
	end := strings.Index(lines[head], "hops 2") + len("hops 2")
	for _, line := range lines[head+1 : head+7] {
		if r := []rune(line); r[end-1] == ' ' || r[end] != ' ' {
			t.Errorf("no number ends under its head: %q", line)
		}
	}
}

// TestFigureCSV proves that a figure's data can be read again, and are those of the figure.
func TestFigureCSV(t *testing.T) {
	for _, f := range build(t, reporttest.Header(), reporttest.Samples()).Figures {
		var b bytes.Buffer
		if err := f.CSV(&b); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil || len(rows) < 5 {
			t.Fatalf("%s: %d rows, %v", f.Title, len(rows), err)
		}
		if f.Kind == "line" && rows[1][2] != strconv.FormatFloat(f.Series[0].Points[0].Y, 'g', -1, 64) {
			t.Errorf("%q, and the point is %v", rows[1], f.Series[0].Points[0])
		}
	}
}

// one makes a result of one metric over two factors: values by levels.
func one(values map[[2]string][]float64) (result.Header, []result.Sample) {
	h := result.Header{Experiment: result.Experiment{Name: "x", Factors: []result.Factor{{Name: "x"}, {Name: "who"}}}}
	var samples []result.Sample
	run := 0
	for _, x := range []string{"1", "2", "3"} {
		for _, who := range []string{"a", "b", "d"} {
			for i, v := range values[[2]string{x, who}] {
				run++
				samples = append(samples, result.Sample{Run: run, Cell: x + who, Factors: map[string]any{"x": x, "who": who}, Block: i, Repetition: i + 1, Probe: "p", Kind: "p",
					Measurements: []result.Measurement{{Metric: "m", Unit: "s", Values: []float64{v}}}, Verdict: &environment.Verdict{Level: environment.Good}})
			}
		}
	}
	return h, samples
}

// around are ten values around one, by one per cent and less.
func around(v float64) (out []float64) {
	for _, d := range []float64{-0.9, 0.3, 0.8, -0.4, 0, 0.5, -0.2, 0.9, -0.7, -0.3} {
		out = append(out, v*(1+d/100))
	}
	return out
}

// TestTrends proves what statements come to: shown, shown to be otherwise, and not shown either
// way, with what would show it.
func TestTrends(t *testing.T) {
	same := map[[2]string][]float64{{"1", "a"}: around(10), {"2", "a"}: around(10), {"3", "a"}: around(10), {"1", "b"}: around(9), {"2", "b"}: around(9), {"3", "b"}: around(9)}
	rising := map[[2]string][]float64{{"1", "a"}: around(10), {"2", "a"}: around(11), {"3", "a"}: around(12), {"1", "b"}: around(10), {"2", "b"}: around(10.9), {"3", "b"}: around(13)}
	wild := map[[2]string][]float64{{"1", "a"}: {5, 15, 9, 12, 7}, {"2", "a"}: {14, 6, 10, 9, 12}, {"3", "a"}: {11, 8, 13, 6, 15}, {"1", "b"}: {10, 6, 12, 9, 14}}
	few := map[[2]string][]float64{{"1", "a"}: {10, 10.1}, {"2", "a"}: {12, 12.1}, {"1", "b"}: {5, 5.1}}
	fixed := map[[2]string][]float64{{"1", "a"}: {3, 3, 3, 3, 3}, {"2", "a"}: {3, 3, 3, 3, 3}, {"1", "b"}: {4, 4, 4, 4, 4}, {"2", "b"}: {3, 3, 3, 3, 3}}
	for _, c := range []struct {
		trend  string
		values map[[2]string][]float64
		want   report.Outcome
		why    string
	}{
		{"at: {who: a}, along: x, is: rises", rising, report.Holds, "+20 %"},
		{"at: {who: a}, along: x, is: falls", rising, report.Fails, ""},
		{"at: {who: a}, along: x, is: rises", same, report.Fails, "less than 5 %"},
		{"at: {who: a}, along: x, is: rises, within: 30%", rising, report.Fails, "less than 30 %"},
		{"at: {who: a}, along: x, is: rises", wild, report.CannotTell, "repetitions would tell"},
		{"at: {who: a}, along: x, is: flat", same, report.Holds, ""},
		{"at: {who: a}, along: x, is: flat", rising, report.Fails, "from 10 to 12 s"},
		{"at: {who: a}, along: x, is: flat, within: 50%", rising, report.Holds, ""},
		{"at: {who: a}, along: x, is: flat", wild, report.CannotTell, "repetitions would tell"},
		{"at: {who: a}, along: x, is: flat", fixed, report.Holds, ""},
		{"at: {who: a}, is: above, than: {who: b}", same, report.Holds, "at all 3 places"},
		{"at: {who: b}, is: above, than: {who: a}", same, report.Fails, "x 1: 9"},
		{"at: {who: b}, is: below, than: {who: a}", same, report.Holds, ""},
		{"at: {who: a}, is: above, than: {who: b}, within: 20%", same, report.Fails, ""},
		{"at: {who: a}, is: above, than: {who: b}", rising, report.Fails, "x 3"},
		{"at: {who: a, x: 1}, is: above, than: {who: b}", wild, report.CannotTell, ""},
		{"at: {who: a, x: 1}, is: above, than: {who: b}", few, report.CannotTell, "too few"},
		{"at: {who: b}, is: above, than: {who: a}", fixed, report.Fails, "x 2"},
		{"at: {who: a}, is: below, than: 10.5, unit: s", same, report.Holds, ""},
		{"at: {who: a}, is: below, than: 9500, unit: ms", same, report.Fails, ""},
		{"at: {who: c}, is: below, than: 1", same, report.NotMeasured, ""},
		{"at: {who: a}, is: times, factor: 1.1, than: {who: b}, within: 5%", same, report.Holds, "at all 3 places, as x 1: 1.111 times"},
		{"at: {who: a}, is: times, factor: 1.3, than: {who: b}, within: 5%", same, report.Fails, "x 1: 1.111 times"},
		{"at: {who: a}, is: times, factor: 1, than: {who: b}", rising, report.Holds, ""},
		{"at: {who: a}, is: times, factor: 1, than: {who: b}, within: 3%", rising, report.Fails, "x 3"},
		{"at: {who: a, x: 1}, is: times, factor: 1, than: {who: b}", wild, report.CannotTell, "neither shown"},
		{"at: {who: a, x: 1}, is: times, factor: 2, than: {who: b}", few, report.CannotTell, "too few"},
		{"at: {who: c}, is: times, factor: 2, than: {who: b}", same, report.NotMeasured, ""},
		{"at: {who: a}, along: x, is: linear", rising, report.Holds, "10 → 12 s"},
		{"at: {who: b}, along: x, is: linear", rising, report.Fails, "off the line"},
		{"at: {who: a}, along: x, is: linear", same, report.CannotTell, "neither a rise nor a fall"},
		{"at: {who: a}, along: x, is: linear", few, report.NotMeasured, "a line takes three"},
		{"at: {who: b}, along: x, is: steeper, than: {who: a}", rising, report.Holds, "from 1 to 3 it becomes 1.300 times what it was, the other 1.200 times"},
		{"at: {who: a}, along: x, is: steeper, than: {who: b}", rising, report.Fails, "p < 0.001"},
		{"at: {who: a}, along: x, is: steeper, than: {who: b}", same, report.CannotTell, ""},
		{"at: {who: a}, along: x, is: steeper, than: {who: b}", few, report.NotMeasured, "values for 1 level of x"},
		{"at: {who: a, x: [1, 2]}, along: x, is: steeper, than: {who: b, x: [1, 2]}", fixed, report.Holds, ""},
	} {
		h, samples := one(c.values)
		h.Experiment.Text = "paper: {trends: [{metric: m, " + c.trend + "}]}"
		r := build(t, h, samples)
		if len(r.Paper.Trends) != 1 {
			t.Fatalf("%s: %v", c.trend, r.Problems)
		}
		if got := r.Paper.Trends[0]; got.Outcome != c.want || !strings.Contains(got.Why, c.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", c.trend, got.Outcome, got.Why, c.want, c.why)
		}
	}
}

// TestSharesOfFew proves that a share of one run has an interval, by which a statement is decided,
// only where it is none or all of its packets: how those of one run go along with each other is not
// known. Of enough runs with the same share it has one.
func TestSharesOfFew(t *testing.T) {
	for _, c := range []struct {
		runs, count, of int
		is              string
		want            report.Outcome
		interval        bool
	}{
		{1, 50, 1000, "above, than: 0.01", report.CannotTell, false},
		{4, 50, 1000, "above, than: 0.01", report.CannotTell, false},
		{5, 50, 1000, "above, than: 0.01", report.Holds, true},
		{1, 0, 1000, "below, than: 0.01", report.Holds, true},
		{1, 1000, 1000, "above, than: 0.9", report.Holds, true},
		{1, 0, 200, "below, than: 0.01", report.CannotTell, true},
	} {
		h, samples := one(map[[2]string][]float64{{"1", "a"}: make([]float64, c.runs)})
		for i := range samples {
			samples[i].Measurements = []result.Measurement{result.Share("loss", c.count, c.of)}
		}
		h.Experiment.Text = "report: {figures: [{metric: loss, x: x}]}\npaper: {trends: [{metric: loss, is: " + c.is + "}]}"
		r := build(t, h, samples)
		if len(r.Paper.Trends) != 1 || len(r.Figures) != 1 {
			t.Fatal(r.Problems)
		}
		if got := r.Paper.Trends[0]; got.Outcome != c.want {
			t.Errorf("%d times %d of %d %s: %s (%s)", c.runs, c.count, c.of, c.is, got.Outcome, got.Why)
		}
		if p := r.Figures[0].Series[0].Points[0]; !math.IsNaN(float64(p.Low)) != c.interval {
			t.Errorf("%d times %d of %d: from %v to %v", c.runs, c.count, c.of, p.Low, p.High)
		}
	}
}

// TestUsage proves that what was watched on the machine can be shown like what was measured.
func TestUsage(t *testing.T) {
	h, samples := one(map[[2]string][]float64{{"1", "a"}: around(1), {"2", "a"}: around(1)})
	for i := range samples {
		samples[i].Usage = &environment.Usage{Busy: 0.25, Switches: 1000, Perf: []environment.Counter{{Name: "cache-misses", Value: 5}},
			Processes: []environment.ProcessUsage{{Name: "ovs-vswitchd", User: 1, System: 2, PSS: 3 << 20}}}
	}
	h.Experiment.Text = "report: {tables: ["
	for i, metric := range []string{"usage.busy", "usage.context_switches", "usage.perf.cache-misses", "usage.processes.ovs-vswitchd.cpu", "usage.processes.ovs-vswitchd.pss"} {
		h.Experiment.Text += fmt.Sprintf("%s{metric: %s, values: [mean], rows: x}", strings.Repeat(", ", min(i, 1)), metric)
	}
	h.Experiment.Text += "]}"
	r := build(t, h, samples)
	var got []string
	for _, table := range r.Tables {
		got = append(got, table.Rows[0].Cells[1].Text+" "+table.Unit)
	}
	if want := []string{"25 %", "1000 switches", "5 events", "3 s", "3 MiB"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q; %v", got, want, r.Problems)
	}
}

// TestLabels proves that a few labels of one metric, such as directions, are told apart where
// nothing was said, that they can be dimensions, and that a dimension which there is not is said to
// be none.
func TestLabels(t *testing.T) {
	h, samples := one(map[[2]string][]float64{{"1", "a"}: around(1), {"2", "a"}: around(1)})
	for i := range samples {
		m := samples[i].Measurements[0]
		back := result.Measurement{Metric: "m", Unit: "s", Values: []float64{5}, Labels: map[string]string{"direction": "back"}}
		m.Labels = map[string]string{"direction": "forth"}
		samples[i].Measurements = []result.Measurement{m, back}
	}
	r := build(t, h, samples)
	if f := r.Figures[0]; len(f.Series) != 2 || f.Series[1].Name != "forth" || f.Series[0].Points[0].Y != 5 {
		t.Errorf("%+v", f)
	}
	h.Experiment.Text = "report: {figures: [{metric: m, x: direction, series: []}, {metric: m, x: dircetion}]}"
	r = build(t, h, samples)
	if f := r.Figures[0]; !slices.Equal(f.X.Categories, []string{"back", "forth"}) || !slices.Contains(f.Notes, "All levels of x are taken together.") {
		t.Errorf("%+v", f)
	}
	if f := r.Figures[1]; !slices.Contains(f.Notes, "dircetion is neither a factor nor a label of these values.") {
		t.Errorf("%+v", f.Notes)
	}
}

// TestLabelsThatFactorsTell proves that a label which follows from a factor (to: "h${hops}") makes
// no series of its own, and that one which does not makes them.
func TestLabelsThatFactorsTell(t *testing.T) {
	for follows, want := range map[bool]int{true: 2, false: 4} { // datapaths, and directions of each
		var samples []result.Sample
		for i, s := range reporttest.Samples() {
			hops, _ := s.Factors["hops"].(float64)
			if hops > 4 {
				continue
			}
			for j := range s.Measurements {
				to := fmt.Sprintf("h%v", hops)
				if !follows {
					to = fmt.Sprintf("h%d", i/20%2)
				}
				s.Measurements[j].Labels = map[string]string{"to": to}
			}
			samples = append(samples, s)
		}
		h := reporttest.Header()
		h.Experiment.Text = "report: {figures: [{metric: throughput, x: hops}]}\n"
		r := build(t, h, samples)
		if len(r.Figures) != 1 || len(r.Figures[0].Series) != want {
			t.Errorf("follows from hops: %v: %d series, want %d: %v", follows, len(r.Figures[0].Series), want, r.Problems)
		}
	}
}

// TestLeftOut proves that a report says what was left out and why, as the last part of the run had
// it, and does not take it for runs that are missing.
func TestLeftOut(t *testing.T) {
	h, samples := reporttest.Header(), reporttest.Samples()
	h.Experiment.Runs, h.Experiment.Repetitions = 110, 10
	h.LeftOut = []result.LeftOut{{What: "datapath=pox", Why: "pox is not installed", Hint: "git clone <x>", Cells: []string{"hops=2 datapath=pox"}}}
	r := build(t, h, samples)
	if r.Runs != 100 || r.Done != 100 || !slices.Equal(r.LeftOut, []string{"datapath=pox: pox is not installed (git clone <x>)"}) {
		t.Errorf("%d of %d runs, %q", r.Done, r.Runs, r.LeftOut)
	}
	later := report.Build("x", &result.Run{Header: h, Samples: samples, Resumes: []result.Resume{{}}})
	if later.Runs != 110 || len(later.LeftOut) != 0 {
		t.Errorf("resumed where it is there: %d runs, %q", later.Runs, later.LeftOut)
	}
}

// TestScales proves which axes each scale makes logarithmic; of a distribution it is that of the
// values.
func TestScales(t *testing.T) {
	for scale, want := range map[string][3]bool{"linear": {}, "log": {false, true, true}, "log-x": {true, false, true}, "log-log": {true, true, true}} {
		h := reporttest.Header()
		h.Experiment.Text = "report: {figures: [{metric: rtt, x: hops, scale: " + scale + "}, {metric: rtt, kind: cdf, scale: " + scale + "}]}"
		r := build(t, h, reporttest.Samples()[:20])
		if len(r.Problems) > 0 || len(r.Figures) != 2 {
			t.Fatal(scale, r.Problems)
		}
		if got := [3]bool{r.Figures[0].X.Log, r.Figures[0].Y.Log, r.Figures[1].X.Log}; got != want || r.Figures[1].Y.Log {
			t.Errorf("%s: x, y, x of the distribution: %v, want %v", scale, got, want)
		}
	}
}

// TestBelow proves that below a table stand the mean and the median of each column's numbers, each
// row counting once, in both forms of tables; and that intervals and counts have none.
func TestBelow(t *testing.T) {
	h := reporttest.Header()
	h.Experiment.Text = "report: {tables: [{metric: late, rows: hops, columns: datapath, values: mean, below: [mean, median]}, {metric: late, rows: [hops, datapath], values: [mean, max, interval, n], below: [mean, median]}]}"
	var samples []result.Sample
	for run, late := range []float64{1, 2, 9, 20} { // of 2 hops twice, so that rows and samples differ
		hops := []float64{2, 2, 4, 6}[run]
		samples = append(samples, result.Sample{Run: run + 1, Cell: fmt.Sprint(hops), Factors: map[string]any{"hops": hops, "datapath": "ovs"}, Repetition: 1, Probe: "p", Kind: "p",
			Measurements: []result.Measurement{{Metric: "late", Unit: "s", Values: []float64{late}}}})
	}
	r := build(t, h, samples)
	if len(r.Problems) > 0 || len(r.Tables) != 2 {
		t.Fatal(r.Problems)
	}
	row := func(table, back int) (out []string) {
		rows := r.Tables[table].Rows
		for _, c := range rows[len(rows)-back].Cells {
			out = append(out, c.Text)
		}
		return out
	}
	for want, got := range map[string][]string{
		"mean of the column, 10.17": row(0, 2), "median of the column, 9": row(0, 1), // of 1.5, 9 and 20
		"mean of the column, , 10.17, 10.33, , ": row(1, 2), "median of the column, , 9, 9, , ": row(1, 1),
	} {
		if strings.Join(got, ", ") != want {
			t.Errorf("%q, want %q", strings.Join(got, ", "), want)
		}
	}
}
