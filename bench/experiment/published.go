package experiment

import (
	"slices"

	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Published returns the experiment as in its key as_published: with the repetitions of the
// published one, and the options of its probes. Without that key it returns the experiment itself.
func (e *Experiment) Published() *Experiment {
	if e.published == nil {
		return e
	}
	p, _ := e.asPublished()
	return p
}

// Unpublished describes what the published source does not say, so that it is as in the file: the
// key unknown of as_published.
func (e *Experiment) Unpublished() string {
	if e.published == nil {
		return ""
	}
	if v := e.published.Get("unknown"); v != nil {
		return v.Text
	}
	return ""
}

func (e *Experiment) asPublished() (*Experiment, *reader) {
	p := *e
	p.overlay = map[string]*yamlfile.Value{}
	p.Fix()
	r := &reader{e: &p}
	if e.published.Shape != yamlfile.Mapping {
		r.add(e.published, "write as_published: {repetitions: 10, iperf3: {time: 10s}}",
			"as_published: takes keys, not %s", e.published)
		return e, r
	}
	probes := e.probeNames()
	var unknown string
	keys := map[string]func(*yamlfile.Value){"unknown": func(v *yamlfile.Value) { r.text(v, "unknown", &unknown) }}
	all := r.keys()
	for _, name := range []string{"repetitions", "warm_up"} {
		keys[name] = all[name]
	}
	for _, name := range probes {
		keys[name] = func(v *yamlfile.Value) {
			if v.Shape != yamlfile.Mapping {
				r.add(v, "write "+name+": {time: 10s}", "as_published: %s takes options, not %s", name, v)
				return
			}
			p.overlay[name] = v
		}
	}
	for _, pair := range e.published.Pairs {
		if read := keys[pair.Key.Text]; read != nil {
			read(pair.Value)
		} else {
			r.unknown(pair.Key, "key of as_published, or probe", sortedKeys(keys))
		}
	}
	return &p, r
}

// readPublished only checks the key; Published applies it.
func (r *reader) readPublished() {
	if r.e.published != nil {
		_, other := r.e.asPublished()
		r.problems = append(r.problems, other.problems...)
	}
}

// probeNames returns the kinds and the names of the file's probes.
func (e *Experiment) probeNames() (out []string) {
	for _, item := range e.probes.Items {
		for _, one := range itemsOf(item) {
			if one.Shape == yamlfile.Scalar {
				out = append(out, one.Text)
				continue
			}
			for _, p := range one.Pairs {
				out = append(out, p.Key.Text)
				if name := p.Value.Get("name"); name != nil {
					out = append(out, name.Text)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// overlaid returns a probe's options, replaced by those for its kind and for its name.
func (e *Experiment) overlaid(kind string, given *yamlfile.Value) *yamlfile.Value {
	names := []string{kind}
	if name := given.Get("name"); name != nil {
		names = append(names, name.Text)
	}
	for _, name := range names {
		over := e.overlay[name]
		if over == nil {
			continue
		}
		next := *given
		next.Pairs = slices.DeleteFunc(slices.Clone(given.Pairs),
			func(p yamlfile.Pair) bool { return over.Get(p.Key.Text) != nil })
		next.Pairs = append(next.Pairs, over.Pairs...)
		given = &next
	}
	return given
}
