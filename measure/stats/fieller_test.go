package stats

import (
	"math"
	"testing"
)

// Proves that the interval of a ratio is where SciPy's t test of a and r times b begins to tell
// them apart (roots found by scipy.optimize.brentq, not by the formula), that without spread it is
// the ratio alone, and that there is none where the second mean may be 0.
func TestFieller(t *testing.T) {
	a, b := []float64{14.2, 15.1, 13.8, 14.9, 15.4, 14.4}, []float64{10.1, 9.7, 10.4, 9.9, 10.2, 9.5}
	for _, c := range []struct {
		a, b             []float64
		paired           bool
		confidence       float64
		ratio, low, high float64
	}{
		{a, b, false, 0.95, 1.4682274247491638, 1.3983726600588005, 1.5408231755117365},
		{a, b, true, 0.95, 1.4682274247491638, 1.3786502517493546, 1.562625582643861},
		{a, b[:4], false, 0.9, 1.459684123025769, 1.3996911861881274, 1.5219284226608076},
		{[]float64{3, 9, 5, 1}, []float64{2, 5, 3.5, 1.9}, false, 0.9, 1.4516129032258065, 0.3312552926191689, 3.418214687047388},
		{[]float64{3, 3, 3}, []float64{2, 2}, false, 0.95, 1.5, 1.5, 1.5},
	} {
		ratio, i, err := Fieller(c.a, c.b, c.paired, c.confidence)
		if err != nil || math.Abs(ratio-c.ratio) > 1e-9 || math.Abs(i.Low-c.low) > 1e-9 || math.Abs(i.High-c.high) > 1e-9 {
			t.Errorf("%v to %v: %v %v (%v), want %v from %v to %v", c.a, c.b, ratio, i, err, c.ratio, c.low, c.high)
		}
	}
	for _, b := range [][]float64{{-1, 1}, {-5, 6, 3}, {7}} {
		if _, i, err := Fieller(a, b, false, 0.95); err == nil {
			t.Errorf("a ratio to %v: %v", b, i)
		}
	}
}
