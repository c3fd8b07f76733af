package report

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/internal/words"
)

// steeper tests whether one thing grows by larger factors along another than a second one does:
// Welch's test of the slopes of their logarithms, one slope per repetition.
func (d *data) steeper(out *Trend, t definition.Trend) {
	other := t
	other.Source = otherSide(t)
	x, from, to, err := d.slopes(t)
	y, _, _, otherErr := d.slopes(other)
	if err == nil {
		err = otherErr
	}
	if err != nil {
		out.Outcome, out.Why = NotMeasured, err.Error()
		return
	}
	grows := func(slopes []float64) string { return Number(math.Exp(mean(slopes)*(to-from))) + " times" }
	out.Why = fmt.Sprintf("by the slope of the logarithm, from %s to %s it becomes %s what it was, the other %s",
		Number(from), Number(to), grows(x), grows(y))
	if min(len(x), len(y)) < enough {
		out.open(out.Why, more(x, y, false, 0))
		return
	}
	difference, p, err := differs(x, y, false, 0)
	out.Why += " (" + P(p) + ")"
	switch {
	case err == nil && p < d.judge.of(alpha) && difference > 0:
		out.Outcome = Holds
	case err == nil && p < d.judge.of(alpha):
		out.Outcome = Fails
	default:
		out.open(out.Why, more(x, y, false, 0))
	}
}

// slopes returns the slopes of the logarithm of a statement's values along its factor, one per
// repetition that has all levels; and the first and the last position.
func (d *data) slopes(t definition.Trend) (out []float64, from, to float64, err error) {
	groups, places := d.along(t)
	if len(groups) < 2 {
		return nil, 0, 0, fmt.Errorf("there are values for %s of %s", words.Plural(len(groups), "level"), name(t.Along))
	}
	var numbers []int               // of repetitions, in their order
	levels := map[int][][]float64{} // of each repetition, by level
	for i, g := range groups {
		for _, r := range g.reps {
			n := r.slot.number
			if levels[n] == nil {
				numbers, levels[n] = append(numbers, n), make([][]float64, len(groups))
			}
			levels[n][i] = append(levels[n][i], r.one(t.Each))
		}
	}
	for _, n := range numbers {
		logs := make([]float64, len(groups))
		whole := true
		for i, values := range levels[n] {
			if whole = whole && len(values) > 0; !whole {
				break
			}
			v := mean(values)
			if !(v > 0) {
				return nil, 0, 0, fmt.Errorf("%s has values that are not above 0, which have no logarithm",
					name(t.Metric))
			}
			logs[i] = math.Log(v)
		}
		if whole {
			_, slope := stat.LinearRegression(places, logs, nil, false)
			out = append(out, slope)
		}
	}
	if len(out) == 0 {
		return nil, 0, 0, fmt.Errorf("no repetition has values for all levels of %s", name(t.Along))
	}
	return out, places[0], places[len(places)-1], nil
}
