package report

import (
	"cmp"
	"fmt"
	"slices"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/measure/environment"
)

// Spread is a published deviation or variance beside ours, which is computed in the same way, from
// the means of levels, and also from all repetitions of these levels together, as elsewhere in a
// report.
type Spread struct {
	Metric string            `json:"metric"`
	Of     string            `json:"of"`   // deviation or variance
	Over   string            `json:"over"` // whose levels count once
	Where  string            `json:"where"`
	Unit   string            `json:"unit"` // of the deviation
	Theirs string            `json:"theirs"`
	Ours   string            `json:"ours"`             // "" where it was not measured
	Means  int               `json:"means"`            // number of levels in ours
	Ratio  string            `json:"ratio,omitempty"`  // ours to theirs
	Pooled string            `json:"pooled,omitempty"` // ours, from all repetitions
	N      int               `json:"n"`                // number of repetitions
	Level  environment.Level `json:"level,omitempty"`  // of ours
}

// spreads puts published spreads beside ours, in a table for each kind.
func (p *Paper) spreads(d *data, all []definition.Spread) {
	type kind struct{ metric, of, over, unit string }
	var kinds []kind
	tables, shownOf := map[kind]*Table{}, map[kind][]Spread{}
	for _, s := range all {
		shown := d.spread(s)
		p.Spreads = append(p.Spreads, shown)
		k := kind{shown.Metric, shown.Of, shown.Over, shown.Unit}
		t := tables[k]
		if t == nil {
			kinds = append(kinds, k)
			t = &Table{Title: shown.title(), Unit: shown.squared(), Heads: 1,
				Fidelity: Fidelity{Level: environment.Good},
				Columns:  []string{"", "theirs", "ours", "ours / theirs", "of all ours"}}
			tables[k] = t
		}
		t.Rows = append(t.Rows, shown.row())
		shownOf[k] = append(shownOf[k], shown)
	}
	for _, k := range kinds {
		tables[k].Notes = []string{sizesOf(shownOf[k])}
		p.Tables = append(p.Tables, *tables[k])
	}
}

// sizesOf says what spreads of one kind are made of.
func sizesOf(spreads []Spread) string {
	var means, repetitions []int
	for _, s := range spreads {
		if s.Ours != "" {
			means, repetitions = append(means, s.Means), append(repetitions, s.N)
		}
	}
	if len(means) == 0 {
		return "None of these was measured here: it takes two levels of " + spreads[0].Over + "."
	}
	between := func(of []int) string {
		if low, high := slices.Min(of), slices.Max(of); low != high {
			return fmt.Sprintf("%d to %d", low, high)
		}
		return fmt.Sprint(of[0])
	}
	text := fmt.Sprintf("Ours are of the means of %s levels of %s, each of which counts once, as theirs do. “Of all ours” are of all %s repetitions of these.",
		between(means), spreads[0].Over, between(repetitions))
	if none := len(spreads) - len(means); none > 0 {
		text += fmt.Sprintf(" %d of %d were not measured here.", none, len(spreads))
	}
	return text
}

// spread puts a published spread beside ours.
func (d *data) spread(s definition.Spread) Spread {
	out := Spread{Metric: metricTitle(s.Source), Of: s.Of, Over: name(s.Over), Where: describe(s.Where),
		Unit: name(s.Unit), Theirs: exact(s.Value)}
	groups := d.pick(s.Source, []string{s.Over})
	if len(groups) < 2 {
		return out
	}
	if s.Unit == "" {
		out.Unit = name(groups[0].unit)
	}
	var means, all []float64
	var verdicts []environment.Verdict
	for _, g := range groups {
		factor, ok := 1.0, true
		if s.Unit != "" {
			factor, ok = definition.Convert(g.unit, s.Unit)
		}
		if !ok {
			return out
		}
		values := g.values(s.Source)
		for i := range values {
			values[i] *= factor
		}
		means, all, verdicts = append(means, d.summary(values).Mean), append(all, values...), append(verdicts,
			g.verdict())
	}
	number := func(of []float64) float64 {
		if summary := d.summary(of); s.Of == definition.Variance {
			return float64(summary.Variance)
		} else {
			return float64(summary.Deviation)
		}
	}
	ours := number(means)
	out.Ours, out.Means, out.Pooled, out.N, out.Level = Number(ours), len(means), Number(number(all)), len(all),
		worstLevel(verdicts)
	if s.Value != 0 {
		out.Ratio = Number(ours / s.Value)
	}
	return out
}

// squared is the unit of what is shown.
func (s Spread) squared() string {
	if s.Of == definition.Variance && s.Unit != "" && s.Unit != "1" {
		return s.Unit + "²"
	}
	return s.Unit
}

func (s Spread) title() string {
	title := fmt.Sprintf("%s, %s of the means of %s", s.Metric, s.Of, s.Over)
	if unit := s.squared(); unit != "" && unit != "1" {
		title += " [" + unit + "]"
	}
	return title
}

func (s Spread) row() Row {
	where := cmp.Or(s.Where, "all")
	row := Row{Cells: []Cell{{Text: name(where)}, {Text: s.Theirs}}}
	if s.Ours == "" {
		return Row{Cells: append(row.Cells, Cell{Text: "–"}, Cell{Text: "–"}, Cell{Text: "–"})}
	}
	ours := Cell{Text: s.Ours, Level: s.Level}
	row.Cells = append(row.Cells, ours, Cell{Text: s.Ratio}, Cell{Text: s.Pooled, Level: s.Level})
	return row
}
