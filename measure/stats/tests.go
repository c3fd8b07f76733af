package stats

import (
	"errors"
	"math"

	moremath "github.com/aclements/go-moremath/stats"
	"gonum.org/v1/gonum/stat/distuv"
)

// Test is the outcome of a two-sided test that two samples do not differ.
type Test struct {
	Name      string  `json:"name"`
	Statistic float64 `json:"statistic"`                    // t or U
	Freedom   float64 `json:"degrees_of_freedom,omitempty"` // of t
	P         float64 `json:"p"`
}

// Errors of tests.
var (
	ErrFew      = errors.New("a test needs at least 2 values on each side")
	ErrConstant = errors.New("all values are equal: there is no spread to judge by")
	ErrUnpaired = errors.New("pairs need as many values on each side")
)

// spread is the basis of t tests: a difference of means, its standard error and its degrees of
// freedom.
type spread struct{ difference, err, freedom float64 }

// welch compares samples of different variance (Welch, 1947), with Satterthwaite's degrees of
// freedom.
func welch(a, b []float64) (spread, error) {
	if len(a) < 2 || len(b) < 2 {
		return spread{}, ErrFew
	}
	if err := check(a, b); err != nil {
		return spread{}, err
	}
	va, vb := variance(a)/float64(len(a)), variance(b)/float64(len(b))
	if va+vb == 0 {
		return spread{}, ErrConstant
	}
	// As shares of their sum, so that the square of a small variance does not underflow.
	sa, sb := va/(va+vb), vb/(va+vb)
	freedom := 1 / (sa*sa/float64(len(a)-1) + sb*sb/float64(len(b)-1))
	return spread{mean(a) - mean(b), math.Sqrt(va + vb), freedom}, nil
}

// paired is the spread of the differences of pairs.
func paired(a, b []float64) (spread, error) {
	if len(a) != len(b) {
		return spread{}, ErrUnpaired
	}
	if len(a) < 2 {
		return spread{}, ErrFew
	}
	if err := check(a, b); err != nil {
		return spread{}, err
	}
	d := differences(a, b)
	v := variance(d)
	if v == 0 {
		return spread{}, ErrConstant
	}
	return spread{mean(d), math.Sqrt(v / float64(len(d))), float64(len(d) - 1)}, nil
}

func differences(a, b []float64) []float64 {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return d
}

func (s spread) student() distuv.StudentsT { return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: s.freedom} }

func (s spread) test(name string) Test {
	t := s.difference / s.err
	return Test{Name: name, Statistic: t, Freedom: s.freedom, P: min(1, 2*s.student().CDF(-math.Abs(t)))}
}

// interval returns the confidence interval of the difference.
func (s spread) interval(confidence float64, method string) Interval {
	half := s.err * s.student().Quantile((1+confidence)/2)
	return Interval{Low: s.difference - half, High: s.difference + half, Confidence: confidence, Method: method}
}

// HalfWidth returns half the width of the t interval of a sample's mean; 0 without any spread.
func HalfWidth(xs []float64, confidence float64) float64 {
	n := float64(len(xs))
	if n < 2 || constant(xs) {
		return 0
	}
	return math.Sqrt(variance(xs)/n) * spread{freedom: n - 1}.student().Quantile((1+confidence)/2)
}

// Welch tests that the means of two samples do not differ.
func Welch(a, b []float64) (Test, error) {
	s, err := welch(a, b)
	if err != nil {
		return Test{}, err
	}
	return s.test("Welch t"), nil
}

// PairedT tests that the mean of the differences of pairs is zero.
func PairedT(a, b []float64) (Test, error) {
	s, err := paired(a, b)
	if err != nil {
		return Test{}, err
	}
	return s.test("paired t"), nil
}

// MannWhitney tests that values of one sample are as often above those of the other as below. U
// counts the pairs in which a's value is larger, with ties as halves. P is twice the smaller tail:
// exact for samples of up to 50 values (25 with ties), otherwise by a normal approximation with
// corrections for ties and continuity.
func MannWhitney(a, b []float64) (Test, error) {
	if err := check(a, b); err != nil {
		return Test{}, err
	}
	// With ties the distribution is not symmetric, which the library's two-sided p assumes.
	below, err := moremath.MannWhitneyUTest(a, b, moremath.LocationLess)
	if err != nil {
		return Test{}, ErrConstant
	}
	above, err := moremath.MannWhitneyUTest(b, a, moremath.LocationLess)
	if err != nil {
		return Test{}, ErrConstant
	}
	return Test{Name: "Mann–Whitney U", Statistic: below.U, P: min(1, 2*below.P, 2*above.P)}, nil
}

// HedgesG is the difference of the means (a − b) in pooled standard deviations, with the exact
// correction for bias in small samples (Hedges, 1981). None if there is no spread.
func HedgesG(a, b []float64) Float {
	na, nb := float64(len(a)), float64(len(b))
	if na < 2 || nb < 2 {
		return None
	}
	freedom := na + nb - 2
	pooled := math.Sqrt(((na-1)*variance(a) + (nb-1)*variance(b)) / freedom)
	if pooled == 0 {
		return None
	}
	top, _ := math.Lgamma(freedom / 2)
	bottom, _ := math.Lgamma((freedom - 1) / 2)
	correction := math.Exp(top-bottom) / math.Sqrt(freedom/2)
	return Float(correction * (mean(a) - mean(b)) / pooled)
}

// CliffsDelta is the probability that a value of a is above one of b, minus the probability that it
// is below, from −1 to 1 (Cliff, 1993). None if a sample is empty.
func CliffsDelta(a, b []float64) Float {
	if len(a) == 0 || len(b) == 0 {
		return None
	}
	r, err := moremath.MannWhitneyUTest(a, b, moremath.LocationDiffers)
	if err != nil {
		return 0 // all values are equal
	}
	return Float(2*r.U/float64(len(a)*len(b)) - 1)
}
