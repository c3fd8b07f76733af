package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// exact writes all digits; nothing where there is no number.
func exact(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// metricName formats a metric: "usage.processes.ovs.pss" stays, "rtt_max" becomes "rtt max".
func metricName(metric string) string { return name(strings.ReplaceAll(metric, "_", " ")) }

// axisName formats a metric for an axis, without its origin: "usage.processes.ovs.pss" is "memory".
func axisName(metric string) string {
	of, ok := strings.CutPrefix(metric, usagePrefix)
	if !ok {
		return metricName(metric)
	}
	switch what := of[strings.LastIndexByte(of, '.')+1:]; what {
	case "busy":
		return "processors busy"
	case "cpu":
		return "processor time"
	case "pss":
		return "memory"
	default:
		return metricName(what)
	}
}

func metricTitle(src definition.Source) string {
	title := metricName(src.Metric)
	if src.Probe != "" {
		title += " (" + name(src.Probe) + ")"
	}
	return title
}

// describe writes a condition: "datapath ovs, hops 2 or 4".
func describe(c definition.Condition) string {
	var words []string
	for _, l := range c {
		any := l.Any
		if len(any) > 8 {
			any = append(slices.Clone(any[:8]), "…")
		}
		words = append(words, l.Dimension+" "+strings.Join(any, " or "))
	}
	return name(strings.Join(words, ", "))
}

// fidelity is that of the worst group, with each kind of reason once per level.
func fidelity(groups []*group) Fidelity {
	f := Fidelity{}
	var all, each []environment.Verdict
	for _, g := range groups {
		each = append(each, g.verdict())
		for _, v := range g.judged() {
			f.Samples++
			if v.Level != environment.Good {
				f.Suspect++
			}
			all = append(all, v)
		}
	}
	f.Level, f.Reasons = worstLevel(each), reasons(all)
	return f
}

func worstLevel(verdicts []environment.Verdict) environment.Level {
	level := environment.Good
	for _, v := range verdicts {
		if v.Level == environment.Bad || v.Level != environment.Good && level == environment.Good {
			level = v.Level
		}
	}
	return level
}

// reasons counts reasons by code and level, with the text of one. A sample counts once per code, at
// its worst level.
func reasons(verdicts []environment.Verdict) (out []Reason) {
	for _, v := range verdicts {
		seen := map[string]bool{}
		badFirst := slices.SortedStableFunc(slices.Values(v.Reasons),
			func(a, b environment.Reason) int { return badBefore(a.Level, b.Level) })
		for _, r := range badFirst {
			if seen[r.Code] {
				continue
			}
			seen[r.Code] = true
			i := slices.IndexFunc(out, func(o Reason) bool { return o.Code == r.Code && o.Level == r.Level })
			if i < 0 {
				out = append(out, Reason{Level: r.Level, Code: r.Code, Text: clip(Clean(r.Text), 300)})
				i = len(out) - 1
			}
			out[i].Samples++
		}
	}
	slices.SortStableFunc(out, func(a, b Reason) int {
		return cmp.Or(badBefore(a.Level, b.Level), cmp.Compare(b.Samples, a.Samples))
	})
	return out
}

// badBefore orders bad levels before others.
func badBefore(a, b environment.Level) int {
	switch {
	case (a == environment.Bad) == (b == environment.Bad):
		return 0
	case a == environment.Bad:
		return -1
	}
	return 1
}

// figureCaption says what is drawn, of how many, and what the interval is.
func (d *data) figureCaption(f *Figure, def *definition.Figure, groups []*group) string {
	var words []string
	counted := "repetitions"
	if def.Of == definition.Values {
		counted = "values"
	}
	switch def.Kind {
	case definition.CDF:
		words = append(words, "Share of the "+counted+" that are at most x")
	case definition.Time:
		words = append(words, "Each line is a run")
		if len(f.Events) > 0 {
			words = append(words, "dashed: what happened")
		}
	case definition.Box:
		words = append(words, "Boxes from quartile to quartile with the median; whiskers to the last value within 1.5 times that; dots beyond")
	default:
		words = append(words, strings.ToUpper(def.Y[:1])+def.Y[1:]+" of the "+counted+d.method(groups, def))
	}
	if def.Each != "" && def.Each != definition.Mean && def.Of != definition.Values {
		words = append(words, "each repetition counts by its "+def.Each)
	}
	words = append(words, sizes(groups, def.Source, counted))
	if len(def.Where) > 0 {
		words = append(words, "only "+describe(def.Where))
	}
	return strings.Join(words, "; ") + "."
}

// method says how intervals were made.
func (d *data) method(groups []*group, def *definition.Figure) string {
	var methods []string
	for _, g := range groups {
		if i := d.interval(g, d.summary(g.values(def.Source)), def.Source, def.Y); i != nil && !slices.Contains(methods,
			i.Method) {
			methods = append(methods, i.Method)
		}
	}
	switch {
	case len(methods) == 0 && def.Of == definition.Values:
		return "; no intervals, as values of one repetition are not independent"
	case len(methods) == 0:
		return fmt.Sprintf("; no intervals, for which %d are needed", enough)
	}
	if i := slices.Index(methods, stats.Constant); i >= 0 && len(methods) > 1 {
		methods = append(slices.Delete(methods, i, i+1), "of no width where "+stats.Constant)
	}
	return ", with its interval of 95 % (" + strings.Join(methods, "; ") + ")"
}

// sizes is "10 repetitions each", or from the least to the most.
func sizes(groups []*group, src definition.Source, what string) string {
	least, most := math.MaxInt, 0
	for _, g := range groups {
		n := len(g.values(src))
		least, most = min(least, n), max(most, n)
	}
	if least == most {
		return words.Plural(most, strings.TrimSuffix(what, "s")) + " each"
	}
	return fmt.Sprintf("%d to %d %s each", least, most, what)
}

// pooled notes the factors whose levels a figure or a table merges, and other things that a reader
// would not expect.
func (d *data) pooled(src definition.Source, dimensions []string) (notes []string) {
	for _, f := range d.varied(src) {
		if !slices.Contains(dimensions, f) && !d.determined(src, dimensions, f) {
			notes = append(notes, "All levels of "+name(f)+" are taken together.")
		}
	}
	for _, l := range d.labels(src) {
		if !slices.Contains(dimensions, l) && !d.determined(src, []string{"probe"}, l) { // of probes see below
			notes = append(notes, "All values of "+name(l)+" are taken together.")
		}
	}
	for _, dim := range dimensions {
		if levels := d.pick(src, []string{dim}); len(levels) == 1 && levels[0].levels[0] == "" {
			notes = append(notes, name(dim)+" is neither a factor nor a label of these values.")
		}
	}
	if src.Probe == "" && !slices.Contains(dimensions, "probe") {
		if probes := d.pick(src, []string{"probe"}); len(probes) > 1 {
			names := lists.Map(probes, func(g *group) string { return name(g.levels[0]) })
			notes = append(notes, "The values of the probes "+strings.Join(names, ", ")+" are taken together.")
		}
	}
	return notes
}

// lacks lists what is missing from a figure or table: levels and probes that were left out, and the
// experiment's notes.
func (d *data) lacks(src definition.Source) (notes []string) {
	for _, l := range d.run.LeftOut() {
		of := l.Probe == "" || src.Probe == "" || l.Probe == src.Probe
		if of && slices.ContainsFunc(l.Cells, func(cell string) bool { return d.inCell(src.Where, cell) }) {
			notes = append(notes, "Left out: "+name(l.What)+", as "+clip(Clean(l.Why), 200)+".")
		}
	}
	if src.Note != "" {
		notes = append(notes, clip(Clean(src.Note), 500))
	}
	return notes
}

// inCell reports whether a condition may hold in a cell, by the cell's name.
func (d *data) inCell(where definition.Condition, cell string) bool {
	for _, l := range where {
		known := slices.ContainsFunc(d.factors, func(f result.Factor) bool { return f.Name == l.Dimension })
		if known && !slices.ContainsFunc(l.Any, func(level string) bool {
			return strings.Contains(" "+cell+" ", " "+l.Dimension+"="+level+" ")
		}) {
			return false
		}
	}
	return true
}
