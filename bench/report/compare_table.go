package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/environment"
	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/stats"
)

// maxWide is how many levels stand side by side in a table of averages; of more there is a row each.
const maxWide = 12

// ComparedMetric is what there is to say of one metric.
type ComparedMetric struct {
	Title       string
	Figure      Figure
	Values      Table // averages, deviations, variances and gaps
	Tests       Table
	Conclusions []Concluded
}

// Concluded is what is concluded of a cell.
type Concluded struct {
	Where      string
	Conclusion stats.Conclusion
	Words      string
}

// Metrics are the comparison, metric by metric, ready to be shown. Averages, deviations, variances and gaps stand as in tables 3, 6 and 9 of
// paper 4 (and tables 1 and 2 and so on, of which those are made): a column for each level, a row for each quantity.
func (c *Comparison) Metrics() (out []ComparedMetric) {
	for i, rows := range c.byMetric() {
		t := comparedTable{Comparison: c, rows: rows, dims: rows[0].dims}
		src := definition.Source{Metric: rows[0].Metric, Probe: rows[0].Probe}
		for _, r := range rows {
			t.groups = append(t.groups, r.groups[0], r.groups[1])
		}
		t.unit, t.factor = display("", t.groups[:], src)
		m := ComparedMetric{Title: metricTitle(src), Figure: t.figure(), Values: t.values(), Tests: t.tests()}
		m.Figure.Title, m.Values.Title, m.Tests.Title = m.Title, m.Title, m.Title+": tests"
		if t.unit != "1" && t.unit != "" {
			m.Values.Title += " [" + t.unit + "]"
		}
		m.Figure.ID, m.Values.ID, m.Tests.ID = fmt.Sprintf("figure-%d", i+1), fmt.Sprintf("table-%d", 2*i+1), fmt.Sprintf("table-%d", 2*i+2)
		for _, r := range rows {
			m.Conclusions = append(m.Conclusions, Concluded{r.where(), r.Conclusion, r.Words})
		}
		out = append(out, m)
	}
	return out
}

// byMetric are the rows of each.
func (c *Comparison) byMetric() (out [][]CompareRow) {
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

// where is the cell of a row.
func (r *CompareRow) where() string { return cmp.Or(seriesName(r.dims, r.Levels), "all") }

// comparedTable makes tables and a figure of the rows of a metric.
type comparedTable struct {
	*Comparison
	rows   []CompareRow
	dims   []string
	groups []*group
	unit   string
	factor float64
}

// quantities are the rows of a table of averages, for a cell.
func (t *comparedTable) quantities() (heads []string, cells func(r *CompareRow) []Cell) {
	for _, side := range t.Names {
		side = clip(name(side), 30)
		heads = append(heads, side+" avg", side+" dev", side+" var")
	}
	number := func(v float64) Cell { return Cell{Text: Number(v)} }
	return append(heads, "gap", "gap %"), func(r *CompareRow) (out []Cell) {
		for i, s := range []stats.Summary{r.A, r.B} {
			out = append(out, Cell{Number(s.Mean * t.factor), r.Verdicts[i]}, number(float64(s.Deviation)*t.factor), number(float64(s.Variance)*t.factor*t.factor))
		}
		worst := worstLevel([]environment.Verdict{{Level: r.Verdicts[0]}, {Level: r.Verdicts[1]}})
		share := Cell{Text: "–"}
		if r.B.Mean != 0 {
			share = Cell{Number(100 * r.Difference / math.Abs(r.B.Mean)), worst}
		}
		return append(out, Cell{Number(r.Difference * t.factor), worst}, share)
	}
}

// values has a column for each level of the dimension that has most of those that fit, and a group of rows for each
// combination of the others.
func (t *comparedTable) values() Table {
	wide := t.wideDimension()
	columns, groups := t.levelsOf(wide, true), t.levelsOf(wide, false)
	out := Table{Unit: t.unit, Heads: len(t.dims) + 1, Fidelity: fidelity(t.groups)}
	if wide >= 0 {
		out.Heads--
	}
	for i, d := range t.dims {
		if i != wide {
			out.Columns = append(out.Columns, name(d))
		}
	}
	out.Columns = append(out.Columns, "")
	for _, l := range columns {
		head := "all"
		if wide >= 0 {
			head = levelText(t.dims[wide], l[0])
		}
		out.Columns = append(out.Columns, name(head))
	}
	heads, cells := t.quantities()
	for n, levels := range groups {
		grid := make([][]Cell, len(columns))
		for i, l := range columns {
			if r := t.find(wide, l, levels); r != nil {
				grid[i] = cells(r)
			}
		}
		for q, head := range heads {
			if q > 0 {
				levels = make([]string, len(levels)) // they are named once
			}
			row := Row{Cells: names(append(slices.Clone(levels), head)), Rule: q == 0 && n > 0 || q == 6}
			for _, column := range grid {
				cell := Cell{Text: "–"}
				if column != nil {
					cell = column[q]
				}
				row.Cells = append(row.Cells, cell)
			}
			out.Rows = append(out.Rows, row)
		}
	}
	out.Notes = []string{fmt.Sprintf("Gaps are %s less %s; gap %% is of the latter's average.", name(t.Names[0]), name(t.Names[1]))}
	return out
}

// wideDimension is the one of which the levels stand side by side; −1 where there is none.
func (t *comparedTable) wideDimension() int {
	best, most := -1, 0
	for i := range t.dims {
		if n := len(t.levelsOf(i, true)); n <= maxWide && n >= most {
			best, most = i, n
		}
	}
	return best
}

// levelsOf are the levels of a dimension, or the combinations of the others, in order.
func (t *comparedTable) levelsOf(dim int, itself bool) (out [][]string) {
	var dims []string
	pick := func(all []string) (some []string) {
		for i, l := range all {
			if (i == dim) == itself {
				some = append(some, l)
			}
		}
		return some
	}
	dims = pick(t.dims)
	for _, r := range t.rows {
		if l := pick(r.Levels); !slices.ContainsFunc(out, func(o []string) bool { return slices.Equal(o, l) }) {
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b []string) int { return t.order.compareLevels(dims, a, b) })
	return out
}

func (t *comparedTable) find(dim int, level, others []string) *CompareRow {
	levels := slices.Clone(others)
	if dim >= 0 {
		levels = slices.Insert(levels, dim, level...)
	}
	i := slices.IndexFunc(t.rows, func(r CompareRow) bool { return slices.Equal(r.Levels, levels) })
	if i < 0 {
		return nil
	}
	return &t.rows[i]
}

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
		{"gap, 95 % interval", func(r *CompareRow) string {
			if r.Interval == nil && r.Shares != nil {
				return Interval(&r.Shares.Interval, t.factor)
			}
			return Interval(r.Interval, t.factor)
		}},
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
	out := Table{Unit: t.unit, Heads: len(t.dims), Fidelity: Fidelity{Level: environment.Good}} // that of values says it
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
		out.Notes = append(out.Notes, "No margin was given, so that nothing could be found equivalent.")
	}
	return out
}

// warnings are what statistics say of the samples and of their comparison, each kind once, with the cells.
func (t *comparedTable) warnings() (notes []string) {
	var w warned
	for _, r := range t.rows {
		for _, x := range r.Warnings {
			if x.Code != stats.WarnPower && x.Code != stats.WarnConstant { // the conclusion says these with their values
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

// figure has the averages of both sides, cell by cell.
func (t *comparedTable) figure() Figure {
	f := Figure{Kind: definition.Bar, Legend: "", Fidelity: fidelity(t.groups), Y: Axis{Label: metricName(t.rows[0].Metric), Unit: t.unit}}
	if len(t.dims) == 1 { // of several, the levels say what they are of
		f.X.Label = name(t.dims[0])
	}
	numbers := len(t.dims) == 1 && len(t.rows) > 2 && !slices.ContainsFunc(t.rows, func(r CompareRow) bool { return !isNumber(r.Levels[0]) })
	if numbers {
		f.Kind = definition.Line
	}
	for i, r := range t.rows {
		if len(t.rows) > maxCategories && i == maxCategories {
			f.Notes = append(f.Notes, fmt.Sprintf("%d more cells are left out; the tables have them", len(t.rows)-i))
			break
		}
		x := float64(i)
		if numbers {
			x = number(r.Levels[0])
		} else {
			f.X.Categories = append(f.X.Categories, t.level(&r))
		}
		for side := range t.Names {
			s := f.series(name(t.Names[side]))
			s.Points = append(s.Points, t.point(&r, side, x))
		}
	}
	f.Caption = "Mean of the repetitions, with its interval of 95 % where there are at least " + fmt.Sprint(enough) + " of them."
	f.Data = f.rows()
	return f
}

// level is where a row stands on the x axis.
func (t *comparedTable) level(r *CompareRow) string {
	if len(r.Levels) == 1 {
		return name(r.Levels[0])
	}
	return seriesName(r.dims, r.Levels)
}

func (t *comparedTable) point(r *CompareRow, side int, x float64) Point {
	v, values := r.groups[side].verdict(), r.values[side]
	p := Point{X: x, Name: t.level(r), Y: mean(values) * t.factor, N: len(values), Level: v.Level, Why: why(v), Low: stats.None, High: stats.None}
	if i := r.intervals[side]; i != nil {
		p.Low, p.High = stats.Float(i.Low*t.factor), stats.Float(i.High*t.factor)
	}
	if len(values) <= maxShown {
		p.Values = scaled(values, t.factor)
	}
	return p
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
