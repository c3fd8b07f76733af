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
	outcome   Outcome
	why, more string
}

// unite combines the verdicts of several places: the statement must hold at each, and fails if it
// fails at one.
func (out *Trend) unite(all []verdict, what string) {
	holds := 0
	var open *verdict
	for i := range all {
		switch v := &all[i]; v.outcome {
		case Holds:
			holds++
		case Fails:
			out.Outcome, out.Why = Fails, v.why
			return
		default:
			if open == nil {
				open = v
			}
		}
	}
	switch {
	case holds == len(all):
		out.Outcome, out.Why = Holds, all[0].why
		if len(all) > 1 {
			out.Why = fmt.Sprintf("at all %d %ss, as %s", len(all), what, all[0].why)
		}
	case len(all) == 1:
		out.Outcome, out.Why = CannotTell, open.why+open.more
	default:
		out.Outcome, out.Why = CannotTell, fmt.Sprintf("shown at %d of %s; not at %s%s", holds,
			words.Plural(len(all), what), open.why, open.more)
	}
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
		all = append(all, ratio(t, x, y, paired, len(places), placeName(dims, p[0].levels)))
	}
	out.unite(all, "place")
}

func ratio(t definition.Trend, x, y []float64, paired bool, places int, place string) verdict {
	v := verdict{outcome: CannotTell}
	inner, narrow, err := stats.Fieller(x, y, paired, 1-2*alpha)
	if err != nil {
		v.why = place + err.Error()
		return v
	}
	_, wide, err := stats.Fieller(x, y, paired, 1-alpha/float64(places))
	if err != nil {
		v.why = place + err.Error()
		return v
	}
	low, high := t.Factor*(1-t.Within), t.Factor*(1+t.Within)
	v.why = fmt.Sprintf("%s%s times %s", place, Number(inner), Interval(&wide, 1))
	switch {
	case min(len(x), len(y)) < enough:
		v.more = fmt.Sprintf("; too few: %s, take at least %d", words.Plural(min(len(x), len(y)), "repetition"), enough)
	case narrow.Within(low, high):
		v.outcome = Holds
	case wide.High < low || wide.Low > high:
		v.outcome = Fails
	default:
		v.more = fmt.Sprintf(", which is neither shown to be from %s to %s nor not to be", Number(low), Number(high))
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
	if p >= alpha {
		out.Outcome, out.Why = CannotTell, line+": neither a rise nor a fall is shown"
		return
	}
	var all []verdict
	for i, g := range groups {
		off := means[i] - (at + slope*places[i])
		v := verdict{outcome: CannotTell, why: fmt.Sprintf("%s %s: %s off the line, %s of its rise", name(t.Along),
			name(g.levels[0]), withUnit(off*factor, unit), percent(math.Abs(off)/rise))}
		values := g.values(t.Source)
		if len(values) < enough {
			v.more = fmt.Sprintf("; too few: %s, take at least %d", words.Plural(len(values), "repetition"), enough)
		} else {
			half := stats.HalfWidth(values, 1-2*alpha)
			switch wide := stats.HalfWidth(values, 1-alpha/float64(len(groups))); {
			case math.Abs(off)+half <= t.Within*rise:
				v.outcome = Holds
			case math.Abs(off)-wide > t.Within*rise:
				v.outcome = Fails
			default:
				v.more = "; its own spread is too large to tell"
			}
		}
		all = append(all, v)
	}
	out.unite(all, "level")
	out.Why = line + "; " + strings.TrimPrefix(out.Why, "; ")
}
