package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// column is one of a table of tests.
type column struct {
	head string
	text func(*CompareRow) string
}

// columns of tests are those that any row has something in: pairs have other tests.
func (t *comparedTable) columns() []column {
	p := func(of func(*CompareRow) *stats.Test) func(*CompareRow) string {
		return func(r *CompareRow) string {
			if test := of(r); test != nil {
				return pValue(test.P)
			}
			return "–"
		}
	}
	when := func(is bool, test *stats.Test) *stats.Test {
		if is {
			return test
		}
		return nil
	}
	all := []column{
		{"n", func(r *CompareRow) string { return r.sizes() }},
		{"gap, " + t.judge.interval(), func(r *CompareRow) string { return Interval(r.gap(), t.factor) }},
		{"Welch t: p", p(func(r *CompareRow) *stats.Test { return when(!r.Paired, r.T) })},
		{"paired t: p", p(func(r *CompareRow) *stats.Test { return when(r.Paired, r.T) })},
		{"Holm: p", func(r *CompareRow) string { return pValue(float64(r.Adjusted)) }},
		{"Mann–Whitney: p", p(func(r *CompareRow) *stats.Test { return r.MannWhitney })},
		{"Wilcoxon: p", p(func(r *CompareRow) *stats.Test { return r.Wilcoxon })},
		{"Hedges' g", func(r *CompareRow) string { return effect(r.HedgesG) }},
		{"Cliff's δ", func(r *CompareRow) string { return effect(r.CliffsDelta) }},
		{"rank-biserial", func(r *CompareRow) string { return effect(r.RankBiserial) }},
		{"margin ±", func(r *CompareRow) string {
			if r.margin == 0 {
				return "–"
			}
			return Number(r.margin * t.factor)
		}},
		{"TOST: p", func(r *CompareRow) string {
			if r.Equivalence == nil {
				return "–"
			}
			return pValue(r.Equivalence.P)
		}},
	}
	all = slices.DeleteFunc(all, func(c column) bool {
		return !slices.ContainsFunc(t.rows, func(r CompareRow) bool { return c.text(&r) != "–" })
	})
	return append(all,
		column{"fidelity", func(r *CompareRow) string { return fidelityOf(r.Verdicts) }},
		column{"conclusion", func(r *CompareRow) string { return string(r.Conclusion) }})
}

func (t *comparedTable) tests() Table {
	// That of values says it.
	out := Table{Unit: t.unit, Heads: len(t.dims), Fidelity: Fidelity{Level: environment.Good}}
	for _, d := range t.dims {
		out.Columns = append(out.Columns, name(d))
	}
	columns := t.columns()
	for _, c := range columns {
		out.Columns = append(out.Columns, c.head)
	}
	for _, r := range t.rows {
		row := Row{Cells: names(r.Levels)}
		for _, c := range columns {
			row.Cells = append(row.Cells, Cell{Text: c.text(&r)})
		}
		out.Rows = append(out.Rows, row)
	}
	if t.unit != "1" && t.unit != "" {
		out.Notes = append(out.Notes, "Gaps and margins in "+t.unit+".")
	}
	out.Notes = append(out.Notes, t.warnings()...)
	if !slices.ContainsFunc(t.rows, func(r CompareRow) bool { return r.margin > 0 }) {
		out.Notes = append(out.Notes, t.noMargin())
	}
	return out
}

// noMargin says why nothing could be found equivalent.
func (t *comparedTable) noMargin() string {
	metric := t.rows[0].Metric
	m, ok := t.margins[metric]
	if !ok {
		m = t.margins[""]
	}
	if m.Share > 0 {
		return "The margin is a percentage of an average that is 0, and so 0 itself: give it as a value, such as --margin " + name(metric) + "=1" + map[bool]string{true: "pp", false: name(t.rows[0].Unit)}[t.rows[0].Unit == "1"] + "."
	}
	return "No margin was given, so that nothing could be found equivalent."
}

// warnings are what statistics say of the samples and of their comparison, each kind once, with the
// cells.
func (t *comparedTable) warnings() (notes []string) {
	var w warned
	for _, r := range t.rows {
		for _, x := range r.Warnings {
			// The conclusion says these with their values.
			if x.Code != stats.WarnPower && x.Code != stats.WarnConstant {
				w.add(x, r.where())
			}
		}
		for i, s := range []stats.Summary{r.A, r.B} {
			for _, x := range s.Warnings {
				if x.Code != stats.WarnConstant && x.Code != stats.WarnSmall { // those are of the comparison
					w.add(x, strings.TrimPrefix(r.where()+", ", "all, ")+name(t.Names[i]))
				}
			}
		}
	}
	for _, x := range w {
		note := x.Text
		if len(t.rows) > 1 || x.Where[0] != "all" {
			where := x.Where
			if more := len(where) - 6; more > 0 {
				where = append(slices.Clone(where[:6]), fmt.Sprintf("and %d more", more))
			}
			note += " (" + strings.Join(where, "; ") + ")"
		}
		notes = append(notes, note+".")
	}
	return notes
}

// sizes is how many values there are: "9 pairs", "10", or "10, 9".
func (r *CompareRow) sizes() string {
	switch {
	case r.Paired:
		return fmt.Sprintf("%d pairs", r.A.N)
	case r.A.N != r.B.N:
		return fmt.Sprintf("%d, %d", r.A.N, r.B.N)
	}
	return fmt.Sprint(r.A.N)
}

// fidelityOf both sides is one word where they have the same.
func fidelityOf(verdicts [2]environment.Level) string {
	if verdicts[0] == verdicts[1] {
		return string(verdicts[0])
	}
	return string(verdicts[0]) + ", " + string(verdicts[1])
}

// effect is a size with two digits behind the point.
func effect(v stats.Float) string {
	if math.IsNaN(float64(v)) {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(v))
}

func pValue(p float64) string {
	if math.IsNaN(p) {
		return "–"
	}
	return strings.TrimPrefix(strings.TrimPrefix(P(p), "p "), "= ")
}
