package stats

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Spending is how much of the error rate of a test may have been spent when a share of all values
// that there will be at most is there (Lan and DeMets, "Discrete Sequential Boundaries for Clinical
// Trials", 1983). What it is for is a test of one side.
type Spending func(alpha, share float64) float64

// LikeOBrienFleming spends next to nothing early, and nearly all at the end: its boundaries are
// close to those of O'Brien and Fleming (1979). It is α₁* of Lan and DeMets.
func LikeOBrienFleming(alpha, share float64) float64 {
	return 2 * distuv.UnitNormal.Survival(distuv.UnitNormal.Quantile(1-alpha/2)/math.Sqrt(share))
}

// Sequential is a test that is made several times while values are added. Looks says at which
// shares, in (0, 1] and ascending, of all values that there may be.
type Sequential struct {
	Spending Spending
	Looks    []float64
}

// maxLooks bounds the work.
const maxLooks = 100

// Check refuses looks that cannot be.
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

// Boundaries are the values of a standard normal statistic from which on a test of one side
// rejects, at each look, so that the rate of false rejections over all of them is alpha where
// nothing of it is left at the end, and never more. The statistic has independent increments, as a
// mean of values has. Computed by recursive integration over its density below the boundaries
// (Armitage, McPherson and Rowe, "Repeated Significance Tests on Accumulating Data", 1969; Jennison
// and Turnbull, "Group Sequential Methods", 2000, chapter 19). Beyond farthest, a boundary is
// that.
func (s Sequential) Boundaries(alpha float64) []float64 {
	out := make([]float64, 0, len(s.Looks))
	var at, weighed []float64 // the places of a grid, and the density of the sum at them by its weights
	spent, before := 0.0, 0.0
	for _, share := range s.Looks {
		root := math.Sqrt(share - before)
		beyond := func(z float64) float64 { // the probability of the first rejection here
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

// farthest is how far from 0 a normal statistic is followed: it is beyond once in 10¹⁵.
const farthest = 8.0

// falling finds where a falling function has a value, between −farthest and farthest.
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

// densityBelow returns a grid up to a limit, and the density there of the sum whose increment has a
// deviation of root, by the weights of Simpson's rule: from the density before, or without one.
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

// Level is the nominal level of the last look: tests that reject where their p value is below it
// are wrong in at most a share alpha of all cases over all looks, if at each earlier one they did
// so at the level that it had. It holds for tests of one side (also two of them, as of
// equivalence) and of two: it is the lower of the levels that they have. For statistics that are
// not normal, such as t, it is used as if they were, which is near (Jennison and Turnbull, 2000,
// section 3.8: "significance level approach"). It is never below leastLevel.
func (s Sequential) Level(alpha float64) float64 {
	last := len(s.Looks) - 1
	one := distuv.UnitNormal.Survival(s.Boundaries(alpha)[last])
	two := 2 * distuv.UnitNormal.Survival(s.Boundaries(alpha / 2)[last])
	return max(leastLevel, min(one, two))
}

// leastLevel is below what any test of few values reaches, and above what numbers can tell from 0.
const leastLevel = 1e-9
