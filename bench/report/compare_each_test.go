package report_test

import (
	"fmt"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/result"
)

// eachTwo is the table of a report that compares each two of three places, where values of
// repetition n are those of a place's function.
func eachTwo(t *testing.T, compare string, n int, value map[string]func(n int) float64) report.Table {
	t.Helper()
	places := []string{"laptop", "rack", "cloud"}
	r := &result.Run{Header: result.Header{Experiment: result.Experiment{Name: "x", Runs: 3 * n, Factors: []result.Factor{{Name: "place", Levels: places}},
		Text: "topology: linear,2\nfactors: {place: [laptop, rack, cloud]}\nreport:\n  compare: " + compare + "\n  tables: [{metric: rtt}]\n"}}}
	for i := range n {
		for _, place := range places {
			if value[place] == nil {
				continue
			}
			r.Samples = append(r.Samples, result.Sample{Run: len(r.Samples) + 1, Cell: "place=" + place, Factors: map[string]any{"place": place}, Pair: "all", Repetition: i + 1, Probe: "ping", Kind: "ping",
				Measurements: []result.Measurement{{Metric: "rtt", Unit: "s", Values: []float64{value[place](i)}}}})
		}
	}
	built := report.Build("x.jsonl", r)
	if len(built.Problems) > 0 || len(built.Tables) != 2 {
		t.Fatalf("%q, %d tables", built.Problems, len(built.Tables))
	}
	return built.Tables[0]
}

// TestEachTwo proves that a report has each two levels of a factor in one table, the later one
// first: of those that are shown to differ by less than the margin that they are equivalent, of
// those whose difference is significant that they are different, with its interval, and of the
// others that it is undecided, and how many repetitions would tell.
func TestEachTwo(t *testing.T) {
	wide := []float64{-30e-6, 31e-6, -29e-6, 32e-6, -31e-6, 28e-6, 33e-6, -34e-6}
	places := map[string]func(int) float64{
		"laptop": func(n int) float64 { return 1e-3 + float64(n%3)*1e-6 },
		"rack":   func(n int) float64 { return 1.02e-3 + float64((n+1)%3)*1e-6 },
		"cloud":  func(n int) float64 { return 1.05e-3 + 1.3*wide[n] },
	}
	table := eachTwo(t, "{title: Beside each other, factor: place, margin: {rtt: 5%}}", 8, places)
	if table.Title != "Beside each other" || table.ID != "table-1" {
		t.Errorf("%+v", table)
	}
	want := []string{"rack, laptop equivalent within ±0.05004 ms", "cloud, laptop different (p", "cloud, rack undecided"}
	for i, row := range table.Rows {
		c := row.Cells
		if got := c[1].Text + " " + c[6].Text; !strings.HasPrefix(got, want[i]) {
			t.Errorf("%q, want %q", got, want[i])
		}
		if !strings.HasPrefix(c[5].Text, "[") {
			t.Errorf("%s has no interval: %q", c[1].Text, c[5].Text)
		}
	}
	notes := strings.Join(table.Notes, " ")
	for _, part := range []string{"3 comparisons: 1 equivalent, 1 different, 1 undecided.", "Margins: rtt 5 % of the second's mean.", "Undecided: rtt, cloud, rack: the difference is +", "repetitions of each"} {
		if !strings.Contains(notes, part) {
			t.Errorf("%s\nlacks %q", notes, part)
		}
	}
	if few := strings.Join(eachTwo(t, "{factor: place, margin: 5%}", 4, places).Notes, " "); !strings.Contains(few, "fewer than 5 repetitions") || strings.Contains(few, "Undecided:") {
		t.Error(few)
	}
	if none := eachTwo(t, "{factor: place}", 8, places); !strings.Contains(strings.Join(none.Notes, " "), "Without a margin") || strings.Contains(fmt.Sprint(none.Rows), "equivalent") {
		t.Errorf("without a margin: %+v", none)
	}
}

// TestEachTwoMissing proves that of a level without values the others are compared, and that it is
// named once.
func TestEachTwoMissing(t *testing.T) {
	table := eachTwo(t, "{factor: place, margin: 5%}", 6, map[string]func(int) float64{
		"laptop": func(n int) float64 { return 1 + float64(n%3)/1e3 },
		"cloud":  func(n int) float64 { return 1 + float64((n+1)%3)/1e3 },
	})
	notes := strings.Join(table.Notes, " ")
	if len(table.Rows) != 1 || table.Rows[0].Cells[1].Text != "cloud, laptop" || !strings.Contains(notes, "Without values: rack of rtt.") || strings.Contains(notes, "Only") {
		t.Errorf("%+v", table)
	}
}

// TestEachTwoAdjusted proves that the tests of all pairs are adjusted to each other: what alone
// would be a difference is none among three.
func TestEachTwoAdjusted(t *testing.T) {
	noise := []float64{-4, 3, -2, 5, -1, 2, -5, 4}
	same := func(n int) float64 { return 100 + noise[n] }
	table := eachTwo(t, "{factor: place, margin: {rtt: 1ms}}", 8, map[string]func(int) float64{
		"laptop": same,
		"rack":   func(n int) float64 { return same(n) + []float64{1, 2.2, -0.8, 2, 1.4, -0.2, 1.6, 0.6}[n] }, // p is 0.03 by pairs
		"cloud":  func(n int) float64 { return 100 - noise[n]/2 },
	})
	if got := table.Rows[0].Cells[6].Text; got != "undecided" || !strings.Contains(strings.Join(table.Notes, " "), "among 3 comparisons it may be chance") {
		t.Errorf("%s; %q", got, table.Notes)
	}
}
