package stats

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Spending returns how much of a test's error rate may have been spent once a share of the maximum
// number of values is available (Lan and DeMets, "Discrete Sequential Boundaries for Clinical
// Trials", 1983). It applies to one-sided tests.
type Spending func(alpha, share float64) float64

// LikeOBrienFleming spends next to nothing early and nearly everything at the end: its boundaries
// are close to those of O'Brien and Fleming (1979). It is α₁* of Lan and DeMets.
func LikeOBrienFleming(alpha, share float64) float64 {
	return 2 * distuv.UnitNormal.Survival(distuv.UnitNormal.Quantile(1-alpha/2)/math.Sqrt(share))
}

// Sequential is a group sequential test, repeated while values are added. Looks are the shares of
// the maximum number of values, in (0, 1] and ascending, at which it is made.
type Sequential struct {
	Spending Spending
	Looks    []float64
}

// maxLooks limits the work.
const maxLooks = 100

// Check returns an error if the looks are invalid.
func (s Sequential) Check() error {
	if len(s.Looks) == 0 || len(s.Looks) > maxLooks {
		return fmt.Errorf("%d looks; there are from 1 to %d", len(s.Looks), maxLooks)
	}
	before := 0.0
	for _, share := range s.Looks {
		if !(share > before && share <= 1) {
			return errors.New("looks are at ascending shares from 0 to 1")
		}
		before = share
	}
	return nil
}

// Boundaries returns, for each look, the value of a standard normal statistic above which a
// one-sided test rejects. The rate of false rejections over all looks is then at most alpha, and
// exactly alpha if everything is spent at the last look. The statistic must have independent
// increments, as a mean of values has. The boundaries are computed by recursive integration over
// the density below them (Armitage, McPherson and Rowe, "Repeated Significance Tests on
// Accumulating Data", 1969; Jennison and Turnbull, "Group Sequential Methods", 2000, chapter 19),
// and are at most farthest.
func (s Sequential) Boundaries(alpha float64) []float64 {
	out := make([]float64, 0, len(s.Looks))
	var at, weighed []float64 // points of a grid, and the density of the sum there times the weights of integration
	spent, before := 0.0, 0.0
	for _, share := range s.Looks {
		root := math.Sqrt(share - before)
		beyond := func(z float64) float64 { // probability of the first rejection at this look
			limit := z * math.Sqrt(share)
			if at == nil {
				return distuv.UnitNormal.Survival(z)
			}
			sum := 0.0
			for i, y := range at {
				sum += weighed[i] * distuv.UnitNormal.Survival((limit-y)/root)
			}
			return sum
		}
		total := s.Spending(alpha, share)
		z := falling(beyond, total-spent)
		spent, out = total, append(out, z)
		at, weighed = densityBelow(z*math.Sqrt(share), share, root, at, weighed)
		before = share
	}
	return out
}

// farthest is the largest value considered of a normal statistic, exceeded once in 10¹⁵.
const farthest = 8.0

// falling returns where a decreasing function has a value, between −farthest and farthest.
func falling(f func(float64) float64, value float64) float64 {
	low, high := -farthest, farthest
	for range 60 {
		if middle := (low + high) / 2; f(middle) > value {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// densityBelow returns a grid up to a limit, and the weighted density there (Simpson's rule) of the
// sum after an increment of standard deviation root. before and weighed are the previous grid and
// density; nil: this is the first look.
func densityBelow(limit, share, root float64, before, weighed []float64) (at, next []float64) {
	const coarse, fine, most = 200, 4, 6000
	low := -farthest * math.Sqrt(share)
	n := int(min(most, max(coarse, math.Ceil((limit-low)/root*fine))))
	n += n % 2
	at, next = make([]float64, n+1), make([]float64, n+1)
	step := (limit - low) / float64(n)
	for i := range at {
		at[i] = low + float64(i)*step
		weight := step / 3 * float64(2+2*(i%2))
		if i == 0 || i == n {
			weight = step / 3
		}
		if before == nil {
			next[i] = weight * distuv.UnitNormal.Prob(at[i]/root) / root
			continue
		}
		sum := 0.0
		for k, y := range before {
			if d := (at[i] - y) / root; d > -farthest && d < farthest {
				sum += weighed[k] * math.Exp(-d*d/2)
			}
		}
		next[i] = weight * sum / (root * math.Sqrt(2*math.Pi))
	}
	return at, next
}

// Level returns the nominal level of the last look: if tests reject when their p value is below the
// level at each look, the rate of false rejections over all looks is at most alpha. It is the lower
// of the levels for one-sided tests (also pairs of them, as for equivalence) and for two-sided
// ones. For other statistics, such as t, it is an approximation (Jennison and Turnbull, 2000,
// section 3.8: "significance level approach"). It is never below leastLevel.
func (s Sequential) Level(alpha float64) float64 {
	last := len(s.Looks) - 1
	one := distuv.UnitNormal.Survival(s.Boundaries(alpha)[last])
	two := 2 * distuv.UnitNormal.Survival(s.Boundaries(alpha / 2)[last])
	return max(leastLevel, min(one, two))
}

// leastLevel is below the p values that tests of few values can reach, and above rounding errors.
const leastLevel = 1e-9
