package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

const (
	maxRows    = 2000
	maxColumns = 60
)

var defaultValues = []string{definition.Mean, "interval", "n"}

// valueHeads are the names of values in heads of tables.
var valueHeads = map[string]string{"interval": "95 % interval", "deviation": "std. deviation", "n": "n"}

// table makes one; nil with the reason where there is nothing to show.
func (d *data) table(def definition.Table) (*Table, string) {
	if def.Rows == nil && def.Columns == nil {
		def.Rows = append(d.varied(def.Source), d.labels(def.Source)...)
	}
	if def.Values == nil {
		def.Values = defaultValues
	}
	groups := d.pick(def.Source, slices.Concat(def.Rows, def.Columns))
	if len(groups) == 0 {
		return nil, d.nothing(def.Source)
	}
	unit, factor := display(def.Unit, groups, def.Source)
	t := &Table{Title: cmp.Or(name(def.Title), metricTitle(def.Source)), Unit: unit, Fidelity: fidelity(groups)}
	b := tableBuilder{data: d, def: &def, table: t, factor: factor, groups: groups}
	b.build()
	counted := "repetitions"
	if def.Of == definition.Values {
		counted = "values"
	}
	t.Notes = append(t.Notes, sizes(groups, def.Source, counted)+".")
	if unit != "1" {
		t.Notes[0] = "In " + unit + "; " + t.Notes[0]
	}
	t.Notes = append(t.Notes, d.pooled(def.Source, slices.Concat(def.Rows, def.Columns))...)
	t.Notes = append(t.Notes, d.lacks(def.Source)...)
	return t, ""
}

type tableBuilder struct {
	*data
	def    *definition.Table
	table  *Table
	factor float64
	groups []*group
}

// find is the group of a row and a column; nil where there is none.
func (b *tableBuilder) find(row, column []string) *group {
	levels := slices.Concat(row, column)
	i := slices.IndexFunc(b.groups, func(g *group) bool { return slices.Equal(g.levels, levels) })
	if i < 0 {
		return nil
	}
	return b.groups[i]
}

// levelsOf are the combinations that there are of the dimensions from to, in order.
func (b *tableBuilder) levelsOf(from, to int, dims []string) (out [][]string) {
	for _, g := range b.groups {
		levels := g.levels[from:to]
		if !slices.ContainsFunc(out, func(o []string) bool { return slices.Equal(o, levels) }) {
			out = append(out, levels)
		}
	}
	slices.SortFunc(out, func(a, c []string) int { return b.compareLevels(dims, a, c) })
	return out
}

func (b *tableBuilder) build() {
	n := len(b.def.Rows)
	rows, columns := b.levelsOf(0, n, b.def.Rows), b.levelsOf(n, n+len(b.def.Columns), b.def.Columns)
	if len(rows) > maxRows || len(columns) > maxColumns {
		b.table.Notes = append(b.table.Notes, fmt.Sprintf("The table is cut: it has %d rows and %d columns.", len(rows),
			len(columns)))
		rows, columns = rows[:min(len(rows), maxRows)], columns[:min(len(columns), maxColumns)]
	}
	for _, dim := range b.def.Rows {
		b.table.Columns = append(b.table.Columns, name(dim))
	}
	if len(b.def.Columns) == 0 {
		b.long(rows)
	} else {
		b.wide(rows, columns)
	}
}

// long has a row for each combination, and a column for each value.
func (b *tableBuilder) long(rows [][]string) {
	b.table.Heads = len(b.def.Rows)
	for _, v := range b.def.Values {
		b.table.Columns = append(b.table.Columns, cmp.Or(valueHeads[v], v))
	}
	for _, levels := range rows {
		row := Row{Cells: names(levels)}
		for _, v := range b.def.Values {
			row.Cells = append(row.Cells, b.cell(b.find(levels, nil), v))
		}
		b.table.Rows = append(b.table.Rows, row)
	}
	if b.def.Gap != nil {
		row := Row{Cells: names([]string{b.gapName()}), Rule: true}
		for _, v := range b.def.Values {
			row.Cells = append(row.Cells, b.gap(nil, v))
		}
		b.table.Rows = append(b.table.Rows, row)
	}
	for i, of := range b.def.Below {
		row := Row{Cells: names(b.belowHeads(of)), Rule: i == 0}
		for _, v := range b.def.Values {
			row.Cells = append(row.Cells, b.below(rows, nil, v, of))
		}
		b.table.Rows = append(b.table.Rows, row)
	}
}

// wide has a column for each combination of columns, and for each combination of rows a row for
// each value.
func (b *tableBuilder) wide(rows, columns [][]string) {
	b.table.Heads = len(b.def.Rows)
	several := len(b.def.Values) > 1
	if several {
		b.table.Heads++
		b.table.Columns = append(b.table.Columns, "")
	}
	for _, levels := range columns {
		b.table.Columns = append(b.table.Columns, seriesName(b.def.Columns, levels))
	}
	add := func(heads []string, value string, first bool, cell func(column []string) Cell) {
		row := Row{Cells: names(heads), Rule: first && several && len(b.table.Rows) > 0}
		if several {
			row.Cells = append(row.Cells, names([]string{cmp.Or(valueHeads[value], value)})...)
		}
		for _, c := range columns {
			row.Cells = append(row.Cells, cell(c))
		}
		b.table.Rows = append(b.table.Rows, row)
	}
	for _, levels := range rows {
		for i, v := range b.def.Values {
			heads := levels
			if i > 0 {
				heads = make([]string, len(levels)) // they are named once
			}
			add(heads, v, i == 0, func(c []string) Cell { return b.cell(b.find(levels, c), v) })
		}
	}
	b.gaps(add)
	for i, of := range b.def.Below {
		for _, v := range b.def.Values {
			if v != "interval" && v != "n" {
				add(b.belowHeads(of), v, i == 0, func(c []string) Cell { return b.below(rows, c, v, of) })
			}
		}
	}
}

// gaps adds the rows of the difference of two levels.
func (b *tableBuilder) gaps(add func(heads []string, value string, first bool, cell func(column []string) Cell)) {
	if b.def.Gap == nil {
		return
	}
	add([]string{b.gapName()}, "gap of means", true, func(c []string) Cell { return b.gap(c, definition.Mean) })
	if slices.Contains(b.def.Values, "interval") {
		add([]string{""}, "interval", false, func(c []string) Cell { return b.gap(c, "interval") })
	}
}

func names(levels []string) []Cell {
	return lists.Map(levels, func(l string) Cell { return Cell{Text: name(l)} })
}

func (b *tableBuilder) cell(g *group, value string) Cell {
	if g == nil {
		return Cell{Text: "–"}
	}
	c := Cell{Level: g.verdict().Level}
	s := b.summary(g.values(b.def.Source))
	switch value {
	case "n":
		c = Cell{Text: fmt.Sprint(s.N)}
	case "interval":
		c.Level = "" // it stands beside its number
		y := definition.Mean
		if !slices.Contains(b.def.Values, definition.Mean) && slices.Contains(b.def.Values, definition.Median) {
			y = definition.Median
		}
		c.Text = Interval(b.interval(g, s, b.def.Source, y), b.factor)
	default:
		c.Text = Number(b.number(s, value))
	}
	return c.certain()
}

// number is a value that is one number, in the unit of the table.
func (b *tableBuilder) number(s stats.Summary, value string) float64 {
	if value == "variance" {
		return float64(s.Variance) * b.factor * b.factor
	}
	return b.factor * map[string]float64{definition.Mean: s.Mean, definition.Median: s.Median,
		"deviation": float64(s.Deviation),
		"min":       s.Min, "max": s.Max, "p5": s.P5, "p95": s.P95, "p99": s.P99}[value]
}

// belowHeads name a row that stands below a table.
func (b *tableBuilder) belowHeads(of string) []string {
	heads := make([]string, len(b.def.Rows))
	if len(heads) > 0 {
		heads[0] = of + " of the column"
	}
	return heads
}

// below is the mean, or another of belows, of the numbers of a column: each row counts once.
func (b *tableBuilder) below(rows [][]string, column []string, value, of string) Cell {
	var numbers []float64
	var verdicts []environment.Verdict
	for _, levels := range rows {
		g := b.find(levels, column)
		if g == nil || value == "interval" || value == "n" {
			continue
		}
		if v := b.number(b.summary(g.values(b.def.Source)), value); !math.IsNaN(v) {
			numbers, verdicts = append(numbers, v), append(verdicts, g.verdict())
		}
	}
	if len(numbers) == 0 {
		return Cell{}
	}
	c := Cell{Level: worstLevel(verdicts)}
	switch of {
	case definition.Median:
		c.Text = Number(stats.Quantile(numbers, 0.5))
	case "min":
		c.Text = Number(slices.Min(numbers))
	case "max":
		c.Text = Number(slices.Max(numbers))
	default:
		c.Text = Number(mean(numbers))
	}
	return c
}

// certain is a cell without doubt where it has no number.
func (c Cell) certain() Cell {
	if c.Text == "–" {
		c.Level = ""
	}
	return c
}

func (b *tableBuilder) gapName() string { return strings.Join(b.def.Gap, " − ") }

// gap is the difference of two levels of the rows, by pairs where there are any.
func (b *tableBuilder) gap(column []string, value string) Cell {
	g, h := b.find(b.def.Gap[:1], column), b.find(b.def.Gap[1:], column)
	if g == nil || h == nil {
		return Cell{Text: "–"}
	}
	x, y, paired := pairs(g, h, b.def.Source)
	if !paired {
		x, y = g.values(b.def.Source), h.values(b.def.Source)
	}
	c := Cell{Level: worstLevel([]environment.Verdict{g.verdict(), h.verdict()})}
	switch value {
	case definition.Mean:
		c.Text = Number((b.summary(x).Mean - b.summary(y).Mean) * b.factor)
	case definition.Median:
		c.Text = Number((b.summary(x).Median - b.summary(y).Median) * b.factor)
	case "interval":
		compared, err := stats.Compare(x, y, stats.CompareOptions{Options: stats.Options{Seed: b.seed, Resamples: 1},
			Paired: paired})
		c.Text = "–"
		if err == nil && b.def.Of != definition.Values { // see data.interval
			c.Text = Interval(compared.Interval, b.factor)
		}
	default:
		return Cell{}
	}
	return c.certain()
}
