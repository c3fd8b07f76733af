package report

import (
	"fmt"
	"slices"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/measure/stats"
)

// figure has the averages of both sides, cell by cell.
func (t *comparedTable) figure() Figure {
	f := Figure{Kind: definition.Bar, Legend: "", Fidelity: fidelity(t.groups),
		Y: Axis{Label: axisName(t.rows[0].Metric), Unit: t.unit}}
	if len(t.dims) == 1 { // of several, the levels say what they are of
		f.X.Label = name(t.dims[0])
	}
	numbers := len(t.dims) == 1 && len(t.rows) > 2 &&
		!slices.ContainsFunc(t.rows, func(r CompareRow) bool { return !isNumber(r.Levels[0]) })
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
	f.Caption = "Mean of the repetitions, with its interval of 95 % where there are at least " + fmt.Sprint(enough) +
		" of them."
	f.finish()
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
	p := Point{X: x, Name: t.level(r), Y: mean(values) * t.factor, N: len(values), Level: v.Level, Why: why(v),
		Low: stats.None, High: stats.None}
	if i := r.intervals[side]; i != nil {
		p.Low, p.High = stats.Float(i.Low*t.factor), stats.Float(i.High*t.factor)
	}
	if len(values) <= maxShown {
		p.Values = scaled(values, t.factor)
	}
	return p
}
