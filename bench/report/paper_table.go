package report

import (
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/measure/environment"
)

// manyNumbers is the number of published values of one metric from which on they are assumed to be
// a table in the paper, and are shown as one.
const manyNumbers = 12

// numberTable is a table of numbers of one metric, with the levels of one dimension side by side.
type numberTable struct {
	dims    []string
	wide    int // index of the dimension that is side by side
	columns []string
	rows    [][]string // levels of the others
	numbers map[string]Published
	all     []Published
}

// tables makes tables of the numbers that are numerous enough, and returns the others.
func (p *Paper) tables(numbers []definition.Number, beside []Published) (left []Published) {
	var kinds []string
	byKind := map[string][]int{}
	for i, n := range numbers {
		kind := strings.Join(append([]string{metricTitle(n.Source), beside[i].Unit}, dimensionsOf(n.Where)...), "\x00")
		if byKind[kind] == nil {
			kinds = append(kinds, kind)
		}
		byKind[kind] = append(byKind[kind], i)
	}
	for _, kind := range kinds {
		t := newNumberTable(numbers, beside, byKind[kind])
		if t == nil {
			for _, i := range byKind[kind] {
				left = append(left, beside[i])
			}
			continue
		}
		p.Tables = append(p.Tables, t.table())
	}
	return left
}

func dimensionsOf(c definition.Condition) (out []string) {
	for _, l := range c {
		out = append(out, l.Dimension)
	}
	return out
}

// newNumberTable returns nil if the numbers are few, if any is judged by itself, or if they do not
// form a table.
func newNumberTable(numbers []definition.Number, beside []Published, of []int) *numberTable {
	if len(of) < manyNumbers {
		return nil
	}
	t := &numberTable{dims: dimensionsOf(numbers[of[0]].Where), wide: -1, numbers: map[string]Published{}}
	var cells [][]string
	for _, i := range of {
		var levels []string
		for _, l := range numbers[i].Where {
			if len(l.Any) != 1 {
				return nil
			}
			levels = append(levels, l.Any[0])
		}
		key := strings.Join(levels, "\x00")
		if _, twice := t.numbers[key]; twice || beside[i].Within != "" {
			return nil
		}
		t.numbers[key] = beside[i]
		t.all, cells = append(t.all, beside[i]), append(cells, levels)
	}
	for d := range t.dims {
		if levels := distinct(cells, func(at int) bool { return at == d }); len(levels) > 1 && len(levels) <= maxWide {
			t.wide, t.columns = d, slices.Concat(levels...) // the last of them: that of along
		}
	}
	if t.wide < 0 {
		return nil
	}
	t.rows = distinct(cells, func(at int) bool { return at != t.wide })
	return t
}

// distinct are the different combinations of some of the levels, in the order in which they come.
func distinct(cells [][]string, which func(at int) bool) (out [][]string) {
	for _, levels := range cells {
		var some []string
		for at, l := range levels {
			if which(at) {
				some = append(some, l)
			}
		}
		if !slices.ContainsFunc(out, func(o []string) bool { return slices.Equal(o, some) }) {
			out = append(out, some)
		}
	}
	return out
}

// table has three rows for numbers that were measured here as well (theirs, ours and the ratio),
// and one for others.
func (t *numberTable) table() Table {
	first := t.all[0]
	out := Table{Title: first.Metric, Unit: first.Unit, Heads: len(t.dims), Fidelity: Fidelity{Level: environment.Good}}
	if first.Unit != "" && first.Unit != "1" {
		out.Title += " [" + first.Unit + "]"
	}
	for d, dim := range t.dims {
		if d != t.wide {
			out.Columns = append(out.Columns, name(dim))
		}
	}
	out.Columns = append(out.Columns, "")
	for _, l := range t.columns {
		out.Columns = append(out.Columns, name(levelText(t.dims[t.wide], l)))
	}
	for _, levels := range t.rows {
		out.Rows = append(out.Rows, t.lines(levels)...)
	}
	out.Notes = []string{t.sizes()}
	return out
}

func (t *numberTable) lines(levels []string) []Row {
	measured := false
	lines := []Row{{Cells: names(append(slices.Clone(levels), "theirs")), Rule: true}}
	for _, head := range []string{"ours", "ours / theirs"} {
		lines = append(lines, Row{Cells: names(append(make([]string, len(levels)), head))})
	}
	for _, column := range t.columns {
		n, ok := t.numbers[strings.Join(slices.Insert(slices.Clone(levels), t.wide, column), "\x00")]
		cells := [3]Cell{{Text: "–"}, {Text: "–"}, {Text: "–"}}
		if ok {
			cells[0].Text = n.Theirs
		}
		if n.Ours != "" {
			measured = true
			cells[1], cells[2].Text = Cell{n.Ours, n.Level}, n.Ratio
		}
		for i := range lines {
			lines[i].Cells = append(lines[i].Cells, cells[i])
		}
	}
	if !measured {
		return lines[:1]
	}
	return lines
}

// sizes says of how many repetitions ours are.
func (t *numberTable) sizes() string {
	least, most, none := 0, 0, 0
	for _, n := range t.all {
		switch {
		case n.Ours == "":
			none++
		case least == 0 || n.N < least:
			least = n.N
		}
		most = max(most, n.N)
	}
	if most == 0 {
		return "None of these was measured here."
	}
	text := fmt.Sprintf("Ours are of %d repetitions.", most)
	switch {
	case least == 1 && most == 1:
		text = "Ours are of one repetition."
	case least < most:
		text = fmt.Sprintf("Ours are of %d to %d repetitions.", least, most)
	}
	if none > 0 {
		text += fmt.Sprintf(" %d of %d were not measured here.", none, len(t.all))
	}
	return text
}
