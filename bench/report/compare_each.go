package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/stats"
)

// eachTwo is a table of each two levels of a factor, metric by metric, with what is concluded
// of each; nil with the reason where there is nothing to compare. All its tests are adjusted to each
// other. The later level stands first: a gap is how far it lies above the earlier one.
func (d *data) eachTwo(def definition.Compare) (*Table, string) {
	i := slices.IndexFunc(d.factors, func(f result.Factor) bool { return f.Name == def.Factor })
	if i < 0 || len(d.factors[i].Levels) < 2 {
		return nil, name(def.Factor) + " has no two levels"
	}
	levels := d.factors[i].Levels
	if len(levels) > maxPaired {
		return nil, fmt.Sprintf("%s has more than %d levels; compare two of them by trivet bench compare", name(def.Factor), maxPaired)
	}
	sources := compared(d.definition, d)
	var all []*Comparison
	for later := range levels {
		for earlier := range later {
			names := [2]string{levels[later], levels[earlier]}
			a, b := side{data: d}, side{data: d}
			a.where = definition.Condition{{Dimension: def.Factor, Any: names[:1]}}
			b.where = definition.Condition{{Dimension: def.Factor, Any: names[1:]}}
			c := &Comparison{Names: names, order: d, margins: def.Margins, few: true}
			c.rows(a, b, CompareOptions{A: d.run, Names: names, Factor: def.Factor, Margins: def.Margins, Sources: sources})
			all = append(all, c)
		}
	}
	conclude(all...)
	return d.eachTwoTable(def, all)
}

// maxPaired is of how many levels each two are compared.
const maxPaired = 12

func (d *data) eachTwoTable(def definition.Compare, all []*Comparison) (*Table, string) {
	t := &Table{Leads: true, Title: cmp.Or(name(def.Title), "Each two of "+name(def.Factor)), Heads: 2, Columns: []string{"", "first, second", "first", "second", "gap", "95 % interval", "conclusion"}}
	var groups []*group
	var whats []string
	seen := map[[2]string]bool{} // each level is in several rows
	for _, c := range all {
		for i := range c.Rows {
			what := c.Rows[i].what()
			if !slices.Contains(whats, what) {
				whats = append(whats, what)
			}
			for side, g := range c.Rows[i].groups {
				if at := [2]string{what, c.Names[side]}; !seen[at] {
					seen[at], groups = true, append(groups, g)
				}
			}
		}
	}
	if len(groups) == 0 {
		return nil, "no cell has values at two levels of " + name(def.Factor)
	}
	var undecided, notes []string
	few, margins := true, false
	for _, what := range whats {
		first := true
		for _, c := range all {
			for i := range c.Rows {
				r := &c.Rows[i]
				if r.what() != what {
					continue
				}
				pair := name(c.Names[0]) + ", " + name(c.Names[1])
				t.Rows = append(t.Rows, Row{Cells: append([]Cell{{Text: map[bool]string{true: what}[first]}, {Text: pair}}, r.inShort()...), Rule: first && len(t.Rows) > 0})
				if first = false; r.Conclusion == stats.Undecided {
					undecided = append(undecided, what+", "+pair+": "+strings.TrimPrefix(r.Words, "cannot tell: "))
				}
				few, margins = few && min(r.A.N, r.B.N) < enough, margins || r.margin > 0
			}
		}
	}
	for _, c := range all {
		for _, n := range c.Notes {
			if !slices.Contains(notes, n) {
				notes = append(notes, n)
			}
		}
	}
	t.Fidelity = fidelity(groups)
	t.Notes = append(t.Notes, summary(all...)+". Means with their deviations; a gap is the first less the second.")
	if note := name(def.Note); note != "" {
		t.Notes = append(t.Notes, strings.TrimSuffix(note, ".")+".")
	}
	switch {
	case !margins:
		t.Notes = append(t.Notes, "Without a margin nothing can be found equivalent.")
	default:
		t.Notes = append(t.Notes, "Margins: "+strings.Join(marginsText(def.Margins), ", ")+".")
	}
	switch {
	case few:
		t.Notes = append(t.Notes, fmt.Sprintf("Each two have fewer than %d repetitions, which is too few to tell a difference from chance: measure at least %d.", enough, enough))
	case len(undecided) > 0:
		t.Notes = append(t.Notes, "Undecided: "+strings.Join(undecided[:min(len(undecided), maxCategories)], "; ")+".")
	}
	t.Notes = append(t.Notes, notes[:min(len(notes), maxCategories)]...)
	return t, ""
}

// marginsText says which there are: "rtt 50 us", "others 5 % of the second's mean".
func marginsText(m map[string]definition.Margin) (out []string) {
	for _, metric := range slices.Sorted(maps.Keys(m)) {
		margin, of := m[metric], cmp.Or(name(metric), "others")
		switch {
		case margin.Share > 0:
			out = append(out, of+" "+percent(margin.Share)+" of the second's mean")
		case margin.Unit == "%":
			out = append(out, of+" "+Number(margin.Value)+" percentage points")
		default:
			out = append(out, of+" "+Number(margin.Value)+" "+name(margin.Unit))
		}
	}
	if len(m) > 1 && m[""] != (definition.Margin{}) { // the empty name comes first
		out = append(out[1:], out[0])
	}
	return out
}
