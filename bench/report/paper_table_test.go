package report_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// published is an experiment with a paper's numbers for each switch and size, as tables have them,
// and a figure that tells sizes apart, but not switches.
func published(numbers string) (result.Header, []result.Sample) {
	h := result.Header{Experiment: result.Experiment{Name: "x", Runs: 4, Factors: []result.Factor{{Name: "switch", Levels: []string{"1", "2"}}, {Name: "size", Levels: []string{"64", "128"}}},
		Text: "report:\n  figures: [{metric: rtt, x: size, series: [], kind: line, unit: ms}]\npaper:\n  source: A paper\n  numbers:\n" + numbers}}
	var samples []result.Sample
	for _, size := range []float64{64, 128} {
		for repetition := 1; repetition <= 2; repetition++ {
			samples = append(samples, result.Sample{Run: len(samples) + 1, Factors: map[string]any{"switch": 1.0, "size": size}, Repetition: repetition, Probe: "ping", Kind: "ping",
				Verdict:      &environment.Verdict{Level: map[float64]environment.Level{64: environment.Good, 128: environment.Doubtful}[size]},
				Measurements: []result.Measurement{{Metric: "rtt", Unit: "s", Values: []float64{size * 1e-5}}}})
		}
	}
	return h, samples
}

// TestNumberTable proves that a paper's numbers which are a table there are one here: theirs, and
// where there are some ours with doubt and ratio below; that the figure has their mean at each
// place; and that a number that is to be judged stays in the list with its outcome.
func TestNumberTable(t *testing.T) {
	var numbers strings.Builder
	for s := 1; s <= 6; s++ {
		fmt.Fprintf(&numbers, "    - {metric: rtt, unit: ms, levels: {switch: %d}, along: size, values: {64: %d, 128: %d}}\n", s, s, 10*s)
	}
	numbers.WriteString("    - {metric: loss, value: 0, within: 10%}\n")
	r := build(t, first(published(numbers.String())), second(published(numbers.String())))
	if len(r.Paper.Tables) != 1 || len(r.Paper.Numbers) != 1 || r.Paper.Numbers[0].Metric != "loss" {
		t.Fatalf("%d tables; numbers %+v", len(r.Paper.Tables), r.Paper.Numbers)
	}
	table := r.Paper.Tables[0]
	if table.Title != "rtt [ms]" || !slices.Equal(table.Columns, []string{"switch", "", "size 64", "size 128"}) || len(table.Rows) != 3+5 {
		t.Fatalf("%+v", table)
	}
	want := [][]string{{"1", "theirs", "1", "10"}, {"", "ours", "0.6400", "1.280"}, {"", "ours / theirs", "0.6400", "0.1280"}, {"2", "theirs", "2", "20"}}
	for i, line := range want {
		var got []string
		for _, c := range table.Rows[i].Cells {
			got = append(got, c.Text)
		}
		if !slices.Equal(got, line) {
			t.Errorf("line %d is %q, want %q", i, got, line)
		}
	}
	if cells := table.Rows[1].Cells; cells[2].Level != environment.Good || cells[3].Level != environment.Doubtful {
		t.Errorf("%+v", cells)
	}
	if notes := strings.Join(table.Notes, " "); notes != "Ours are of 2 repetitions. 10 of 12 were not measured here." {
		t.Error(notes)
	}
	f := r.Figures[0]
	i := slices.IndexFunc(f.Series, func(s report.Series) bool { return s.Paper })
	if i < 0 || len(f.Series[i].Points) != 2 || f.Series[i].Points[0].Y != 3.5 || f.Series[i].Points[1].Y != 35 {
		t.Errorf("the paper's points are not the means: %+v", f.Series)
	}
	if !strings.Contains(strings.Join(f.Notes, " "), "shown by their mean") {
		t.Error(f.Notes)
	}
}

// TestFewNumbers proves that numbers which are few, or to be judged, are listed one by one.
func TestFewNumbers(t *testing.T) {
	few := "    - {metric: rtt, unit: ms, levels: {switch: 1}, along: size, values: {64: 1, 128: 2}}\n"
	var judged strings.Builder
	for s := 1; s <= 6; s++ {
		fmt.Fprintf(&judged, "    - {metric: rtt, unit: ms, levels: {switch: %d}, along: size, values: {64: 1, 128: 2}, within: 20%%}\n", s)
	}
	for text, want := range map[string]int{few: 2, judged.String(): 12} {
		r := build(t, first(published(text)), second(published(text)))
		if len(r.Paper.Tables) != 0 || len(r.Paper.Numbers) != want {
			t.Errorf("%d tables, %d numbers, want %d", len(r.Paper.Tables), len(r.Paper.Numbers), want)
		}
	}
}

func first(h result.Header, _ []result.Sample) result.Header    { return h }
func second(_ result.Header, s []result.Sample) []result.Sample { return s }

// TestUnseen proves that what could not be watched is said once with its samples, that a figure of
// it says why it is missing, and that a quick run and what its statements came to are told.
func TestUnseen(t *testing.T) {
	h, samples := published("    - {metric: rtt, value: 1}\n")
	h.Command = []string{"trivet", "bench", "run", "x.yaml", "--quick"}
	h.Environment.Missing = []string{"governor: there is none"}
	h.Experiment.Text = strings.Replace(h.Experiment.Text, "figures: [", "figures: [{title: Cache misses, metric: usage.perf.cache-misses}, ", 1) +
		"  trends:\n    - {text: it rises, metric: rtt, along: size, is: rises}\n    - {text: none is lost, metric: loss, is: below, than: 1}\n"
	for i := range samples {
		samples[i].Usage = &environment.Usage{Missing: []string{"perf event cache-misses: this machine has no such counter"}}
	}
	r := build(t, h, samples)
	if len(r.Unseen) != 2 || r.Unseen[0].Samples != 0 || r.Unseen[1].Samples != 4 || !r.Quick {
		t.Errorf("%+v, quick %v", r.Unseen, r.Quick)
	}
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "“Cache misses”") || !strings.Contains(r.Problems[0], "this machine has no such counter") {
		t.Error(r.Problems)
	}
	if got := r.Paper.Outcomes(); len(got) != 2 || got[0] != (report.Counted{Outcome: report.CannotTell, Count: 1}) || got[1] != (report.Counted{Outcome: report.NotMeasured, Count: 1}) {
		t.Errorf("%+v", got)
	}
}
