package report

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/stat"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/measure/stats"
)

// slot identifies repetitions that were measured directly one after another.
type slot struct {
	number int // of the repetition, or of the round where that is one
	pair   string
}

// pairs returns the values of two groups that were measured directly one after another, in the same
// order; false: there are none, or there are several values per repetition.
func pairs(a, b *group, src definition.Source) (x, y []float64, ok bool) {
	if src.Of == definition.Values {
		return nil, nil, false
	}
	others := map[slot]*repetition{}
	for _, r := range b.reps {
		if r.slot.pair == "" || others[r.slot] != nil {
			return nil, nil, false
		}
		others[r.slot] = r
	}
	seen := map[slot]bool{}
	for _, r := range a.reps {
		if r.slot.pair == "" || seen[r.slot] {
			return nil, nil, false
		}
		seen[r.slot] = true
		if other := others[r.slot]; other != nil {
			x, y = append(x, r.one(src.Each)), append(y, other.one(src.Each))
		}
	}
	return x, y, len(x) >= 2
}

// twoGroups are compared by pairs where there are any.
func twoGroups(a, b *group, src definition.Source) (x, y []float64, paired bool) {
	if x, y, paired = pairs(a, b, src); paired {
		return x, y, true
	}
	return a.values(src), b.values(src), false
}

// standardError is that of the difference of two means.
func standardError(x, y []float64, paired bool) float64 {
	if paired {
		d := make([]float64, len(x))
		for i := range x {
			d[i] = x[i] - y[i]
		}
		return math.Sqrt(stat.Variance(d, nil) / float64(len(d)))
	}
	return math.Sqrt(stat.Variance(x, nil)/float64(len(x)) + stat.Variance(y, nil)/float64(len(y)))
}

// differs returns the difference of the means of x and y, and the p value of a two-sided t test
// that it is shift. Without any spread, p is 1 if the difference equals shift, otherwise 0.
func differs(x, y []float64, paired bool, shift float64) (difference, p float64, err error) {
	shifted := scaled(y, 1)
	for i := range shifted {
		shifted[i] += shift
	}
	of := stats.Welch
	if paired {
		of = stats.PairedT
	}
	difference = mean(x) - mean(y)
	t, err := of(x, shifted)
	switch {
	case errors.Is(err, stats.ErrConstant) && difference == shift:
		return difference, 1, nil
	case errors.Is(err, stats.ErrConstant):
		return difference, 0, nil
	}
	return difference, t.P, err
}

// needed returns about how many repetitions would show a difference with a power of 80 %; 0:
// unknown, or unreasonably many.
func needed(n int, standardError, distance float64) int {
	const z = 1.96 + 0.84
	more := float64(n) * math.Pow(z*standardError/distance, 2)
	if !(more > 0) || more > mostNeeded {
		return 0
	}
	return max(n+1, enough, int(math.Ceil(more)))
}

// mostNeeded are more repetitions than anybody will take.
const mostNeeded = 1000

// enough is the number of values from which on conclusions are drawn.
const enough = 5
