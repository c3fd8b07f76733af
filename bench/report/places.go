package report

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/environment"
)

// placeFactor is what the place of a result is called where it is a factor.
const placeFactor = "place"

// SideBySide makes a report of each experiment with results from several places: its figures and
// tables with the place as an additional factor, and comparisons of the first place with the
// others; and returns the results that they cover. A report belongs beside the file of the first of
// its results. paths are the results' files; forms are definitions as for BuildAs, by experiment
// name.
func SideBySide(runs []*result.Run, paths []string, forms map[string]*definition.Definition,
	margins Margins) (out []*Report, of []*result.Run, err error) {
	for _, group := range byExperiment(runs) {
		all := joined(group)
		dir := filepath.Dir(paths[slices.Index(runs, group[0])])
		r, err := sideBySide(dir, group, all, forms[group[0].Header.Experiment.Name], margins)
		if err != nil {
			return nil, nil, err
		}
		out, of = append(out, r), append(of, all)
	}
	return out, of, nil
}

// byExperiment groups results of different places, those of an experiment together.
func byExperiment(runs []*result.Run) (out [][]*result.Run) {
	for _, run := range runs {
		if run.Header.Environment.Place == nil {
			continue
		}
		i := slices.IndexFunc(out, func(g []*result.Run) bool {
			return sameButPlace(g[0].Header, run.Header) &&
				!slices.ContainsFunc(g, func(o *result.Run) bool { return placeOf(o) == placeOf(run) })
		})
		if i < 0 {
			out = append(out, nil)
			i = len(out) - 1
		}
		out[i] = append(out[i], run)
	}
	return slices.DeleteFunc(out, func(g []*result.Run) bool { return len(g) < 2 })
}

func placeOf(run *result.Run) string { return run.Header.Environment.Place.Name() }

// sameButPlace reports whether two results are of one experiment, whatever the place and the
// numbers of repetitions.
func sameButPlace(a, b result.Header) bool {
	x, y := a.Experiment, b.Experiment
	return x.Name == y.Name && x.Text == y.Text &&
		slices.EqualFunc(x.Topologies, y.Topologies, func(s, t result.TopologyFile) bool {
			return s.File == t.File && s.Topo == t.Topo && s.Hash == t.Hash
		})
}

func sideBySide(dir string, runs []*result.Run, all *result.Run, form *definition.Definition,
	margins Margins) (*Report, error) {
	places := lists.Map(runs, placeOf)
	if form == nil {
		// Each result's own report says what is wrong with it.
		form, _ = definition.Read("experiment", []byte(runs[0].Header.Experiment.Text))
	}
	form = withPlace(form)
	r := BuildAs(filepath.Join(dir, runs[0].Header.Experiment.Name+"-"+strings.Join(places, "-")), all, form)
	r.Title, r.Places = r.Title+": "+name(strings.Join(places, " and ")), places
	sources := compared(form, newData(runs[0]))
	margins = margins.among(sources)
	for i := 1; i < len(runs); i++ {
		c, err := Compare(CompareOptions{A: runs[0], B: runs[i], Names: [2]string{places[0], places[i]},
			Margins: margins, Sources: sources})
		switch {
		case errors.Is(err, errNothingCommon):
			r.Problems = append(r.Problems, err.Error())
		case err != nil:
			return nil, err
		default:
			r.Compared = append(r.Compared, c)
		}
	}
	return r, nil
}

// compared are the metrics of a form's figures and tables, each once, of the probes that these are
// of; where there are none, all.
func compared(form *definition.Definition, d *data) (out []definition.Source) {
	all := lists.Map(form.Figures, func(f definition.Figure) definition.Source { return f.Source })
	for _, t := range form.Tables {
		all = append(all, t.Source)
	}
	seen := map[string]bool{}
	for _, s := range all {
		one := definition.Source{Metric: s.Metric, Probe: s.Probe, Each: s.Each}
		if probes := s.Where.Get("probe"); probes != nil {
			one.Where = definition.Condition{{Dimension: "probe", Any: probes}}
		}
		if key := fmt.Sprint(one); !seen[key] {
			seen[key] = true
			out = append(out, one)
		}
	}
	if len(out) == 0 {
		return d.kindsOf()
	}
	return out[:min(len(out), maxDefault)]
}

// withPlace returns a definition that distinguishes places. Published numbers are beside each
// place.
func withPlace(form *definition.Definition) *definition.Definition {
	out := &definition.Definition{}
	for _, f := range form.Figures {
		if f.Series != nil { // else it has all factors
			f.Series = append(slices.Clone(f.Series), placeFactor)
		}
		out.Figures = append(out.Figures, f)
	}
	for _, t := range form.Tables {
		if t.Rows != nil || t.Columns != nil {
			t.Rows = append(slices.Clone(t.Rows), placeFactor)
		}
		t.Gap = nil // the comparison has those between places
		out.Tables = append(out.Tables, t)
	}
	return out
}

// joined merges results of one experiment in several places, with the place as the last factor.
func joined(runs []*result.Run) *result.Run {
	first := runs[0].Header
	out := &result.Run{Header: first, ByRound: runs[0].ByRound}
	e := &out.Header.Experiment
	e.Runs, e.Repetitions, e.Wanted = 0, 0, 0
	out.Header.LeftOut, out.Header.Command = nil, nil
	place := result.Factor{Name: placeFactor}
	for _, run := range runs {
		at := placeOf(run)
		place.Levels = append(place.Levels, at)
		for _, s := range run.Samples {
			s.Run += e.Runs
			s.Cell = strings.TrimSpace(strings.TrimPrefix(s.Cell, "all") + " " + placeFactor + "=" + at)
			s.Pair = "" // the others of a pair are at the same place
			if s.Factors = maps.Clone(s.Factors); s.Factors == nil {
				s.Factors = map[string]any{}
			}
			s.Factors[placeFactor] = at
			out.Samples = append(out.Samples, s)
		}
		for _, l := range run.LeftOut() {
			l.What += " at " + at
			out.Header.LeftOut = append(out.Header.LeftOut, l)
		}
		e.Runs += run.Header.Experiment.Runs
		e.Repetitions = max(e.Repetitions, run.Header.Experiment.Repetitions)
		out.Interrupted = out.Interrupted || run.Interrupted
	}
	e.Factors = append(slices.Clone(first.Experiment.Factors), place)
	return out
}

// placesDiffer says of two places what they are; "" where they are one, or not known.
func placesDiffer(names [2]string, a, b *environment.Place) string {
	if a == nil || b == nil || a.Same(b) {
		return ""
	}
	return fmt.Sprintf("The place is what differs: %s is %s, %s is %s.", name(names[0]), describePlace(a),
		name(names[1]), describePlace(b))
}

func describePlace(p *environment.Place) string {
	if p.On == "" {
		return "this machine alone"
	}
	s := "this machine with " + words.Plural(len(p.Machines), "other")
	if p.By != "" {
		s += ", which " + name(p.By) + " made for it"
	}
	if p.Carrier != "" {
		s += ", joined by " + name(strings.ToUpper(p.Carrier))
	}
	return s + " (" + name(p.On) + ")"
}

// placesOf says what the places of an experiment are that varies them; "" of others.
func placesOf(e environment.Record) string {
	var out []string
	for _, at := range slices.Sorted(maps.Keys(e.Places)) {
		if p := e.Places[at]; p != nil && len(out) < maxListed {
			out = append(out, name(at)+" is "+describePlace(p))
		}
	}
	if len(out) < 2 {
		return ""
	}
	return "Places: " + strings.Join(out, "; ") + "."
}
