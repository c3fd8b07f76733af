package stats

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Conclusion is what can be concluded from a comparison.
type Conclusion string

// Conclusions. A lack of significance is Undecided, never Equivalent.
const (
	Equivalent Conclusion = "equivalent" // differ by less than the margin
	Different  Conclusion = "different"  // they differ, and are not shown to differ by less than the margin
	Undecided  Conclusion = "undecided"  // the samples show neither
)

// CompareOptions say how two samples are compared.
type CompareOptions struct {
	Options
	Margin float64 // largest difference that does not matter, in the unit of the values; 0: no test of equivalence
	Alpha  float64 // 0 is 0.05
	Paired bool    // a[i] and b[i] were measured one after the other
}

// Comparison compares two samples, a and b; differences are a − b.
type Comparison struct {
	A            Summary      `json:"a"`
	B            Summary      `json:"b"`
	Difference   float64      `json:"difference"`             // of the means
	Interval     *Interval    `json:"interval,omitempty"`     // of that difference, by the t distribution
	Ratio        Float        `json:"ratio"`                  // of the means; none if b's is 0
	T            *Test        `json:"t,omitempty"`            // Welch's, or of pairs
	MannWhitney  *Test        `json:"mann_whitney,omitempty"` // not for pairs
	Wilcoxon     *Test        `json:"wilcoxon,omitempty"`     // for pairs only
	HedgesG      Float        `json:"hedges_g"`
	CliffsDelta  Float        `json:"cliffs_delta"`
	RankBiserial Float        `json:"rank_biserial"` // for pairs only
	Equivalence  *Equivalence `json:"equivalence,omitempty"`
	// The smallest difference that would be detected in 80 % of such comparisons.
	Detectable Float      `json:"detectable"`
	Conclusion Conclusion `json:"conclusion"`
	Warnings   []Warning  `json:"warnings,omitempty"` // of the comparison; those of the samples are with them
}

// Compare compares two samples. It fails if one is empty or contains a number that is not finite,
// or if paired samples differ in length. Other statistics that the samples are insufficient for are
// left out, with a warning.
func Compare(a, b []float64, o CompareOptions) (Comparison, error) {
	alpha := cmp.Or(o.Alpha, 0.05)
	if o.Margin != 0 {
		if err := checkMargin(o.Margin, alpha); err != nil {
			return Comparison{}, err
		}
	}
	if o.Paired && len(a) != len(b) {
		return Comparison{}, fmt.Errorf("%w; there are %d and %d", ErrUnpaired, len(a), len(b))
	}
	var c Comparison
	var errA, errB error
	c.A, errA = Summarize(a, o.Options)
	c.B, errB = Summarize(b, o.Options)
	if err := errors.Join(errA, errB); err != nil {
		return Comparison{}, err
	}
	c.Difference, c.Ratio, c.Detectable = c.A.Mean-c.B.Mean, None, None
	if c.B.Mean != 0 {
		c.Ratio = Float(c.A.Mean / c.B.Mean)
	}
	c.HedgesG, c.CliffsDelta, c.RankBiserial = HedgesG(a, b), CliffsDelta(a, b), None
	c.test(a, b, o, alpha)
	c.conclude(alpha)
	return c, nil
}

func (c *Comparison) warn(code, format string, args ...any) {
	c.Warnings = append(c.Warnings, Warning{code, fmt.Sprintf(format, args...)})
}

func (c *Comparison) test(a, b []float64, o CompareOptions, alpha float64) {
	of, name := welch, "Welch t"
	if o.Paired {
		of, name = paired, "paired t"
	}
	s, err := of(a, b)
	switch {
	case errors.Is(err, ErrConstant):
		c.warn(WarnConstant, "there is no spread to judge by: no test was made")
		return
	case err != nil:
		c.warn(WarnSmall, "%s: no test was made", err)
		return
	}
	t, interval := s.test(name), s.interval(1-alpha, "t")
	c.T, c.Interval, c.Detectable = &t, &interval, Float(s.detectable(alpha))
	c.rank(a, b, o.Paired)
	if o.Margin > 0 {
		e := s.tost("TOST by "+name, o.Margin, alpha, min(len(a), len(b)))
		c.Equivalence = &e
	}
}

// rank adds the distribution-free test.
func (c *Comparison) rank(a, b []float64, paired bool) {
	of, to := MannWhitney, &c.MannWhitney
	if paired {
		of, to = Wilcoxon, &c.Wilcoxon
		c.RankBiserial = RankBiserial(a, b)
	}
	if r, err := of(a, b); err == nil {
		*to = &r
	}
}

// conclude sets the conclusion, and warns if the samples had little power.
func (c *Comparison) conclude(alpha float64) {
	c.Conclusion = Undecided
	if c.T == nil {
		return
	}
	small := min(c.A.N, c.B.N) < fewValues
	if small {
		c.warn(WarnSmall, "%d and %d values are too few for a conclusion; take at least %d of each", c.A.N, c.B.N,
			fewValues)
	}
	switch e := c.Equivalence; {
	case e != nil && e.Equivalent:
		c.Conclusion = Equivalent
	case c.T.P < alpha:
		c.Conclusion = Different
	case e != nil && e.Power < powerWanted:
		c.warn(WarnPower, "such samples show equivalence within ±%g in %.0f %% of all cases at best; %s", e.Margin,
			100*float64(e.Power), e.advice())
	case e == nil:
		c.warn(WarnPower, "a difference below %.3g would mostly have gone unseen; seeing none does not show that there is none: state a margin to test for equivalence", float64(c.Detectable))
	}
	if r := cmp.Or(c.MannWhitney, c.Wilcoxon); r != nil && c.Conclusion != Equivalent &&
		(r.P < alpha) != (c.T.P < alpha) {
		c.disagree(r)
	}
	if small {
		c.Conclusion = Undecided
	}
}

// disagree warns if the two tests disagree, or if the rank test cannot be used.
func (c *Comparison) disagree(ranks *Test) {
	if ranks == c.Wilcoxon && c.A.N < leastPairs {
		c.warn(WarnPairs, "the signed-rank test of %d pairs cannot fall below p = %.2g; take at least %d", c.A.N,
			math.Exp2(1-float64(c.A.N)), leastPairs)
		return
	}
	c.warn(WarnDisagree, "the tests disagree (%s: p = %.3g, %s: p = %.3g): look at the distributions", c.T.Name, c.T.P,
		ranks.Name, ranks.P)
}

func (e *Equivalence) advice() string {
	if e.Needed == 0 {
		return "the margin is too narrow for this spread"
	}
	return fmt.Sprintf("take %d values of each, or a wider margin", e.Needed)
}

// Holm adjusts the p values of a family of tests, so that the probability of any false positive is
// that of a single test (Holm, 1979). The order is kept.
func Holm(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(ps[i], ps[j]) })
	out, largest := make([]float64, len(ps)), 0.0
	for rank, i := range order {
		largest = math.Max(largest, math.Min(1, ps[i]*float64(len(ps)-rank)))
		out[i] = largest
	}
	return out
}
