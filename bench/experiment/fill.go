package experiment

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// variable matches ${hops}, ${peer.datapath}, and $$ for a dollar sign.
var variable = regexp.MustCompile(`\$\$|\$\{([^}]*)\}`)

// expander substitutes the levels of one cell after another into the file's values.
type expander struct {
	e        *Experiment
	problems topology.Problems
	told     map[telling]bool  // reported once rather than once per cell
	used     map[string]bool   // factors that a value refers to
	values   map[string]any    // of the cell, by variable
	names    map[string]string // of the cell's levels, by factor
	of       Lab               // the cell's
	work     int
}

// telling identifies a problem by its position, and whether it is a warning: a warning must not
// hide an error at the same position in a later cell.
type telling struct {
	at      topology.Position
	warning bool
}

func (x *expander) say(v *yamlfile.Value, hint, format string, args ...any) {
	if key := (telling{at: v.Pos}); !x.told[key] {
		x.told[key] = true
		x.problems.Add(v.Pos, hint, format, args...)
	}
}

func (x *expander) warn(v *yamlfile.Value, hint, format string, args ...any) {
	if key := (telling{at: v.Pos, warning: true}); !x.told[key] {
		x.told[key] = true
		x.problems.Warn(v.Pos, hint, format, args...)
	}
}

// wrong reports an error of a parser.
func (x *expander) wrong(v *yamlfile.Value, label string, err error) {
	message, hint := topology.TextAndHint(err)
	x.say(v, hint, "%s: %s", label, message)
}

// set makes the variables of a cell.
func (x *expander) set(levels []Setting) {
	x.values, x.names = map[string]any{}, map[string]string{}
	for _, s := range levels {
		x.names[s.Factor] = s.Name
		x.values[s.Factor] = s.Value
		for _, name := range x.e.factor(s.Factor).values {
			x.values[s.Factor+"."+name] = without{s.Name}
		}
		for name, value := range s.level.Values {
			x.values[s.Factor+"."+name] = value
		}
	}
}

// without stands for a value that other levels of the factor have, but not this one.
type without struct{ level string }

func isWithout(value any) bool {
	_, ok := value.(without)
	return ok
}

// alone returns the ${NAME} that a scalar consists of; "" for other values.
func alone(v *yamlfile.Value) string {
	if m := variable.FindString(v.Text); v.Shape == yamlfile.Scalar && m == v.Text && m != "$$" {
		return m
	}
	return ""
}

// spend limits the work on a file; cells and aliases count each time.
func (x *expander) spend(v *yamlfile.Value) bool {
	x.work++
	if x.work == maxWork {
		x.say(v, "use fewer levels", "all cells together have more than %d values", maxWork)
	}
	return x.work < maxWork
}

// text returns a scalar with its variables replaced.
func (x *expander) text(v *yamlfile.Value) string {
	if !x.spend(v) || !strings.Contains(v.Text, "$") {
		return v.Text
	}
	return variable.ReplaceAllStringFunc(v.Text, func(word string) string {
		if word == "$$" {
			return "$"
		}
		value, _ := x.value(v, word)
		if w, ok := value.(without); ok {
			x.say(v, "give it one", "%s: %s has no such value", word, formats.Clip(w.level))
			return ""
		}
		return levelText(value)
	})
}

// value returns the value of a variable, and reports unknown ones.
func (x *expander) value(v *yamlfile.Value, word string) (any, bool) {
	name := strings.TrimSuffix(strings.TrimPrefix(word, "${"), "}")
	value, ok := x.values[name]
	factor, _, _ := strings.Cut(name, ".")
	if !ok {
		x.say(v, nearest(name, sortedKeys(x.values)), "${%s}: there is no such factor", formats.Clip(name))
		return "", false
	}
	x.used[factor] = true
	return value, true
}

// plain returns a value as encoding/json would decode it, with its variables replaced. A text that
// consists of one variable becomes that variable's value, such as a number; a key whose variable
// the level does not give a value is left out.
func (x *expander) plain(v *yamlfile.Value, depth int) any {
	if !x.spend(v) || depth > 64 {
		return nil
	}
	switch v.Shape {
	case yamlfile.Scalar:
		if m := alone(v); m != "" {
			value, _ := x.value(v, m)
			if isWithout(value) {
				return nil
			}
			return value
		}
		if strings.Contains(v.Text, "$") {
			return x.text(v)
		}
		return v.Plain
	case yamlfile.List:
		out := make([]any, len(v.Items))
		for i, item := range v.Items {
			out[i] = x.plain(item, depth+1)
		}
		return out
	case yamlfile.Mapping:
		out := make(map[string]any, len(v.Pairs))
		for _, p := range v.Pairs {
			if m := alone(p.Value); m != "" {
				if value, _ := x.value(p.Value, m); isWithout(value) {
					continue
				}
			}
			out[x.text(p.Key)] = x.plain(p.Value, depth+1)
		}
		return out
	}
	return nil
}

// levelText formats a level as in a file.
func levelText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// options reads the known options; others has the functions that read keys that are no options.
func (x *expander) options(at *yamlfile.Value, what string, known []Option,
	others map[string]func(*yamlfile.Value)) Options {
	out := Options{}
	for _, p := range at.Pairs {
		i := slices.IndexFunc(known, func(o Option) bool { return o.Name == p.Key.Text })
		switch read := others[p.Key.Text]; {
		case read != nil:
			read(p.Value)
		case i >= 0:
			x.option(p.Value, &known[i], out)
		default:
			names := sortedKeys(others)
			for _, o := range known {
				names = append(names, o.Name)
			}
			x.say(p.Key, nearest(p.Key.Text, names), "%s: no such option of %s", formats.Clip(p.Key.Text), what)
		}
	}
	for _, o := range known {
		if _, given := out[o.Name]; given || at.Get(o.Name) != nil {
			continue
		}
		if o.Required {
			x.say(at, "write "+o.Name+": VALUE", "%s: needs %s", what, o.Name)
		} else if o.Default != "" {
			out[o.Name] = o.Default
		}
	}
	return out
}

// option reads one option. null counts as missing, apart from the default, and so does a value that
// the level lacks, unless the option is required.
func (x *expander) option(v *yamlfile.Value, o *Option, into Options) {
	if m := alone(v); m != "" {
		if value, _ := x.value(v, m); isWithout(value) && !o.Required {
			return
		}
	}
	switch v.Shape {
	case yamlfile.Nothing:
		return
	case yamlfile.Scalar:
	default:
		x.say(v, "write "+o.Name+": VALUE", "%s: needs a value, not %s", o.Name, v.Shape)
		return
	}
	text, err := o.parse(x.text(v))
	if err != nil {
		x.wrong(v, o.Name, err)
		return
	}
	into[o.Name] = text
}
