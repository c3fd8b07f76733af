package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func sample(t *rapid.T, label string, least int) []float64 {
	// Multiples of 1/8 keep sums exact, and make ties.
	ints := rapid.SliceOfN(rapid.IntRange(-4000, 4000), least, 40).Draw(t, label)
	xs := make([]float64, len(ints))
	for i, n := range ints {
		xs[i] = float64(n) / 8
	}
	return xs
}

// TestSummaryProperties proves what holds of every sample: the order of the quantiles, that the
// order and a shift of the values change nothing but the place, that the input stays as it is, and
// that the same seed gives the same intervals.
func TestSummaryProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := sample(t, "xs", 2)
		kept := slices.Clone(xs)
		o := Options{Resamples: 200, Seed: rapid.Uint64().Draw(t, "seed")}
		s, err := Summarize(xs, o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(xs, kept) {
			t.Fatal("the sample was changed")
		}
		if q := []float64{s.Min, s.P5, s.P25, s.Median, s.P75, s.P95, s.P99, s.Max}; !slices.IsSorted(q) {
			t.Fatalf("quantiles out of order: %v", q)
		}
		if m := s.MeanInterval; m.Low > m.High || m.Low < s.Min-1e-9 || m.High > s.Max+1e-9 {
			t.Fatalf("interval %v of the mean of %v", m, xs)
		}
		again, _ := Summarize(xs, o)
		if *again.MeanInterval != *s.MeanInterval || *again.MedianInterval != *s.MedianInterval {
			t.Fatal("the same seed gives other intervals")
		}
		shifted := make([]float64, len(xs))
		for i, x := range xs {
			shifted[len(xs)-1-i] = x + 64
		}
		moved, _ := Summarize(shifted, o)
		for _, d := range []float64{moved.Mean - s.Mean - 64, moved.Median - s.Median - 64, float64(moved.Variance-s.Variance) / max(1, float64(s.Variance)),
			moved.MeanInterval.Low - s.MeanInterval.Low - 64, moved.MeanInterval.High - s.MeanInterval.High - 64} {
			if math.Abs(d) > 1e-6 {
				t.Fatalf("after a shift by 64: %+v, before: %+v", moved, s)
			}
		}
	})
}

// TestComparisonProperties proves that exchanging the samples mirrors a comparison, that TOST is
// the same as its interval lying in the margin, and that a wider margin never undoes equivalence.
func TestComparisonProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := sample(t, "a", 2), sample(t, "b", 2)
		margin := rapid.Float64Range(0.1, 2000).Draw(t, "margin")
		o := CompareOptions{Options: Options{Resamples: 50}, Margin: margin}
		c, err := Compare(a, b, o)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := Compare(b, a, o)
		if c.Difference != -m.Difference || c.Conclusion != m.Conclusion || math.Abs(float64(c.CliffsDelta+m.CliffsDelta)) > 1e-12 {
			t.Fatalf("mirrored: %+v and %+v", c, m)
		}
		e := c.Equivalence
		if e == nil {
			if c.Conclusion != Undecided || len(c.Warnings) == 0 {
				t.Fatalf("a conclusion without a test: %+v", c)
			}
			return
		}
		if inside := e.Interval.Within(-margin, margin); inside != e.Equivalent && math.Abs(e.P-0.05) > 1e-9 {
			t.Fatalf("interval %v, margin %v, p %v", e.Interval, margin, e.P)
		}
		wider, _ := TOST(a, b, 2*margin, 0.05)
		if e.Equivalent && !wider.Equivalent {
			t.Fatalf("equivalent within %v and not within %v", margin, 2*margin)
		}
		if c.MannWhitney == nil || c.MannWhitney.P < 0 || c.MannWhitney.P > 1 || c.T.P < 0 || c.T.P > 1 {
			t.Fatalf("p out of range: %+v", c)
		}
	})
}

// TestHolmProperties proves that corrected p values are never less than the p values, nor more
// than Bonferroni's, keep their order, and that the order of the input does not matter.
func TestHolmProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 20).Draw(t, "ps")
		out := Holm(ps)
		for i := range ps {
			if out[i] < ps[i] || out[i] > min(1, ps[i]*float64(len(ps))) {
				t.Fatalf("%v became %v", ps, out)
			}
			for j := range ps {
				if ps[i] < ps[j] && out[i] > out[j] {
					t.Fatalf("%v became %v: out of order", ps, out)
				}
			}
		}
		slices.Reverse(ps)
		back := Holm(ps)
		slices.Reverse(back)
		if !slices.Equal(slices.Sorted(slices.Values(out)), slices.Sorted(slices.Values(back))) {
			t.Fatalf("the order of the tests matters: %v, %v", out, back)
		}
	})
}

// TestErrorRates proves by simulation that the tests keep their promise: Welch's and TOST's false
// alarms stay near 5 % (TOST at the edge of its margin), a 95 % interval of a mean covers it
// about that often, and TOST's stated power is what comes out.
func TestErrorRates(t *testing.T) {
	rng, rounds, n := rand.New(rand.NewPCG(1, 2)), 4000, 15
	draw := func(mean float64) []float64 {
		xs := make([]float64, n)
		for i := range xs {
			xs[i] = mean + rng.NormFloat64()
		}
		return xs
	}
	falseDifference, falseEquivalence, shown, covered, power := 0.0, 0.0, 0.0, 0.0, 0.0
	const margin = 1.2
	for range rounds {
		a, b, edge := draw(0), draw(0), draw(margin)
		if w, _ := Welch(a, b); w.P < 0.05 {
			falseDifference++
		}
		if e, _ := TOST(a, edge, margin, 0.05); e.Equivalent {
			falseEquivalence++
		}
		e, _ := TOST(a, b, margin, 0.05)
		power += float64(e.Power)
		if e.Equivalent {
			shown++
		}
		if i := MeanInterval(a, Options{Resamples: 400}); i.Low <= 0 && 0 <= i.High {
			covered++
		}
	}
	for _, c := range []struct {
		what           string
		got, low, high float64
	}{
		{"false differences", falseDifference, 0.035, 0.065},
		{"false equivalences", falseEquivalence, 0.035, 0.065},
		{"intervals that cover the mean", covered, 0.90, 0.96},
		{"power stated less shown", power - shown, -0.04, 0.04},
	} {
		if share := c.got / float64(rounds); share < c.low || share > c.high {
			t.Errorf("%s: %.3f, not within %v to %v", c.what, share, c.low, c.high)
		}
	}
}

// TestNeeded proves that the advice on sample sizes is true: so many values reach the power, and
// fewer do not.
func TestNeeded(t *testing.T) {
	s := spread{difference: 0.2, err: math.Sqrt(2.0 / 6), freedom: 10}
	e := s.tost("", 0.5, 0.05, 6)
	if e.Equivalent || e.Needed < 7 {
		t.Fatalf("%+v", e)
	}
	at := func(n int) float64 {
		return spread{err: math.Sqrt(2 / float64(n)), freedom: 10 * float64(n) / 6}.power(0.5, 0.05)
	}
	if at(e.Needed) < 0.8 || at(e.Needed-1) >= 0.8 {
		t.Errorf("%d values: power %.3f; one less: %.3f", e.Needed, at(e.Needed), at(e.Needed-1))
	}
	if hopeless := (spread{err: 1e9, freedom: 4}).tost("", 1e-9, 0.05, 3); hopeless.Needed != 0 || !strings.Contains(hopeless.advice(), "too narrow") {
		t.Errorf("a hopeless margin: %+v", hopeless)
	}
}

// TestConclusions proves what is concluded from samples that are clear, and that samples that
// cannot carry a conclusion give none, with the reason.
func TestConclusions(t *testing.T) {
	base := []float64{10.1, 9.9, 10, 10.2, 9.8, 10.05, 9.95, 10.1, 9.9, 10}
	plus := func(d float64) []float64 {
		out := slices.Clone(base)
		for i := range out {
			out[i] += d
		}
		return out
	}
	for _, c := range []struct {
		name   string
		a, b   []float64
		margin float64
		paired bool
		want   Conclusion
		warn   string // code that must be among the warnings
	}{
		{"a small difference within the margin", base, plus(0.05), 0.5, false, Equivalent, ""},
		{"a difference beyond it", base, plus(1), 0.5, false, Different, ""},
		{"no margin, no difference", base, base[1:], 0, false, Undecided, WarnPower},
		{"a margin too narrow", base, plus(0.01), 0.02, false, Undecided, WarnPower},
		{"both constant", []float64{1, 1, 1, 1, 1}, []float64{1, 1, 1, 1, 1}, 0.5, false, Undecided, WarnConstant},
		{"too few, though far apart", base[:3], plus(9)[:3], 0.5, false, Undecided, WarnSmall},
		{"one value", base[:1], base, 0.5, false, Undecided, WarnSmall},
		{"pairs that differ always by nearly the same", base, []float64{10.11, 9.92, 10.01, 10.22, 9.81, 10.06, 9.97, 10.11, 9.92, 10.01}, 0.1, true, Equivalent, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Compare(c.a, c.b, CompareOptions{Options: Options{Resamples: 50}, Margin: c.margin, Paired: c.paired})
			if err != nil {
				t.Fatal(err)
			}
			if got.Conclusion != c.want {
				t.Errorf("%s, want %s: %+v", got.Conclusion, c.want, got)
			}
			if has := slices.ContainsFunc(got.Warnings, func(w Warning) bool { return w.Code == c.warn }); c.warn != "" && !has {
				t.Errorf("no warning %q in %v", c.warn, got.Warnings)
			}
			if _, err := json.Marshal(got); err != nil {
				t.Errorf("cannot be written: %v", err)
			}
		})
	}
}

// TestWarnings proves that each oddity of a sample is noticed, and that a good sample gives no
// warning.
func TestWarnings(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	walk, good := make([]float64, 60), make([]float64, 60)
	for i := range walk {
		good[i] = float64(i*37%60) + 100 // evenly spread, in no order
		if i > 0 {
			walk[i] = walk[i-1] + rng.NormFloat64()
		}
	}
	skewed := append(slices.Repeat([]float64{1, 1.1, 1.2, 1.3}, 5), 90)
	for _, c := range []struct {
		name string
		xs   []float64
		want []string
	}{
		{"good", good, nil},
		{"few", []float64{1, 2, 3}, []string{WarnSmall}},
		{"constant", []float64{2, 2, 2, 2, 2}, []string{WarnConstant}},
		{"tied", []float64{1, 1, 1, 1, 1, 2, 3}, []string{WarnTied}},
		{"a walk", walk, []string{WarnDependent}},
		{"skewed", skewed, []string{WarnSkewed, WarnOutliers}},
	} {
		var got []string
		for _, w := range Warnings(c.xs) {
			got = append(got, w.Code)
		}
		for _, code := range c.want {
			if !slices.Contains(got, code) {
				t.Errorf("%s: no warning %q in %v", c.name, code, got)
			}
		}
		if c.want == nil && got != nil {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	s, err := Summarize(skewed, Options{})
	if err != nil || len(s.Outliers) != 1 || s.Outliers[0] != (Outlier{20, 90, true}) || s.Max != 90 || s.N != 21 {
		t.Errorf("the outlier is not reported and kept: %+v, %v", s, err)
	}
}

// TestRefused proves that what cannot be computed with is refused with a reason.
func TestRefused(t *testing.T) {
	nan, ok := math.NaN(), []float64{1, 2, 3}
	_, empty := Summarize(nil, Options{})
	_, notANumber := Summarize([]float64{1, nan}, Options{})
	_, noMargin := TOST(ok, ok, 0, 0.05)
	_, negative := Compare(ok, ok, CompareOptions{Margin: -1})
	_, alpha := TOST(ok, ok, 1, 0.7)
	_, pairs := PairedT(ok, ok[1:])
	_, few := Welch(ok, ok[:1])
	_, flat := MannWhitney([]float64{1, 1}, []float64{1, 1})
	_, ratio := Wilson(3, 2, 0.95)
	for what, err := range map[string]error{"no values": empty, "value 2 is NaN": notANumber, "margin cannot be 0": noMargin, "margin cannot be -1": negative,
		"alpha cannot be 0.7": alpha, "pairs need": pairs, "at least 2": few, "all values are equal": flat, "3 of 2": ratio} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v", what, err)
		}
	}
}

// TestFloat proves that a number that there is not survives JSON.
func TestFloat(t *testing.T) {
	one, _ := Summarize([]float64{4}, Options{})
	b, err := json.Marshal(one)
	if err != nil || !strings.Contains(string(b), `"deviation":null`) {
		t.Fatalf("%s, %v", b, err)
	}
	var back Summary
	if err := json.Unmarshal(b, &back); err != nil || !math.IsNaN(float64(back.Deviation)) || back.Mean != 4 {
		t.Errorf("%+v, %v", back, err)
	}
}
