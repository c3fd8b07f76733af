package report

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// group is all repetitions with the same levels of the requested dimensions.
type group struct {
	levels []string
	unit   string
	reps   []*repetition

	failed []environment.Verdict // on samples that failed, which would have been in it
	parts  map[int]*part         // of all repetitions, by run
	rounds map[round]*repetition
}

// round is all that was measured of a cell in one round of a campaign.
type round struct {
	cell   string
	number int
}

// repetition counts once in a group: a run, or all runs of a round.
type repetition struct {
	slot  slot
	parts []*part
}

// part is one run's contribution to a group.
type part struct {
	run        int
	values, at []float64
	count, of  int // of a share
	events     []result.Event
	verdicts   []*environment.Verdict // of the run's samples that are in it
}

// pick returns the groups that a source and dimensions make, in the order of the levels.
func (d *data) pick(src definition.Source, dimensions []string) []*group {
	groups := map[string]*group{}
	for i := range d.counted {
		s := &d.counted[i]
		if src.Probe != "" && s.Probe != src.Probe {
			continue
		}
		for _, m := range measurements(s, src.Metric) {
			if d.holds(src.Where, s, &m) {
				d.take(groups, dimensions, s, &m)
			}
		}
	}
	d.fail(groups, src, dimensions)
	out := slices.Collect(maps.Values(groups))
	slices.SortFunc(out, func(a, b *group) int { return d.compareLevels(dimensions, a.levels, b.levels) })
	return out
}

// take puts a measurement into its group, unless it has no values that are of use.
func (d *data) take(groups map[string]*group, dimensions []string, s *result.Sample, m *result.Measurement) {
	levels := d.levels(s, m, dimensions)
	key := strings.Join(levels, "\x00")
	g := groups[key]
	if g == nil {
		g = &group{levels: levels, unit: m.Unit, parts: map[int]*part{}, rounds: map[round]*repetition{}}
	}
	factor, ok := definition.Convert(m.Unit, g.unit)
	values, at := d.usable(m, factor)
	if !ok || len(values) == 0 {
		return
	}
	groups[key] = g
	p := g.part(s, d.run.ByRound && s.Round > 0)
	p.values, p.at = append(p.values, values...), append(p.at, at...)
	p.count, p.of = p.count+m.Count, p.of+m.Of
	if !slices.Contains(p.verdicts, s.Verdict) {
		p.verdicts = append(p.verdicts, s.Verdict)
	}
}

// sums are the aggregates that are too small if a part of a run is missing.
var sums = []string{"sum", "count"}

// fail adds failed samples to the groups to which they belong. In runs that are summed up, the
// values of the other samples are dropped: they are less than the sum or the count. A probe belongs
// to the groups for which it has values elsewhere.
func (d *data) fail(groups map[string]*group, src definition.Source, dimensions []string) {
	gives := map[string]bool{}
	for i := range d.counted {
		s := &d.counted[i]
		gives[s.Probe] = gives[s.Probe] || len(measurements(s, src.Metric)) > 0
	}
	for i := range d.counted {
		s := &d.counted[i]
		if s.Failure == "" || !gives[s.Probe] || src.Probe != "" && s.Probe != src.Probe || !d.holds(src.Where, s,
			nil) {
			continue
		}
		for key, g := range groups {
			if !d.mayBelong(s, dimensions, g.levels) {
				continue
			}
			g.failed = append(g.failed, s.Judged())
			if slices.Contains(sums, src.Each) {
				g.drop(s.Run)
			}
			if len(g.reps) == 0 {
				delete(groups, key)
			}
		}
	}
}

// mayBelong reports whether a failed sample may have the given levels; labels, which it lacks,
// count as matching.
func (d *data) mayBelong(s *result.Sample, dimensions, levels []string) bool {
	for i, dim := range dimensions {
		if level, ok := d.level(s, nil, dim); ok && level != levels[i] {
			return false
		}
	}
	return true
}

// drop removes what a run gave, and its repetition where that has nothing else.
func (g *group) drop(run int) {
	p := g.parts[run]
	if p == nil {
		return
	}
	delete(g.parts, run)
	g.reps = slices.DeleteFunc(g.reps, func(r *repetition) bool {
		r.parts = slices.DeleteFunc(r.parts, func(other *part) bool { return other == p })
		return len(r.parts) == 0
	})
}

// part is that of the sample's run, which may have other samples where probes are taken together; a
// new one where there is none, in a repetition of its own or in that of its cell's round.
func (g *group) part(s *result.Sample, byRound bool) *part {
	if p := g.parts[s.Run]; p != nil {
		return p
	}
	p := &part{run: s.Run, events: s.Events}
	g.parts[s.Run] = p
	whole := round{s.Cell, s.Round}
	r := g.rounds[whole]
	if r == nil || !byRound {
		r = &repetition{slot: slot{s.Repetition, s.Pair}}
		if byRound {
			r.slot.number, g.rounds[whole] = s.Round, r
		}
		g.reps = append(g.reps, r)
	}
	r.parts = append(r.parts, p)
	return p
}

// values are those of all runs. They are not to be changed.
func (r *repetition) values() (out []float64) {
	if len(r.parts) == 1 { // as nearly always: there may be very many
		return r.parts[0].values
	}
	for _, p := range r.parts {
		out = append(out, p.values...)
	}
	return out
}

// share is how many of how many.
func (r *repetition) share() (count, of int) {
	for _, p := range r.parts {
		count, of = count+p.count, of+p.of
	}
	return count, of
}

// one returns the value of a repetition: the mean of its values, or for a share that of all its
// packets. With another aggregate per run, a round is the mean of its runs.
func (r *repetition) one(each string) float64 {
	if each == "" || each == definition.Mean {
		count, of := r.share()
		return result.Mean(r.values(), count, of)
	}
	all := lists.Map(r.parts, func(p *part) float64 { return p.one(each) })
	return mean(all)
}

// one is what stands for a run by anything but the mean.
func (p *part) one(each string) float64 {
	switch each {
	case definition.Median:
		return stats.Quantile(p.values, 0.5)
	case "min":
		return slices.Min(p.values)
	case "max":
		return slices.Max(p.values)
	case "p5", "p95", "p99":
		percent, _ := strconv.ParseFloat(each[1:], 64)
		return stats.Quantile(p.values, percent/100)
	case "sum":
		return total(p.values)
	case "first":
		return p.values[0]
	case "last":
		return p.values[len(p.values)-1]
	case "count":
		return float64(len(p.values))
	}
	return mean(p.values) // an unknown word is refused where it is read
}

// values of a group: one a repetition, or all.
func (g *group) values(src definition.Source) (out []float64) {
	for _, r := range g.reps {
		if src.Of == definition.Values {
			out = append(out, r.values()...)
		} else {
			out = append(out, r.one(src.Each))
		}
	}
	return out
}

// share is that of all packets of a group.
func (g *group) share() (count, of int) {
	for _, r := range g.reps {
		c, o := r.share()
		count, of = count+c, of+o
	}
	return count, of
}

// judged returns the verdict on a run: that of its worst sample.
func (p *part) judged() environment.Verdict {
	all := lists.Map(p.verdicts, judged)
	return environment.Worst(all...)
}

// runs are the parts of all repetitions, in their order.
func (g *group) runs() (out []*part) {
	for _, r := range g.reps {
		out = append(out, r.parts...)
	}
	return out
}

// judged returns the verdicts on the runs of a group, even if a round of them is one repetition,
// and on those that failed.
func (g *group) judged() (out []environment.Verdict) {
	for _, p := range g.runs() {
		out = append(out, p.judged())
	}
	return append(out, g.failed...)
}

// verdict returns the combined verdict on the runs of a group.
func (g *group) verdict() environment.Verdict { return environment.Together(g.judged()...) }
