package result

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
)

// columns are the columns before and after those of the factors.
var (
	columnsBefore = []string{"experiment", "run", "cell", "block", "pair", "repetition", "warm_up"}
	columnsAfter  = []string{"probe", "kind", "started", "metric", "unit", "labels", "index", "at", "value", "count",
		"of", "fidelity", "events", "failure", "superseded", "round"}
)

// CSV writes a table in long form: a line per value, with a column per factor (named factor.NAME).
// A sample that failed or has no values gets one line without a value, so that nothing is missing,
// and a failure is not mistaken for a value such as a loss of 0.
func (run *Run) CSV(to io.Writer) error {
	w := csv.NewWriter(to)
	factors := run.factorNames()
	header := slices.Clone(columnsBefore)
	for _, f := range factors {
		header = append(header, "factor."+f)
	}
	if err := w.Write(append(header, columnsAfter...)); err != nil {
		return err
	}
	for i, over := range run.superseded() {
		if err := run.csvSample(w, &run.Samples[i], factors, over); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// factorNames returns the header's factors, then any others.
func (run *Run) factorNames() (names []string) {
	for _, f := range run.Header.Experiment.Factors {
		names = append(names, f.Name)
	}
	var others []string
	for _, s := range run.Samples {
		for name := range s.Factors {
			if !slices.Contains(names, name) && !slices.Contains(others, name) {
				others = append(others, name)
			}
		}
	}
	slices.Sort(others)
	return append(names, others...)
}

func (run *Run) csvSample(w *csv.Writer, s *Sample, factors []string, superseded bool) error {
	before := []string{run.Header.Experiment.Name, strconv.Itoa(s.Run), s.Cell, strconv.Itoa(s.Block), s.Pair,
		strconv.Itoa(s.Repetition), strconv.FormatBool(s.WarmUp)}
	for _, f := range factors {
		before = append(before, plain(s.Factors[f]))
	}
	before = append(before, s.Probe, s.Kind, s.Started.UTC().Format("2006-01-02T15:04:05.000000Z"))
	fidelity := ""
	if s.Verdict != nil {
		fidelity = string(s.Verdict.Level)
	}
	events := lists.Map(s.Events, func(e Event) string { return number(e.At) + " " + e.What })
	after := []string{fidelity, strings.Join(events, "; "), s.Failure, strconv.FormatBool(superseded), ""}
	if s.Round > 0 {
		after[len(after)-1] = strconv.Itoa(s.Round)
	}
	values := 0
	for _, m := range s.Measurements {
		if s.Failure != "" {
			break
		}
		for i, v := range m.Values {
			values++
			at, count, of := "", "", ""
			if i < len(m.At) {
				at = number(m.At[i])
			}
			if m.Of > 0 {
				count, of = strconv.Itoa(m.Count), strconv.Itoa(m.Of)
			}
			middle := []string{m.Metric, m.Unit, labels(m.Labels), strconv.Itoa(i), at, number(v), count, of}
			if err := w.Write(slices.Concat(before, middle, after)); err != nil {
				return err
			}
		}
	}
	if values > 0 {
		return nil
	}
	return w.Write(slices.Concat(before, make([]string, 8), after))
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// plain formats a level as in the experiment.
func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func labels(m map[string]string) string {
	var out []string
	for key, value := range m {
		out = append(out, key+"="+value)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
