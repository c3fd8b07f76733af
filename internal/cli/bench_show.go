package cli

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/bench/drive"
	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// benchFigure is a metric of a probe in a cell, as in a report: the mean of the repetitions, each
// of which counts by its own mean (see result.Mean), and the lowest and highest of these; if there
// is only one repetition, the lowest and highest of its values.
type benchFigure struct {
	Cell   string            `json:"cell"`
	Probe  string            `json:"probe"`
	Metric string            `json:"metric"`
	Labels string            `json:"labels,omitempty"`
	Unit   string            `json:"unit"`
	Mean   stats.Float       `json:"mean"`
	Low    stats.Float       `json:"low"`
	High   stats.Float       `json:"high"`
	Runs   int               `json:"runs"`
	Level  environment.Level `json:"fidelity"`

	kind     string // of the probe
	byRun    []benchValues
	last     *result.Sample // of the last of them
	verdicts []environment.Verdict
}

// benchValues are the values of one repetition.
type benchValues struct {
	values    []float64
	count, of int // of a share
}

// failures is the number of counted samples that have failed.
func failures(run *result.Run) (n int) {
	for _, s := range run.Counted() {
		if s.Failure != "" {
			n++
		}
	}
	return n
}

// shownLabels is how many directions, or hops, of one metric are shown separately; if there are
// more, they are combined.
const shownLabels = 4

// benchFigures returns the figures in the order of the plan's cells.
func benchFigures(run *result.Run, p *experiment.Plan) []*benchFigure {
	var out []*benchFigure
	index := map[[4]string]*benchFigure{}
	counted := run.Counted()
	apart := fewLabels(counted)
	for i := range counted {
		s := &counted[i]
		if s.Failure != "" {
			continue // listed as a failure, and not part of a figure
		}
		for _, m := range s.Measurements {
			labels := ""
			if apart[[2]string{s.Probe, m.Metric}] {
				labels = labelText(m.Labels)
			}
			key := [4]string{s.Cell, s.Probe, m.Metric, labels}
			f := index[key]
			if f == nil {
				f = &benchFigure{Cell: s.Cell, Probe: s.Probe, Metric: m.Metric, Labels: labels, Unit: m.Unit,
					kind: s.Kind}
				index[key], out = f, append(out, f)
			}
			f.add(s, &m)
		}
	}
	for i := range counted {
		for _, f := range out {
			if s := &counted[i]; s.Failure != "" && s.Cell == f.Cell && s.Probe == f.Probe { // a repetition is missing
				f.verdicts = append(f.verdicts, environment.Verdict{Level: environment.Bad})
			}
		}
	}
	for _, f := range out {
		f.finish()
	}
	place := map[string]int{}
	for i := range p.Cells {
		place[p.Cells[i].ID] = i
	}
	slices.SortStableFunc(out, func(a, b *benchFigure) int { return cmp.Compare(place[a.Cell], place[b.Cell]) })
	return out
}

// fewLabels says for which metrics of which probes labels are shown: those with more than one, but
// few.
func fewLabels(samples []result.Sample) map[[2]string]bool {
	seen := map[[3]string]map[string]bool{}
	for i := range samples {
		for _, m := range samples[i].Measurements {
			key := [3]string{samples[i].Cell, samples[i].Probe, m.Metric}
			if seen[key] == nil {
				seen[key] = map[string]bool{}
			}
			seen[key][labelText(m.Labels)] = true
		}
	}
	out := map[[2]string]bool{}
	for key, labels := range seen {
		out[[2]string{key[1], key[2]}] = out[[2]string{key[1], key[2]}] || len(labels) > 1 && len(labels) <= shownLabels
	}
	return out
}

func labelText(labels map[string]string) string {
	if labels["from"] != "" && len(labels) == 2 {
		return labels["from"] + " → " + labels["to"]
	}
	var words []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if k != "from" && k != "to" {
			words = append(words, k+" "+labels[k])
		}
	}
	return strings.Join(words, " ")
}

func (f *benchFigure) add(s *result.Sample, m *result.Measurement) {
	if f.last != s { // a sample has many values of one metric if all hosts ping all others
		f.byRun, f.last = append(f.byRun, benchValues{}), s
		level := environment.Doubtful // there was no verdict
		if s.Verdict != nil {
			level = s.Verdict.Level // without its reasons, of which there may be thousands
		}
		f.verdicts = append(f.verdicts, environment.Verdict{Level: level})
	}
	r := &f.byRun[len(f.byRun)-1]
	r.values, r.count, r.of = append(r.values, m.Values...), r.count+m.Count, r.of+m.Of
}

// finish computes the figures from the values.
func (f *benchFigure) finish() {
	f.Mean, f.Low, f.High = stats.None, stats.None, stats.None
	f.Level = environment.Together(f.verdicts...).Level
	f.byRun = slices.DeleteFunc(f.byRun, func(r benchValues) bool { return len(r.values) == 0 })
	f.Runs = len(f.byRun)
	if f.Runs == 0 {
		return
	}
	var means []float64
	for _, r := range f.byRun {
		means = append(means, result.Mean(r.values, r.count, r.of))
	}
	f.Mean = stats.Float(result.Mean(means, 0, 0))
	if f.Runs == 1 {
		means = f.byRun[0].values
	}
	f.Low, f.High = stats.Float(slices.Min(means)), stats.Float(slices.Max(means))
}

// showBench prints what a result file contains: figures, failures, and how far they can be trusted.
func (a *app) showBench(p *experiment.Plan, file string, run *result.Run, s experiment.Summary,
	took time.Duration) error {
	figures, verdict := benchFigures(run, p), verdictOf(run)
	if a.json {
		out := map[string]any{"file": file, "summary": s, "seconds": took.Seconds(), "failures": failures(run),
			"figures": figures, "verdict": verdict}
		if run.Header.Experiment.Until != nil {
			out["until"] = decisionsOf(run)
		}
		return a.printJSON(out)
	}
	rows := [][]string{{"CELL", "PROBE", "METRIC", "", "MEAN", "LOWEST", "HIGHEST", "RUNS", "FIDELITY"}}
	last, hidden := "", 0
	for _, f := range figures {
		if !drive.Shows(f.kind, f.Metric) {
			hidden++
			continue
		}
		cell := f.Cell
		if cell == last {
			cell = ""
		}
		last = f.Cell
		rows = append(rows,
			[]string{cell, f.Probe, f.Metric, f.Labels, quantity(f.Mean, f.Unit), quantity(f.Low, f.Unit),
				quantity(f.High, f.Unit), fmt.Sprint(f.Runs), string(f.Level)})
	}
	if len(rows) > 1 {
		fmt.Fprintln(a.out)
		a.table(rows)
	}
	if hidden > 0 {
		a.say("and %s in the file:  trivet bench report %s", words.Plural(hidden, "more figure"), file)
	}
	a.showFailures(run)
	a.showEvents(run)
	a.say("\n%s measured, %d failed, %d left; in %s", words.Plural(s.Before+s.Done, "run"), failures(run), s.Left,
		experiment.About(took))
	for _, line := range p.MissingText() {
		a.say("%s", line)
	}
	a.showVerdict(run, verdict)
	if run.Header.Experiment.Until != nil {
		a.showDecisions(decisionsOf(run))
	}
	return nil
}

// decisions are the conclusions of an experiment that continues until it is decided, at its last
// look.
type decisions struct {
	Ends        string     `json:"ends,omitempty"` // decided, most; "": it has not ended
	Most        int        `json:"most"`           // repetitions
	Looks       []int      `json:"looks"`          // after how many repetitions it was judged
	Repetitions int        `json:"repetitions"`    // at the last of them
	Level       float64    `json:"level"`          // of the last of them
	Statements  []decision `json:"statements"`
}

// decision is a statement with the number of repetitions since which it has been decided.
type decision struct {
	result.Judged
	After int `json:"decided_after,omitempty"`
}

func decisionsOf(run *result.Run) decisions {
	out := decisions{Most: run.Header.Experiment.Repetitions}
	for _, l := range run.Looks {
		out.Looks = append(out.Looks, l.Repetitions)
		out.Ends, out.Repetitions, out.Level = l.Ends, l.Repetitions, l.Level
		before := out.Statements
		out.Statements = nil
		for i, s := range l.Statements {
			d := decision{Judged: s, After: l.Repetitions}
			if s.Open {
				d.After = 0
			} else if i < len(before) && before[i].What == s.What && before[i].After > 0 {
				d.After = before[i].After
			}
			out.Statements = append(out.Statements, d)
		}
	}
	return out
}

func (a *app) showDecisions(d decisions) {
	if len(d.Looks) == 0 {
		a.say("\nno statement was judged yet: that begins with more repetitions")
		return
	}
	open := 0
	for _, s := range d.Statements {
		if s.Open {
			open++
		}
	}
	after := words.Plural(d.Repetitions, "repetition")
	judged := fmt.Sprintf("%s, each statement judged at %.2g %%", words.Plural(len(d.Looks), "look"), 100*d.Level)
	switch d.Ends {
	case result.EndsDecided:
		a.say("\nended after %s of at most %d, as all is decided that can be (%s)", after, d.Most, judged)
	case result.EndsMost:
		a.say("\nended with the most, %s; %d of %s undecided (%s)", after, open,
			words.Plural(len(d.Statements), "statement"), judged)
	default:
		a.say("\nnot ended; last looked at after %s of at most %d, with %d of %s undecided (%s)", after, d.Most, open,
			words.Plural(len(d.Statements), "statement"), judged)
	}
	var rows [][]string
	for _, s := range d.Statements {
		when := "open"
		switch {
		case s.After > 0 && s.Outcome == string(report.NotMeasured):
			when = ""
		case s.After > 0:
			when = fmt.Sprintf("after %d", s.After)
		}
		text := s.What
		if s.Open && s.Needed > 0 {
			text += fmt.Sprintf("  (about %d repetitions would tell)", s.Needed)
		}
		rows = append(rows, []string{"", when, s.Outcome, text})
	}
	a.table(rows)
}

// showFailures lists what failed; probes of one run that failed for the same reason are joined.
func (a *app) showFailures(run *result.Run) {
	var lines []string
	var last result.Sample
	for _, s := range run.Counted() {
		switch {
		case s.Failure == "":
		case s.Run == last.Run && s.Failure == last.Failure:
			lines[len(lines)-1] = strings.Replace(lines[len(lines)-1], " failed: ", ", "+s.Probe+" failed: ", 1)
		default:
			lines = append(lines,
				fmt.Sprintf("run %d, %s, %s failed: %s", s.Run, s.Cell, s.Probe, firstWords(s.Failure)))
			last = s
		}
	}
	for _, line := range lines[:min(len(lines), shownFailures)] {
		a.say("%s", line)
	}
	if n := len(lines) - shownFailures; n > 0 {
		a.say("… and %d more failed", n)
	}
}

// firstWords is the beginning of a reason; the file has all of it.
func firstWords(reason string) string {
	lines := strings.Split(reason, "\n")
	text := strings.Join(lines[:min(len(lines), 4)], "\n  ")
	if most := 600; len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	} else if len(lines) > 4 {
		text += "\n  …"
	}
	return text
}

// showEvents lists the events that did not happen in any probe of a run.
func (a *app) showEvents(run *result.Run) {
	type key struct {
		cell, what string
	}
	failed, happened := map[key]string{}, map[key]bool{}
	var order []key
	for _, s := range run.Counted() {
		for _, e := range s.Events {
			k := key{s.Cell, e.What}
			if e.Failure == "" {
				happened[k] = true
			} else if _, known := failed[k]; !known {
				order = append(order, k)
			}
			if e.Failure != "" {
				failed[k] = e.Failure
			}
		}
	}
	for _, k := range order {
		if !happened[k] {
			a.say("%s: %s did not happen: %s", k.cell, k.what, failed[k])
		}
	}
}

// verdictOf returns the verdict on all counted samples together.
func verdictOf(run *result.Run) environment.Verdict {
	var all []environment.Verdict
	for _, s := range run.Counted() {
		if s.Verdict != nil || s.Failure != "" {
			all = append(all, s.Judged())
		}
	}
	return environment.Together(all...)
}

// shownReasons is how many reasons for doubting figures are listed.
const shownReasons = 8

func (a *app) showVerdict(run *result.Run, all environment.Verdict) {
	count := map[environment.Level]int{}
	codes := map[string]int{}
	examples := map[string]environment.Reason{}
	for _, s := range run.Counted() {
		if s.Verdict == nil && s.Failure == "" {
			continue
		}
		v := s.Judged()
		count[v.Level]++
		for _, r := range v.Reasons {
			codes[r.Code]++
			if known, ok := examples[r.Code]; !ok || known.Level == environment.Doubtful && r.Level == environment.Bad {
				examples[r.Code] = r
			}
		}
	}
	if len(count) == 0 {
		return
	}
	a.say("fidelity: %s (%d good, %d doubtful, %d bad)", all.Level, count[environment.Good],
		count[environment.Doubtful], count[environment.Bad])
	names := slices.SortedFunc(maps.Keys(codes),
		func(a, b string) int { return cmp.Or(cmp.Compare(codes[b], codes[a]), cmp.Compare(a, b)) })
	for _, name := range names[:min(len(names), shownReasons)] {
		a.say("  %s: %s, such as: %s", examples[name].Level, words.Plural(codes[name], "measurement"),
			examples[name].Text)
	}
}

// quantity formats a value with its unit for the user.
func quantity(v stats.Float, unit string) string {
	x := float64(v)
	switch {
	case math.IsNaN(x):
		return "–"
	case unit == "s" && math.Abs(x) < 1e-3:
		return fmt.Sprintf("%.4g µs", x*1e6)
	case unit == "s" && math.Abs(x) < 1:
		return fmt.Sprintf("%.4g ms", x*1e3)
	case unit == "bit/s":
		return bits(x)
	case unit == "1":
		return fmt.Sprintf("%.4g", x)
	}
	if math.Abs(x) >= 1e4 && math.Abs(x) < 1e15 { // 37680, not 3.768e+04
		return fmt.Sprintf("%.0f %s", x, unit)
	}
	return fmt.Sprintf("%.4g %s", x, unit)
}
