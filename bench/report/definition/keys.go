package definition

import (
	"maps"
	"math"
	"slices"
	"strings"

	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// source has the keys that all have; where is what its condition is called.
func (r *reader) source(s *Source, where string) map[string]field {
	return map[string]field{
		"title": r.text(&s.Title), "metric": r.text(&s.Metric), "probe": r.text(&s.Probe),
		"each": r.word(&s.Each, eaches), "of": r.word(&s.Of,
			ofs), "unit": r.unit(&s.Unit), "note": r.text(&s.Note), where: r.condition(&s.Where),
	}
}

// named adds fields to those of a source.
func named(fields map[string]field, more map[string]field) map[string]field {
	maps.Copy(fields, more)
	return fields
}

// metric must be there.
func (r *reader) metric(v *yamlfile.Value, s *Source, what string) bool {
	if s.Metric == "" {
		r.add(v, "write metric: rtt", "%s needs a metric", what)
		return false
	}
	r.check(v, s, what == "a number")
	return s.Metric != ""
}

func (r *reader) report(v *yamlfile.Value) {
	r.mapping(v, "report", map[string]field{
		"figures": func(v *yamlfile.Value) {
			for _, item := range r.items(v, maxFigures) {
				r.figure(item)
			}
		},
		"tables": func(v *yamlfile.Value) {
			for _, item := range r.items(v, maxFigures) {
				r.table(item)
			}
		},
		"compare": func(v *yamlfile.Value) {
			for _, item := range r.items(v, maxCompares) {
				r.compare(item)
			}
		},
	})
}

func (r *reader) compare(v *yamlfile.Value) {
	c := Compare{Margins: map[string]Margin{}}
	ok := r.mapping(v, "a comparison", map[string]field{"title": r.text(&c.Title), "note": r.text(&c.Note),
		"factor": r.factor(&c.Factor), "margin": r.margins(c.Margins)})
	switch {
	case !ok:
	case v.Get("factor") == nil:
		r.add(v, "write compare: {factor: place, margin: 5%}", "a comparison is of the levels of a factor")
	case c.Factor != "":
		r.d.Compares = append(r.d.Compares, c)
	}
}

// factor reads the name of one.
func (r *reader) factor(to *string) field {
	return func(v *yamlfile.Value) {
		if r.text(to)(v); *to != "" && !slices.Contains(r.known, *to) {
			r.add(v, hint(*to, r.known), "%s: is not a factor", formats.Clip(*to))
			*to = ""
		}
	}
}

// margins reads 5%, or {rtt: 0.2ms, throughput: 5%}.
func (r *reader) margins(to map[string]Margin) field {
	one := func(metric string, v *yamlfile.Value) {
		var text string
		if r.text(&text)(v); text == "" {
			return
		}
		m, err := ParseMargin(text)
		if err != nil {
			r.add(v, "write margin: 5%, or margin: {rtt: 0.2ms, loss: 0.1pp}", "%s: is not a margin",
				formats.Clip(text))
			return
		}
		to[metric] = m
		r.checkMargin(metric, m, v)
	}
	return func(v *yamlfile.Value) {
		if v.Shape != yamlfile.Mapping {
			one("", v)
			return
		}
		for _, p := range v.Pairs {
			one(p.Key.Text, p.Value)
		}
	}
}

func (r *reader) figure(v *yamlfile.Value) {
	f := Figure{}
	ok := r.mapping(v, "a figure", named(r.source(&f.Source, "where"), map[string]field{
		"kind": r.word(&f.Kind, kinds), "x": r.oneDimension(&f.X), "series": r.dimensions(&f.Series),
		"y": r.word(&f.Y, middles), "scale": r.word(&f.Scale, scales),
	}))
	if ok && r.metric(v, &f.Source, "a figure") {
		r.d.Figures = append(r.d.Figures, f)
	}
}

func (r *reader) table(v *yamlfile.Value) {
	t := Table{}
	ok := r.mapping(v, "a table", named(r.source(&t.Source, "where"), map[string]field{
		"rows": r.dimensions(&t.Rows), "columns": r.dimensions(&t.Columns), "values": r.words(&t.Values,
			columnValues), "gap": r.texts(&t.Gap), "below": r.words(&t.Below, belows),
	}))
	if !ok || !r.metric(v, &t.Source, "a table") {
		return
	}
	if len(t.Gap) > 0 && (len(t.Gap) != 2 || len(t.Rows) != 1) {
		r.add(v.Get("gap"), "write rows: datapath, gap: [embedded, ovs]",
			"gap: takes two levels of the one dimension in rows")
		t.Gap = nil
	}
	r.d.Tables = append(r.d.Tables, t)
}

func (r *reader) paper(v *yamlfile.Value) {
	p := &Paper{}
	r.mapping(v, "paper", map[string]field{
		"source": r.text(&p.Source), "note": r.text(&p.Note),
		"numbers": func(v *yamlfile.Value) {
			for _, item := range r.items(v, maxNumbers) {
				r.publish(item, p)
			}
		},
		"trends": func(v *yamlfile.Value) {
			for _, item := range r.items(v, maxTrends) {
				r.trend(item, p)
			}
		},
	})
	r.d.Paper = p
}

// publish reads one number, or several along a factor.
func (r *reader) publish(v *yamlfile.Value, p *Paper) {
	var n Number
	var along, apart, spread, over string
	var values *yamlfile.Value
	ok := r.mapping(v, "a number", named(r.source(&n.Source, "levels"), map[string]field{
		"value": r.number(&n.Value), "along": r.oneDimension(&along), "values": func(v *yamlfile.Value) { values = v },
		"y": r.word(&n.Y, middles), "within": r.share(&n.Within), "apart": r.oneDimension(&apart),
		"spread": r.word(&spread, spreads), "over": r.oneDimension(&over),
	}))
	if !ok || !r.metric(v, &n.Source, "a number") || !r.spreads(v, n, spread, over) {
		return
	}
	var numbers []Number
	switch {
	case along == "" && values == nil && v.Get("value") != nil:
		numbers = []Number{n}
	case along == "" || values == nil || values.Shape != yamlfile.Mapping || v.Get("value") != nil:
		r.add(v, "write value: 0.73, or along: hops, values: {2: 940, 4: 935}",
			"a number has a value, or values along a factor")
		return
	default:
		for _, pair := range values.Pairs[:min(len(values.Pairs), maxNumbers)] {
			one := n
			one.Where = append(append(Condition{}, n.Where...), Level{along, []string{pair.Key.Text}})
			r.number(&one.Value)(pair.Value)
			numbers = append(numbers, one)
		}
	}
	if apart != "" {
		if numbers = apartBy(numbers, apart); len(numbers) == 0 {
			r.add(v.Get("apart"), "write levels: {"+apart+": [A, B]}, apart: "+apart, "%s: levels: has none of it",
				formats.Clip(apart))
		}
	}
	for _, one := range numbers {
		switch {
		case len(p.Numbers)+len(p.Spreads) >= maxNumbers:
			return
		case spread != "":
			p.Spreads = append(p.Spreads, Spread{one, spread, over})
		default:
			p.Numbers = append(p.Numbers, one)
		}
	}
}

// spreads reports whether a number that is a spread says of what, and nothing that only others can.
func (r *reader) spreads(v *yamlfile.Value, n Number, spread, over string) bool {
	switch {
	case spread == "" && over != "" && v.Get("spread") == nil:
		r.add(v.Get("over"), "write spread: deviation, over: "+over, "over: belongs to spread")
	case spread != "" && over == "":
		r.add(v, "write over: switch", "a %s is over the levels of a factor, or of a label", spread)
	case spread != "" && (n.Within > 0 || n.Y != "" || n.Of != ""):
		r.add(v, "leave within, y and of out", "a %s of means is shown beside ours, and not judged", spread)
	default:
		return spread != "" || v.Get("spread") == nil
	}
	return false
}

// apartBy has a number for each level of a dimension of its condition, in place of one for all of
// them together.
func apartBy(numbers []Number, dimension string) (out []Number) {
	for _, n := range numbers {
		for at, l := range n.Where {
			if l.Dimension != dimension {
				continue
			}
			for _, level := range l.Any {
				one := n
				one.Where = slices.Clone(n.Where)
				one.Where[at] = Level{dimension, []string{level}}
				out = append(out, one)
			}
		}
	}
	return out
}

// trend reads a statement. than is a condition or a number.
func (r *reader) trend(v *yamlfile.Value, p *Paper) {
	t := Trend{}
	ok := r.mapping(v, "a trend", named(r.source(&t.Source, "at"), map[string]field{
		"text": r.text(&t.Text), "is": r.word(&t.Is,
			statements), "along": r.oneDimension(&t.Along), "within": r.share(&t.Within), "factor": r.number(&t.Factor),
		"of": r.word(&t.Of, trendOfs), "needs": r.need(&t.Needs), "contradicts": r.text(&t.Contradicts),
		"than": func(v *yamlfile.Value) {
			if v.Shape == yamlfile.Mapping {
				r.condition(&t.Than)(v)
				return
			}
			t.Limit = new(float64)
			r.number(t.Limit)(v)
		},
	}))
	if !ok || !r.metric(v, &t.Source, "a trend") {
		return
	}
	if c := v.Get("contradicts"); c != nil && (strings.TrimSpace(t.Contradicts) == "" || t.Contradicts == t.Text) {
		r.add(c, "write contradicts: “what it says in section 4”", "%s: contradicts which other sentence of the paper?",
			formats.Clip(t.Text))
		return
	}
	if v.Get("within") == nil {
		t.Within = map[string]float64{Falls: 0.05, Rises: 0.05, Flat: 0.05, Linear: 0.1, Times: 0.2}[t.Is]
	}
	if t.Of == Slope || t.Of == Curvature {
		if !r.shape(v, &t) {
			return
		}
	}
	switch compared := t.Than != nil || t.Limit != nil; {
	case t.Is == "":
		r.add(v, "write is: falls",
			"%s: a trend falls, rises, is flat, linear, above, below, steeper than or so many times another",
			formats.Clip(t.Text))
	case t.Is == Times && (t.Than == nil || !(t.Factor > 0)):
		r.add(v, "write factor: 1.5, than: {datapath: ovs}", "%s: how many times what?", formats.Clip(t.Text))
	case t.Is != Times && v.Get("factor") != nil:
		r.add(v.Get("factor"), "write is: times", "%s: factor belongs to is: times", formats.Clip(t.Text))
	case t.Is == Steeper && (t.Than == nil || t.Along == ""):
		r.add(v, "write along: hops, than: {datapath: ovs}", "%s: steeper along what, than what?", formats.Clip(t.Text))
	case t.Is == Steeper && t.Within > 0:
		r.add(v.Get("within"), "leave within out", "%s: steeper is tested against 0", formats.Clip(t.Text))
	case (t.Is == Above || t.Is == Below) && !compared:
		r.add(v, "write than: {datapath: ovs}, or than: 10", "%s: is %s what?", formats.Clip(t.Text), t.Is)
	case t.Is != Above && t.Is != Below && t.Is != Times && t.Is != Steeper && (t.Along == "" || compared):
		r.add(v, "write along: hops, and no than", "%s: %s goes along a factor", formats.Clip(t.Text), t.Is)
	case t.Of == Values:
		r.add(v, "leave of out", "%s: a trend is tested by repetitions, as values of one are not independent",
			formats.Clip(t.Text))
	default:
		p.Trends = append(p.Trends, t)
	}
}

// need reads kvm, smt, device, load, or {processors: 4}.
func (r *reader) need(to *Need) field {
	return func(v *yamlfile.Value) {
		if v.Shape != yamlfile.Mapping {
			if *to = (Need{What: v.Text}); v.Shape != yamlfile.Scalar || !slices.Contains(needWords, v.Text) {
				*to = Need{}
				r.add(v, "write kvm, smt, device, load or {processors: 4}", "%s: is not known here", v)
			}
			return
		}
		n := 0.0
		if !r.mapping(v, "needs", map[string]field{Processors: r.number(&n)}) {
			return
		}
		if n != math.Trunc(n) || n < 2 || n > maxNeeded {
			r.add(v, "write needs: {processors: 4}", "needs: a number of processors from 2 to %d is expected here",
				maxNeeded)
			return
		}
		*to = Need{What: Processors, Processors: int(n)}
	}
}

// shape reports whether a trend that is of slopes, or of curvature, can be.
func (r *reader) shape(v *yamlfile.Value, t *Trend) bool {
	at, text := v.Get("of"), formats.Clip(t.Text)
	switch {
	case t.Of == Curvature && t.Is != Linear:
		r.add(at, "write is: linear, of: curvature", "%s: curvature is what is linear is tested by", text)
	case t.Of == Slope && t.Is == Steeper:
		r.add(at, "leave of out", "%s: steeper is of slopes already, those of logarithms", text)
	case t.Of == Slope && t.Is != Times && t.Is != Above && t.Is != Below:
		r.add(at, "write is: times, is: above or is: below",
			"%s: slopes are so many times, above or below others", text)
	case t.Along == "":
		r.add(v, "write along: hops", "%s: the %s along which factor?", text, t.Of)
	case slices.ContainsFunc(r.levels(t.Along), func(level string) bool { return !sameNumber(level, level) }):
		r.add(v.Get("along"), "go along a factor whose levels are numbers",
			"%s: %s: there is no %s along what is not numbers", text, formats.Clip(t.Along), t.Of)
	case t.Where.Get(t.Along) != nil && len(t.Where.Get(t.Along)) < least(t.Of):
		r.add(v.Get("at"), "leave "+formats.Clip(t.Along)+" out of at", "%s: a %s takes at least %d levels of %s", text,
			t.Of, least(t.Of), formats.Clip(t.Along))
	case t.Than.Get(t.Along) != nil:
		r.add(v.Get("than"), "leave "+formats.Clip(t.Along)+" out of than",
			"%s: both slopes are along the same levels of %s", text, formats.Clip(t.Along))
	default:
		return true
	}
	return false
}

// least is how many levels a slope takes, or a curvature.
func least(of string) int {
	if of == Curvature {
		return 3
	}
	return 2
}

// levels of a factor, where it is known what will be measured.
func (r *reader) levels(factor string) []string {
	if r.measured == nil {
		return nil
	}
	return r.measured.Levels[factor]
}
