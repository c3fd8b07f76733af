package markdown

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/environment"
	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/internal/words"
)

var outcomes = []report.Outcome{report.Holds, report.Fails, report.CannotTell, report.NotMeasured}

// count counts statements by what became of them.
func count(pages []page) (out map[report.Outcome]int, sum int) {
	out = map[report.Outcome]int{}
	for _, p := range pages {
		for _, r := range p.Results {
			if r.Paper == nil {
				continue
			}
			for _, c := range r.Paper.Outcomes() {
				out[c.Outcome] += c.Count
				sum += c.Count
			}
		}
	}
	return out, sum
}

// total is the count in a line.
func total(pages []page) string {
	n, sum := count(pages)
	var out []string
	for _, o := range outcomes {
		out = append(out, fmt.Sprintf("%s: %d", o, n[o]))
	}
	return fmt.Sprintf("Of %s, %s.", words.Plural(sum, "statement"), strings.Join(out, "; "))
}

// statements is a table with a line for each page.
func statements(pages []page) string {
	columns := []string{"Page", "Results", "Samples"}
	for _, o := range outcomes {
		columns = append(columns, string(o))
	}
	var rows [][]string
	for _, p := range pages {
		n, _ := count([]page{p})
		samples := 0
		for _, r := range p.Results {
			samples += r.Samples
		}
		row := []string{"[" + text(p.Title) + "](" + p.Name + ".md)", fmt.Sprint(len(p.Results)), fmt.Sprint(samples)}
		for _, o := range outcomes {
			row = append(row, fmt.Sprint(n[o]))
		}
		rows = append(rows, row)
	}
	return grid(columns, 1, rows)
}

// all is a table of every statement of a page.
func all(p page) string {
	var rows [][]string
	for _, r := range p.Results {
		if r.Paper == nil {
			continue
		}
		where, _, _ := strings.Cut(strings.Trim(strings.TrimPrefix(upper(r.Paper.Source), p.Title), ",; "), ";")
		for _, t := range r.Paper.Trends {
			rows = append(rows, []string{"[" + text(cmp.Or(where, r.Title)) + "](" + p.Name + ".md#" + r.Name + ")", text(t.Text), outcome(t.Outcome) + level(t.Level)})
		}
	}
	if rows == nil {
		return ""
	}
	return grid([]string{"Where", "Statement", "Here"}, 3, rows)
}

// sources is a table of the result files.
func sources(p page) string {
	var rows [][]string
	for _, r := range p.Results {
		if r.SHA256 != "" {
			rows = append(rows, []string{code(r.File), fmt.Sprint(r.Bytes), code(r.SHA256)})
		}
	}
	return grid([]string{"Result file", "Bytes", "SHA-256"}, 3, rows)
}

// machine is one on which results were measured.
type machine struct {
	facts   [][]string
	loads   []float64
	tools   map[string]bool // with their versions
	Results []string
}

// Table is what is said of it.
func (m *machine) Table() string {
	rows := slices.Clone(m.facts)
	if len(m.loads) > 0 {
		rows = append(rows, []string{"Busy before the starts", fmt.Sprintf("%s to %s %% of its processors", report.Number(100*slices.Min(m.loads)), report.Number(100*slices.Max(m.loads)))})
	}
	if len(m.tools) > 0 {
		rows = append(rows, []string{"Programs", strings.Join(slices.Sorted(maps.Keys(m.tools)), "; ")})
	}
	return grid([]string{"", ""}, 2, rows)
}

// machines are those of all results, each once. They are told by what is said of them: their names,
// and the hashes of them, are nobody's business.
func machines(pages []page) (out []*machine) {
	for _, p := range pages {
		for _, r := range p.Results {
			facts := describe(r.Environment)
			i := slices.IndexFunc(out, func(m *machine) bool {
				return slices.EqualFunc(m.facts, facts, func(a, b []string) bool { return slices.Equal(a, b) })
			})
			if i < 0 {
				out = append(out, &machine{facts: facts, tools: map[string]bool{}})
				i = len(out) - 1
			}
			m := out[i]
			if busy := float64(r.Environment.Load.Busy); !math.IsNaN(busy) && r.Environment.Load.Seconds > 0 {
				m.loads = append(m.loads, busy)
			}
			for name, version := range r.Environment.Tools {
				m.tools[text(name+": "+version)] = true
			}
			m.Results = append(m.Results, text(r.Title))
		}
	}
	return out
}

// describe is what of a machine may explain its numbers.
func describe(e environment.Record) (out [][]string) {
	add := func(name, value string) {
		if value = text(value); value != "" {
			out = append(out, []string{name, value})
		}
	}
	add("Processors", fmt.Sprintf("%d usable of %d: %s", e.CPU.Usable, e.CPU.Online, strings.TrimSpace(e.CPU.Model+" "+e.Machine)))
	add("Hyper-threading", e.CPU.SMT)
	add("Frequency", strings.Join(e.CPU.Governors, ", "))
	add("Memory", report.Number(float64(e.Memory.Total)/(1<<30))+" GiB")
	add("Virtualisation", e.Virtualisation)
	add("System", e.System)
	add("Kernel", e.Kernel)
	add("Clock", e.ClockSource)
	add("Trivet", e.Trivet+", "+e.Go)
	return out
}
