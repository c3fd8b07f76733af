package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/environment"
	"trivet.dev/trivet/bench/stats"
)

// conclude adjusts the tests of all rows to each other, and says of each in words what it shows.
func (c *Comparison) conclude() {
	var ps []float64
	var tested []int
	for i := range c.Rows {
		if t := c.Rows[i].T; t != nil {
			ps, tested = append(ps, t.P), append(tested, i)
		}
	}
	for k, p := range stats.Holm(ps) {
		c.Rows[tested[k]].Adjusted = stats.Float(p)
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		chance := r.Conclusion == stats.Different && float64(r.Adjusted) >= alpha
		if chance {
			r.Conclusion = stats.Undecided
		}
		r.Words = c.words(r)
		if chance {
			r.Words += fmt.Sprintf("; alone it would be a difference (%s), among %s it may be chance", P(r.T.P), plural(len(ps), "comparison"))
		}
	}
}

// words is the conclusion of a row.
func (c *Comparison) words(r *CompareRow) string {
	switch r.Conclusion {
	case stats.Equivalent:
		e := r.Equivalence
		if e == nil {
			s := r.Shares
			return fmt.Sprintf("equivalent: they differ by less than %s (%d of %d and %d of %d)", r.size(s.Margin), s.CountA, s.OfA, s.CountB, s.OfB)
		}
		return fmt.Sprintf("equivalent: they differ by less than %s (%s %s, interval of %g %%)", r.size(e.Margin), r.signedSize(e.Difference),
			Interval(&e.Interval, r.factor), 100*e.Interval.Confidence)
	case stats.Different:
		return c.differ(r)
	}
	return "cannot tell: " + c.undecided(r)
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
	word := "higher"
	d, low, high := r.Difference, r.Interval.Low, r.Interval.High
	if d < 0 {
		word, d, low, high = "lower", -d, -high, -low
	}
	text := fmt.Sprintf("differ: %s is %s by %s %s", c.Names[0], word, r.size(d), Interval(&stats.Interval{Low: low, High: high}, r.factor))
	if r.B.Mean != 0 {
		text += ", which is " + percent(d/math.Abs(r.B.Mean))
	}
	if e := r.Equivalence; e != nil {
		switch {
		case low > e.Margin:
			text += "; that is more than the margin"
		default:
			text += "; whether that is more than the margin of " + r.size(e.Margin) + " is open"
		}
	}
	return text
}

func (c *Comparison) undecided(r *CompareRow) string {
	n := min(r.A.N, r.B.N)
	if r.T == nil {
		return c.constant(r)
	}
	text := fmt.Sprintf("the difference is %s %s", r.signedSize(r.Difference), Interval(r.Interval, r.factor))
	if n < enough {
		return text + fmt.Sprintf(", but %s are too few; take at least %d of each", plural(n, "repetition"), enough)
	}
	e := r.Equivalence
	if e == nil {
		return text + fmt.Sprintf("; below %s it would mostly have gone unseen. State a --margin to test whether they are the same to you", r.size(float64(r.Detectable)))
	}
	more := e.Needed
	if more <= n {
		more = needed(n, standardError(r.values[0], r.values[1], r.Paired), math.Abs(math.Abs(r.Difference)-e.Margin))
	}
	if more == 0 {
		return text + fmt.Sprintf(", which is neither shown to be within ±%s nor beyond; the margin is too narrow for this spread", r.size(e.Margin))
	}
	return text + fmt.Sprintf(", which is neither shown to be within ±%s nor beyond; take about %d repetitions of each", r.size(e.Margin), more)
}

// constant is of rows that no test can be made of.
func (c *Comparison) constant(r *CompareRow) string {
	if min(r.A.N, r.B.N) < 2 {
		return fmt.Sprintf("%s and %s are single values; take at least %d repetitions", r.size(r.A.Mean), r.size(r.B.Mean), enough)
	}
	if s := r.Shares; s != nil {
		return fmt.Sprintf("%d of %d and %d of %d; shares of which none varies, whose difference is in %s", s.CountA, s.OfA, s.CountB, s.OfB, Interval(&s.Interval, r.factor)+" "+r.show)
	}
	if r.A.Mean == r.B.Mean {
		return fmt.Sprintf("all values of both are %s, without any spread to test by", r.size(r.A.Mean))
	}
	return fmt.Sprintf("all values are %s and %s, without any spread to test by", r.size(r.A.Mean), r.size(r.B.Mean))
}

// Tables are the comparison as tables: of each metric one in the form of paper 4 (tables 3, 6 and 9: averages and the
// gap, with deviations and variances), and one of the tests.
func (c *Comparison) Tables() (out []Table) {
	for _, rows := range c.metrics() {
		first := rows[0]
		title := metricName(first.Metric)
		if first.Probe != "" {
			title += " (" + name(first.Probe) + ")"
		}
		if first.show != "1" {
			title += " [" + first.show + "]"
		}
		values := Table{Title: title, Heads: len(first.dims)}
		tests := Table{Title: title + ": tests", Heads: len(first.dims)}
		for _, d := range first.dims {
			values.Columns, tests.Columns = append(values.Columns, name(d)), append(tests.Columns, name(d))
		}
		for _, side := range c.Names {
			side = clip(name(side), 20)
			values.Columns = append(values.Columns, side+" avg", "dev", "var")
		}
		values.Columns = append(values.Columns, "gap", "gap %")
		tests.Columns = append(tests.Columns, "n", "gap, 95 % interval", "t: p", "Holm", "Mann–Whitney: p", "Cliff's δ", "TOST: p", "conclusion")
		for _, r := range rows {
			factor := first.factor
			values.Rows = append(values.Rows, Row{Cells: append(names(r.Levels), r.valueCells(factor)...)})
			tests.Rows = append(tests.Rows, Row{Cells: append(names(r.Levels), r.testCells(factor)...)})
		}
		values.Fidelity.Level, tests.Fidelity.Level = environment.Good, environment.Good // cells say it
		out = append(out, values, tests)
	}
	return out
}

// metrics are the rows of each.
func (c *Comparison) metrics() (out [][]CompareRow) {
	for _, r := range c.Rows {
		i := slices.IndexFunc(out, func(o []CompareRow) bool { return o[0].Metric == r.Metric && o[0].Probe == r.Probe })
		if i < 0 {
			out = append(out, nil)
			i = len(out) - 1
		}
		out[i] = append(out[i], r)
	}
	return out
}

func (r *CompareRow) valueCells(factor float64) (cells []Cell) {
	for i, s := range []stats.Summary{r.A, r.B} {
		cells = append(cells, Cell{Number(s.Mean * factor), r.Verdicts[i]}, Cell{Text: Number(float64(s.Deviation) * factor)}, Cell{Text: Number(float64(s.Variance) * factor * factor)})
	}
	share := "–"
	if r.B.Mean != 0 {
		share = Number(100 * r.Difference / math.Abs(r.B.Mean))
	}
	return append(cells, Cell{Text: Number(r.Difference * factor)}, Cell{Text: share})
}

func (r *CompareRow) testCells(factor float64) []Cell {
	p := func(t *stats.Test) string {
		if t == nil {
			return "–"
		}
		return pValue(t.P)
	}
	n := fmt.Sprint(r.A.N)
	switch {
	case r.Paired:
		n += " pairs"
	case r.A.N != r.B.N:
		n += fmt.Sprintf(", %d", r.B.N)
	}
	tost := "–"
	if r.Equivalence != nil {
		tost = pValue(r.Equivalence.P)
	}
	out := []Cell{}
	for _, text := range []string{n, Interval(r.Interval, factor), p(r.T), pValue(float64(r.Adjusted)), p(r.MannWhitney), Number(float64(r.CliffsDelta)), tost, string(r.Conclusion)} {
		out = append(out, Cell{Text: text})
	}
	return out
}

func pValue(p float64) string {
	if math.IsNaN(p) {
		return "–"
	}
	return strings.TrimPrefix(strings.TrimPrefix(P(p), "p "), "= ")
}

// Summary counts conclusions: "5 equivalent, 3 different, 1 undecided".
func (c *Comparison) Summary() string {
	counts := map[stats.Conclusion]int{}
	for _, r := range c.Rows {
		counts[r.Conclusion]++
	}
	var words []string
	for _, conclusion := range []stats.Conclusion{stats.Equivalent, stats.Different, stats.Undecided} {
		words = append(words, fmt.Sprintf("%d %s", counts[conclusion], conclusion))
	}
	return plural(len(c.Rows), "comparison") + ": " + strings.Join(words, ", ")
}

// WriteText writes the comparison for a terminal.
func (c *Comparison) WriteText(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A is %s, B is %s; gaps are A less B\n", c.Names[0], c.Names[1])
	for _, n := range c.Notes {
		fmt.Fprintln(&b, n)
	}
	tables, metrics := c.Tables(), c.metrics()
	for i := range tables {
		fmt.Fprintln(&b)
		if err := tables[i].Text(&b); err != nil {
			return err
		}
		if i%2 == 0 {
			continue
		}
		for _, r := range metrics[i/2] {
			fmt.Fprintf(&b, "  %s: %s\n", cmp.Or(seriesName(r.dims, r.Levels), "all"), r.Words)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", c.Summary())
	_, err := io.WriteString(to, b.String())
	return err
}
