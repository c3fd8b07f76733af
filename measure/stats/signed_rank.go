package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Most pairs of which the distribution of signed ranks is counted out, and the least that can be
// significant at 5 %: 2/2⁶ is 0.031, and 2/2⁵ is 0.063.
const (
	exactPairs = 50
	leastPairs = 6
)

// Wilcoxon tests that the differences of pairs lie evenly about zero (signed ranks; Wilcoxon,
// 1945). Pairs that do not differ are left out. The statistic is the sum of the ranks at which a is
// above b, ties having the mean of their ranks. P is twice the smaller tail: of all 2ⁿ signs for up
// to 50 pairs, with ties as well; beyond by a normal approximation with corrections for ties and
// continuity.
func Wilcoxon(a, b []float64) (Test, error) {
	ranks, err := signedRanks(a, b)
	if err != nil {
		return Test{}, err
	}
	above, below := ranks.sums()
	t := Test{Name: "Wilcoxon signed rank", Statistic: above, P: 1}
	if len(ranks) <= exactPairs {
		t.P = min(1, 2*ranks.tail(min(above, below)))
	} else {
		t.P = min(1, 2*ranks.normalTail(min(above, below)))
	}
	return t, nil
}

// RankBiserial is the effect size that goes with Wilcoxon's test: the share of the ranks at which a
// is above b less that at which it is below, from −1 to 1 (Kerby, 2014). None where no pair
// differs.
func RankBiserial(a, b []float64) Float {
	ranks, err := signedRanks(a, b)
	if err != nil {
		return None
	}
	above, below := ranks.sums()
	return Float((above - below) / (above + below))
}

// ranked are the ranks of differences that are not zero, by size, each with its sign.
type ranked []float64

// signedRanks fails where no pair differs. What differs by no more than rounding is taken as equal:
// 0.3 − 0.2 and 0.2 − 0.1 tie.
func signedRanks(a, b []float64) (ranked, error) {
	switch {
	case len(a) != len(b):
		return nil, ErrUnpaired
	case len(a) < 2:
		return nil, ErrFew
	}
	if err := check(a, b); err != nil {
		return nil, err
	}
	noise := 0.0
	for i := range a {
		noise = max(noise, 1e-12*math.Abs(a[i]), 1e-12*math.Abs(b[i]))
	}
	ds := slices.DeleteFunc(differences(a, b), func(d float64) bool { return math.Abs(d) <= noise })
	if len(ds) == 0 {
		return nil, ErrConstant
	}
	slices.SortFunc(ds, func(x, y float64) int {
		if math.Abs(x) < math.Abs(y) {
			return -1
		}
		return 1
	})
	out := make(ranked, len(ds))
	for from := 0; from < len(ds); {
		to := from + 1
		for to < len(ds) && math.Abs(ds[to])-math.Abs(ds[to-1]) <= noise {
			to++
		}
		for i := from; i < to; i++ { // ranks from+1 to to, shared
			out[i] = math.Copysign(float64(from+1+to)/2, ds[i])
		}
		from = to
	}
	return out, nil
}

// sums are those of the ranks above zero and below.
func (r ranked) sums() (above, below float64) {
	for _, rank := range r {
		above, below = above+max(0, rank), below+max(0, -rank)
	}
	return above, below
}

// tail is the share of all ways to give the ranks signs in which those above zero sum up to at most
// sum. Ranks are halves at the least, so sums are counted in halves; of 50 ranks the counts are
// below 2⁵³, and exact.
func (r ranked) tail(sum float64) float64 {
	counts := make([]float64, 1+len(r)*(len(r)+1)) // by twice the sum
	counts[0] = 1
	for _, rank := range r {
		step := int(math.Round(2 * math.Abs(rank)))
		for s := len(counts) - 1; s >= step; s-- {
			counts[s] += counts[s-step]
		}
	}
	ways := 0.0
	for _, n := range counts[:1+int(math.Round(2*sum))] {
		ways += n
	}
	return ways / math.Exp2(float64(len(r)))
}

// normalTail is tail for many ranks. The variance of the sum is that of ranks with independent
// signs, ties or not.
func (r ranked) normalTail(sum float64) float64 {
	total, squares := 0.0, 0.0
	for _, rank := range r {
		total, squares = total+math.Abs(rank), squares+rank*rank
	}
	return distuv.UnitNormal.CDF((sum + 0.5 - total/2) / math.Sqrt(squares/4))
}
