package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/measure/stats"
)

// WriteText writes the comparison for a terminal.
func (c *Comparison) WriteText(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A is %s, B is %s; gaps are A less B\n", name(c.Names[0]), name(c.Names[1]))
	for _, n := range c.Notes {
		fmt.Fprintln(&b, n)
	}
	fmt.Fprintln(&b)
	if err := c.Overview().Text(&b); err != nil {
		return err
	}
	for _, m := range c.Metrics() {
		m.Values.Notes = nil // said above
		for _, t := range []*Table{&m.Values, &m.Tests} {
			fmt.Fprintln(&b)
			if err := t.Text(&b); err != nil {
				return err
			}
		}
		for _, x := range m.Conclusions {
			fmt.Fprintf(&b, "  %s: %s\n", x.Where, x.Words)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", c.Summary())
	_, err := io.WriteString(to, b.String())
	return err
}

// LaTeX writes the tables of all metrics.
func (c *Comparison) LaTeX(to io.Writer) error {
	for i, m := range c.Metrics() {
		for j, t := range []*Table{&m.Values, &m.Tests} {
			if i+j > 0 {
				if _, err := io.WriteString(to, "\n"); err != nil {
					return err
				}
			}
			if err := t.LaTeX(to); err != nil {
				return err
			}
		}
	}
	return nil
}

// CSV writes a line for each metric and cell, in the metric's own unit and with all digits. What
// there is not is empty.
func (c *Comparison) CSV(to io.Writer) error {
	var dims []string
	for _, r := range c.Rows {
		for _, d := range r.dims {
			if !slices.Contains(dims, d) {
				dims = append(dims, d)
			}
		}
	}
	head := []string{"metric", "probe", "unit"}
	for _, d := range dims {
		head = append(head, "factor."+d)
	}
	w := csv.NewWriter(to)
	for i, r := range c.Rows {
		fields := r.fields(c.Names)
		if i == 0 {
			for _, f := range fields {
				head = append(head, f[0])
			}
			_ = w.Write(head) // Error says it
		}
		line := []string{r.Metric, r.Probe, r.Unit}
		for _, d := range dims {
			level := ""
			if i := slices.Index(r.dims, d); i >= 0 {
				level = r.Levels[i]
			}
			line = append(line, level)
		}
		for _, f := range fields {
			line = append(line, f[1])
		}
		_ = w.Write(line)
	}
	w.Flush()
	return w.Error()
}

// fields are the columns of a row with their values.
func (r *CompareRow) fields(sides [2]string) (out [][2]string) {
	add := func(head, value string) { out = append(out, [2]string{head, value}) }
	number := func(head string, v float64) { add(head, exact(v)) }
	for i, s := range []stats.Summary{r.A, r.B} {
		side := [2]string{"a_", "b_"}[i]
		add(strings.TrimSuffix(side, "_"), sides[i])
		add(side+"n", strconv.Itoa(s.N))
		number(side+"mean", s.Mean)
		number(side+"median", s.Median)
		number(side+"deviation", float64(s.Deviation))
		number(side+"variance", float64(s.Variance))
		add(side+"fidelity", string(r.Verdicts[i]))
	}
	number("gap", r.Difference)
	low, high := stats.None, stats.None
	if r.Interval != nil {
		low, high = stats.Float(r.Interval.Low), stats.Float(r.Interval.High)
	}
	number("gap_low", float64(low))
	number("gap_high", float64(high))
	number("ratio", float64(r.Ratio))
	add("paired", strconv.FormatBool(r.Paired))
	for _, t := range []struct {
		name string
		test *stats.Test
	}{{"t", r.T}, {"mann_whitney", r.MannWhitney}, {"wilcoxon", r.Wilcoxon}} {
		statistic, p := stats.None, stats.None
		if t.test != nil {
			statistic, p = stats.Float(t.test.Statistic), stats.Float(t.test.P)
		}
		number(t.name, float64(statistic))
		number(t.name+"_p", float64(p))
	}
	number("holm_p", float64(r.Adjusted))
	number("hedges_g", float64(r.HedgesG))
	number("cliffs_delta", float64(r.CliffsDelta))
	number("rank_biserial", float64(r.RankBiserial))
	margin, tost := stats.None, stats.None
	if r.margin > 0 {
		margin = stats.Float(r.margin)
	}
	if r.Equivalence != nil {
		tost = stats.Float(r.Equivalence.P)
	}
	number("margin", float64(margin))
	number("tost_p", float64(tost))
	add("conclusion", string(r.Conclusion))
	add("words", Clean(r.Words))
	return out
}
