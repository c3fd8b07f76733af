package report

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/stats"
)

// profile is what one repetition has along a factor: a value at each level.
type profile struct {
	slots  []slot // by level; of several values the first one's, without its pair
	values []float64
}

// slopes are those of two sides at a place, one per repetition.
type slopes struct {
	place  string
	x, y   []float64
	paired bool
	unit   string  // in which they are shown
	of     string  // that of the metric, as it was measured
	factor float64 // from that to what is shown
}

// slope tests statements about slopes, at each combination of the levels of all other factors. That
// of a repetition is the slope of the line of least squares through its values, so that what a
// repetition has in common at all levels is not in it.
func (d *data) slope(out *Trend, t definition.Trend) {
	all, without, err := d.slopePlaces(t)
	if err != nil {
		out.Outcome, out.Why = NotMeasured, err.Error()
		return
	}
	var verdicts []verdict
	var compared []comparison
	for _, s := range all {
		switch {
		case t.Limit != nil:
			compared = append(compared, d.judge.limited(s, t))
		case t.Is == definition.Times:
			verdicts = append(verdicts, d.judge.slopeRatio(s, t, len(all)))
		default:
			compared = append(compared, d.sides(t, s.x, s.y, s.paired, s.place, s.unit, s.factor))
		}
	}
	if t.Is == definition.Times {
		out.unite(verdicts, "place")
	} else {
		d.order(out, t, compared)
	}
	if out.Outcome == Holds && without != nil {
		out.open(out.Why+"; not "+without.Error(), needs{})
	}
}

// slopePlaces are the slopes at all places where both sides have any; against a limit, where one
// has. Without says of one where there are values and no slopes why that is.
func (d *data) slopePlaces(t definition.Trend) (out []slopes, without, err error) {
	free := t
	free.Along = ""
	dims := slices.DeleteFunc(d.placesOf(free), func(f string) bool { return f == t.Along })
	ours := d.pick(t.Source, append(slices.Clone(dims), t.Along))
	theirs := ours
	if t.Limit == nil {
		theirs = d.pick(otherSide(t), append(slices.Clone(dims), t.Along))
	}
	err = fmt.Errorf("there are no values of both")
	if t.Limit != nil {
		err = fmt.Errorf("there are no values")
	}
	for len(ours) > 0 {
		place := ours[0].levels[:len(dims)]
		elsewhere := func(g *group) bool { return !slices.Equal(g.levels[:len(dims)], place) }
		a := slices.DeleteFunc(slices.Clone(ours), elsewhere)
		b := slices.DeleteFunc(slices.Clone(theirs), elsewhere)
		ours = slices.DeleteFunc(slices.Clone(ours), func(g *group) bool { return !elsewhere(g) })
		a, b = alike(a, b), alike(b, a)
		at, wrong := numbered(a, t.Along, 2)
		if wrong != nil {
			err = wrong
			without = fmt.Errorf("%s%w", placeName(dims, place), wrong)
			continue
		}
		s := slopes{place: placeName(dims, place), of: a[0].unit}
		s.x, s.y, s.paired = pairedSlopes(profiles(a, t.Each), profiles(b, t.Each), at)
		if len(s.x) == 0 || len(s.y) == 0 {
			err = fmt.Errorf("no repetition has values for all levels of %s", name(t.Along))
			without = fmt.Errorf("%s%w", s.place, err)
			continue
		}
		s.unit, s.factor = display(t.Unit, a, t.Source)
		s.unit = join(s.unit, "per "+name(t.Along))
		out = append(out, s)
	}
	if len(out) > 0 {
		err = nil
	}
	return out, without, err
}

func join(unit, per string) string {
	if unit == "" || unit == "1" {
		return per
	}
	return unit + " " + per
}

// alike are the groups whose levels others have, too.
func alike(groups, others []*group) []*group {
	return slices.DeleteFunc(slices.Clone(groups), func(g *group) bool {
		return !slices.ContainsFunc(others, func(o *group) bool { return slices.Equal(o.levels, g.levels) })
	})
}

// numbered returns the positions of groups along a factor, which must be numbers, at least so many.
func numbered(groups []*group, along string, least int) (at []float64, err error) {
	for _, g := range groups {
		level := g.levels[len(g.levels)-1]
		if !isNumber(level) {
			return nil, fmt.Errorf("%s %s is not a number, so there is no slope along it", name(along), name(level))
		}
		at = append(at, number(level))
	}
	if len(groups) < least {
		return nil, fmt.Errorf("there are values for %s of %s; this takes %d", words.Plural(len(groups), "level"),
			name(along), least)
	}
	return at, nil
}

// profiles are those of the repetitions that have values in all groups, in their order. Several
// values of a repetition in a group count as their mean.
func profiles(groups []*group, each string) (out []profile) {
	var numbers []int
	found := map[int][][]*repetition{}
	for i, g := range groups {
		for _, r := range g.reps {
			n := r.slot.number
			if found[n] == nil {
				numbers, found[n] = append(numbers, n), make([][]*repetition, len(groups))
			}
			found[n][i] = append(found[n][i], r)
		}
	}
	for _, n := range numbers {
		c := profile{}
		for _, reps := range found[n] {
			values := lists.Map(reps, func(r *repetition) float64 { return r.one(each) })
			switch len(reps) {
			case 0:
				continue
			case 1:
				c.slots = append(c.slots, reps[0].slot)
			default:
				c.slots = append(c.slots, slot{number: n})
			}
			c.values = append(c.values, mean(values))
		}
		if len(c.values) == len(groups) {
			out = append(out, c)
		}
	}
	return out
}

// partnered reports whether all of a profile was measured directly beside something.
func (c profile) partnered() bool {
	return !slices.ContainsFunc(c.slots, func(s slot) bool { return s.pair == "" })
}

// pairedSlopes returns the slopes of profiles whose levels are at these positions: of both sides by
// pairs, in the same order, where all were measured directly beside each other.
func pairedSlopes(a, b []profile, at []float64) (x, y []float64, paired bool) {
	rising := func(c profile) float64 {
		_, slope := stat.LinearRegression(at, c.values, nil, false)
		return slope
	}
	alone := func(c profile) bool { return !c.partnered() }
	if !slices.ContainsFunc(a, alone) && !slices.ContainsFunc(b, alone) {
		for _, c := range a {
			if i := slices.IndexFunc(b, func(o profile) bool { return slices.Equal(o.slots, c.slots) }); i >= 0 {
				x, y = append(x, rising(c)), append(y, rising(b[i]))
			}
		}
		if len(x) >= 2 {
			return x, y, true
		}
	}
	x, y = nil, nil
	for _, c := range a {
		x = append(x, rising(c))
	}
	for _, c := range b {
		y = append(y, rising(c))
	}
	return x, y, false
}

// slopeRatio tests how many times one slope is the other.
func (j *judge) slopeRatio(s slopes, t definition.Trend, places int) verdict {
	v := j.ratio(t, s.x, s.y, s.paired, places, s.place)
	v.why += fmt.Sprintf(" (%s against %s)", Number(mean(s.x)*s.factor), withUnit(mean(s.y)*s.factor, s.unit))
	return v
}

// limited tests slopes against a number by Student's t, of two sides: what is beyond the interval
// of their mean is shown.
func (j *judge) limited(s slopes, t definition.Trend) comparison {
	p := comparison{name: s.place, above: 1, below: 1}
	m := mean(s.x)
	limit, ok := limitOf(t, s.of)
	p.why = withUnit(m*s.factor, s.unit)
	switch {
	case !ok:
		p.more.text = "; it is not measured in " + name(t.Unit)
		return p
	case len(s.x) < enough:
		p.more = tooFew(len(s.x))
		return p
	}
	half := stats.HalfWidth(s.x, 1-j.of(alpha))
	p.why += " " + Interval(&stats.Interval{Low: m - half, High: m + half}, s.factor)
	off := math.Sqrt(stat.Variance(s.x, nil) / float64(len(s.x)))
	beyond := 2 * distuv.StudentsT{Sigma: 1, Nu: float64(len(s.x) - 1)}.Survival(math.Abs(m-limit)/off)
	switch {
	case m == limit:
	case m > limit:
		p.above = beyond
	default:
		p.below = beyond
	}
	if m-half <= limit && limit <= m+half {
		p.more = would(len(s.x), off, math.Abs(m-limit))
	}
	return p
}

// curvature tests whether values rise or fall by a line: by Fieller's interval of how far the
// parabolas of least squares through the repetitions bend, as a share of what they rise.
func (d *data) curvature(out *Trend, t definition.Trend) {
	groups := d.pick(t.Source, []string{t.Along})
	at, err := numbered(groups, t.Along, 3)
	if err != nil {
		out.Outcome, out.Why = NotMeasured, err.Error()
		return
	}
	var bends, rises []float64
	for _, c := range profiles(groups, t.Each) {
		bend, rise := parabola(at, c.values)
		bends, rises = append(bends, bend), append(rises, rise)
	}
	first, last := slices.Index(at, slices.Min(at)), slices.Index(at, slices.Max(at))
	unit, factor := display(t.Unit, groups, t.Source)
	line := fmt.Sprintf("%s → %s", Number(mean(groups[first].values(t.Source))*factor),
		withUnit(mean(groups[last].values(t.Source))*factor, unit))
	if len(bends) < enough {
		out.open(line, needs{fmt.Sprintf("; too few: %s with all levels, take at least %d",
			words.Plural(len(bends), "repetition"), enough), enough})
		return
	}
	share, narrow, err := stats.Fieller(bends, rises, true, 1-2*d.judge.of(alpha))
	_, wide, also := stats.Fieller(bends, rises, true, 1-d.judge.of(alpha))
	if err != nil || also != nil {
		low, high := groups[first].values(t.Source), groups[last].values(t.Source)
		out.open(line+"; neither a rise nor a fall is shown", more(low, high, false, 0))
		return
	}
	line += fmt.Sprintf("; it bends by %s of its rise %s", percent(share), Interval(&wide, 100))
	switch {
	case narrow.Within(-t.Within, t.Within):
		out.Outcome, out.Why = Holds, line
	case wide.Low > t.Within || wide.High < -t.Within:
		out.Outcome, out.Why = Fails, line
	default:
		off := standardError(bends, scaled(rises, share), true) / math.Abs(mean(rises))
		out.open(line, would(len(bends), off, math.Abs(t.Within-math.Abs(share))))
	}
}

// parabola fits one by least squares. It returns how far that is from its chord in the middle
// between the first position and the last, positive where it is below, and what it rises from the
// one to the other.
func parabola(at, values []float64) (bend, rise float64) {
	low, high := slices.Min(at), slices.Max(at)
	powers := mat.NewDense(len(at), 3, nil)
	for i, x := range at {
		u := (2*x - low - high) / (high - low)
		powers.SetRow(i, []float64{1, u, u * u})
	}
	var fit mat.VecDense
	if fit.SolveVec(powers, mat.NewVecDense(len(values), values)) != nil {
		return math.NaN(), math.NaN() // fewer than three positions, which numbered refuses
	}
	return fit.AtVec(2), 2 * fit.AtVec(1)
}
