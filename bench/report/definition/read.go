package definition

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Read reads the keys report and paper of an experiment file, and passes over all others. Where a
// problem is an error, the definition holds what could be read in spite of it.
func Read(file string, data []byte) (*Definition, topology.Problems) {
	r := &reader{d: &Definition{}}
	r.read(file, data)
	return r.d, r.problems
}

func (r *reader) read(file string, data []byte) {
	top, problems := yamlfile.Dialect{}.Parse(file, data)
	r.problems = problems
	if top == nil {
		return
	}
	r.factors(top.Get("factors"))
	r.mininet(top)
	if v := top.Get("report"); v != nil {
		r.report(v)
	}
	if v := top.Get("paper"); v != nil {
		r.paper(v)
	}
}

func sameNumber(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

// reader fills a definition and collects what is wrong.
type reader struct {
	problems topology.Problems
	d        *Definition
	known    []string // names of factors
	measured *Known   // nil: only results tell
}

func (r *reader) add(v *yamlfile.Value, hint, format string, args ...any) {
	r.problems.Add(v.Pos, hint, format, args...)
}

// factors are only read for their names, with which mistakes in dimensions are found.
func (r *reader) factors(v *yamlfile.Value) {
	if v == nil {
		return
	}
	for _, p := range v.Pairs {
		r.known = append(r.known, p.Key.Text)
	}
}

// mininet finds the levels whose labs have the target mininet, where lab says "${factor}" or
// "${factor.key}".
func (r *reader) mininet(top *yamlfile.Value) {
	lab, factors := top.Get("lab"), top.Get("factors")
	if lab == nil || factors == nil || lab.Get("target") == nil {
		return
	}
	variable, _ := strings.CutPrefix(lab.Get("target").Text, "${")
	factor, key, _ := strings.Cut(strings.TrimSuffix(variable, "}"), ".")
	levels := factors.Get(factor)
	if levels == nil {
		return
	}
	add := func(level string) {
		if r.d.Mininet == nil {
			r.d.Mininet = map[string][]string{}
		}
		r.d.Mininet[factor] = append(r.d.Mininet[factor], level)
	}
	for _, p := range levels.Pairs {
		if v := p.Value.Get(key); v != nil && v.Text == "mininet" {
			add(p.Key.Text)
		}
	}
	for _, level := range levels.Items {
		if levels.Shape == yamlfile.List && key == "" && level.Text == "mininet" {
			add(level.Text)
		}
	}
}

// field reads a value of a key.
type field func(*yamlfile.Value)

// mapping reads the keys of a mapping; others are problems.
func (r *reader) mapping(v *yamlfile.Value, what string, fields map[string]field) bool {
	if v.Shape != yamlfile.Mapping {
		r.add(v, "write keys with values", "%s takes keys, not %s", what, v)
		return false
	}
	for _, p := range v.Pairs {
		if read := fields[p.Key.Text]; read != nil {
			read(p.Value)
			continue
		}
		names := slices.Sorted(maps.Keys(fields))
		r.add(p.Key, hint(p.Key.Text, names), "%s: no such key of %s", formats.Clip(p.Key.Text), what)
	}
	return true
}

// hint says what may have been meant.
func hint(word string, known []string) string {
	if near := topology.DidYouMean(word, known); near != "" && len(word) > 1 {
		return near
	}
	if len(known) == 0 {
		return ""
	}
	return words.Choose(known[:min(len(known), 30)])
}

func (r *reader) text(to *string) field {
	return func(v *yamlfile.Value) {
		if v.Shape != yamlfile.Scalar {
			r.add(v, "write it in quotes", "text is expected here, not %s", v)
			return
		}
		*to = v.Text
	}
}

// word reads one of several.
func (r *reader) word(to *string, words []string) field {
	return func(v *yamlfile.Value) {
		if v.Shape != yamlfile.Scalar || !slices.Contains(words, v.Text) {
			r.add(v, hint(v.Text, words), "%s: is not known here", v)
			return
		}
		*to = v.Text
	}
}

func (r *reader) words(to *[]string, words []string) field {
	return func(v *yamlfile.Value) {
		for _, item := range r.items(v, maxLevels) {
			var one string
			if r.word(&one, words)(item); one != "" && !slices.Contains(*to, one) {
				*to = append(*to, one)
			}
		}
	}
}

// items of a list; what is no list is its only item.
func (r *reader) items(v *yamlfile.Value, most int) []*yamlfile.Value {
	switch {
	case v.Shape == yamlfile.Nothing:
		return nil
	case v.Shape != yamlfile.List:
		return []*yamlfile.Value{v}
	case len(v.Items) > most:
		r.add(v, "write less", "more than %d are too many", most)
		return v.Items[:most]
	}
	return v.Items
}

func (r *reader) texts(to *[]string) field {
	return func(v *yamlfile.Value) {
		for _, item := range r.items(v, maxLevels) {
			var one string
			r.text(&one)(item)
			*to = append(*to, one)
		}
	}
}

func (r *reader) number(to *float64) field {
	return func(v *yamlfile.Value) {
		f, ok := v.Plain.(float64)
		if v.Shape != yamlfile.Scalar || !ok {
			r.add(v, "write 0.73", "a number is expected here, not %s", v)
			return
		}
		*to = f
	}
}

// share reads 5%, or 0.05.
func (r *reader) share(to *float64) field {
	return func(v *yamlfile.Value) {
		text, percent := strings.CutSuffix(strings.TrimSpace(v.Text), "%")
		f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if percent {
			f /= 100
		}
		if err != nil || v.Shape != yamlfile.Scalar || !(f >= 0 && f <= 100) {
			r.add(v, "write 5%", "a percentage is expected here, not %s", v)
			return
		}
		*to = f
	}
}

// dimensions reads a name or a list of them.
func (r *reader) dimensions(to *[]string) field {
	return func(v *yamlfile.Value) {
		*to = []string{} // an empty list is none; nothing is the default
		for _, item := range r.items(v, 20) {
			var one string
			r.text(&one)(item)
			r.dimension(item, one)
			if one != "" && !slices.Contains(*to, one) {
				*to = append(*to, one)
			}
		}
	}
}

func (r *reader) oneDimension(to *string) field {
	return func(v *yamlfile.Value) {
		r.text(to)(v)
		r.dimension(v, *to)
	}
}

// dimension warns of what is like the name of a factor, but is none. (It may be a label, which only
// results tell.)
func (r *reader) dimension(v *yamlfile.Value, name string) {
	if name == "" || name == "probe" || name == "round" || slices.Contains(r.known, name) {
		return
	}
	r.problems.Warn(v.Pos, topology.DidYouMean(name, r.known),
		"%s: is not a factor; it may be a label of the measurements", formats.Clip(name))
}

// condition reads {datapath: ovs, hops: [2, 4]}.
func (r *reader) condition(to *Condition) field {
	return func(v *yamlfile.Value) {
		if v.Shape != yamlfile.Mapping {
			r.add(v, "write {datapath: ovs}", "a condition takes factors with levels, not %s", v)
			return
		}
		for _, p := range v.Pairs {
			l := Level{Dimension: p.Key.Text}
			r.dimension(p.Key, l.Dimension)
			r.texts(&l.Any)(p.Value)
			*to = append(*to, l)
		}
	}
}

func (r *reader) unit(to *string) field {
	return func(v *yamlfile.Value) {
		r.text(to)(v)
		if _, known := units[*to]; *to != "" && !known {
			r.problems.Warn(v.Pos, "choose one of "+unitNames(), "%s: is not converted to or from anything",
				formats.Clip(*to))
		}
	}
}
