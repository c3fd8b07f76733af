package stats

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// signed makes n pairs of which the differences have the ranks 1 to n, those below zero summing up
// to below.
func signed(n, below int) (a, b []float64) {
	for rank := n; rank >= 1; rank-- {
		d := float64(rank)
		if below >= rank {
			d, below = -d, below-rank
		}
		a, b = append(a, 100+d), append(b, 100)
	}
	return a, b
}

// TestWilcoxonPublished proves the exact distribution by tables of critical values that are in
// print (Wilcoxon and Wilcox, "Some Rapid Approximate Statistical Procedures", 1964: two-sided, 5 %
// and 1 %): a sum of ranks at the value is significant, the next one is not.
func TestWilcoxonPublished(t *testing.T) {
	for alpha, critical := range map[float64]map[int]int{
		0.05: {6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 11: 10, 12: 13, 13: 17, 14: 21, 15: 25, 16: 29, 17: 34, 18: 40, 19: 46, 20: 52, 25: 89},
		0.01: {8: 0, 9: 1, 10: 3, 11: 5, 12: 7, 13: 9, 14: 12, 15: 15, 16: 19, 17: 23, 18: 27, 19: 32, 20: 37, 25: 68},
	} {
		for n, sum := range critical {
			for below, want := range map[int]bool{sum: true, sum + 1: false} {
				got, err := Wilcoxon(signed(n, below))
				if err != nil {
					t.Fatal(err)
				}
				if got.Statistic != float64(n*(n+1)/2-below) || (got.P <= alpha) != want {
					t.Errorf("%d pairs, ranks below zero %d: W = %v, p = %v; significant at %v is to be %v", n, below, got.Statistic, got.P, alpha, want)
				}
			}
		}
	}
}

// TestWilcoxonAgainstReference proves that sums of ranks and p values are those of SciPy, for few
// pairs and many, with ties, with pairs that do not differ, and in both directions.
func TestWilcoxonAgainstReference(t *testing.T) {
	var r struct {
		Wilcoxon []struct {
			Name     string
			A, B     []float64
			W        float64
			P        float64
			Biserial float64
		}
	}
	data, err := os.ReadFile("testdata/reference.json")
	if err != nil || json.Unmarshal(data, &r) != nil || len(r.Wilcoxon) < 8 {
		t.Fatalf("%d references; %v", len(r.Wilcoxon), err)
	}
	for _, c := range r.Wilcoxon {
		got, err := Wilcoxon(c.A, c.B)
		if err != nil {
			t.Fatal(err)
		}
		near(t, c.Name+": W", got.Statistic, c.W, 1e-12)
		near(t, c.Name+": p", got.P, c.P, 1e-9)
		near(t, c.Name+": rank-biserial", float64(RankBiserial(c.A, c.B)), c.Biserial, 1e-9)
		back, err := Wilcoxon(c.B, c.A)
		if err != nil || math.Abs(back.P-got.P) > 1e-12 {
			t.Errorf("%s: p is %v, and %v the other way round", c.Name, got.P, back.P)
		}
	}
}

// TestWilcoxonEnumerated proves that p is what going through all signs gives, for any few pairs
// with any ties.
func TestWilcoxonEnumerated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ds := rapid.SliceOfN(rapid.IntRange(-4, 4), 2, 10).Draw(t, "differences")
		a, b := make([]float64, len(ds)), make([]float64, len(ds))
		for i, d := range ds {
			a[i], b[i] = float64(d), 0
		}
		ranks, err := signedRanks(a, b)
		if errors.Is(err, ErrConstant) {
			return
		}
		above, below := ranks.sums()
		within := 0
		for signs := range 1 << len(ranks) {
			sum := 0.0
			for i, rank := range ranks {
				if signs>>i&1 == 1 {
					sum += math.Abs(rank)
				}
			}
			if sum <= min(above, below) {
				within++
			}
		}
		want := min(1, 2*float64(within)/float64(int(1)<<len(ranks)))
		if got, err := Wilcoxon(a, b); err != nil || math.Abs(got.P-want) > 1e-12 {
			t.Fatalf("%v: p = %v, by counting %v; %v", ds, got.P, want, err)
		}
	})
}

// TestWilcoxonMeets proves that where the exact distribution gives way to the approximation they
// agree.
func TestWilcoxonMeets(t *testing.T) {
	for _, below := range []int{150, 300, 420, 500, 630} {
		ranks, err := signedRanks(signed(exactPairs, below))
		if err != nil {
			t.Fatal(err)
		}
		exact, about := ranks.tail(float64(below)), ranks.normalTail(float64(below))
		if math.Abs(exact-about) > 0.002 {
			t.Errorf("ranks below zero %d: %v exactly, and about %v", below, exact, about)
		}
	}
}

// TestComparePairs proves that pairs are compared by signed ranks beside the paired t, others by
// Mann and Whitney's test, and that it is said where too few pairs leave signed ranks without a
// chance.
func TestComparePairs(t *testing.T) {
	a, b := []float64{5.1, 6.2, 7.4, 8.1, 9.3}, []float64{4.0, 5.0, 6.1, 7.1, 8.0}
	pairs, err := Compare(a, b, CompareOptions{Options: Options{Resamples: 50}, Paired: true})
	if err != nil {
		t.Fatal(err)
	}
	if pairs.Wilcoxon == nil || pairs.MannWhitney != nil || pairs.T.Name != "paired t" || pairs.RankBiserial != 1 || pairs.Conclusion != Different {
		t.Errorf("%+v", pairs)
	}
	if !slices.ContainsFunc(pairs.Warnings, func(w Warning) bool { return w.Code == WarnPairs && strings.Contains(w.Text, "p = 0.062") }) {
		t.Errorf("nothing is said of five pairs: %v", pairs.Warnings)
	}
	others, err := Compare(a, b, CompareOptions{Options: Options{Resamples: 50}})
	if err != nil || others.Wilcoxon != nil || others.MannWhitney == nil || !math.IsNaN(float64(others.RankBiserial)) {
		t.Errorf("%+v, %v", others, err)
	}
	if len(others.Warnings) == 0 || slices.ContainsFunc(others.Warnings, func(w Warning) bool { return w.Code == WarnPairs }) {
		t.Errorf("%v", others.Warnings)
	}
}

// TestWilcoxonRefused proves that what cannot be tested is refused, and that differences which only
// rounding makes different tie.
func TestWilcoxonRefused(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want error
	}{
		{[]float64{1, 2}, []float64{1}, ErrUnpaired},
		{[]float64{1}, []float64{2}, ErrFew},
		{[]float64{1, 2, 3}, []float64{1, 2, 3}, ErrConstant},
	} {
		if _, err := Wilcoxon(c.a, c.b); !errors.Is(err, c.want) {
			t.Errorf("%v and %v: %v, want %v", c.a, c.b, err, c.want)
		}
	}
	if _, err := Wilcoxon([]float64{1, math.NaN()}, []float64{1, 2}); err == nil {
		t.Error("what is no number was ranked")
	}
	ranks, err := signedRanks([]float64{0.3, 0.2, 1.1}, []float64{0.2, 0.1, 1.0})
	if err != nil || ranks[0] != 2 || ranks[2] != 2 {
		t.Errorf("three times 0.1 have the ranks %v; %v", ranks, err)
	}
}
