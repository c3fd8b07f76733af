package report_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// TestLimitAtPlaces proves that a statement about a number at 20 places is not refuted because of
// one of them that is beyond it by chance, in either direction, as it would be in two of five
// results without an adjustment; that it is refuted where one place is really beyond; and that
// places which all are clearly on its side show it.
func TestLimitAtPlaces(t *testing.T) {
	const places, repetitions, results = 20, 20, 60
	rng := rand.New(rand.NewPCG(5, 6))
	outcomes := func(mean func(place int) float64) (above, below report.Outcome) {
		h := result.Header{Experiment: result.Experiment{Name: "x", Factors: []result.Factor{{Name: "place"}},
			Text: "paper: {trends: [{metric: m, along: place, is: above, than: 10}, {metric: m, along: place, is: below, than: 10}]}"}}
		var samples []result.Sample
		for p := range places {
			h.Experiment.Factors[0].Levels = append(h.Experiment.Factors[0].Levels, fmt.Sprint(p))
			for r := range repetitions {
				samples = append(samples, result.Sample{Run: len(samples) + 1, Cell: fmt.Sprint(p), Factors: map[string]any{"place": p}, Block: r,
					Repetition: r + 1, Probe: "p", Kind: "p", Verdict: &environment.Verdict{Level: environment.Good},
					Measurements: []result.Measurement{{Metric: "m", Unit: "s", Values: []float64{mean(p) + rng.NormFloat64()}}}})
			}
		}
		trends := build(t, h, samples).Paper.Trends
		return trends[0].Outcome, trends[1].Outcome
	}
	var wrong [2]int
	for range results {
		above, below := outcomes(func(int) float64 { return 10 })
		for i, o := range []report.Outcome{above, below} {
			if o == report.Fails {
				wrong[i]++
			} else if o != report.CannotTell {
				t.Errorf("at the number itself: %s", o)
			}
		}
	}
	// Of 60 results one or two are refuted at 2.5 %, and 24 without an adjustment.
	if max(wrong[0], wrong[1]) > 6 {
		t.Errorf("of %d results %v were refuted", results, wrong)
	}
	for _, side := range []float64{-1, 1} {
		want := []report.Outcome{report.Holds, report.Fails}
		if side < 0 {
			want[0], want[1] = want[1], want[0]
		}
		if above, below := outcomes(func(int) float64 { return 10 + 3*side }); above != want[0] || below != want[1] {
			t.Errorf("all on the side %v: above %s, below %s", side, above, below)
		}
		above, below := outcomes(func(place int) float64 {
			if place == 7 {
				return 10 - 3*side
			}
			return 10 + 3*side
		})
		if above != report.Fails || below != report.Fails {
			t.Errorf("all but one on the side %v: above %s, below %s", side, above, below)
		}
	}
}
