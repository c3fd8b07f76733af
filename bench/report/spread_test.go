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

// TestSpread proves that a paper's deviation and variance of switches' means stand beside ours of
// the same, and beside those of all repetitions: of the means 1, 2 and 4 ms, each of two
// repetitions 0.5 ms to either side, variance 7/3 and 13/6. They stand in tables of their own, are
// no numbers of a figure or a statement, and where there is one mean only it is said that they were
// not measured.
func TestSpread(t *testing.T) {
	h := result.Header{Experiment: result.Experiment{Name: "x", Runs: 8, Factors: []result.Factor{{Name: "switch", Levels: []string{"1", "2", "4"}}, {Name: "size", Levels: []string{"64", "128"}}},
		Text: `report:
  figures: [{metric: rtt, x: size, series: [], kind: line, unit: ms}]
paper:
  numbers:
    - {metric: rtt, unit: ms, spread: deviation, over: switch, along: size, values: {64: 1.5, 128: 0.1}}
    - {metric: rtt, unit: ms, spread: variance, over: switch, levels: {size: 64}, value: 7}
  trends: [{metric: rtt, along: size, is: rises}]
`}}
	var samples []result.Sample
	add := func(of int, size, ms float64) {
		samples = append(samples, result.Sample{Run: len(samples) + 1, Factors: map[string]any{"switch": float64(of), "size": size}, Repetition: 1 + len(samples)%2, Probe: "ping", Kind: "ping",
			Verdict:      &environment.Verdict{Level: map[int]environment.Level{1: environment.Good, 2: environment.Doubtful, 4: environment.Good}[of]},
			Measurements: []result.Measurement{{Metric: "rtt", Unit: "s", Values: []float64{ms / 1e3}}}})
	}
	for _, of := range []int{1, 2, 4} {
		add(of, 64, float64(of)-0.5)
		add(of, 64, float64(of)+0.5)
	}
	add(1, 128, 3)
	add(1, 128, 5)
	r := build(t, h, samples)
	if len(r.Paper.Numbers) != 0 || len(r.Paper.Spreads) != 3 || len(r.Paper.Tables) != 2 {
		t.Fatalf("%d numbers, %d spreads, %d tables", len(r.Paper.Numbers), len(r.Paper.Spreads), len(r.Paper.Tables))
	}
	if slices.ContainsFunc(r.Figures[0].Series, func(s report.Series) bool { return s.Paper }) || r.Paper.Trends[0].Theirs != "" {
		t.Errorf("a spread is shown as a number: %+v, %q", r.Figures[0].Series, r.Paper.Trends[0].Theirs)
	}
	texts := func(table report.Table) (out []string) {
		for _, row := range table.Rows {
			var cells []string
			for _, c := range row.Cells {
				cells = append(cells, c.Text+map[environment.Level]string{environment.Doubtful: "?"}[c.Level])
			}
			out = append(out, strings.Join(cells, " | "))
		}
		return out
	}
	for i, want := range []struct {
		title, note string
		rows        []string
	}{
		{"rtt, deviation of the means of switch [ms]", "Ours are of the means of 3 levels of switch, each of which counts once, as theirs do. “Of all ours” are of all 6 repetitions of these. 1 of 2 were not measured here.",
			[]string{"size 64 | 1.5 | 1.528? | 1.018 | 1.472?", "size 128 | 0.1 | – | – | –"}},
		{"rtt, variance of the means of switch [ms²]", "Ours are of the means of 3 levels of switch, each of which counts once, as theirs do. “Of all ours” are of all 6 repetitions of these.",
			[]string{"size 64 | 7 | 2.333? | 0.3333 | 2.167?"}},
	} {
		if got := r.Paper.Tables[i]; got.Title != want.title || !slices.Equal(texts(got), want.rows) || got.Notes[0] != want.note {
			t.Errorf("%s: %q; %s", got.Title, texts(got), got.Notes[0])
		}
	}
}

// TestApart proves that a number for several levels stands beside each of them by itself, and
// without apart beside all of them together.
func TestApart(t *testing.T) {
	for text, want := range map[string][]string{
		"{metric: rtt, unit: ms, levels: {size: [64, 128]}, apart: size, value: 1}": {"size 64: 0.6400", "size 128: 1.280"},
		"{metric: rtt, unit: ms, levels: {size: [64, 128]}, value: 1}":              {"size 64 or 128: 0.9600"},
	} {
		h, samples := published("    - " + text + "\n")
		var got []string
		for _, n := range build(t, h, samples).Paper.Numbers {
			got = append(got, fmt.Sprintf("%s: %s", n.Where, n.Ours))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
