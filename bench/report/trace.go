package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/measure/stats"
)

// distributions makes a line for each group: what share of its values is at most x.
func (d *data) distributions(f *Figure, def *definition.Figure, groups []*group, factor float64) {
	most := perTrace(len(groups))
	for _, g := range groups {
		xs := scaled(g.values(def.Source), factor)
		slices.Sort(xs)
		t := Trace{N: len(xs)}
		for _, i := range indices(len(xs), most) {
			t.X, t.Y = append(t.X, xs[i]), append(t.Y, float64(i+1)/float64(len(xs)))
		}
		s := f.series(seriesName(def.Series, g.levels))
		s.Traces = append(s.Traces, t)
	}
}

// perTrace is how many points each of so many traces may have.
func perTrace(traces int) int {
	return max(2, min(maxTrace, maxPoints/max(1, traces)))
}

// MarshalJSON writes a trace for the page, with six digits, which is more than can be seen.
func (t Trace) MarshalJSON() ([]byte, error) {
	type plain Trace
	t.X, t.Y = rounded(t.X), rounded(t.Y)
	return json.Marshal(plain(t))
}

func rounded(xs []float64) []float64 {
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i], _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	}
	return out
}

// finish completes a figure with what depends on all of it, and makes its table.
func (f *Figure) finish() {
	if f.Zero = f.zero(); f.Zero {
		f.Notes = append(f.Notes, "All values are 0.")
	}
	f.Data = f.rows()
}

// zero reports whether all values of ours are 0; of a distribution those are its x.
func (f *Figure) zero() bool {
	some, other := false, func(v float64) bool { return v != 0 }
	for _, s := range f.Series {
		for _, p := range s.Points {
			if !s.Paper && (p.Y != 0 || slices.ContainsFunc(p.Values,
				other) || p.Box != nil && (p.Box.Low != 0 || p.Box.High != 0 || len(p.Box.Out) > 0)) {
				return false
			}
			some = some || !s.Paper
		}
		for _, t := range s.Traces {
			values := t.Y
			if f.Kind == definition.CDF {
				values = t.X
			}
			if slices.ContainsFunc(values, other) {
				return false
			}
			some = some || len(values) > 0
		}
	}
	return some
}

// indices are all of n, or of many some, evenly, with the first and the last.
func indices(n, most int) []int {
	count := min(n, most)
	out := make([]int, count)
	for i := range out {
		out[i] = i
		if n > most {
			out[i] = int(int64(i) * int64(n-1) / int64(most-1))
		}
	}
	return out
}

// courses makes a line for each run, also by round: its values over the time within it. What
// happened is marked.
func (d *data) courses(f *Figure, def *definition.Figure, groups []*group, factor float64) {
	happened := map[string][]float64{}
	var order []string
	traces, runs, each := 0, 0, max(1, min(perSeries, maxTraces/len(groups)))
	for _, g := range groups {
		traces, runs = traces+min(len(g.parts), each), runs+len(g.parts)
	}
	if traces < runs {
		f.Notes = append(f.Notes, fmt.Sprintf("%d of %d runs are drawn.", traces, runs))
	}
	most := perTrace(traces)
	for _, g := range groups {
		s := f.series(seriesName(def.Series, g.levels))
		for _, p := range g.runs() {
			if len(p.at) != len(p.values) {
				continue // no times
			}
			for _, e := range p.events {
				what := name(e.What)
				if e.Failure != "" {
					what += " (failed)"
				}
				if happened[what] == nil {
					order = append(order, what)
				}
				happened[what] = append(happened[what], e.At)
			}
			if len(s.Traces) < each {
				s.Traces = append(s.Traces, course(p, factor, most))
			}
		}
	}
	f.Series = slices.DeleteFunc(f.Series, func(s Series) bool { return len(s.Traces) == 0 })
	if len(f.Series) == 0 {
		f.Notes = append(f.Notes, "these values have no times")
	}
	for _, what := range order[:min(len(order), 50)] {
		f.Events = append(f.Events, Event{At: stats.Quantile(happened[what], 0.5), What: what})
	}
	slices.SortStableFunc(f.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// course makes a run's trace; if there are many values, the least and the greatest of each interval
// are kept, so that no spike is lost.
func course(p *part, factor float64, most int) Trace {
	order := make([]int, len(p.at))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.at[a], p.at[b]) })
	if stretches := most / 2; len(order) > most {
		var kept []int
		for i := range stretches {
			stretch := order[i*len(order)/stretches : (i+1)*len(order)/stretches]
			low, high := stretch[0], stretch[0]
			for _, k := range stretch {
				if p.values[k] < p.values[low] {
					low = k
				}
				if p.values[k] > p.values[high] {
					high = k
				}
			}
			if p.at[low] > p.at[high] {
				low, high = high, low
			}
			kept = append(kept, low, high)
		}
		order = kept
	}
	t := Trace{Run: p.run, N: len(p.values)}
	for _, k := range order {
		t.X, t.Y = append(t.X, p.at[k]), append(t.Y, p.values[k]*factor)
	}
	return t
}

// rows are the figure's data as a table.
func (f *Figure) rows() [][]string {
	if f.Kind == definition.CDF || f.Kind == definition.Time {
		out := [][]string{{"series", "run", f.X.Title(), f.Y.Title()}}
		for _, s := range f.Series {
			for _, t := range s.Traces {
				for i := range t.X {
					out = append(out, []string{s.Name, fmt.Sprint(t.Run), exact(t.X[i]), exact(t.Y[i])})
				}
			}
		}
		return out
	}
	out := [][]string{{"series", cmp.Or(f.X.Label, "x"), f.Y.Title(), "low", "high", "n", "fidelity"}}
	if f.Kind == definition.Box {
		out[0] = append(out[0], "q1", "q3", "whisker low", "whisker high")
	}
	for _, s := range f.Series {
		series := s.Name
		if s.Paper {
			series += " (paper)"
		}
		for _, p := range s.Points {
			row := []string{series, p.Name, exact(p.Y), exact(float64(p.Low)), exact(float64(p.High)), fmt.Sprint(p.N),
				string(p.Level)}
			if p.Box != nil {
				row = append(row, exact(p.Box.Q1), exact(p.Box.Q3), exact(p.Box.Low), exact(p.Box.High))
			}
			out = append(out, row)
		}
	}
	return out
}
