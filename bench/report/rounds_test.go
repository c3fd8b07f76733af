package report_test

import (
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/result"
)

// TestRounds proves that repetitions of a campaign count one by one, that with ByRound those of a
// cell in one round count once, by the mean of their values, and that rounds may stand apart: in
// round 1 there are 1 and 3 ms for both sizes, in round 2 5 and 7 ms, for one size one of them
// failed. What each run gave, by another word than its mean, is not added up over a round; courses
// over time are of runs always.
func TestRounds(t *testing.T) {
	h := result.Header{Experiment: result.Experiment{Name: "x", Runs: 8, Rounds: 2, Every: 604800, Factors: []result.Factor{{Name: "size", Levels: []string{"64", "128"}}},
		Text: `report:
  figures: [{metric: rtt, x: round, series: size, unit: ms}, {metric: rtt, kind: time, series: size}]
  tables:
    - {metric: rtt, rows: size, values: [mean, deviation, n], unit: ms}
    - {metric: rtt, rows: round, values: [mean, n], unit: ms}
    - {metric: rtt, rows: size, each: sum, values: [mean, n], unit: ms}
    - {metric: rtt, rows: size, each: count, values: [mean, n]}
`}}
	var samples []result.Sample
	for i, ms := range []float64{1, 3, 5, 7} {
		for _, size := range []float64{64, 128} {
			s := result.Sample{Run: len(samples) + 1, Cell: map[float64]string{64: "size=64", 128: "size=128"}[size], Factors: map[string]any{"size": size}, Block: i + 1, Repetition: i + 1, Round: 1 + i/2,
				Probe: "ping", Kind: "ping", Measurements: []result.Measurement{{Metric: "rtt", Unit: "s", Values: []float64{ms / 1e3}, At: []float64{0}}}}
			if ms == 7 && size == 128 {
				s.Measurements, s.Failure = nil, "it broke"
			}
			samples = append(samples, s)
		}
	}
	for byRound, want := range map[bool][][]string{
		false: {{"64 4 2.582 4", "128 3.000 2 3"}, {"1 2 4", "2 5.667 3"}, {"64 4 4", "128 3.000 3"}, {"64 1 4", "128 1 3"}},
		true:  {{"64 4 2.828 2", "128 3.500 2.121 2"}, {"1 2 2", "2 5.500 2"}, {"64 4 2", "128 3.500 2"}, {"64 1 2", "128 1 2"}},
	} {
		r := report.Build("x.jsonl", &result.Run{Header: h, Samples: samples, ByRound: byRound})
		for i, table := range r.Tables {
			if got := rows(table); !slices.Equal(got, want[i]) {
				t.Errorf("by round %v: %q, want %q", byRound, got, want[i])
			}
		}
		if notes := strings.Join(r.Notes, " "); !strings.Contains(notes, "one every week,") || strings.Contains(notes, "those are rounds") != byRound {
			t.Errorf("by round %v: %s", byRound, notes)
		}
		for i, want := range []int{4, 3} {
			if s := r.Figures[1].Series[i]; len(s.Traces) != want || s.Traces[0].N != 1 || s.Traces[1].Run != s.Traces[0].Run+2 {
				t.Errorf("by round %v: %s has the courses %+v", byRound, s.Name, s.Traces)
			}
		}
		if f := r.Figures[0]; f.Kind != "line" || len(f.Series) != 2 || f.Series[0].Points[1].X != 2 {
			t.Errorf("%+v", f)
		}
	}
}
