package experiment

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Factor is what is varied.
type Factor struct {
	Name   string
	Levels []Level
	values []string // names of values, from all its levels
	value  *yamlfile.Value
}

// Level is a level of a factor. ${FACTOR} stands for Value, ${FACTOR.NAME} for one of Values.
type Level struct {
	Name   string
	Value  any // text, number or boolean
	Values map[string]any
}

func (f *Factor) names() []string {
	out := make([]string, len(f.Levels))
	for i, l := range f.Levels {
		out[i] = l.Name
	}
	return out
}

func (f *Factor) has(level string) bool {
	return slices.ContainsFunc(f.Levels, func(l Level) bool { return l.Name == level })
}

// condition is a set of factors, each with a list of levels; those with the same index belong
// together.
type condition struct {
	index  int
	factor *yamlfile.Value
	levels []*yamlfile.Value
}

var factorName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,39}$`)

// reserved names would hide keys of quick.
var reserved = []string{"repetitions", "warm_up", "budget", "time"}

func (r *reader) factors(v *yamlfile.Value) {
	if v.Shape != yamlfile.Mapping {
		if v.Shape != yamlfile.Nothing {
			r.add(v, "write factors: {hops: [2, 4, 6]}", "factors: takes names with their levels, not %s", v)
		}
		return
	}
	for _, p := range v.Pairs {
		if !factorName.MatchString(p.Key.Text) || slices.Contains(reserved, p.Key.Text) {
			r.add(p.Key, "take letters, digits and _, and not "+strings.Join(reserved, ", "),
				"%s: cannot be the name of a factor", formats.Clip(p.Key.Text))
			continue
		}
		f := Factor{Name: p.Key.Text, value: p.Key}
		r.levels(&f, p.Value)
		r.e.Factors = append(r.e.Factors, f)
	}
}

// levels reads a list of values, a range, or names with values.
func (r *reader) levels(f *Factor, v *yamlfile.Value) {
	switch {
	case v.Shape == yamlfile.Scalar:
		r.level(f, v)
	case v.Shape == yamlfile.List:
		for _, item := range v.Items {
			r.level(f, item)
		}
	case v.Shape == yamlfile.Mapping && v.Get("from") != nil:
		r.rangeOf(f, v)
	case v.Shape == yamlfile.Mapping:
		r.namedLevels(f, v)
	}
	if len(f.Levels) == 0 && r.problems.Err() == nil {
		r.add(v, "write "+f.Name+": [1, 2, 3]", "%s: has no levels", f.Name)
	}
}

func (r *reader) level(f *Factor, v *yamlfile.Value) {
	switch {
	case v.Shape != yamlfile.Scalar:
		r.add(v, "write "+f.Name+": [1, 2, 3]", "%s: a level is a value, not %s", f.Name, v.Shape)
	case f.has(v.Text):
		r.add(v, "keep one of them", "%s: the level %s is listed twice", f.Name, formats.Clip(v.Text))
	case len(f.Levels) >= maxLevels:
		r.add(v, "", "%s: has more than %d levels", f.Name, maxLevels)
	default:
		f.Levels = append(f.Levels, Level{Name: v.Text, Value: v.Plain})
	}
}

// rangeOf reads {from: 1, to: 100, step: 9}, or {from: 64, to: 8192, times: 2}.
func (r *reader) rangeOf(f *Factor, v *yamlfile.Value) {
	n := map[string]float64{"step": 0, "times": 0}
	for _, p := range v.Pairs {
		value, ok := p.Value.Plain.(float64)
		switch {
		case !slices.Contains([]string{"from", "to", "step", "times"}, p.Key.Text):
			r.unknown(p.Key, "key of a range", []string{"from", "to", "step", "times"})
		case !ok:
			r.add(p.Value, "write {from: 1, to: 10, step: 3}", "%s: needs a number, not %s", p.Key.Text, p.Value)
		default:
			n[p.Key.Text] = value
		}
	}
	to, ok := n["to"]
	if n["step"] == 0 && n["times"] == 0 {
		n["step"] = 1
	}
	if !ok || to < n["from"] || n["step"] < 0 || n["step"] > 0 && n["times"] != 0 ||
		n["step"] == 0 && (n["times"] <= 1 || n["from"] <= 0) {
		r.add(v, "write {from: 1, to: 10, step: 3} or {from: 64, to: 8192, times: 2}", "%s: this range never ends",
			f.Name)
		return
	}
	for i := 0; ; i++ {
		value := n["from"] + float64(i)*n["step"]
		if n["step"] == 0 {
			value = n["from"] * math.Pow(n["times"], float64(i))
		}
		// In decimal, so that 0.1 three times is 0.3.
		value, _ = strconv.ParseFloat(strconv.FormatFloat(value, 'g', 12, 64), 64)
		name := strconv.FormatFloat(value, 'f', -1, 64)
		if value > to {
			return
		}
		if len(f.Levels) >= maxLevels || f.has(name) {
			r.add(v, "", "%s: has more than %d levels, or steps too small to tell", f.Name, maxLevels)
			return
		}
		f.Levels = append(f.Levels, Level{Name: name, Value: value})
	}
}

// namedLevels reads {ours: {datapath: embedded}, theirs: {datapath: ovs}}.
func (r *reader) namedLevels(f *Factor, v *yamlfile.Value) {
	for _, p := range v.Pairs {
		l := Level{Name: p.Key.Text, Value: p.Key.Text, Values: map[string]any{}}
		if p.Value.Shape == yamlfile.List || p.Value.Shape == yamlfile.Scalar {
			r.add(p.Value, "write "+f.Name+": {ours: {datapath: embedded}, theirs: {datapath: ovs}}",
				"%s: takes names with values, not %s", formats.Clip(l.Name), p.Value)
			continue
		}
		for _, q := range p.Value.Pairs {
			if r.scalar(q.Value, q.Key.Text) {
				l.Values[q.Key.Text] = q.Value.Plain
			}
		}
		r.alikeValues(f, l, p.Key)
		f.Levels = append(f.Levels, l)
		for name := range l.Values {
			if !slices.Contains(f.values, name) {
				f.values = append(f.values, name)
			}
		}
	}
}

// alikeValues reports values that are probably misspelt. A level may lack values that others have,
// but if each of two has one that the other lacks, both were probably meant to be the same.
func (r *reader) alikeValues(f *Factor, l Level, at *yamlfile.Value) {
	got := sortedKeys(l.Values)
	for _, o := range f.Levels {
		have := sortedKeys(o.Values)
		if !within(got, have) && !within(have, got) {
			r.add(at, "give all levels the same values, or leave some out", "%s: has the values %s, but %s has %s",
				formats.Clip(l.Name), list(got), o.Name, list(have))
			return
		}
	}
}

// within says whether all words of some are in others.
func within(some, others []string) bool {
	return !slices.ContainsFunc(some, func(w string) bool { return !slices.Contains(others, w) })
}

func list(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return formats.Clip(strings.Join(words, ", "))
}

// zip reads a list of lists of factors, or one such list.
func (r *reader) zip(v *yamlfile.Value) {
	if v.Shape == yamlfile.List && len(v.Items) > 0 && v.Items[0].Shape == yamlfile.Scalar {
		v = &yamlfile.Value{Shape: yamlfile.List, Pos: v.Pos, Items: []*yamlfile.Value{v}}
	}
	if v.Shape != yamlfile.List {
		r.add(v, "write zip: [rate, size]", "zip: takes a list of factors, not %s", v)
		return
	}
	for _, item := range v.Items {
		names := r.names(item, "zip")
		if len(names) < 2 {
			r.add(item, "write zip: [rate, size]", "zip: needs at least two factors")
			continue
		}
		r.e.Zip = append(r.e.Zip, names)
	}
}

// skip reads [{datapath: frr, hops: [8, 10]}].
func (r *reader) skip(v *yamlfile.Value) {
	items := v.Items
	if v.Shape == yamlfile.Mapping {
		items = []*yamlfile.Value{v}
	}
	for i, item := range items {
		if item.Shape != yamlfile.Mapping || len(item.Pairs) == 0 {
			r.add(item, "write skip: [{datapath: frr, hops: [8, 10]}]", "skip: takes factors with levels, not %s", item)
			continue
		}
		for _, p := range item.Pairs {
			c := condition{index: i, factor: p.Key, levels: p.Value.Items}
			if p.Value.Shape == yamlfile.Scalar {
				c.levels = []*yamlfile.Value{p.Value}
			}
			r.e.skip = append(r.e.skip, c)
		}
	}
}
