package markdown

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/environment"
)

// SummaryFile is the name of a page's summary, in the directory of its pictures.
const SummaryFile = "summary.json"

// Summary is the index's data about a page. It is stored next to the page, so that results of one
// directory can be published again, and the index still covers all.
type Summary struct {
	Name   string   `json:"name"` // of the page's file, without its end
	Title  string   `json:"title"`
	Note   string   `json:"note,omitempty"`
	Listed []Listed `json:"results"`
}

// Listed is the index's data about a result.
type Listed struct {
	Name       string            `json:"name"` // unique on its page
	Title      string            `json:"title"`
	Where      string            `json:"where"` // in the paper
	Started    time.Time         `json:"started"`
	Samples    int               `json:"samples"`
	Statements []Statement       `json:"statements"`
	Machine    [][2]string       `json:"machine"`        // what of it may explain its numbers
	Busy       *float64          `json:"busy,omitempty"` // before the start, as a share of the processors
	Tools      map[string]string `json:"tools,omitempty"`
}

// Statement is a paper's statement with its outcome.
type Statement struct {
	Text    string            `json:"text"`
	Outcome report.Outcome    `json:"outcome"`
	Level   environment.Level `json:"level,omitempty"`
	Needed  int               `json:"repetitions_needed,omitempty"` // that would tell; see report.Trend
}

// summarize is called once a page has all of its results.
func (p *page) summarize() {
	p.Title, p.Note = plain(p.Title), plain(p.Note)
	for _, r := range p.Results {
		l := Listed{Name: r.Name, Title: plain(r.Title), Started: r.Started.UTC(), Samples: r.Samples,
			Machine: describe(r.Environment), Tools: map[string]string{}}
		l.Where = l.Title
		for name, version := range r.Environment.Tools {
			l.Tools[plain(name)] = plain(version)
		}
		if busy := float64(r.Environment.Load.Busy); !math.IsNaN(busy) && r.Environment.Load.Seconds > 0 {
			l.Busy = &busy
		}
		if r.Paper != nil {
			where, _, _ := strings.Cut(strings.Trim(strings.TrimPrefix(upper(plain(r.Paper.Source)), p.Title), ",; "),
				";")
			l.Where = cmp.Or(where, l.Title)
			for _, t := range r.Paper.Trends {
				l.Statements = append(l.Statements, Statement{plain(t.Text), t.Outcome, t.Level, t.Needed})
			}
		}
		p.Listed = append(p.Listed, l)
	}
}

func (s Summary) write(to io.Writer) error {
	e := json.NewEncoder(to)
	e.SetIndent("", "\t")
	e.SetEscapeHTML(false)
	return e.Encode(s)
}

// Kept reads the summaries below a directory of pages, except those whose page is gone.
func Kept(dir string) (out []Summary, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", SummaryFile))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if _, err := os.Stat(filepath.Join(dir, name+".md")); err != nil {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s := Summary{}
		if err := json.Unmarshal(data, &s); err != nil || s.Name != name {
			return nil, fmt.Errorf("%s is no summary of a page: delete it, or name the results of that page too (%w)",
				file, cmp.Or(err, errors.New("it is of "+s.Name)))
		}
		out = append(out, s)
	}
	return out, nil
}

// outcomesOf are those that stand in the counts of pages: what hardly any page has, only where one
// has it.
func outcomesOf(pages []Summary) []report.Outcome {
	out := []report.Outcome{report.Holds, report.Fails, report.CannotTell, report.NotMeasured}
	if n, _ := count(pages); n[report.NeedsKVM] > 0 {
		out = slices.Insert(out, 3, report.NeedsKVM)
	}
	return out
}

// count counts statements by what became of them.
func count(pages []Summary) (out map[report.Outcome]int, sum int) {
	out = map[report.Outcome]int{}
	for _, p := range pages {
		for _, r := range p.Listed {
			for _, s := range r.Statements {
				out[s.Outcome]++
				sum++
			}
		}
	}
	return out, sum
}

// total is the count in a line.
func total(pages []Summary) string {
	n, sum := count(pages)
	out := lists.Of(outcomesOf(pages), func(o report.Outcome) string { return fmt.Sprintf("%s: %d", o, n[o]) })
	return fmt.Sprintf("Of %s, %s.", words.Plural(sum, "statement"), strings.Join(out, "; "))
}

// note is that of all pages, "" where they have several.
func note(pages []Summary) string {
	if slices.ContainsFunc(pages, func(p Summary) bool { return p.Note != pages[0].Note }) {
		return ""
	}
	return pages[0].Note
}

// statements is a table with a line for each page.
func statements(pages []Summary) string {
	columns := []string{"Page", "Measured", "Results", "Samples"}
	shown := outcomesOf(pages)
	for _, o := range shown {
		columns = append(columns, string(o))
	}
	var rows [][]string
	for _, p := range pages {
		n, _ := count([]Summary{p})
		samples, begun := 0, []time.Time{}
		for _, r := range p.Listed {
			samples, begun = samples+r.Samples, append(begun, r.Started)
		}
		row := []string{"[" + text(p.Title) + "](" + p.Name + ".md)", days(begun), fmt.Sprint(len(p.Listed)),
			fmt.Sprint(samples)}
		for _, o := range shown {
			row = append(row, fmt.Sprint(n[o]))
		}
		rows = append(rows, row)
	}
	return grid(columns, 2, rows)
}

// all is a table of every statement of a page.
func all(p Summary) string {
	var rows [][]string
	for _, r := range p.Listed {
		for _, s := range r.Statements {
			rows = append(rows, []string{"[" + text(r.Where) + "](" + p.Name + ".md#" + r.Name + ")", text(s.Text),
				outcome(s.Outcome) + level(s.Level)})
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
	facts   [][2]string
	loads   []float64
	tools   map[string]bool // with their versions
	Results []string
}

// Table is what is said of it.
func (m *machine) Table() string {
	rows := lists.Of(m.facts, func(f [2]string) []string { return []string{text(f[0]), text(f[1])} })
	if len(m.loads) > 0 {
		rows = append(rows, []string{"Busy before the starts",
			fmt.Sprintf("%s to %s %% of its processors", report.Number(100*slices.Min(m.loads)),
				report.Number(100*slices.Max(m.loads)))})
	}
	if len(m.tools) > 0 {
		rows = append(rows, []string{"Programs", strings.Join(slices.Sorted(maps.Keys(m.tools)), "; ")})
	}
	return grid([]string{"", ""}, 2, rows)
}

// machines lists the machines of all results, each once. They are identified by their description:
// names, and hashes of names, are private.
func machines(pages []Summary) (out []*machine) {
	for _, p := range pages {
		for _, r := range p.Listed {
			i := slices.IndexFunc(out, func(m *machine) bool { return slices.Equal(m.facts, r.Machine) })
			if i < 0 {
				out = append(out, &machine{facts: r.Machine, tools: map[string]bool{}})
				i = len(out) - 1
			}
			m := out[i]
			if r.Busy != nil {
				m.loads = append(m.loads, *r.Busy)
			}
			for name, version := range r.Tools {
				m.tools[text(name+": "+version)] = true
			}
			m.Results = append(m.Results, text(r.Title))
		}
	}
	return out
}

// describe returns the properties of a machine that may explain its numbers.
func describe(e environment.Record) (out [][2]string) {
	add := func(name, value string) {
		if value = plain(value); value != "" {
			out = append(out, [2]string{name, value})
		}
	}
	add("Processors", fmt.Sprintf("%d usable of %d: %s", e.CPU.Usable, e.CPU.Online,
		strings.TrimSpace(e.CPU.Model+" "+e.Machine)))
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
