package report_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/result"
)

// TestIncompleteSums proves that a run in which one of the probes failed that are summed, or
// counted, is no repetition of the sum: of two probes with 100 and 10 + the run's number in five
// runs, one failed in run 3. It is one of each probe's own values, of a mean, and where only
// another probe failed; a level at which it always failed has no sum; and by round the other run of
// the round is left.
func TestIncompleteSums(t *testing.T) {
	const text = `report:
  tables:
    - {metric: throughput, each: sum, where: {probe: [a, b]}, rows: size, values: [mean, n]}
    - {metric: throughput, each: count, where: {probe: [a, b]}, rows: size, values: [mean, n]}
    - {metric: throughput, each: sum, rows: [size, probe], where: {probe: [a, b]}, values: [mean, n]}
    - {metric: throughput, where: {probe: [a, b], size: 1}, rows: size, values: [mean, n]}
    - {title: none, metric: throughput, each: sum, where: {probe: [a, b], size: 2}, rows: size}
    - {metric: throughput, each: sum, probe: a, rows: size, values: [mean, n]}
`
	h := result.Header{Experiment: result.Experiment{Name: "x", Text: text, Runs: 10, Rounds: 3, Every: 60, Factors: []result.Factor{{Name: "size", Levels: []string{"1", "2"}}}}}
	var samples []result.Sample
	for n := range 10 {
		size := 1 + n/5
		for _, probe := range []string{"a", "b", "other", "silent"} {
			s := result.Sample{Run: n + 1, Cell: fmt.Sprintf("size=%d", size), Factors: map[string]any{"size": float64(size)}, Repetition: n%5 + 1, Round: n%5/2 + 1, Probe: probe, Kind: "iperf3",
				Measurements: []result.Measurement{{Metric: map[bool]string{true: "throughput", false: "loss"}[probe != "silent"], Unit: "packets", Values: []float64{map[string]float64{"a": 100, "b": 10}[probe] + float64(n+1)}}}}
			if probe == "b" && (n == 2 || size == 2) || probe != "a" && probe != "b" && n == 1 {
				s.Measurements, s.Failure = nil, "it broke"
			}
			samples = append(samples, s)
		}
	}
	for byRound, want := range map[bool][][]string{
		false: {{"1 116 4"}, {"1 2 4"}, {"1 a 103 5", "1 b 13 4", "2 a 108 5"}, {"1 67 5"}, {"1 103 5", "2 108 5"}},
		true:  {{"1 117 3"}, {"1 2 3"}, {"1 a 103.3 3", "1 b 13.50 3", "2 a 108.3 3"}, {"1 63.39 3"}, {"1 103.3 3", "2 108.3 3"}},
	} {
		r := report.Build("x.jsonl", &result.Run{Header: h, Samples: samples, ByRound: byRound})
		for i, table := range r.Tables {
			if got := rows(table); !slices.Equal(got, want[i]) {
				t.Errorf("by round %v, table %d: %q, want %q", byRound, i+1, got, want[i])
			}
		}
		if len(r.Tables) != len(want) || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "“none”: throughput where probe a or b, size 2 was not measured completely") {
			t.Error(strings.Join(r.Problems, "; "))
		}
	}
}

// rows are the cells of a table's rows, in a line each.
func rows(table report.Table) (out []string) {
	for _, row := range table.Rows {
		var cells []string
		for _, c := range row.Cells {
			cells = append(cells, c.Text)
		}
		out = append(out, strings.Join(cells, " "))
	}
	return out
}
