package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Limits on the work of a bootstrap.
const (
	manyResamples = 10_000
	fewResamples  = 1_000
	maxDraws      = 100_000_000
)

// Names of the methods in Interval.Method.
const (
	BCa        = "bootstrap, bias-corrected and accelerated"
	Percentile = "bootstrap, percentile"
	Constant   = "all values are equal"
)

func (o Options) confidence() float64 { return cmp.Or(o.Confidence, 0.95) }

// resamples returns the number of resamples for n values.
func (o Options) resamples(n int) int {
	if o.Resamples > 0 {
		return o.Resamples
	}
	return min(manyResamples, max(fewResamples, maxDraws/n))
}

// rng returns a random stream per use, so that an interval does not depend on what was computed
// before it.
func (o Options) rng(use uint64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, use)) }

// Uses of random streams.
const (
	forMean = iota + 1
	forQuantile
)

// MeanInterval returns a confidence interval of the mean by a BCa bootstrap (Efron,
// "Better Bootstrap Confidence Intervals", 1987). It needs at least 2 values.
func MeanInterval(xs []float64, o Options) Interval {
	if constant(xs) {
		return Interval{Low: xs[0], High: xs[0], Confidence: o.confidence(), Method: Constant}
	}
	sorted := ordered(xs).Xs
	means := draw(sorted, o.resamples(len(xs)), o.rng(forMean), func(s []float64) float64 { return stat.Mean(s, nil) })
	low, high := bcaLevels(means, stat.Mean(sorted, nil), meanAcceleration(sorted), o.confidence())
	return between(means, low, high, o, BCa)
}

// meanAcceleration is the jackknife acceleration of the mean, in closed form:
// Σ(x−m)³ / (6 (Σ(x−m)²)^1.5).
func meanAcceleration(xs []float64) float64 {
	squares, cubes, m := 0.0, 0.0, stat.Mean(xs, nil)
	for _, x := range xs {
		squares += (x - m) * (x - m)
		cubes += (x - m) * (x - m) * (x - m)
	}
	if a := cubes / (6 * math.Pow(squares, 1.5)); !math.IsNaN(a) && !math.IsInf(a, 0) {
		return a
	}
	return 0
}

// bcaLevels returns the quantiles of the bootstrap distribution that bound the interval.
func bcaLevels(resampled []float64, observed, acceleration, confidence float64) (low, high float64) {
	below := 0.0
	for _, r := range resampled {
		if r < observed {
			below++
		} else if r == observed {
			below += 0.5
		}
	}
	// At least half a resample is counted on each side, as otherwise the bias correction would be
	// infinite.
	n := float64(len(resampled))
	bias := distuv.UnitNormal.Quantile(min(max(below, 0.5), n-0.5) / n)
	level := func(p float64) float64 {
		z := bias + distuv.UnitNormal.Quantile(p)
		return distuv.UnitNormal.CDF(bias + z/(1-acceleration*z))
	}
	return level((1 - confidence) / 2), level((1 + confidence) / 2)
}

// QuantileInterval returns a confidence interval of the p-quantile (0.5: the median) by a
// percentile bootstrap. BCa does not apply to quantiles, as their jackknife is not consistent.
func QuantileInterval(xs []float64, p float64, o Options) Interval {
	if constant(xs) {
		return Interval{Low: xs[0], High: xs[0], Confidence: o.confidence(), Method: Constant}
	}
	values := draw(ordered(xs).Xs, o.resamples(len(xs)), o.rng(forQuantile), quantileOf(p))
	return between(values, (1-o.confidence())/2, (1+o.confidence())/2, o, Percentile)
}

func quantileOf(p float64) func([]float64) float64 {
	return func(sorted []float64) float64 { return moremath.Sample{Xs: sorted, Sorted: true}.Quantile(p) }
}

// draw resamples with replacement. It draws how often each of the sorted values occurs, so that no
// resample needs sorting.
func draw(sorted []float64, resamples int, rng *rand.Rand, statistic func(sorted []float64) float64) []float64 {
	counts, sample, out := make([]int, len(sorted)), make([]float64, 0, len(sorted)), make([]float64, resamples)
	for i := range out {
		clear(counts)
		for range sorted {
			counts[rng.IntN(len(sorted))]++
		}
		sample = sample[:0]
		for j, count := range counts {
			for range count {
				sample = append(sample, sorted[j])
			}
		}
		out[i] = statistic(sample)
	}
	return out
}

func between(values []float64, low, high float64, o Options, method string) Interval {
	slices.Sort(values)
	s := moremath.Sample{Xs: values, Sorted: true}
	return Interval{Low: s.Quantile(low), High: s.Quantile(high), Confidence: o.confidence(), Method: method,
		Resamples: len(values)}
}
