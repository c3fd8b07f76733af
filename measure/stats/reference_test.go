package stats

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"
)

// reference holds numbers of SciPy and statsmodels; testdata/reference.py makes them.
type reference struct {
	Pairs []struct {
		Name                string
		A, B                []float64
		Mean, Median        float64
		Variance, Deviation float64
		Quantiles           map[string]float64
		T, Freedom, P       float64
		U                   float64
		PU                  float64 `json:"p_u"`
		G                   float64 `json:"hedges_g"`
		Delta               float64 `json:"cliffs_delta"`
		Margin              float64
		Tost                float64 `json:"tost_p"`
		Lower               float64 `json:"tost_lower"`
		Upper               float64 `json:"tost_upper"`
		Interval            [2]float64
	}
	Bootstraps []struct {
		Name   string
		Sample []float64
		Mean   [2]float64 `json:"mean_bca"`
		Median [2]float64 `json:"median_percentile"`
	}
	Wilson []struct {
		Count, Of  int
		Confidence float64
		Interval   [2]float64
	}
	Newcombe []struct {
		CountA     int `json:"count_a"`
		OfA        int `json:"of_a"`
		CountB     int `json:"count_b"`
		OfB        int `json:"of_b"`
		Confidence float64
		Interval   [2]float64
	}
	Holm []struct{ P, Adjusted []float64 }
}

func readReference(t *testing.T) (r reference) {
	t.Helper()
	b, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// near compares by share; p values far below anything that is ever quoted may differ more.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*math.Max(math.Abs(want), 1e-300) && math.Abs(got-want) > 1e-30 {
		t.Errorf("%s: got %.12g, want %.12g", what, got, want)
	}
}

// TestAgainstReference proves that descriptions, tests, effect sizes and equivalence agree
// with SciPy and statsmodels on samples of several kinds.
func TestAgainstReference(t *testing.T) {
	for _, r := range readReference(t).Pairs {
		t.Run(r.Name, func(t *testing.T) {
			s, err := Summarize(r.A, Options{Resamples: 100})
			if err != nil {
				t.Fatal(err)
			}
			near(t, "mean", s.Mean, r.Mean, 1e-9)
			near(t, "median", s.Median, r.Median, 1e-9)
			near(t, "variance", float64(s.Variance), r.Variance, 1e-9)
			near(t, "deviation", float64(s.Deviation), r.Deviation, 1e-9)
			for q, want := range r.Quantiles {
				p, _ := strconv.ParseFloat(q, 64)
				near(t, "quantile "+q, Quantile(r.A, p), want, 1e-9)
			}
			welch, err := Welch(r.A, r.B)
			if err != nil {
				t.Fatal(err)
			}
			near(t, "t", welch.Statistic, r.T, 1e-9)
			near(t, "degrees of freedom", welch.Freedom, r.Freedom, 1e-9)
			near(t, "p", welch.P, r.P, 1e-6)
			u, err := MannWhitney(r.A, r.B)
			if err != nil {
				t.Fatal(err)
			}
			near(t, "U", u.Statistic, r.U, 1e-12)
			near(t, "p of U", u.P, r.PU, 1e-6)
			near(t, "g", float64(HedgesG(r.A, r.B)), r.G, 1e-9)
			near(t, "delta", float64(CliffsDelta(r.A, r.B)), r.Delta, 1e-9)
			e, err := TOST(r.A, r.B, r.Margin, 0.05)
			if err != nil {
				t.Fatal(err)
			}
			near(t, "TOST", e.P, r.Tost, 1e-6)
			near(t, "TOST lower", e.PLower, r.Lower, 1e-6)
			near(t, "TOST upper", e.PUpper, r.Upper, 1e-6)
			near(t, "interval low", e.Interval.Low, r.Interval[0], 1e-8)
			near(t, "interval high", e.Interval.High, r.Interval[1], 1e-8)
		})
	}
}

// TestPairsAgainstReference proves that the paired tests agree with SciPy and statsmodels.
func TestPairsAgainstReference(t *testing.T) {
	var raw struct{ Pairs []map[string]any }
	b, _ := os.ReadFile("testdata/reference.json")
	if err := json.Unmarshal(b, &raw); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for i, r := range readReference(t).Pairs {
		want, ok := raw.Pairs[i]["paired_t"].(float64)
		if !ok {
			continue
		}
		compared++
		got, err := PairedT(r.A, r.B)
		if err != nil {
			t.Fatal(err)
		}
		near(t, r.Name+": t", got.Statistic, want, 1e-8)
		near(t, r.Name+": p", got.P, raw.Pairs[i]["paired_p"].(float64), 1e-6)
	}
	if compared < 3 {
		t.Errorf("%d pairs compared", compared)
	}
}

// TestBootstrapAgainstReference proves that the intervals are those of SciPy's bootstrap, BCa for
// the mean and percentile for the median, but for the noise of resampling.
func TestBootstrapAgainstReference(t *testing.T) {
	for _, r := range readReference(t).Bootstraps {
		for _, c := range []struct {
			what string
			got  Interval
			want [2]float64
		}{
			{"mean", MeanInterval(r.Sample, Options{Resamples: 100_000, Seed: 3}), r.Mean},
			{"median", QuantileInterval(r.Sample, 0.5, Options{Resamples: 100_000, Seed: 3}), r.Median},
		} {
			width := c.want[1] - c.want[0]
			if math.Abs(c.got.Low-c.want[0]) > 0.03*width || math.Abs(c.got.High-c.want[1]) > 0.03*width {
				t.Errorf("%s, %s: got %.4f to %.4f, want %.4f to %.4f", r.Name, c.what, c.got.Low, c.got.High, c.want[0], c.want[1])
			}
		}
	}
}

// TestRatiosAgainstReference proves the intervals of ratios and of their differences, and Holm's
// correction.
func TestRatiosAgainstReference(t *testing.T) {
	r := readReference(t)
	for _, w := range r.Wilson {
		got, err := Wilson(w.Count, w.Of, w.Confidence)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Low-w.Interval[0]) > 1e-12 || math.Abs(got.High-w.Interval[1]) > 1e-12 {
			t.Errorf("Wilson %d of %d: got %v, want %v", w.Count, w.Of, got, w.Interval)
		}
	}
	for _, n := range r.Newcombe {
		_, got, err := RatioDifference(n.CountA, n.OfA, n.CountB, n.OfB, n.Confidence)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Low-n.Interval[0]) > 1e-9 || math.Abs(got.High-n.Interval[1]) > 1e-9 {
			t.Errorf("Newcombe %v: got %v", n, got)
		}
	}
	for _, h := range r.Holm {
		for i, got := range Holm(h.P) {
			near(t, "Holm", got, h.Adjusted[i], 1e-12)
		}
	}
}

// TestPublished proves agreement with published values: means, deviations and variances of a table
// in a paper (Kartadie and others: latency of ten switches, 64 and 8192 byte, emulated), and
// Newcombe's tables of intervals of ratios (Statistics in Medicine 17, 1998, pages 857 to 890).
func TestPublished(t *testing.T) {
	for _, c := range []struct {
		xs                       []float64
		mean, deviation, varianc float64
	}{
		{[]float64{2.228, 2.341, 2.221, 2.611, 2.288, 2.581, 2.344, 2.731, 2.444, 2.553}, 2.434, 0.177, 0.031},
		{[]float64{9.149, 9.44, 9.765, 9.432, 9.435, 9.444, 9.123, 9.812, 9.456, 9.112}, 9.417, 0.243, 0.059},
	} {
		s, err := Summarize(c.xs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, pair := range [][2]float64{{s.Mean, c.mean}, {float64(s.Deviation), c.deviation}, {float64(s.Variance), c.varianc}} {
			if math.Abs(pair[0]-pair[1]) > 0.0006 {
				t.Errorf("got %.4f, the paper has %.3f", pair[0], pair[1])
			}
		}
	}
	for _, c := range []struct {
		count, of int
		low, high float64
	}{{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718}} {
		i, _ := Wilson(c.count, c.of, 0.95)
		if math.Abs(i.Low-c.low) > 5e-5 || math.Abs(i.High-c.high) > 5e-5 {
			t.Errorf("%d of %d: %.4f to %.4f, published %.4f to %.4f", c.count, c.of, i.Low, i.High, c.low, c.high)
		}
	}
	_, i, _ := RatioDifference(56, 70, 48, 80, 0.95)
	if math.Abs(i.Low-0.0524) > 5e-5 || math.Abs(i.High-0.3339) > 5e-5 {
		t.Errorf("56/70 − 48/80: %.4f to %.4f, published 0.0524 to 0.3339", i.Low, i.High)
	}
}
