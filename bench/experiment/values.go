package experiment

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// scalar says whether there is a single value, and reports other shapes.
func (r *reader) scalar(v *yamlfile.Value, name string) bool {
	if v.Shape != yamlfile.Scalar {
		r.add(v, "write "+name+": VALUE", "%s: needs a value, not %s", name, v.Shape)
		return false
	}
	return true
}

func (r *reader) text(v *yamlfile.Value, name string, into *string) {
	if r.scalar(v, name) {
		*into = v.Text
	}
}

func (r *reader) whole(v *yamlfile.Value, name string, least int, into *int) {
	if !r.scalar(v, name) {
		return
	}
	n, err := strconv.Atoi(v.Text)
	if err != nil || n < least || n > maxRuns {
		r.add(v, "", "%s: %q is not a number from %d to %d", name, formats.Clip(v.Text), least, maxRuns)
		return
	}
	*into = n
}

func (r *reader) truth(v *yamlfile.Value, name string, into *bool) {
	if r.scalar(v, name) {
		o := Option{Type: Truth}
		text, err := o.parse(v.Text)
		if err != nil {
			r.add(v, "", "%s: %s", name, err)
		}
		*into = text == "true"
	}
}

func (r *reader) duration(v *yamlfile.Value, name string, into *time.Duration) {
	if r.scalar(v, name) {
		d, err := topology.ParseDuration(v.Text)
		if err != nil {
			r.add(v, "", "%s: %s", name, err)
		}
		*into = time.Duration(d)
	}
}

func (r *reader) seed(v *yamlfile.Value) {
	if r.scalar(v, "seed") {
		n, err := strconv.ParseUint(v.Text, 10, 64)
		if err != nil {
			r.add(v, "", "seed: %q is not a number from 0 to 18446744073709551615", formats.Clip(v.Text))
		}
		r.e.Seed = n
	}
}

func (r *reader) order(v *yamlfile.Value) {
	if r.scalar(v, "order") {
		if !slices.Contains(orders, v.Text) {
			r.unknown(v, "order", orders)
		}
		r.e.Order = Order(v.Text)
	}
}

// names reads one name, or a list of them.
func (r *reader) names(v *yamlfile.Value, what string) (out []string) {
	items := v.Items
	if v.Shape != yamlfile.List {
		items = []*yamlfile.Value{v}
	}
	for _, item := range items {
		if r.scalar(item, what) {
			out = append(out, item.Text)
		}
	}
	return out
}

// extra stores keys for others.
func (r *reader) extra(name string, v *yamlfile.Value) {
	budget := maxLevels
	plain, err := v.JSON(&budget)
	if err != nil {
		r.add(v, "write less", "%s: %s", name, err)
		return
	}
	r.e.Extra[name] = plain
}

// readQuick only checks the key; Quick applies it.
func (r *reader) readQuick() {
	if r.e.quick != nil {
		_, problems := r.e.quicker()
		r.problems = append(r.problems, problems...)
	}
}

// Quick returns the experiment as in its key quick: with fewer levels and repetitions. Without that
// key it returns the experiment itself.
func (e *Experiment) Quick() *Experiment {
	if e.quick == nil {
		return e
	}
	q, _ := e.quicker()
	return q
}

func (e *Experiment) quicker() (*Experiment, topology.Problems) {
	q := *e
	q.quick = nil
	q.Fix()
	q.Factors = slices.Clone(e.Factors)
	r := &reader{e: &q}
	if e.quick.Shape != yamlfile.Mapping {
		r.add(e.quick, "write quick: {repetitions: 2, hops: [2, 10]}", "quick: takes keys, not %s", e.quick)
		return e, r.problems
	}
	keys := map[string]func(*yamlfile.Value){}
	all := r.keys()
	for _, name := range []string{"repetitions", "warm_up", "budget"} {
		keys[name] = all[name]
	}
	keys["time"] = func(v *yamlfile.Value) { r.duration(v, "time", &q.Shortened) }
	for i := range q.Factors {
		f := &q.Factors[i]
		keys[f.Name] = func(v *yamlfile.Value) { r.restrict(f, v) }
	}
	for _, p := range e.quick.Pairs {
		if read := keys[p.Key.Text]; read != nil {
			read(p.Value)
		} else {
			r.unknown(p.Key, "key of quick, or factor", sortedKeys(keys))
		}
	}
	for _, group := range q.Zip {
		for _, name := range group[1:] {
			if a, b := q.factor(group[0]), q.factor(name); a != nil && b != nil && len(a.Levels) != len(b.Levels) {
				r.add(e.quick, "give them the same number of levels",
					"quick: %s and %s are zipped, but have %d and %d levels", a.Name, b.Name, len(a.Levels),
					len(b.Levels))
			}
		}
	}
	return &q, r.problems
}

// restrict keeps only the named levels of a factor.
func (r *reader) restrict(f *Factor, v *yamlfile.Value) {
	items := v.Items
	if v.Shape != yamlfile.List {
		items = []*yamlfile.Value{v}
	}
	var kept []Level
	for _, item := range items {
		i := slices.IndexFunc(f.Levels, func(l Level) bool { return l.Name == item.Text })
		if i < 0 {
			r.unknown(item, "level of "+f.Name, f.names())
			continue
		}
		kept = append(kept, f.Levels[i])
	}
	f.Levels = kept
}
