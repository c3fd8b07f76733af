package report

import (
	"fmt"
	"math"
	"strings"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/stats"
)

// conclude adjusts the tests of all rows of related comparisons together for multiple testing, and
// words their conclusions.
func conclude(all ...*Comparison) {
	var ps []float64
	var tested []*CompareRow
	for _, c := range all {
		for i := range c.Rows {
			if t := c.Rows[i].T; t != nil {
				ps, tested = append(ps, t.P), append(tested, &c.Rows[i])
			}
		}
	}
	if len(all) == 0 {
		return
	}
	significant := all[0].judge.significant(ps)
	shown := map[*CompareRow]bool{}
	for k, p := range stats.Holm(ps) {
		tested[k].Adjusted, shown[tested[k]] = stats.Float(p), significant[k]
	}
	for _, c := range all {
		for i := range c.Rows {
			r := &c.Rows[i]
			chance := r.Conclusion == stats.Different && r.T != nil && !shown[r]
			if chance || c.judge.broken {
				r.Conclusion = stats.Undecided
			}
			r.Words = c.words(r)
			if chance {
				r.Words += fmt.Sprintf("; alone it would be a difference (%s), among %s it may be chance", P(r.T.P),
					words.Plural(len(ps), "comparison"))
			}
		}
	}
}

// words is the conclusion of a row.
func (c *Comparison) words(r *CompareRow) string {
	switch r.Conclusion {
	case stats.Equivalent:
		e := r.Equivalence
		if e == nil {
			return fmt.Sprintf("equivalent: they differ by less than %s (%s)", r.size(r.Shares.Margin), r.Shares)
		}
		return fmt.Sprintf("equivalent: they differ by less than %s (%s %s, interval of %s %%)", r.size(e.Margin),
			r.signedSize(e.Difference),
			Interval(&e.Interval, r.factor), confidence(e.Interval.Confidence))
	case stats.Different:
		return c.differ(r)
	}
	return "cannot tell: " + c.undecided(r)
}

// gap returns the interval of the difference: of the means, or for shares without spread, of all
// packets; nil for other values without spread.
func (r *CompareRow) gap() *stats.Interval {
	if r.Interval == nil && r.Shares != nil {
		return &r.Shares.Interval
	}
	return r.Interval
}

// size writes a value with its unit.
func (r *CompareRow) size(v float64) string { return withUnit(v*r.factor, r.show) }

func (r *CompareRow) signedSize(v float64) string {
	if v > 0 {
		return "+" + r.size(v)
	}
	return r.size(v)
}

func (c *Comparison) differ(r *CompareRow) string {
	gap := stats.Interval{Low: r.Difference, High: r.Difference}
	if i := r.gap(); i != nil {
		gap = *i
	}
	word, d := "higher", r.Difference
	if d < 0 {
		word, d, gap.Low, gap.High = "lower", -d, -gap.High, -gap.Low
	}
	text := fmt.Sprintf("differ: %s is %s by %s", c.Names[0], word, r.size(d))
	if gap.Low < gap.High {
		text += " " + Interval(&gap, r.factor)
	}
	if r.B.Mean != 0 {
		text += ", which is " + percent(d/math.Abs(r.B.Mean))
	}
	switch {
	case r.margin == 0:
	case gap.Low > r.margin:
		text += "; that is more than the margin"
	default:
		text += "; whether that is more than the margin of " + r.size(r.margin) + " is open"
	}
	switch {
	case r.T != nil:
		return text
	case r.Shares != nil:
		return text + "; " + r.Shares.String()
	}
	return text + "; " + r.constant()
}

func (c *Comparison) undecided(r *CompareRow) string {
	n := min(r.A.N, r.B.N)
	if r.T == nil {
		text := r.constant()
		if n < enough {
			r.Needed = enough
			text += c.takeMore()
		} else if r.Needed = c.judge.sharesTell(r); r.Needed > 0 {
			text += fmt.Sprintf("; take about %d repetitions of each", r.Needed)
		}
		return text
	}
	text := fmt.Sprintf("the difference is %s %s", r.signedSize(r.Difference), Interval(r.Interval, r.factor))
	if n < enough {
		r.Needed = enough
		return text + fmt.Sprintf("; too few: %s", words.Plural(n, "repetition")) + c.takeMore()
	}
	e := r.Equivalence
	if e == nil {
		text += fmt.Sprintf("; below %s it would mostly have gone unseen", r.size(float64(r.Detectable)))
		r.Needed = needed(n, standardError(r.values[0], r.values[1], r.Paired), math.Abs(r.Difference))
		if r.Needed > 0 {
			text += fmt.Sprintf(", one as large as this by about %d repetitions of each", r.Needed)
		}
		return text + ". State a --margin to test whether they are the same to you"
	}
	more := e.Needed // to show that there is none, if there is none
	if more <= n || math.Abs(r.Difference) > e.Margin {
		more = needed(n, standardError(r.values[0], r.values[1], r.Paired), math.Abs(math.Abs(r.Difference)-e.Margin))
	}
	if r.Needed = more; more == 0 {
		return text + fmt.Sprintf(", which is neither shown to be within ±%s nor beyond; the margin is too narrow for this spread", r.size(e.Margin))
	}
	return text + fmt.Sprintf(", which is neither shown to be within ±%s nor beyond; take about %d repetitions of each",
		r.size(e.Margin), more)
}

// sharesTell is of how many repetitions with the same shares, of which none varies, something could
// be concluded; 0: of no reasonable number.
func (j *judge) sharesTell(r *CompareRow) int {
	s := r.Shares
	if s == nil {
		return 0
	}
	n := min(r.A.N, r.B.N)
	for more := n + 1; more <= mostNeeded; more++ {
		like := *s
		for _, count := range []*int{&like.CountA, &like.OfA, &like.CountB, &like.OfB} {
			*count = *count * more / n
		}
		_, i, err := stats.RatioDifference(like.CountA, like.OfA, like.CountB, like.OfB, 1-j.of(alpha))
		if err != nil {
			return 0
		}
		if i.Low > 0 || i.High < 0 || r.margin > 0 && j.within(&like, r.margin) {
			return more
		}
	}
	return 0
}

// takeMore returns the advice for too few repetitions, unless it is given for all rows at once.
func (c *Comparison) takeMore() string {
	if c.few {
		return ""
	}
	return fmt.Sprintf(", take at least %d of each", enough)
}

// constant is of rows that no test can be made of.
func (r *CompareRow) constant() string {
	if min(r.A.N, r.B.N) < 2 {
		return fmt.Sprintf("%s and %s are single values", r.size(r.A.Mean), r.size(r.B.Mean))
	}
	if s := r.Shares; s != nil {
		return fmt.Sprintf("%s; shares of which none varies, whose difference is in %s", s,
			Interval(&s.Interval, r.factor)+" "+r.show)
	}
	if r.A.Mean == r.B.Mean {
		return fmt.Sprintf("all values of both are %s, without any spread to test by", r.size(r.A.Mean))
	}
	return fmt.Sprintf("all values are %s and %s, without any spread to test by", r.size(r.A.Mean), r.size(r.B.Mean))
}

// Summary counts conclusions: "5 equivalent, 3 different, 1 undecided".
func (c *Comparison) Summary() string { return summary(c) }

func summary(all ...*Comparison) string {
	counts, rows := map[stats.Conclusion]int{}, 0
	for _, c := range all {
		for _, r := range c.Rows {
			counts[r.Conclusion]++
			rows++
		}
	}
	var counted []string
	for _, conclusion := range []stats.Conclusion{stats.Equivalent, stats.Different, stats.Undecided} {
		counted = append(counted, fmt.Sprintf("%d %s", counts[conclusion], conclusion))
	}
	return words.Plural(rows, "comparison") + ": " + strings.Join(counted, ", ")
}
