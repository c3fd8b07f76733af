package stats

import (
	"fmt"
	"math"
	"sort"
)

// Equivalence is the outcome of two one-sided tests (TOST; Schuirmann, 1987): that the difference
// of two means is below Margin, and that it is above −Margin. Both must hold, which means that the
// confidence interval of level 1 − 2·Alpha lies within ±Margin.
type Equivalence struct {
	Name       string   `json:"name"`
	Margin     float64  `json:"margin"` // in the unit of the values
	Alpha      float64  `json:"alpha"`
	Difference float64  `json:"difference"` // mean of a minus mean of b
	Interval   Interval `json:"interval"`
	Freedom    float64  `json:"degrees_of_freedom,omitempty"`
	PLower     float64  `json:"p_lower"` // that it is at or below −Margin
	PUpper     float64  `json:"p_upper"` // that it is at or above Margin
	P          float64  `json:"p"`       // the larger
	Equivalent bool     `json:"equivalent"`

	// Power is the probability that such samples show equivalence if there is no difference, by a
	// shifted central t distribution; Needed is the number of values per sample that would make it
	// 80 %.
	Power  Float `json:"power"`
	Needed int   `json:"needed,omitempty"`
}

func checkMargin(margin, alpha float64) error {
	if !(margin > 0) || math.IsInf(margin, 0) {
		return fmt.Errorf("the margin cannot be %v; say by how much two things may differ and still be the same to you, as a number above 0", margin)
	}
	if !(alpha > 0 && alpha < 0.5) {
		return fmt.Errorf("alpha cannot be %v; take 0.05", alpha)
	}
	return nil
}

// TOST tests that the means of two samples differ by less than margin, by Welch's t.
func TOST(a, b []float64, margin, alpha float64) (Equivalence, error) {
	if err := checkMargin(margin, alpha); err != nil {
		return Equivalence{}, err
	}
	s, err := welch(a, b)
	if err != nil {
		return Equivalence{}, err
	}
	return s.tost("TOST by Welch t", margin, alpha, min(len(a), len(b))), nil
}

func (s spread) tost(name string, margin, alpha float64, n int) Equivalence {
	e := Equivalence{Name: name, Margin: margin, Alpha: alpha, Difference: s.difference, Freedom: s.freedom,
		Interval: s.interval(1-2*alpha, "t"),
		PLower:   s.student().CDF(-(s.difference + margin) / s.err),
		PUpper:   s.student().CDF((s.difference - margin) / s.err)}
	e.P = max(e.PLower, e.PUpper)
	e.Equivalent = e.P < alpha
	e.Power = Float(s.power(margin, alpha))
	if e.Power < powerWanted {
		e.Needed = s.needed(margin, alpha, n)
	}
	return e
}

// power is the power of TOST if the true difference is zero.
func (s spread) power(margin, alpha float64) float64 {
	t := s.student()
	return max(0, 2*t.CDF(margin/s.err-t.Quantile(1-alpha))-1)
}

// needed returns the smallest number of values per sample, of the same spread, with the wanted
// power; 0: a million are not enough.
func (s spread) needed(margin, alpha float64, n int) int {
	const most = 1_000_000
	more := sort.Search(most-n, func(i int) bool {
		ratio := float64(n+i) / float64(n)
		larger := spread{0, s.err / math.Sqrt(ratio), s.freedom * ratio}
		return larger.power(margin, alpha) >= powerWanted
	})
	if n+more == most {
		return 0
	}
	return n + more
}

// detectable returns the smallest difference that a test of level alpha detects with the wanted
// power.
func (s spread) detectable(alpha float64) float64 {
	t := s.student()
	return s.err * (t.Quantile(1-alpha/2) + t.Quantile(powerWanted))
}
