package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// maxWide is how many levels stand side by side in a table of averages; of more there is a row
// each.
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

// Metrics are the comparison, metric by metric, ready to be shown. Averages, deviations, variances
// and gaps stand as in tables 3, 6 and 9 of paper 4 (and tables 1 and 2 and so on, of which those
// are made): a column for each level, a row for each quantity.
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
		m.Figure.ID, m.Values.ID, m.Tests.ID = fmt.Sprintf("figure-%d", i+1), fmt.Sprintf("table-%d",
			2*i+1), fmt.Sprintf("table-%d", 2*i+2)
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
		i := slices.IndexFunc(out,
			func(o []CompareRow) bool { return o[0].Metric == r.Metric && o[0].Probe == r.Probe })
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
			out = append(out, Cell{Number(s.Mean * t.factor), r.Verdicts[i]}, number(float64(s.Deviation)*t.factor),
				number(float64(s.Variance)*t.factor*t.factor))
		}
		worst := worstLevel([]environment.Verdict{{Level: r.Verdicts[0]}, {Level: r.Verdicts[1]}})
		share := Cell{Text: "–"}
		if r.B.Mean != 0 {
			share = Cell{Number(100 * r.Difference / math.Abs(r.B.Mean)), worst}
		}
		return append(out, Cell{Number(r.Difference * t.factor), worst}, share)
	}
}

// values has a column for each level of the dimension that has most of those that fit, and a group
// of rows for each combination of the others.
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
	out.Notes = []string{fmt.Sprintf("Gaps are %s less %s; gap %% is of the latter's average.", name(t.Names[0]),
		name(t.Names[1]))}
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
