package c3edge

import (
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Limits on what aliases may expand to; they are followed each time.
const (
	maxWork = 1_000_000 // keys read, and values kept
	maxKept = 1000      // values kept under one unknown key
)

// values reads the values of a file, and collects what is wrong with them.
type values struct {
	problems topology.Problems
	work     int
}

// bad records an error; if the value comes from an alias, at the alias.
func (r *values) bad(v *yamlfile.Value, hint, format string, args ...any) {
	if v.Alias != nil {
		v = v.Alias
	}
	r.problems.Add(v.Pos, hint, format, args...)
}

func (r *values) warn(v *yamlfile.Value, hint, format string, args ...any) {
	r.problems.Warn(v.Pos, hint, format, args...)
}

// mapping returns the pairs of a mapping, in order; nil if v is not one.
func (r *values) mapping(v *yamlfile.Value, what string) []yamlfile.Pair {
	if v.Shape > yamlfile.Nothing && v.Shape != yamlfile.Mapping {
		r.bad(v, "write key: value", "%s: %s is not a mapping", what, v)
		return nil
	}
	before := r.work
	if r.work += len(v.Pairs); r.work <= maxWork {
		return v.Pairs
	}
	if before <= maxWork {
		r.bad(v, "use fewer aliases", "this expands to more than %d values", maxWork)
	}
	return nil
}

// list returns the elements of a list; nil if v is not one.
func (r *values) list(v *yamlfile.Value, what string) []*yamlfile.Value {
	if v.Shape > yamlfile.Nothing && v.Shape != yamlfile.List {
		r.bad(v, "begin each with a dash", "%s: %s is not a list", what, v)
	}
	return v.Items
}

// text returns a scalar as written.
func (r *values) text(v *yamlfile.Value, what string) (string, bool) {
	switch {
	case v.Shape != yamlfile.Scalar:
		r.bad(v, "write one word or number", "%s: %s is not a single value", what, v)
		return "", false
	case strings.Contains(v.Text, "{{"):
		r.bad(v, "write the value itself", "%s: %s is an Ansible template", what, v)
		return v.Text, false
	}
	return v.Text, true
}

// keep stores the value of a pair without a meaning, to be written back.
func (r *values) keep(kept map[string]any, p yamlfile.Pair) {
	before := max(0, min(maxKept, maxWork-r.work))
	left := before
	v, err := p.Value.JSON(&left)
	r.work += before - max(0, left)
	if err != nil {
		r.warn(p.Key, "", "%q is too large to be kept", formats.Clip(p.Key.Text))
		return
	}
	kept[p.Key.Text] = v
}
