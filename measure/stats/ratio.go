package stats

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Wilson returns the score interval of a ratio, such as packets lost of packets sent
// (Wilson, 1927). Unlike others it is right for none lost, and for few.
func Wilson(count, of int, confidence float64) (Interval, error) {
	if of < 1 || count < 0 || count > of {
		return Interval{}, fmt.Errorf("%d of %d is not a ratio", count, of)
	}
	if !(confidence > 0 && confidence < 1) {
		return Interval{}, fmt.Errorf("the confidence cannot be %v; take 0.95", confidence)
	}
	z := distuv.UnitNormal.Quantile((1 + confidence) / 2)
	n, p := float64(of), float64(count)/float64(of)
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	i := Interval{Low: max(0, middle-half), High: min(1, middle+half), Confidence: confidence, Method: "Wilson"}
	if count == 0 {
		i.Low = 0 // but for rounding
	}
	if count == of {
		i.High = 1
	}
	return i, nil
}

// RatioDifference returns a ratio less another, and its interval (Newcombe, 1998,
// method 10, from Wilson's intervals). Two ratios are equivalent where the interval of
// confidence 1 − 2·alpha lies within the margin.
func RatioDifference(countA, ofA, countB, ofB int, confidence float64) (float64, Interval, error) {
	a, err := Wilson(countA, ofA, confidence)
	if err != nil {
		return 0, Interval{}, err
	}
	b, err := Wilson(countB, ofB, confidence)
	if err != nil {
		return 0, Interval{}, err
	}
	pa, pb := float64(countA)/float64(ofA), float64(countB)/float64(ofB)
	d := pa - pb
	return d, Interval{Low: d - math.Hypot(pa-a.Low, b.High-pb), High: d + math.Hypot(a.High-pa, pb-b.Low),
		Confidence: confidence, Method: "Newcombe"}, nil
}
