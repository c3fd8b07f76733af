package definition

import (
	"maps"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Known is what an experiment will have measured, by which mistakes are found before it is.
type Known struct {
	Levels map[string][]string            // by factor
	Probes map[string]map[string]Measured // metrics by probe
}

// Measured is of a metric.
type Measured struct {
	Unit   string
	Labels []string
}

// ReadFor is Read for an experiment whose measurements are known: metrics, probes, dimensions,
// levels and units that will not be there are errors.
func ReadFor(file string, data []byte, known Known) (*Definition, topology.Problems) {
	r := &reader{d: &Definition{}, measured: &known}
	r.read(file, data)
	return r.d, r.problems
}

// usagePrefix is of what was watched on the machine, which only the machine knows.
const usagePrefix = "usage."

// check checks what a figure, a table, a number or a trend is made of. Levels of a paper may be
// others than ours.
func (r *reader) check(v *yamlfile.Value, s *Source, paper bool) {
	if r.measured == nil || strings.HasPrefix(s.Metric, usagePrefix) {
		return
	}
	probes := slices.Sorted(maps.Keys(r.measured.Probes))
	if s.Probe != "" && r.measured.Probes[s.Probe] == nil {
		r.add(v.Get("probe"), hint(s.Probe, probes), "%s: there is no such probe", formats.Clip(s.Probe))
		return
	}
	var metrics, labels []string
	unit, found := "", false
	for _, probe := range probes {
		if s.Probe != "" && s.Probe != probe {
			continue
		}
		for name, m := range r.measured.Probes[probe] {
			metrics = append(metrics, name)
			if name == s.Metric {
				unit, found, labels = m.Unit, true, append(labels, m.Labels...)
			}
		}
	}
	if !found {
		slices.Sort(metrics)
		by := "the probes"
		if s.Probe != "" {
			by = s.Probe
		}
		r.add(v.Get("metric"), hint(s.Metric, slices.Compact(metrics)), "%s: is not measured by %s",
			formats.Clip(s.Metric), by)
		return
	}
	if _, ok := Convert(unit, s.Unit); s.Unit != "" && !ok && s.Each != "count" {
		r.add(v.Get("unit"), "", "unit: %s is in %s, which cannot be shown in %s", formats.Clip(s.Metric), unit,
			formats.Clip(s.Unit))
	}
	r.dimensionsOf(v, s, labels, paper)
}

// checkMargin checks that the margin of a metric is of one that there will be, and in a unit of it.
func (r *reader) checkMargin(metric string, m Margin, v *yamlfile.Value) {
	if r.measured == nil || metric == "" || strings.HasPrefix(metric, usagePrefix) {
		return
	}
	unit, metrics := "", []string{}
	for _, probe := range r.measured.Probes {
		for name, of := range probe {
			if metrics = append(metrics, name); name == metric {
				unit = of.Unit
			}
		}
	}
	slices.Sort(metrics)
	switch {
	case unit == "":
		r.add(v, hint(metric, slices.Compact(metrics)), "margin: %s is not measured", formats.Clip(metric))
	case m.Share == 0 && m.In(unit) == 0:
		r.add(v, "", "margin: %s is in %s, and not in %s", formats.Clip(metric), unit, formats.Clip(m.Unit))
	}
}

// dimensionsOf checks the axes of what is shown, and its conditions.
func (r *reader) dimensionsOf(v *yamlfile.Value, s *Source, labels []string, paper bool) {
	dims := append(slices.Sorted(maps.Keys(r.measured.Levels)), "probe", "round")
	slices.Sort(labels)
	dims = append(dims, slices.Compact(labels)...)
	dimension := func(at *yamlfile.Value) {
		if !slices.Contains(dims, at.Text) {
			r.add(at, hint(at.Text, dims), "%s: is neither a factor nor a label of %s", formats.Clip(at.Text),
				formats.Clip(s.Metric))
		}
	}
	for _, key := range []string{"x", "series", "rows", "columns", "along", "over", "apart"} {
		if at := v.Get(key); at != nil {
			for _, one := range r.items(at, maxLevels) {
				dimension(one)
			}
		}
	}
	for _, key := range []string{"where", "levels", "at", "than"} {
		at := v.Get(key)
		if at == nil || at.Shape != yamlfile.Mapping {
			continue
		}
		for _, p := range at.Pairs {
			dimension(p.Key)
			known, factor := r.measured.Levels[p.Key.Text]
			for _, level := range r.items(p.Value, maxLevels) {
				if factor && !paper && !slices.ContainsFunc(known, func(l string) bool {
					return l == level.Text || sameNumber(l, level.Text)
				}) {
					r.add(level, hint(level.Text, known), "%s: is not a level of %s", formats.Clip(level.Text),
						formats.Clip(p.Key.Text))
				}
			}
		}
	}
}
