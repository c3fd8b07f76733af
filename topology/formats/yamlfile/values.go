package yamlfile

import (
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// Limits on what aliases may expand to; they are followed each time.
const (
	maxWork = 1_000_000 // keys read, and values kept
	maxKept = 1000      // values kept under one unknown key
)

// Values reads the values of a file, and collects what is wrong with them.
type Values struct {
	Problems topology.Problems
	work     int
}

// Bad records an error; if the value comes from an alias, at the alias.
func (r *Values) Bad(v *Value, hint, format string, args ...any) {
	if v.Alias != nil {
		v = v.Alias
	}
	r.Problems.Add(v.Pos, hint, format, args...)
}

// Warn records something that is not an error.
func (r *Values) Warn(v *Value, hint, format string, args ...any) {
	r.Problems.Warn(v.Pos, hint, format, args...)
}

// Spend says whether n values more may be looked at; the first time that they may not, it records
// that as an error.
func (r *Values) Spend(v *Value, n int) bool {
	before := r.work
	if r.work += n; r.work <= maxWork {
		return true
	}
	if before <= maxWork {
		r.Bad(v, "use fewer aliases", "this expands to more than %d values", maxWork)
	}
	return false
}

// Mapping returns the pairs of a mapping, in order; nil if v is not one.
func (r *Values) Mapping(v *Value, what string) []Pair {
	if v.Shape > Nothing && v.Shape != Mapping {
		r.Bad(v, "write key: value", "%s: %s is not a mapping", what, v)
		return nil
	}
	if !r.Spend(v, len(v.Pairs)) {
		return nil
	}
	return v.Pairs
}

// List returns the elements of a list; nil if v is not one, or if too much has been read.
func (r *Values) List(v *Value, what string) []*Value {
	if v.Shape > Nothing && v.Shape != List {
		r.Bad(v, "begin each with a dash", "%s: %s is not a list", what, v)
	}
	if r.work > maxWork {
		return nil
	}
	return v.Items
}

// Keep stores the value of a pair without a meaning, to be written back.
func (r *Values) Keep(kept map[string]any, p Pair) {
	before := max(0, min(maxKept, maxWork-r.work))
	left := before
	v, err := p.Value.JSON(&left)
	r.work += before - max(0, left)
	if err != nil {
		r.Warn(p.Key, "", "%q is too large to be kept", formats.Clip(p.Key.Text))
		return
	}
	kept[p.Key.Text] = v
}
