package stats

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"

	"trivet.dev/trivet/internal/words"
)

// Outlier is a value far from the others by Tukey's fences: more than 1.5 times the interquartile
// range beyond the quartiles; far: more than 3 times.
type Outlier struct {
	Index int     `json:"index"` // in the sample, from 0
	Value float64 `json:"value"`
	Far   bool    `json:"far,omitempty"`
}

// Outliers lists the outliers of a sample in its order. A sample of fewer than 5 values has none,
// nor has one of which half are equal, as it provides no scale.
func Outliers(xs []float64) []Outlier {
	if len(xs) < 5 {
		return nil
	}
	s := ordered(xs)
	low, high := s.Quantile(0.25), s.Quantile(0.75)
	span := high - low
	if span == 0 {
		return nil
	}
	var out []Outlier
	for i, x := range xs {
		if beyond := max(low-x, x-high); beyond > 1.5*span {
			out = append(out, Outlier{i, x, beyond > 3*span})
		}
	}
	return out
}

// Warning says why a sample may not support a conclusion.
type Warning struct {
	Code string `json:"code"` // one of the constants below
	Text string `json:"text"`
}

// Codes of warnings.
const (
	WarnSmall     = "small"     // fewer values than an interval or a test can use
	WarnConstant  = "constant"  // no spread at all
	WarnTied      = "tied"      // most values are equal: the measurement is coarser than its spread
	WarnDependent = "dependent" // neighbouring values are correlated: n counts for less
	WarnSkewed    = "skewed"    // a mean says little of a typical value
	WarnOutliers  = "outliers"  // there are values far from the others
	WarnPower     = "power"     // the sample could hardly have shown what was asked
	WarnPairs     = "pairs"     // too few for the test of signed ranks to show anything
	WarnDisagree  = "disagree"  // the test of means and the rank test
)

// Thresholds of warnings.
const (
	fewValues     = 5    // below this, the exact Mann–Whitney test of two such samples cannot fall under 0.01
	tiedShare     = 0.5  // of the most frequent value
	dependence    = 0.3  // lag-1 autocorrelation, where it is also significant
	skewness      = 2.0  // that of an exponential distribution
	enoughForMean = 100  // number of values above which skewness matters less to tests of the mean
	powerWanted   = 0.80 // the usual
)

// Warnings lists what speaks against conclusions from a sample, whose values are in the order in
// which they were measured.
func Warnings(xs []float64) (out []Warning) {
	n := len(xs)
	add := func(code, format string, args ...any) { out = append(out, Warning{code, fmt.Sprintf(format, args...)}) }
	if n < fewValues {
		add(WarnSmall, "too few for an interval or a test: %s; take at least %d, better 10", words.Plural(n, "value"),
			fewValues)
	}
	switch {
	case n < 2:
		return out
	case constant(xs):
		add(WarnConstant, "all %d values are equal: there is no spread to judge by", n)
		return out
	}
	if most := mostFrequent(xs); n >= fewValues && float64(most) > tiedShare*float64(n) {
		add(WarnTied, "%d of %d values are equal: the measurement is coarser than what it measures", most, n)
	}
	if r := neighbours(xs); n >= 10 && r > max(dependence, 2/math.Sqrt(float64(n))) {
		add(WarnDependent, "neighbouring values resemble each other (autocorrelation %.2f): intervals and tests are too sure; compare repetitions, not their samples", r)
	}
	if skew := stat.Skew(xs, nil); n >= fewValues && n < enoughForMean && math.Abs(skew) > skewness {
		add(WarnSkewed,
			"the values are skewed (%.1f): trust the median and the tests of ranks rather than the mean", skew)
	}
	if outliers := Outliers(xs); len(outliers) > 0 {
		add(WarnOutliers, "there are outliers, %d of %d values; they are part of all figures", len(outliers), n)
	}
	return out
}

func mostFrequent(xs []float64) int {
	counts, most := map[float64]int{}, 0
	for _, x := range xs {
		counts[x]++
		most = max(most, counts[x])
	}
	return most
}

// neighbours is the correlation of each value with the next (lag 1); 0 if there is none.
func neighbours(xs []float64) float64 {
	last := len(xs) - 1
	if last < 2 || constant(xs[:last]) || constant(xs[1:]) {
		return 0
	}
	return stat.Correlation(xs[:last], xs[1:], nil)
}
