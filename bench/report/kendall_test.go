package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// permute calls f with all orders of xs.
func permute(xs []float64, k int, f func()) {
	if k == len(xs) {
		f()
		return
	}
	for i := k; i < len(xs); i++ {
		xs[k], xs[i] = xs[i], xs[k]
		permute(xs, k+1, f)
		xs[k], xs[i] = xs[i], xs[k]
	}
}

func kendallS(x, y []float64) (s float64) {
	for i := range x {
		for j := range i {
			s += compare(x[i], x[j]) * compare(y[i], y[j])
		}
	}
	return s
}

// TestKendallVariance proves the formula, ties and all, against the variance of S over all orders.
func TestKendallVariance(t *testing.T) {
	for _, c := range [][2][]float64{
		{{1, 2, 3, 4, 5, 6}, {3, 1, 4, 1.5, 9, 2.6}},
		{{1, 1, 2, 2, 3, 3, 3}, {1, 2, 2, 2, 5, 6, 7}},
		{{1, 1, 1, 2}, {4, 4, 5, 6}},
		{{1, 2}, {1, 2}},
	} {
		x, y := c[0], slices.Clone(c[1])
		squares, n := 0.0, 0.0
		permute(y, 0, func() { s := kendallS(x, y); squares, n = squares+s*s, n+1 })
		if want, got := squares/n, kendallVariance(x, c[1]); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%v: %v, over all orders %v", c, got, want)
		}
	}
}

// TestKendall proves tau of what always rises, always falls, and never changes, and that under no
// relation p is below 0.05 in no more than about five of a hundred cases.
func TestKendall(t *testing.T) {
	up, down := []float64{1, 2, 3, 4, 5, 6}, []float64{6, 5, 4, 3, 2, 1}
	if tau, p := kendall(up, up); tau != 1 || p > 0.02 {
		t.Error(tau, p)
	}
	if tau, p := kendall(up, down); tau != -1 || p > 0.02 {
		t.Error(tau, p)
	}
	if tau, p := kendall(up, make([]float64, 6)); tau != 0 || p != 1 {
		t.Error(tau, p)
	}
	rng, alarms := rand.New(rand.NewPCG(3, 4)), 0
	x := []float64{1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3}
	for range 2000 {
		y := make([]float64, len(x))
		for i := range y {
			y[i] = rng.ExpFloat64()
		}
		if _, p := kendall(x, y); p < 0.05 {
			alarms++
		}
	}
	if alarms > 140 || alarms < 40 {
		t.Errorf("%d of 2000 are false alarms", alarms)
	}
}
