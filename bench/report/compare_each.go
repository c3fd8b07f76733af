package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/measure/stats"
)

// eachTwo compares every two levels of a factor, metric by metric, with the conclusions; nil with
// the reason if there is nothing to compare. All its tests are adjusted for multiple testing
// together. The later level is first: a gap is how far it exceeds the earlier one.
func (d *data) eachTwo(def definition.Compare) ([]*Comparison, string) {
	i := slices.IndexFunc(d.factors, func(f result.Factor) bool { return f.Name == def.Factor })
	if i < 0 || len(d.factors[i].Levels) < 2 {
		return nil, name(def.Factor) + " has no two levels"
	}
	levels := d.factors[i].Levels
	if len(levels) > maxPaired {
		return nil, fmt.Sprintf("%s has more than %d levels; compare two of them by trivet bench compare",
			name(def.Factor), maxPaired)
	}
	sources := compared(d.definition, d)
	var all []*Comparison
	for later := range levels {
		for earlier := range later {
			names := [2]string{levels[later], levels[earlier]}
			a, b := side{data: d}, side{data: d}
			a.where = definition.Condition{{Dimension: def.Factor, Any: names[:1]}}
			b.where = definition.Condition{{Dimension: def.Factor, Any: names[1:]}}
			c := &Comparison{Names: names, order: d, margins: def.Margins, few: true, each: true, judge: d.judge}
			c.rows(a, b, CompareOptions{A: d.run, Names: names, Factor: def.Factor, Margins: def.Margins,
				Sources: sources})
			all = append(all, c)
		}
	}
	conclude(all...)
	return all, ""
}

// maxPaired is the largest number of levels of which every two are compared.
const maxPaired = 12

// ofTwo is a row of a comparison, with what is compared of which two.
type ofTwo struct {
	what  string
	names [2]string
	*CompareRow
}

func (r *ofTwo) pair() string { return name(r.names[0]) + ", " + name(r.names[1]) }

// allOf are the rows of comparisons, those of one metric and cell together.
func allOf(all []*Comparison) (rows []ofTwo) {
	order := map[string]int{}
	for _, c := range all {
		for i := range c.Rows {
			r := ofTwo{c.Rows[i].what(), c.Names, &c.Rows[i]}
			if _, seen := order[r.what]; !seen {
				order[r.what] = len(order)
			}
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b ofTwo) int { return order[a.what] - order[b.what] })
	return rows
}

func (d *data) eachTwoTable(def definition.Compare, all []*Comparison) (*Table, string) {
	rows := allOf(all)
	if len(rows) == 0 {
		return nil, "no cell has values at two levels of " + name(def.Factor)
	}
	t := &Table{Title: cmp.Or(name(def.Title), "Each two of "+name(def.Factor)), Leads: true, Heads: 2,
		Columns: []string{"", "first, second", "first", "second", "gap", d.judge.interval(), "conclusion"}}
	var groups []*group
	seen := map[[2]string]bool{} // each level is in several rows
	for i, r := range rows {
		head, begins := r.what, i == 0 || rows[i-1].what != r.what
		if !begins {
			head = ""
		}
		t.Rows = append(t.Rows, Row{Cells: append([]Cell{{Text: head}, {Text: r.pair()}}, r.inShort()...),
			Rule: begins && i > 0})
		for side, g := range r.groups {
			if at := [2]string{r.what, r.names[side]}; !seen[at] {
				seen[at], groups = true, append(groups, g)
			}
		}
	}
	t.Fidelity = fidelity(groups)
	t.Notes = append(t.Notes, summary(all...)+". Means with their deviations; a gap is the first less the second.")
	if note := name(def.Note); note != "" {
		t.Notes = append(t.Notes, strings.TrimSuffix(note, ".")+".")
	}
	t.Notes = append(t.Notes, undecided(rows, def.Margins)...)
	if none := missing(rows, all); len(none) > 0 {
		t.Notes = append(t.Notes, "Without values: "+strings.Join(none, "; ")+".")
	}
	var notes []string
	for _, c := range all {
		for _, n := range c.Notes {
			if !slices.Contains(notes, n) {
				notes = append(notes, n)
			}
		}
	}
	t.Notes = append(t.Notes, notes[:min(len(notes), maxCategories)]...)
	return t, ""
}

// missing are the levels that have no values of what others have: "rack of rtt, loss".
func missing(rows []ofTwo, all []*Comparison) (out []string) {
	var levels, whats []string
	has := map[[2]string]bool{}
	add := func(to *[]string, text string) {
		if !slices.Contains(*to, text) {
			*to = append(*to, text)
		}
	}
	for _, c := range all {
		add(&levels, c.Names[1])
		add(&levels, c.Names[0])
	}
	for _, r := range rows {
		add(&whats, r.what)
		has[[2]string{r.names[0], r.what}], has[[2]string{r.names[1], r.what}] = true, true
	}
	for _, l := range levels {
		of := lists.Filter(whats, func(what string) bool { return !has[[2]string{l, what}] })
		if len(of) > 0 {
			out = append(out, name(l)+" of "+clip(strings.Join(of, ", "), 300))
		}
	}
	return out
}

// undecided says by which margins was judged, and what is missing where that was not possible.
func undecided(rows []ofTwo, margins map[string]definition.Margin) (notes []string) {
	if slices.ContainsFunc(rows, func(r ofTwo) bool { return r.margin > 0 }) {
		notes = append(notes, "Margins: "+strings.Join(marginsText(margins), ", ")+".")
	} else {
		notes = append(notes, "Without a margin nothing can be found equivalent.")
	}
	if !slices.ContainsFunc(rows, func(r ofTwo) bool { return min(r.A.N, r.B.N) >= enough }) {
		return append(notes,
			fmt.Sprintf("Each two have fewer than %d repetitions, which is too few to tell a difference from chance: measure at least %d.", enough, enough))
	}
	var open []string
	for _, r := range rows {
		if r.Conclusion == stats.Undecided {
			open = append(open, r.what+", "+r.pair()+": "+strings.TrimPrefix(r.Words, "cannot tell: "))
		}
	}
	if len(open) > 0 {
		notes = append(notes, "Undecided: "+strings.Join(open[:min(len(open), maxCategories)], "; ")+".")
	}
	return notes
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
