package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/stats"
)

// comparison is a comparison of one thing with another, or with a limit, at one place.
type comparison struct {
	name  string
	why   string
	more  needs
	above float64 // p value of the hypothesis that it is not above
	below float64 // p value of the hypothesis that it is not below
}

// ordered tests above and below: it holds if it is shown at each place, and fails if the opposite
// is shown at one.
func (d *data) ordered(out *Trend, t definition.Trend) {
	places := d.comparePlaces(t)
	if len(places) == 0 {
		out.Outcome, out.Why = NotMeasured, "there are no values of both"
		if t.Limit != nil {
			out.Why = "there are no values"
		}
		return
	}
	d.order(out, t, places)
}

// order combines the comparisons at all places.
func (d *data) order(out *Trend, t definition.Trend, places []comparison) {
	holds, against := 0, make([]float64, len(places))
	var first, contrary *comparison
	var open []needs
	for i := range places {
		p := &places[i]
		want, not := p.above, p.below
		if t.Is == definition.Below {
			want, not = not, want
		}
		against[i] = not
		if want < d.judge.of(alpha) {
			holds++
			continue
		}
		if open = append(open, p.more); first == nil {
			first = p
		}
	}
	for i, shown := range d.judge.significant(against) {
		if shown && contrary == nil {
			contrary = &places[i]
		}
	}
	switch {
	case holds == len(places):
		out.Outcome = Holds
		out.Why = summarize(places)
	case contrary != nil:
		out.Outcome, out.Why = Fails, contrary.name+contrary.why
	case len(places) == 1:
		out.open(first.name+first.why, first.more)
	default:
		out.open(fmt.Sprintf("shown at %d of %s; not at %s%s", holds, words.Plural(len(places), "place"), first.name,
			first.why), together(open))
	}
}

func summarize(places []comparison) string {
	if len(places) == 1 {
		return places[0].name + places[0].why
	}
	return fmt.Sprintf("at all %d places, as %s%s", len(places), places[0].name, places[0].why)
}

// comparePlaces are the combinations of levels of the factor along which it goes, or of all that
// are not fixed.
func (d *data) comparePlaces(t definition.Trend) (out []comparison) {
	dims := d.placesOf(t)
	groups := d.pick(t.Source, dims)
	if len(groups) == 0 {
		return nil
	}
	unit, factor := display(t.Unit, groups, t.Source)
	if t.Limit != nil {
		for _, g := range groups {
			out = append(out, d.againstLimit(t, g, len(groups), dims, unit, factor))
		}
		return out
	}
	for _, p := range d.both(t, groups, dims) {
		out = append(out, d.against(t, p[0], p[1], dims, unit, factor))
	}
	return out
}

// placesOf are the dimensions at each of whose levels two sides are compared.
func (d *data) placesOf(t definition.Trend) (dims []string) {
	if t.Along != "" {
		return []string{t.Along}
	}
	for _, f := range d.factors {
		if t.Where.Get(f.Name) == nil && t.Than.Get(f.Name) == nil {
			dims = append(dims, f.Name)
		}
	}
	return dims
}

// both are the groups of each place where there are values of both sides.
func (d *data) both(t definition.Trend, groups []*group, dims []string) (out [][2]*group) {
	others := d.pick(otherSide(t), dims)
	for _, g := range groups {
		if i := slices.IndexFunc(others, func(o *group) bool { return slices.Equal(o.levels, g.levels) }); i >= 0 {
			out = append(out, [2]*group{g, others[i]})
		}
	}
	return out
}

// otherSide returns what a statement compares with; parts of its condition that the other side does
// not override hold for both.
func otherSide(t definition.Trend) definition.Source {
	other := t.Source
	other.Where = slices.Clone(t.Than)
	for _, l := range t.Where {
		if t.Than.Get(l.Dimension) == nil {
			other.Where = append(other.Where, l)
		}
	}
	return other
}

func placeName(dims, levels []string) string {
	var words []string
	for i, l := range levels {
		words = append(words, name(dims[i]+" "+l))
	}
	if len(words) == 0 {
		return ""
	}
	return strings.Join(words, ", ") + ": "
}

// against tests one group against another, shifted by the margin.
func (d *data) against(t definition.Trend, g, h *group, dims []string, unit string, factor float64) comparison {
	x, y, paired := twoGroups(g, h, t.Source)
	return d.sides(t, x, y, paired, placeName(dims, g.levels), unit, factor)
}

// sides tests the mean of some values against that of others, shifted by the margin.
func (d *data) sides(t definition.Trend, x, y []float64, paired bool, place, unit string, factor float64) comparison {
	a, b := mean(x), mean(y)
	shift := t.Within * math.Abs(b)
	if t.Is == definition.Below {
		shift = -shift
	}
	p := comparison{name: place, above: 1, below: 1}
	p.why = fmt.Sprintf("%s against %s (%s)", Number(a*factor), withUnit(b*factor, unit), signed(relative(a-b, b)))
	difference, two, err := differs(x, y, paired, shift)
	p.more = more(x, y, paired, shift)
	if err != nil || min(len(x), len(y)) < enough {
		return p
	}
	p.above, p.below = 1-two/2, two/2
	if difference > shift {
		p.above, p.below = two/2, 1-two/2
	}
	if difference == shift && flat(x) && flat(y) { // the same, without spread: neither above nor below
		p.above, p.below = 1, 1
		if t.Is == definition.Above {
			p.below = 0
		} else {
			p.above = 0
		}
	}
	return p
}

// limitOf is a statement's limit in the unit that something is measured in; false: it cannot be.
func limitOf(t definition.Trend, unit string) (limit float64, ok bool) {
	if t.Unit == "" {
		return *t.Limit, true
	}
	factor, ok := definition.Convert(t.Unit, unit)
	return factor * *t.Limit, ok
}

// againstLimit uses the interval of the mean: a one-sided test of half the level. What is against a
// statement at one of so many places is shown only if it also is at the level of its share
// (Bonferroni), as one of them is enough to refute the statement; to hold, all have to be shown.
func (d *data) againstLimit(t definition.Trend, g *group, places int, dims []string,
	unit string, factor float64) comparison {
	values := g.values(t.Source)
	s := d.summary(values)
	i := d.judging(g, s, t.Source, definition.Mean, alpha)
	p := comparison{name: placeName(dims, g.levels), above: 1, below: 1}
	p.why = withUnit(s.Mean*factor, unit)
	if i != nil {
		p.why += " " + Interval(i, factor)
	}
	limit, ok := limitOf(t, g.unit)
	if !ok {
		p.more.text = "; it is not measured in " + name(t.Unit)
		return p
	}
	if i == nil {
		p.more = tooFew(len(values))
		return p
	}
	above, below := i, i // the intervals that have to lie beyond it
	contrary := &below
	if t.Is == definition.Below {
		contrary = &above
	}
	if strict := d.judging(g, s, t.Source, definition.Mean, alpha/float64(places)); places > 1 {
		*contrary = &stats.Interval{Low: min(i.Low, strict.Low), High: max(i.High, strict.High)}
	}
	switch {
	case i.Method == "Wilson" && s.Max == 0 && below.High >= limit && limit > 0 && limit < 1:
		z := distuv.UnitNormal.Quantile(1 - d.judge.of(alpha)/2)
		if t.Is == definition.Above {
			z = distuv.UnitNormal.Quantile(1 - d.judge.of(alpha/float64(places))/2)
		}
		packets := math.Ceil(1.002 * z * z * (1 - limit) / limit)
		_, of := g.share()
		p.more = needs{fmt.Sprintf("; too few to tell, about %.0f would do", packets),
			max(len(values)+1, int(math.Ceil(packets*float64(len(values))/float64(of))))}
	case above.Low > limit:
		p.above = 0
	case below.High < limit:
		p.below = 0
	default:
		p.more = would(len(values), float64(s.Deviation)/math.Sqrt(float64(len(values))), math.Abs(s.Mean-limit))
		p.more.text = fmt.Sprintf("; %s cannot tell", words.Plural(len(values), "repetition")) + p.more.text
	}
	return p
}
