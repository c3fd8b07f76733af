// Package stats describes and compares samples of measurements, and warns of what they cannot show.
//
// The arithmetic is gonum's and go-moremath's. No value is dropped: outliers are listed, and a
// Warning says what a sample is too small or too unusual to show.
package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
	"gonum.org/v1/gonum/stat"
)

// Float is a number that may be absent: NaN in Go, null in JSON. Infinities, which JSON cannot
// express, are null, too.
type Float float64

// None is the absent Float.
var None = Float(math.NaN())

// MarshalJSON writes null for NaN and infinities.
func (f Float) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// UnmarshalJSON reads null as NaN.
func (f *Float) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*f = None
		return nil
	}
	return json.Unmarshal(b, (*float64)(f))
}

// Interval is a confidence interval.
type Interval struct {
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"`          // 0.95
	Method     string  `json:"method"`              // how it was computed
	Resamples  int     `json:"resamples,omitempty"` // of a bootstrap
}

// Within reports whether the whole interval lies in [low, high].
func (i Interval) Within(low, high float64) bool { return low <= i.Low && i.High <= high }

// Options are for the bootstrap. The zero value is 95 %, 10,000 resamples, seed 0.
type Options struct {
	Confidence float64 // of intervals, in (0, 1); 0 is 0.95
	Resamples  int     // 0 is 10,000; fewer, down to 1,000, for samples of more than 10,000 values
	Seed       uint64  // the same seed and sample give the same interval
}

// Summary describes one sample. Its values have the sample's unit.
type Summary struct {
	N         int     `json:"n"`
	Mean      float64 `json:"mean"`
	Median    float64 `json:"median"`
	Deviation Float   `json:"deviation"` // sample standard deviation (divided by n − 1); none for one value
	Variance  Float   `json:"variance"`
	Min       float64 `json:"min"`
	Max       float64 `json:"max"`
	P5        float64 `json:"p5"`
	P25       float64 `json:"p25"`
	P75       float64 `json:"p75"`
	P95       float64 `json:"p95"`
	P99       float64 `json:"p99"`

	MeanInterval   *Interval `json:"mean_interval,omitempty"`   // BCa bootstrap; nil for fewer than 2 values
	MedianInterval *Interval `json:"median_interval,omitempty"` // percentile bootstrap

	Outliers []Outlier `json:"outliers,omitempty"` // included in all the numbers above
	Warnings []Warning `json:"warnings,omitempty"`
}

// ErrEmpty means that there are no values.
var ErrEmpty = errors.New("there are no values")

// check rejects empty samples and numbers that are not finite.
func check(samples ...[]float64) error {
	for _, xs := range samples {
		if len(xs) == 0 {
			return ErrEmpty
		}
		for i, x := range xs {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Errorf("value %d is %v; leave out what was not measured, and count it", i+1, x)
			}
		}
	}
	return nil
}

// Summarize describes a sample, whose values are in the order in which they were measured. It fails
// if there are none, or if one is not finite.
func Summarize(xs []float64, o Options) (Summary, error) {
	if err := check(xs); err != nil {
		return Summary{}, err
	}
	s := ordered(xs)
	out := Summary{N: len(xs), Mean: mean(xs), Median: s.Quantile(0.5), Deviation: None, Variance: None,
		Min: s.Xs[0], Max: s.Xs[len(xs)-1], P5: s.Quantile(0.05), P25: s.Quantile(0.25), P75: s.Quantile(0.75),
		P95: s.Quantile(0.95), P99: s.Quantile(0.99), Outliers: Outliers(xs), Warnings: Warnings(xs)}
	if len(xs) > 1 {
		v := variance(xs)
		out.Variance, out.Deviation = Float(v), Float(math.Sqrt(v))
		ofMean, ofMedian := MeanInterval(xs, o), QuantileInterval(xs, 0.5, o)
		out.MeanInterval, out.MedianInterval = &ofMean, &ofMedian
	}
	return out, nil
}

// Quantile returns the p-quantile, p in [0, 1], of values in any order, by the method that is
// approximately median-unbiased whatever the distribution (number 8 of Hyndman and Fan, "Sample
// Quantiles in Statistical Packages", 1996); NaN if there are no values.
func Quantile(xs []float64, p float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	return ordered(xs).Quantile(p)
}

// mean is exact where all values are equal, which keeps constant data constant.
func mean(xs []float64) float64 {
	if constant(xs) {
		return xs[0]
	}
	return stat.Mean(xs, nil)
}

// variance is the sample variance (divided by n − 1).
func variance(xs []float64) float64 {
	if constant(xs) {
		return 0
	}
	return stat.Variance(xs, nil)
}

func constant(xs []float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return x != xs[0] })
}

// ordered returns a sorted copy.
func ordered(xs []float64) moremath.Sample {
	return moremath.Sample{Xs: slices.Sorted(slices.Values(xs)), Sorted: true}
}
