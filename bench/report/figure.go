package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// Limits on figures: more cannot be seen, and the file may come from anyone.
const (
	maxSeries     = 40
	maxCategories = 200
	maxShown      = 60   // values of a point, each by itself
	maxTrace      = 1000 // points of a trace
	maxPoints     = 5000 // of all traces of a figure
	maxTraces     = 200  // of a figure
	perSeries     = 40   // of these
)

// figure makes a figure; nil with the reason if there is nothing to show.
func (d *data) figure(def definition.Figure) (*Figure, string) {
	d.figureDefaults(&def)
	dims := def.Series
	if def.X != "" {
		dims = append([]string{def.X}, dims...)
	}
	groups := d.pick(def.Source, dims)
	if len(groups) == 0 {
		return nil, d.nothing(def.Source)
	}
	unit, factor := display(def.Unit, groups, def.Source)
	logX, logY := definition.LogAxes(def.Scale)
	f := &Figure{Title: cmp.Or(name(def.Title), metricTitle(def.Source)), Kind: def.Kind,
		Legend: name(strings.Join(def.Series, ", ")), Fidelity: fidelity(groups),
		Y: Axis{Label: axisName(def.Metric), Unit: unit, Log: logY}, X: Axis{Label: name(def.X)}}
	switch def.Kind {
	case definition.CDF:
		f.X, f.Y = Axis{Label: axisName(def.Metric), Unit: unit, Log: logX || logY}, Axis{Label: "share of values"}
		d.distributions(f, &def, groups, factor)
	case definition.Time:
		f.X = Axis{Label: "time", Unit: "s"}
		d.courses(f, &def, groups, factor)
	default:
		d.points(f, &def, groups, factor)
		f.X.Log = logX && f.X.Categories == nil
		d.published(f, &def, unit)
	}
	f.Caption = d.figureCaption(f, &def, groups)
	f.Notes = append(f.Notes, d.pooled(def.Source, dims)...)
	f.Notes = append(f.Notes, d.lacks(def.Source)...)
	if left := len(f.Series) - maxSeries; left > 0 {
		f.Series = f.Series[:maxSeries]
		f.Notes = append(f.Notes, fmt.Sprintf("%d more series are left out; choose with where: what to show", left))
	}
	f.finish()
	return f, ""
}

// nothing says that there are no values, and why, where the watch has said it.
func (d *data) nothing(src definition.Source) string {
	what := metricTitle(src)
	if len(src.Where) > 0 {
		what += " where " + name(describe(src.Where))
	}
	what += " was not measured"
	if slices.Contains(sums, src.Each) {
		if src.Each = ""; len(d.pick(src, nil)) > 0 {
			return what + " completely: in each run one of the probes failed"
		}
	}
	if why := d.lacking(src.Metric); why != "" {
		what += ": " + why
	}
	return what
}

// figureDefaults fills in what the definition leaves open.
func (d *data) figureDefaults(def *definition.Figure) {
	distribution := def.Kind == definition.CDF || def.Kind == definition.Time
	free := d.varied(def.Source)
	if def.X == "" && !distribution {
		def.X = d.bestX(free, def.Series)
	}
	if distribution {
		def.X = ""
	}
	if def.Series == nil {
		for _, f := range free {
			if f != def.X && (def.X == "" || !d.determined(def.Source, []string{def.X}, f)) {
				def.Series = append(def.Series, f)
			}
		}
		for _, l := range d.labels(def.Source) {
			if l != def.X {
				def.Series = append(def.Series, l)
			}
		}
	}
	if def.Kind == "" {
		def.Kind = definition.Bar
		if d.numeric(def.X) {
			def.Kind = definition.Line
		}
	}
	if def.Of == "" && (def.Kind == definition.Box || distribution) {
		def.Of = definition.Values
	}
	def.Y = cmp.Or(def.Y, definition.Mean)
}

// varied are the factors of which more than one level is among the values.
func (d *data) varied(src definition.Source) (out []string) {
	for _, f := range d.factors {
		if len(d.pick(src, []string{f.Name})) > 1 {
			out = append(out, f.Name)
		}
	}
	return out
}

// fewLabels is the largest number of values of a label that are distinguished by default:
// directions, not pairs of hosts.
const fewLabels = 4

// labels are those of a metric that tell a few kinds of values apart.
func (d *data) labels(src definition.Source) (out []string) {
	values := map[string]map[string]bool{}
	for i := range d.counted {
		s := &d.counted[i]
		if src.Probe != "" && s.Probe != src.Probe {
			continue
		}
		for _, m := range measurements(s, src.Metric) {
			if !d.holds(src.Where, s, &m) {
				continue
			}
			for key, v := range m.Labels {
				if values[key] == nil {
					values[key] = map[string]bool{}
				}
				if len(values[key]) <= fewLabels {
					values[key][v] = true
				}
			}
		}
	}
	factors := d.varied(src)
	for key, seen := range values {
		// To: "h${hops}" tells nothing new.
		if len(seen) > 1 && len(seen) <= fewLabels && !d.determined(src, factors, key) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// determined reports whether the levels of other dimensions determine that of a factor (by zip), or
// of a label.
func (d *data) determined(src definition.Source, by []string, factor string) bool {
	return len(d.pick(src, by)) == len(d.pick(src, append(slices.Clone(by), factor)))
}

// bestX is the numeric factor with the most levels, or any with the most.
func (d *data) bestX(free, taken []string) (best string) {
	most := -1
	for _, f := range d.factors {
		if !slices.Contains(free, f.Name) || slices.Contains(taken, f.Name) {
			continue
		}
		score := len(f.Levels)
		if d.numeric(f.Name) {
			score += maxCategories
		}
		if score > most {
			most, best = score, f.Name
		}
	}
	return best
}

// numeric reports whether all levels of a factor are numbers.
func (d *data) numeric(factor string) bool {
	if factor == roundDimension {
		return d.run.Header.Experiment.Rounds > 1
	}
	for _, f := range d.factors {
		if f.Name == factor {
			return len(f.Levels) > 1 && !slices.ContainsFunc(f.Levels, func(l string) bool { return !isNumber(l) })
		}
	}
	return false
}

func isNumber(s string) bool {
	v, err := strconv.ParseFloat(s, 64)
	return err == nil && math.Abs(v) < usableValue
}

// display returns the unit for displaying values, and the factor to convert them.
func display(want string, groups []*group, src definition.Source) (string, float64) {
	unit := groups[0].unit
	if src.Each == "count" {
		return "1", 1
	}
	if want == "" {
		typical := lists.Map(groups, func(g *group) float64 { return math.Abs(stats.Quantile(g.values(src), 0.5)) })
		want = definition.Suitable(unit, stats.Quantile(typical, 0.5))
	}
	if factor, ok := definition.Convert(unit, want); ok {
		if want == "us" {
			want = "µs"
		}
		return name(want), factor
	}
	return name(unit), 1
}

// points makes those of lines, bars and boxes.
func (d *data) points(f *Figure, def *definition.Figure, groups []*group, factor float64) {
	offset := 0
	if def.X != "" {
		offset = 1
	}
	places := d.places(f, def, groups)
	for _, g := range groups {
		place, ok := 0.0, true
		label := ""
		if offset > 0 {
			place, ok = places[g.levels[0]]
			label = name(g.levels[0])
		}
		if !ok {
			continue
		}
		s := f.series(seriesName(def.Series, g.levels[offset:]))
		p := d.point(g, def, factor)
		p.X, p.Name = place, label
		s.Points = append(s.Points, p)
	}
}

// places are those of the levels on the x axis: numbers, or one after the other.
func (d *data) places(f *Figure, def *definition.Figure, groups []*group) map[string]float64 {
	out := map[string]float64{}
	if def.X == "" {
		f.X.Categories = []string{""}
		return out
	}
	for _, g := range groups {
		level := g.levels[0]
		if _, seen := out[level]; seen || len(out) >= maxCategories {
			continue
		}
		if def.Kind == definition.Line && d.numeric(def.X) && isNumber(level) {
			out[level], _ = strconv.ParseFloat(level, 64)
			continue
		}
		out[level] = float64(len(f.X.Categories))
		f.X.Categories = append(f.X.Categories, name(level))
	}
	return out
}

// series is the one of a name, which is made where there is none.
func (f *Figure) series(name string) *Series {
	for i := range f.Series {
		if f.Series[i].Name == name {
			return &f.Series[i]
		}
	}
	f.Series = append(f.Series, Series{Name: name})
	return &f.Series[len(f.Series)-1]
}

func seriesName(dimensions, levels []string) string {
	var words []string
	for i, l := range levels {
		words = append(words, name(levelText(dimensions[i], l)))
	}
	return strings.Join(words, ", ")
}

// levelText is a level that can be told from those of other factors.
func levelText(dimension, level string) string {
	if level == "" || isNumber(level) || level == "true" || level == "false" {
		return dimension + " " + level
	}
	return level
}

func (d *data) point(g *group, def *definition.Figure, factor float64) Point {
	values := g.values(def.Source)
	v := g.verdict()
	p := Point{N: len(values), Level: v.Level, Why: why(v), Low: stats.None, High: stats.None}
	if def.Kind == definition.Box {
		p.Box = box(values, factor)
		p.Y = p.Box.Median
		return p
	}
	s := d.summary(values)
	p.Y = s.Mean * factor
	if def.Y == definition.Median {
		p.Y = s.Median * factor
	}
	if i := d.interval(g, s, def.Source, def.Y); i != nil {
		p.Low, p.High = stats.Float(i.Low*factor), stats.Float(i.High*factor)
	}
	if len(values) <= maxShown {
		p.Values = scaled(values, factor)
	}
	return p
}

func scaled(xs []float64, factor float64) []float64 {
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i] = x * factor
	}
	return out
}

// why are the reasons of a verdict in a line.
func why(v environment.Verdict) string {
	words := lists.Map(v.Reasons, func(r environment.Reason) string { return name(r.Text) })
	if more := len(words) - 3; more > 0 {
		words = append(words[:3], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, "; ")
}

func box(values []float64, factor float64) *BoxPlot {
	xs := scaled(values, factor)
	slices.Sort(xs)
	b := &BoxPlot{Q1: stats.Quantile(xs, 0.25), Median: stats.Quantile(xs, 0.5), Q3: stats.Quantile(xs, 0.75)}
	reach := 1.5 * (b.Q3 - b.Q1)
	b.Low, b.High = b.Q1, b.Q3
	for _, x := range xs {
		if x >= b.Q1-reach && x <= b.Q3+reach {
			b.Low, b.High = min(b.Low, x), max(b.High, x)
		} else {
			b.Out = append(b.Out, x)
		}
	}
	b.Out = thin(b.Out, maxShown)
	return b
}

// thin returns some of many values, evenly spaced, including the first and the last.
func thin(xs []float64, most int) []float64 {
	if len(xs) <= most {
		return xs
	}
	out := make([]float64, most)
	for i := range out {
		out[i] = xs[i*(len(xs)-1)/(most-1)]
	}
	return out
}
