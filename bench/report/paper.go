package report

import (
	"maps"
	"math"
	"slices"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// Paper is what others have published, beside our measurements.
type Paper struct {
	Source  string      `json:"source"`
	Note    string      `json:"note,omitempty"`
	Numbers []Published `json:"numbers,omitempty"`
	Tables  []Table     `json:"tables,omitempty"` // of numbers that are many, and of spreads
	Spreads []Spread    `json:"spreads,omitempty"`
	Trends  []Trend     `json:"trends,omitempty"`
}

// Values says what the values are that statements are judged by.
func (p *Paper) Values() string {
	return "Our values are means of the repetitions, also where a figure or a table has medians."
}

// Counted is a number of statements with the same outcome.
type Counted struct {
	Outcome Outcome
	Count   int
}

// Outcomes counts the statements by what came of them.
func (p *Paper) Outcomes() (out []Counted) {
	return Count(lists.Map(p.Trends, func(t Trend) Outcome { return t.Outcome }))
}

// Count counts outcomes, in the order in which they are told.
func Count(all []Outcome) (out []Counted) {
	counts := map[Outcome]int{}
	for _, o := range all {
		counts[o]++
	}
	needing := slices.DeleteFunc(slices.Sorted(maps.Keys(counts)), func(o Outcome) bool { return !o.Needing() })
	for _, o := range slices.Concat([]Outcome{Holds, Fails, CannotTell}, needing, []Outcome{Contradicts, NotMeasured}) {
		if n := counts[o]; n > 0 {
			out = append(out, Counted{o, n})
		}
	}
	return out
}

// Published is a published number beside ours.
type Published struct {
	Metric   string `json:"metric"`
	Where    string `json:"where"`
	Unit     string `json:"unit"`
	Theirs   string `json:"theirs"`
	Ours     string `json:"ours"` // "" where it was not measured
	Interval string `json:"interval,omitempty"`
	N        int    `json:"n"`
	Ratio    string `json:"ratio,omitempty"` // ours to theirs
	// If the definition says how far off ours may be; otherwise "".
	Outcome Outcome           `json:"outcome,omitempty"`
	Within  string            `json:"within,omitempty"`
	Level   environment.Level `json:"level,omitempty"` // of ours
}

func (d *data) paper(p *definition.Paper) *Paper {
	if p == nil {
		return nil
	}
	out := &Paper{Source: name(p.Source), Note: clip(Clean(p.Note), 2000)}
	var beside []Published
	for _, n := range p.Numbers {
		beside = append(beside, d.beside(n))
	}
	out.Numbers = out.tables(p.Numbers, beside)
	out.spreads(d, p.Spreads)
	for _, t := range p.Trends {
		out.Trends = append(out.Trends, d.trend(t, p))
	}
	return out
}

// beside puts a published number beside ours.
func (d *data) beside(n definition.Number) Published {
	out := Published{Metric: metricTitle(n.Source), Where: describe(n.Where), Unit: name(n.Unit),
		Theirs: exact(n.Value)}
	groups := d.pick(n.Source, nil)
	if len(groups) == 0 {
		return out
	}
	g := groups[0]
	factor, ok := 1.0, true
	if n.Unit != "" {
		factor, ok = definition.Convert(g.unit, n.Unit)
	} else {
		out.Unit = name(g.unit)
	}
	if !ok {
		out.Interval = "ours is in " + name(g.unit)
		return out
	}
	values := g.values(n.Source)
	s := d.summary(values)
	ours := s.Mean
	if n.Y == definition.Median {
		ours = s.Median
	}
	i := d.interval(g, s, n.Source, n.Y)
	out.Level = g.verdict().Level
	out.Ours, out.Interval, out.N = Number(ours*factor), Interval(i, factor), len(values)
	if n.Value != 0 {
		out.Ratio = Number(ours * factor / n.Value)
	}
	if n.Within > 0 {
		out.Within = percent(n.Within)
		out.Outcome = near(n, d.judging(g, s, n.Source, n.Y, alpha), factor)
	}
	return out
}

// near reports whether the whole interval lies within the tolerance.
func near(n definition.Number, i *stats.Interval, factor float64) Outcome {
	margin := n.Within * math.Abs(n.Value)
	switch {
	case i == nil:
		return CannotTell
	case i.Within((n.Value-margin)/factor, (n.Value+margin)/factor):
		return Holds
	case i.High*factor < n.Value-margin || i.Low*factor > n.Value+margin:
		return Fails
	}
	return CannotTell
}

// published adds the paper's numbers to a figure that shows the same.
func (d *data) published(f *Figure, def *definition.Figure, unit string) {
	if d.definition == nil || d.definition.Paper == nil || def.Kind == definition.Box {
		return
	}
	for _, n := range d.definition.Paper.Numbers {
		factor, ok := definition.Convert(n.Unit, unit)
		if n.Metric != def.Metric || n.Probe != "" && def.Probe != "" && n.Probe != def.Probe || !ok || !fits(n.Where,
			def) {
			continue
		}
		x, ok := f.position(def.X, n.Where.Get(def.X))
		if !ok {
			continue
		}
		var levels []string
		for _, dim := range def.Series {
			if l := n.Where.Get(dim); len(l) == 1 {
				levels = append(levels, l[0])
			} else {
				levels = append(levels, "any")
			}
		}
		s := f.series(seriesName(def.Series, levels) + paperMark)
		s.Points = append(s.Points, Point{X: x, Name: name(n.Where.Get(def.X)[0]), Y: n.Value * factor, Low: stats.None,
			High: stats.None})
		s.Paper = true
	}
	for i := range f.Series {
		if s := &f.Series[i]; s.Paper {
			s.Name = s.Name[:len(s.Name)-len(paperMark)]
			s.Points = f.together(s.Points)
		}
	}
}

// together merges points at the same place into their mean: numbers for levels that the figure does
// not distinguish.
func (f *Figure) together(points []Point) (out []Point) {
	slices.SortStableFunc(points, func(a, b Point) int { return int(compare(a.X, b.X)) })
	for from := 0; from < len(points); {
		to, p := from, points[from]
		sum := 0.0
		for ; to < len(points) && points[to].X == p.X; to++ {
			sum += points[to].Y
		}
		if many := to - from; many > 1 {
			p.Y, p.N = sum/float64(many), many
			if note := "The paper's numbers at a place are shown by their mean."; !slices.Contains(f.Notes, note) {
				f.Notes = append(f.Notes, note)
			}
		}
		out, from = append(out, p), to
	}
	return out
}

// paperMark keeps the paper's series apart while they are made; no name can hold it.
const paperMark = "\x00"

// fits reports whether a number belongs in a figure: none of its levels is excluded there.
func fits(c definition.Condition, def *definition.Figure) bool {
	for _, l := range c {
		if allowed := def.Where.Get(l.Dimension); allowed != nil &&
			!slices.ContainsFunc(l.Any, func(a string) bool { return slices.Contains(allowed, a) }) {
			return false
		}
	}
	return true
}

// position is where a level stands on the x axis.
func (f *Figure) position(dimension string, levels []string) (float64, bool) {
	if len(levels) != 1 || dimension == "" {
		return 0, false
	}
	if f.X.Categories == nil {
		return number(levels[0]), isNumber(levels[0])
	}
	i := slices.IndexFunc(f.X.Categories,
		func(c string) bool { return c == name(levels[0]) || sameNumber(c, levels[0]) })
	return float64(i), i >= 0
}
