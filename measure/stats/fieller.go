package stats

import (
	"fmt"
	"math"
)

// Fieller returns the ratio of the means of two samples, a to b, and its interval (Fieller, 1954):
// all ratios r for which a t test does not show that a and r times b differ. The degrees of freedom
// are Satterthwaite's at the ratio, or n − 1 for pairs. It fails if the mean of b is not shown to
// differ from 0. Without any spread the interval is the ratio itself.
func Fieller(a, b []float64, paired bool, confidence float64) (ratio float64, i Interval, err error) {
	if !(confidence > 0 && confidence < 1) {
		return 0, i, fmt.Errorf("the confidence cannot be %v; take 0.95", confidence)
	}
	if len(a) < 2 || len(b) < 2 {
		return 0, i, ErrFew
	}
	if paired && len(a) != len(b) {
		return 0, i, ErrUnpaired
	}
	if err := check(a, b); err != nil {
		return 0, i, err
	}
	ma, mb := mean(a), mean(b)
	if mb == 0 {
		return 0, i, fmt.Errorf("there is no ratio to a mean of 0")
	}
	ratio = ma / mb
	i = Interval{Low: ratio, High: ratio, Confidence: confidence, Method: "Fieller"}
	va, vb, vab := variance(a)/float64(len(a)), variance(b)/float64(len(b)), 0.0
	freedom := float64(len(a) - 1)
	if paired {
		for k := range a {
			vab += (a[k] - ma) * (b[k] - mb)
		}
		vab /= float64(len(a)-1) * float64(len(a))
	} else if sum := va + ratio*ratio*vb; sum > 0 {
		sa, sb := va/sum, ratio*ratio*vb/sum
		freedom = 1 / (sa*sa/float64(len(a)-1) + sb*sb/float64(len(b)-1))
	}
	if va == 0 && vb == 0 {
		return ratio, i, nil
	}
	t := spread{freedom: freedom}.student().Quantile((1 + confidence) / 2)
	// (ma - r mb)² = t² (va - 2 r vab + r² vb) is a quadratic equation in r.
	qa, qb, qc := mb*mb-t*t*vb, ma*mb-t*t*vab, ma*ma-t*t*va
	root := qb*qb - qa*qc
	if qa <= 0 || root < 0 {
		return ratio, i, fmt.Errorf("the second mean is not shown to differ from 0: a ratio to it has no bounds")
	}
	half := math.Sqrt(root) / qa
	i.Low, i.High = qb/qa-half, qb/qa+half
	return ratio, i, nil
}
