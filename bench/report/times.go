package report

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/stat"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/stats"
)

// verdict is what was found at a place, or a level.
type verdict struct {
	outcome Outcome
	why     string
	more    needs
}

// unite combines the verdicts of several places: the statement must hold at each, and fails if it
// fails at one.
func (out *Trend) unite(all []verdict, what string) {
	holds := 0
	var open []needs
	first := ""
	for i := range all {
		switch v := &all[i]; v.outcome {
		case Holds:
			holds++
		case Fails:
			out.Outcome, out.Why = Fails, v.why
			return
		default:
			if open == nil {
				first = v.why
			}
			open = append(open, v.more)
		}
	}
	switch {
	case holds == len(all):
		out.Outcome, out.Why = Holds, all[0].why
		if len(all) > 1 {
			out.Why = fmt.Sprintf("at all %d %ss, as %s", len(all), what, all[0].why)
		}
	case len(all) == 1:
		out.open(first, open[0])
	default:
		out.open(fmt.Sprintf("shown at %d of %s; not at %s", holds, words.Plural(len(all), what), first),
			together(open))
	}
}

// together is what would tell all of several: in words as for the first, in repetitions as for the
// one that takes most.
func together(all []needs) needs {
	out := all[0]
	for _, n := range all[1:] {
		if n.repetitions == 0 || out.repetitions == 0 {
			out.repetitions = 0
			break
		}
		out.repetitions = max(out.repetitions, n.repetitions)
	}
	return out
}

// times tests whether one thing is so many times another, by the interval of the ratio of the
// means: it holds if that lies within the margin (an equivalence test), and fails if it lies
// outside.
func (d *data) times(out *Trend, t definition.Trend) {
	dims := d.placesOf(t)
	places := d.both(t, d.pick(t.Source, dims), dims)
	if len(places) == 0 {
		out.Outcome, out.Why = NotMeasured, "there are no values of both"
		return
	}
	var all []verdict
	for _, p := range places {
		x, y, paired := twoGroups(p[0], p[1], t.Source)
		all = append(all, d.judge.ratio(t, x, y, paired, len(places), placeName(dims, p[0].levels)))
	}
	out.unite(all, "place")
}

func (j *judge) ratio(t definition.Trend, x, y []float64, paired bool, places int, place string) verdict {
	v := verdict{outcome: CannotTell}
	inner, narrow, err := stats.Fieller(x, y, paired, 1-2*j.of(alpha))
	if err != nil {
		v.why = place + err.Error()
		return v
	}
	_, wide, err := stats.Fieller(x, y, paired, 1-j.of(alpha/float64(places)))
	if err != nil {
		v.why = place + err.Error()
		return v
	}
	low, high := t.Factor*(1-t.Within), t.Factor*(1+t.Within)
	v.why = fmt.Sprintf("%s%s times %s", place, Number(inner), Interval(&wide, 1))
	switch {
	case min(len(x), len(y)) < enough:
		v.more = tooFew(min(len(x), len(y)))
	case narrow.Within(low, high):
		v.outcome = Holds
	case wide.High < low || wide.Low > high:
		v.outcome = Fails
	default:
		err := standardError(x, scaled(y, inner), paired) / math.Abs(mean(y)) // of the ratio, to the first order
		v.more = would(min(len(x), len(y)), err, min(math.Abs(inner-low), math.Abs(inner-high)))
		v.more.text = fmt.Sprintf(", which is neither shown to be from %s to %s nor not to be%s", Number(low),
			Number(high),
			v.more.text)
	}
	return v
}

// linear tests whether the levels' means lie on a rising or falling line: it holds if each is shown
// to be closer to the line than a share of the line's rise, and fails if one is shown not to be.
func (d *data) linear(out *Trend, t definition.Trend) {
	groups, places := d.along(t)
	if len(groups) < 3 {
		out.Outcome, out.Why = NotMeasured, fmt.Sprintf("there are values for %s of %s; a line takes three",
			words.Plural(len(groups), "level"), name(t.Along))
		return
	}
	means, xs, ys := make([]float64, len(groups)), []float64{}, []float64{}
	for i, g := range groups {
		values := g.values(t.Source)
		means[i] = mean(values)
		for _, v := range thin(values, 4000/len(groups)+2) {
			xs, ys = append(xs, places[i]), append(ys, v)
		}
	}
	at, slope := stat.LinearRegression(places, means, nil, false)
	rise := math.Abs(slope * (places[len(places)-1] - places[0]))
	unit, factor := display(t.Unit, groups, t.Source)
	tau, p := kendall(xs, ys)
	line := fmt.Sprintf("%s → %s (Kendall's τ = %.2f, %s)", Number(means[0]*factor),
		withUnit(means[len(means)-1]*factor, unit), tau, P(p))
	if p >= d.judge.of(alpha) {
		first, last := groups[0].values(t.Source), groups[len(groups)-1].values(t.Source)
		out.open(line+": neither a rise nor a fall is shown", more(first, last, false, 0))
		return
	}
	var all []verdict
	for i, g := range groups {
		off := means[i] - (at + slope*places[i])
		v := verdict{outcome: CannotTell, why: fmt.Sprintf("%s %s: %s off the line, %s of its rise", name(t.Along),
			name(g.levels[0]), withUnit(off*factor, unit), percent(math.Abs(off)/rise))}
		values := g.values(t.Source)
		if len(values) < enough {
			v.more = tooFew(len(values))
		} else {
			half := stats.HalfWidth(values, 1-2*d.judge.of(alpha))
			switch wide := stats.HalfWidth(values, 1-d.judge.of(alpha/float64(len(groups)))); {
			case math.Abs(off)+half <= t.Within*rise:
				v.outcome = Holds
			case math.Abs(off)-wide > t.Within*rise:
				v.outcome = Fails
			default:
				n := len(values)
				v.more = would(n, math.Sqrt(stat.Variance(values, nil)/float64(n)),
					math.Abs(math.Abs(off)-t.Within*rise))
				v.more.text = "; its own spread is too large to tell" + v.more.text
			}
		}
		all = append(all, v)
	}
	out.unite(all, "level")
	out.Why = line + "; " + strings.TrimPrefix(out.Why, "; ")
}
