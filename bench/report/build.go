package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Limits on what is made by default, and on lists.
const (
	maxDefault = 24 // figures, and tables
	maxListed  = 500
)

// Build makes a report of a result, as defined by the experiment's keys report and paper, with
// defaults for the rest. Problems lists errors in these keys.
func Build(path string, run *result.Run) *Report { return BuildAs(path, run, nil) }

// BuildAs makes a report as defined by def; nil: by the result.
func BuildAs(path string, run *result.Run, def *definition.Definition) *Report {
	d := newData(run)
	e := run.Header.Experiment
	var problems topology.Problems
	if def == nil {
		def, problems = d.define()
	}
	d.definition = def
	r := &Report{Path: path, Name: cmp.Or(name(e.Name), "result"), File: name(e.File), Text: e.Text,
		Command: run.Header.Command, Started: run.Header.Started, Seed: run.Header.Seed,
		Topology: topologyOf(e.Text), Factors: e.Factors, Runs: run.Expected(), LeftOut: leftOut(run), Wanted: e.Wanted,
		Quick: slices.Contains(run.Header.Command, "--quick"), Interrupted: run.Interrupted, Samples: len(d.counted),
		Environment: run.Header.Environment, Resumes: run.Resumes, Levels: map[environment.Level]int{}}
	r.Title = cmp.Or(name(e.Title), r.Name)
	if n := userSpace(run.Header); n != "" {
		r.Notes = append(r.Notes, n)
	}
	if n := rounds(run); n != "" {
		r.Notes = append(r.Notes, n)
	}
	if n := d.sequential(); n != "" {
		r.Notes = append(r.Notes, n)
	}
	if n := placesOf(run.Header.Environment); n != "" {
		r.Notes = append(r.Notes, n)
	}
	var watched []*environment.Usage
	for i := range d.counted {
		if u := d.counted[i].Usage; u != nil {
			watched = append(watched, u)
		}
	}
	r.Notes = append(r.Notes, models(watched)...)
	if n := d.accelerators(); n != "" {
		r.Notes = append(r.Notes, n)
	}
	r.problems(problems)
	for _, text := range run.Header.Environment.Missing {
		r.unseen(text, 0)
	}
	d.overview(r)
	d.contents(r, def)
	r.Paper = d.paper(def.Paper)
	d.remarks(r)
	if d.unusable > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("%s beyond ±%g, which no figure can show",
			words.Plural(d.unusable, "value"), usableValue))
	}
	return r
}

// accelerators says what the processors of nodes that are virtual machines were, which decides how
// fast they are; "" where there were none.
func (d *data) accelerators() string {
	seen := map[string]bool{}
	look := func(u *environment.Usage) {
		for _, how := range u.Accelerators {
			seen[how] = true
		}
	}
	for i := range d.counted {
		if u := d.counted[i].Usage; u != nil {
			look(u)
			for _, site := range u.Sites {
				look(&site.Usage)
			}
		}
	}
	if len(seen) == 0 {
		return ""
	}
	text := "Virtual machines ran with the accelerator " +
		name(strings.Join(slices.Sorted(maps.Keys(seen)), ", ")) + "."
	if seen[environment.Emulated] {
		text += " By " + environment.Emulated +
			" QEMU emulates their processors: what goes through them is slower by far " +
			"than with KVM."
	}
	return text
}

// define takes over what the result itself says of its report.
func (d *data) define() (*definition.Definition, topology.Problems) {
	e := d.run.Header.Experiment
	def, problems := definition.Read(cmp.Or(e.File, "experiment"), []byte(e.Text))
	d.definition = def
	return def, problems
}

// rounds says when those of a campaign began, and how they are counted; "" where there are none.
func rounds(run *result.Run) string {
	e := run.Header.Experiment
	if e.Rounds <= 0 { // the file may come from anyone
		return ""
	}
	began := make([]time.Time, min(e.Rounds, maxListed))
	for i := range run.Samples {
		if s := &run.Samples[i]; s.Round > 0 && s.Round <= len(began) &&
			(began[s.Round-1].IsZero() || s.Started.Before(began[s.Round-1])) {
			began[s.Round-1] = s.Started
		}
	}
	var when []string
	for _, at := range began {
		if !at.IsZero() {
			when = append(when, at.UTC().Format(time.DateTime))
		}
	}
	text := fmt.Sprintf("A campaign: %d of %s, one every %s, begun at %s (UTC).", len(when),
		words.Plural(e.Rounds, "round"),
		words.Period(time.Duration(e.Every*float64(time.Second))), strings.Join(when, ", "))
	if run.ByRound {
		return text + " The repetitions of a cell in one round are taken together: wherever repetitions are counted, those are rounds."
	}
	return text + " Repetitions count one by one, whatever their round."
}

// leftOut lists what was not measured because the machine lacks something.
func leftOut(run *result.Run) (out []string) {
	for _, l := range run.LeftOut() {
		text := l.What + ": " + l.Why
		if l.Hint != "" {
			text += " (" + l.Hint + ")"
		}
		out = append(out, clip(Clean(text), 500))
	}
	return out[:min(len(out), maxListed)]
}

func (r *Report) problems(problems topology.Problems) {
	if r.Text == "" {
		return // not made by trivet bench run
	}
	for _, p := range problems[:min(len(problems), maxListed)] {
		if !p.Warning { // those are of what only results tell, and they are here
			r.Problems = append(r.Problems, p.String())
		}
	}
}

// topologyOf is what the experiment says of it.
func topologyOf(text string) string {
	top, _ := yamlfile.Dialect{}.Parse("", []byte(text))
	if top == nil || top.Get("topology") == nil {
		return ""
	}
	v := top.Get("topology")
	if v.Shape == yamlfile.Scalar {
		return name(v.Text)
	}
	budget := 2000
	plain, err := v.JSON(&budget)
	if err != nil {
		return "see the experiment"
	}
	return clip(Clean(yamlfile.Flow(plain)), 300)
}

// overview counts the samples, by verdict.
func (d *data) overview(r *Report) {
	runs, repetitions := map[int]bool{}, map[string]int{}
	var verdicts []environment.Verdict
	for i := range d.counted {
		s := &d.counted[i]
		if !runs[s.Run] {
			repetitions[s.Cell]++
			r.Repetitions = max(r.Repetitions, repetitions[s.Cell])
		}
		runs[s.Run] = true
		if s.Verdict != nil || s.Failure != "" {
			v := s.Judged()
			r.Levels[v.Level]++
			verdicts = append(verdicts, v)
		}
		if s.Usage != nil {
			for _, text := range s.Usage.Missing {
				r.unseen(text, 1)
			}
		}
		r.probe(s)
		r.fail(s)
	}
	r.Done = len(runs)
	r.Reasons = reasons(verdicts)
}

func (r *Report) probe(s *result.Sample) {
	i := slices.IndexFunc(r.Probes, func(p Probe) bool { return p.Name == name(s.Probe) })
	if i < 0 {
		if len(r.Probes) >= maxListed {
			return
		}
		r.Probes = append(r.Probes, Probe{Name: name(s.Probe), Kind: name(s.Kind)})
		i = len(r.Probes) - 1
	}
	for _, m := range s.Measurements {
		if metric := name(m.Metric); !slices.Contains(r.Probes[i].Metrics,
			metric) && len(r.Probes[i].Metrics) < maxListed {
			r.Probes[i].Metrics = append(r.Probes[i].Metrics, metric)
		}
	}
}

func (r *Report) fail(s *result.Sample) {
	if s.Failure == "" {
		return
	}
	r.failed++
	text := clip(Clean(s.Failure), 1000)
	i := slices.IndexFunc(r.Failures, func(f Failure) bool { return f.Text == text && f.Probe == name(s.Probe) })
	if i < 0 {
		if len(r.Failures) >= maxListed {
			return
		}
		r.Failures = append(r.Failures, Failure{Text: text, Probe: name(s.Probe)})
		i = len(r.Failures) - 1
	}
	f := &r.Failures[i]
	f.Runs = append(f.Runs, s.Run)
	if cell := name(s.Cell); !slices.Contains(f.Cells, cell) {
		f.Cells = append(f.Cells, cell)
	}
}

// contents makes the tables and figures.
func (d *data) contents(r *Report, def *definition.Definition) {
	figures, tables := def.Figures, def.Tables
	if len(figures)+len(tables) == 0 {
		figures, tables = d.defaults()
	}
	add := func(title string, made *Table, problem string) {
		if made == nil {
			r.Problems = append(r.Problems, fmt.Sprintf("There is no table “%s”: %s.", name(title), problem))
			return
		}
		made.ID = fmt.Sprintf("table-%d", len(r.Tables)+1)
		r.Tables = append(r.Tables, *made)
	}
	for _, c := range def.Compares {
		all, problem := d.eachTwo(c)
		var made *Table
		if problem == "" {
			r.each = append(r.each, all...)
			made, problem = d.eachTwoTable(c, all)
		}
		add(cmp.Or(c.Title, c.Factor), made, problem)
	}
	for _, t := range tables {
		made, problem := d.table(t)
		add(t.Title, made, problem)
	}
	for _, f := range figures {
		made, problem := d.figure(f)
		if made == nil {
			r.Problems = append(r.Problems, fmt.Sprintf("There is no figure “%s”: %s.", name(f.Title), problem))
			continue
		}
		made.ID = fmt.Sprintf("figure-%d", len(r.Figures)+1)
		r.Figures = append(r.Figures, *made)
	}
}

// kindsOf are the metrics that each probe measured, in order of appearance.
func (d *data) kindsOf() (out []definition.Source) {
	seen, perMetric := map[[2]string]bool{}, map[string]int{}
	for i := range d.counted {
		probe := d.counted[i].Probe
		for _, m := range d.counted[i].Measurements {
			if key := [2]string{m.Metric, probe}; !seen[key] {
				seen[key] = true
				out = append(out, definition.Source{Metric: m.Metric, Probe: probe})
				perMetric[m.Metric]++
			}
		}
	}
	for i := range out {
		if perMetric[out[i].Metric] == 1 {
			out[i].Probe = ""
		}
	}
	return out
}

// defaults returns a table and a figure for each metric. Without factors, the figures are
// distributions.
func (d *data) defaults() (figures []definition.Figure, tables []definition.Table) {
	for _, src := range d.kindsOf() {
		if len(figures) == maxDefault {
			break
		}
		if len(d.pick(src, nil)) == 0 {
			continue
		}
		tables = append(tables, definition.Table{Source: src,
			Values: []string{definition.Mean, "interval", definition.Median, "deviation", "n"}})
		f := definition.Figure{Source: src}
		if len(d.varied(src)) == 0 {
			f.Kind = definition.Bar
			if all := d.pick(src, nil); len(all) == 1 && all[0].most() >= 20 {
				f.Kind = definition.CDF
			}
		}
		figures = append(figures, f)
	}
	return figures, tables
}

// most is how many values a repetition has, at most.
func (g *group) most() (n int) {
	for _, r := range g.reps {
		n = max(n, len(r.values()))
	}
	return n
}

// remarks lists outliers and warnings of what the tables and figures are made of: one value a
// repetition, by cell.
func (d *data) remarks(r *Report) {
	var dims []string
	for _, f := range d.factors {
		if len(f.Levels) > 1 {
			dims = append(dims, f.Name)
		}
	}
	for _, src := range d.shown() {
		dims := slices.Concat(dims, d.labels(src))
		for _, g := range d.pick(src, dims) {
			where := metricTitle(src)
			if levels := seriesName(dims, g.levels); levels != "" {
				where += ": " + levels
			}
			values := g.values(src)
			unit, factor := display("", []*group{g}, src)
			for _, o := range stats.Outliers(values) {
				if len(r.Outliers) < maxListed {
					r.Outliers = append(r.Outliers,
						Outlier{Where: where, Run: g.reps[o.Index].parts[0].run, Value: withUnit(o.Value*factor, unit),
							Far: o.Far})
				}
			}
			for _, w := range stats.Warnings(values) {
				r.warn(w, where)
			}
		}
	}
}

// shown are the metrics of figures and tables, each once; where nothing is said, all.
func (d *data) shown() (out []definition.Source) {
	add := func(s definition.Source) {
		one := definition.Source{Metric: s.Metric, Probe: s.Probe, Each: s.Each}
		if !slices.ContainsFunc(out, func(o definition.Source) bool {
			return o.Metric == one.Metric && o.Probe == one.Probe && o.Each == one.Each
		}) {
			out = append(out, one)
		}
	}
	for _, f := range d.definition.Figures {
		add(f.Source)
	}
	for _, t := range d.definition.Tables {
		add(t.Source)
	}
	if len(out) == 0 {
		out = d.kindsOf()
	}
	return out[:min(len(out), maxDefault)]
}

// warn adds a warning, unless it is about outliers, which are listed separately, or about shares
// that are all the same (no packet was lost), which is normal.
func (r *Report) warn(w stats.Warning, where string) {
	if w.Code != stats.WarnOutliers && w.Code != stats.WarnConstant {
		r.Warnings.add(w, where)
	}
}

// warned are warnings, each kind once.
type warned []Warning

// add adds where a warning holds to those of its code.
func (list *warned) add(w stats.Warning, where string) {
	i := slices.IndexFunc(*list, func(o Warning) bool { return o.Code == w.Code })
	if i < 0 {
		*list = append(*list, Warning{Code: w.Code, Text: strings.ToUpper(w.Text[:1]) + w.Text[1:]})
		i = len(*list) - 1
	}
	if at := &(*list)[i].Where; len(*at) < maxListed && !slices.Contains(*at, where) {
		*at = append(*at, where)
	}
}
