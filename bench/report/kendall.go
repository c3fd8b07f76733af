package report

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// kendall tests that y neither rises nor falls with x: Kendall's S (how many pairs rise, less how
// many fall) with the two-sided p of its normal approximation, corrected for ties and continuity
// (Kendall, "Rank Correlation Methods", 1970, chapter 4). tau is in [−1, 1], of the pairs that are
// not tied (tau-b).
func kendall(x, y []float64) (tau, p float64) {
	n := float64(len(x))
	s, tiedX, tiedY := 0.0, 0.0, 0.0
	for i := range x {
		for j := range i {
			sign := compare(x[i], x[j]) * compare(y[i], y[j])
			s += sign
			if x[i] == x[j] {
				tiedX++
			}
			if y[i] == y[j] {
				tiedY++
			}
		}
	}
	all := n * (n - 1) / 2
	if tiedX == all || tiedY == all {
		return 0, 1
	}
	z := math.Max(0, math.Abs(s)-1) / math.Sqrt(kendallVariance(x, y))
	return s / math.Sqrt((all-tiedX)*(all-tiedY)), math.Min(1, 2*distuv.UnitNormal.Survival(z))
}

// kendallVariance is that of S over all ways to put the values of y beside those of x.
func kendallVariance(x, y []float64) float64 {
	n, a, b := float64(len(x)), ties(x), ties(y)
	variance := (n*(n-1)*(2*n+5)-a[2]-b[2])/18 + a[0]*b[0]/(2*n*(n-1))
	if n > 2 {
		variance += a[1] * b[1] / (9 * n * (n - 1) * (n - 2))
	}
	return variance
}

func compare(a, b float64) float64 {
	switch {
	case a > b:
		return 1
	case a < b:
		return -1
	}
	return 0
}

// ties are the sums over groups of t equal values: t(t−1), t(t−1)(t−2), t(t−1)(2t+5).
func ties(xs []float64) (sums [3]float64) {
	counts := map[float64]float64{}
	for _, x := range xs {
		counts[x]++
	}
	for _, t := range counts {
		sums[0] += t * (t - 1)
		sums[1] += t * (t - 1) * (t - 2)
		sums[2] += t * (t - 1) * (2*t + 5)
	}
	return sums
}
