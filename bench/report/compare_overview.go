package report

import (
	"math"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// Overview is the comparison in a line for each metric and cell: both sides, the gap with its
// interval, and what is concluded.
func (c *Comparison) Overview() *Table {
	t := &Table{Title: "In short", Heads: 1, Columns: []string{"", name(c.Names[0]), name(c.Names[1]), "gap",
		c.judge.interval(), "conclusion"}, Fidelity: Fidelity{Level: environment.Good}}
	for i := range c.Rows {
		r := &c.Rows[i]
		t.Rows = append(t.Rows, Row{Cells: append([]Cell{{Text: r.what()}}, r.inShort()...)})
	}
	return t
}

// what a row compares: the metric, and the cell.
func (r *CompareRow) what() string {
	what := metricTitle(definition.Source{Metric: r.Metric, Probe: r.Probe})
	if where := seriesName(r.dims, r.Levels); where != "" {
		what += ": " + where
	}
	return what
}

// inShort are both sides, the gap with its interval, and what is concluded.
func (r *CompareRow) inShort() []Cell {
	worst := worstLevel([]environment.Verdict{{Level: r.Verdicts[0]}, {Level: r.Verdicts[1]}})
	return []Cell{{r.side(r.A), r.Verdicts[0]}, {r.side(r.B), r.Verdicts[1]},
		{withUnit(r.Difference*r.factor, r.show), worst},
		{Text: Interval(r.gap(), r.factor)}, {Text: r.verdict()}}
}

// side is a mean with the deviation of the repetitions: "2.43 ± 0.18 ms".
func (r *CompareRow) side(s stats.Summary) string {
	text := Number(s.Mean * r.factor)
	if d := float64(s.Deviation); !math.IsNaN(d) {
		text += " ± " + Number(d*r.factor)
	}
	return strings.TrimSpace(text + strings.TrimPrefix(withUnit(0, r.show), "0"))
}

// verdict is the conclusion with what shows it: "equivalent within ±0.5 ms (p = 0.003)".
func (r *CompareRow) verdict() string {
	text := string(r.Conclusion)
	switch {
	case r.Conclusion == stats.Equivalent && r.Equivalence != nil:
		text += " within ±" + withUnit(r.margin*r.factor, r.show) + " (" + P(r.Equivalence.P) + ")"
	case r.Conclusion == stats.Equivalent:
		text += " within ±" + withUnit(r.margin*r.factor, r.show)
	case r.Conclusion == stats.Different && !math.IsNaN(float64(r.Adjusted)):
		text += " (" + P(float64(r.Adjusted)) + ")"
	}
	return text
}
