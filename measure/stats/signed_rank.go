package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Maximum number of pairs for which the distribution of signed ranks is enumerated, and the minimum
// that can be significant at 5 %: 2/2⁶ is 0.031, and 2/2⁵ is 0.063.
const (
	exactPairs = 50
	leastPairs = 6
)

// Wilcoxon tests that the differences of pairs are symmetric about zero (signed-rank test;
// Wilcoxon, 1945). Pairs without a difference are left out. The statistic is the sum of the ranks
// of the pairs where a is above b; ties get their mean rank. P is twice the smaller tail: exact,
// even with ties, for up to 50 pairs, and otherwise by a normal approximation with corrections for
// ties and continuity.
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

// RankBiserial is the effect size of Wilcoxon's test: the share of the ranks where a is above b
// minus the share where it is below, from −1 to 1 (Kerby, 2014). None if no pair differs.
func RankBiserial(a, b []float64) Float {
	ranks, err := signedRanks(a, b)
	if err != nil {
		return None
	}
	above, below := ranks.sums()
	return Float((above - below) / (above + below))
}

// ranked are the signed ranks of the differences that are not zero.
type ranked []float64

// signedRanks fails if no pair differs. Differences that are equal but for rounding tie, as
// 0.3 − 0.2 and 0.2 − 0.1 do.
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
		for i := from; i < to; i++ { // ranks from+1 to to are shared
			out[i] = math.Copysign(float64(from+1+to)/2, ds[i])
		}
		from = to
	}
	return out, nil
}

// sums returns the sums of the positive and of the negative ranks.
func (r ranked) sums() (above, below float64) {
	for _, rank := range r {
		above, below = above+max(0, rank), below+max(0, -rank)
	}
	return above, below
}

// tail returns the share of all assignments of signs for which the positive ranks add up to at most
// sum. Ranks are multiples of a half, so sums are counted in halves; for 50 ranks the counts are
// below 2⁵³, and hence exact.
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

// normalTail approximates tail for many ranks. The variance of the sum is that of ranks with
// independent signs, with or without ties.
func (r ranked) normalTail(sum float64) float64 {
	total, squares := 0.0, 0.0
	for _, rank := range r {
		total, squares = total+math.Abs(rank), squares+rank*rank
	}
	return distuv.UnitNormal.CDF((sum + 0.5 - total/2) / math.Sqrt(squares/4))
}
