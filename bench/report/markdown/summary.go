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
	"regexp"
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

// Summary is the index's data about a page. It is stored next to the page, so that results can be
// published one at a time, and page and index still cover all.
type Summary struct {
	Name   string   `json:"name"` // of the page's file, without its end
	Title  string   `json:"title"`
	Listed []Listed `json:"results"`
}

// Listed is the index's data about a result.
type Listed struct {
	Name       string            `json:"name"` // unique on its page
	Title      string            `json:"title"`
	Where      string            `json:"where"`          // in the paper
	Note       string            `json:"note,omitempty"` // how it was measured
	File       string            `json:"file,omitempty"` // with its directory; "": several side by side
	Bytes      int64             `json:"bytes,omitempty"`
	SHA256     string            `json:"sha256,omitempty"`
	Started    time.Time         `json:"started"`
	Samples    int               `json:"samples"`
	Statements []Statement       `json:"statements"`
	Machine    [][2]string       `json:"machine"`        // what of it may explain its numbers
	Busy       *float64          `json:"busy,omitempty"` // before the start, as a share of the processors
	Tools      map[string]string `json:"tools,omitempty"`

	Section string `json:"-"` // of the page: all that it says of the result
}

// Statement is a paper's statement with its outcome.
type Statement struct {
	Text    string            `json:"text"`
	Outcome report.Outcome    `json:"outcome"`
	Here    report.Outcome    `json:"here,omitempty"`       // see report.Trend
	By      string            `json:"decided_by,omitempty"` // see report.Trend
	Level   environment.Level `json:"level,omitempty"`
	Model   bool              `json:"by_model,omitempty"`           // see report.Trend
	Needed  int               `json:"repetitions_needed,omitempty"` // that would tell; see report.Trend
}

// summarize writes the sections of a page's results, which replace those of the same name that an
// existing page has; its others stay.
func (p *page) summarize(note string, kept []Summary) error {
	if i := slices.IndexFunc(kept, func(s Summary) bool { return s.Name == p.Name }); i >= 0 {
		p.Listed = slices.Clone(kept[i].Listed)
		if old := kept[i].Title; old != "" && old != titled(p.Name) && slices.ContainsFunc(p.Listed, p.stays) {
			p.Title = old // one result's wording does not rename what is of others, too
		}
	}
	p.Title = plain(p.Title)
	for _, r := range p.Results {
		var section strings.Builder
		if err := pages().ExecuteTemplate(&section, "section", shown{r, p.Plots(r)}); err != nil {
			return err
		}
		l := Listed{Name: r.Name, Title: plain(r.Title), Note: plain(note), Started: r.Started.UTC(),
			Samples: r.Samples,
			Machine: describe(r.Environment), Tools: map[string]string{}, Section: section.String()}
		if r.SHA256 != "" {
			l.File, l.Bytes, l.SHA256 = r.File, r.Bytes, r.SHA256
		}
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
				l.Statements = append(l.Statements, Statement{Text: plain(t.Text), Outcome: t.Outcome,
					Here: t.Here, By: plain(t.By), Level: t.Level, Model: t.Model, Needed: t.Needed})
			}
		}
		if i := slices.IndexFunc(p.Listed, func(o Listed) bool { return o.Name == l.Name }); i >= 0 {
			p.Listed[i] = l
		} else {
			p.Listed = append(p.Listed, l)
		}
	}
	return nil
}

// stays reports whether a result of an existing page is none of those that are written now.
func (p *page) stays(l Listed) bool {
	return !slices.ContainsFunc(p.Results, func(r Result) bool { return r.Name == l.Name })
}

// shown is a result as its section shows it.
type shown struct {
	Result
	Plots []Plot
}

func (s Summary) write(to io.Writer) error {
	e := json.NewEncoder(to)
	e.SetIndent("", "\t")
	e.SetEscapeHTML(false)
	return e.Encode(s)
}

// Kept reads the existing pages of a directory, with their summaries.
func Kept(dir string) (out []Summary, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", SummaryFile))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		page, err := os.ReadFile(filepath.Join(dir, name+".md"))
		if err != nil {
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
		sections := sectionsOf(string(page))
		for i := range s.Listed {
			l := &s.Listed[i]
			if l.Section = sections[l.Name]; l.Section == "" {
				return nil, fmt.Errorf("%s.md has no section of %s, which %s lists: name the results of that page, too",
					filepath.Join(dir, name), l.Name, file)
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// anchor is what a section begins with, and its name.
var anchor = regexp.MustCompile(`(?m)^<a id="([A-Za-z0-9_.-]+)"></a>$`)

// sectionsOf are the sections of a page, by name. The list of the files is the last that has its
// title: a result may have the same.
func sectionsOf(page string) map[string]string {
	out := map[string]string{}
	if files := strings.LastIndex(page, "\n## The result files\n"); files >= 0 {
		page = page[:files]
	}
	begins := anchor.FindAllStringSubmatchIndex(page, -1)
	for i, at := range begins {
		end := len(page)
		if i+1 < len(begins) {
			end = begins[i+1][0] - 1 // the line before belongs to the next
		}
		out[page[at[2]:at[3]]] = page[max(0, at[0]-1):end]
	}
	return out
}

// outcomesOf are those that stand in the counts of pages: what hardly any page has, only where one
// has it.
func outcomesOf(pages []Summary) []report.Outcome {
	n, _ := count(pages, anyStatement)
	out := []report.Outcome{report.Holds, report.Fails, report.CannotTell}
	for _, o := range []report.Outcome{report.Needing, report.Contradicts} {
		if n[o] > 0 {
			out = append(out, o)
		}
	}
	return append(out, report.NotMeasured)
}

// Which statements count.
func anyStatement(Statement) bool { return true }
func ofModels(s Statement) bool   { return s.Model }

// count counts statements by what became of them, all that need something as report.Needing.
func count(pages []Summary, which func(Statement) bool) (out map[report.Outcome]int, sum int) {
	out = map[report.Outcome]int{}
	for _, p := range pages {
		for _, r := range p.Listed {
			for _, s := range lists.Filter(r.Statements, which) {
				o := s.Outcome
				if o.Needing() {
					o = report.Needing
				}
				out[o]++
				sum++
			}
		}
	}
	return out, sum
}

// total is the count in a line, with that of those among them that are of models.
func total(pages []Summary) string {
	n, sum := count(pages, anyStatement)
	line := func(n map[report.Outcome]int, of []report.Outcome) string {
		counts := lists.Map(of, func(o report.Outcome) string { return fmt.Sprintf("%s: %d", o, n[o]) })
		return strings.Join(counts, "; ")
	}
	out := fmt.Sprintf("Of %s, %s.", words.Plural(sum, "statement"), line(n, outcomesOf(pages)))
	if n, sum := count(pages, ofModels); sum > 0 {
		had := lists.Filter(outcomesOf(pages), func(o report.Outcome) bool { return n[o] > 0 })
		out += fmt.Sprintf(" Of these, %d %s, and not by the device: %s.", sum, report.ByModel, line(n, had))
	}
	return out
}

// notes are those of results, each once; where there are several, with what they are of.
func notes(listed []Listed) (out []string) {
	var order []string
	of := map[string][]string{}
	for _, l := range listed {
		if of[l.Note] == nil {
			order = append(order, l.Note)
		}
		of[l.Note] = append(of[l.Note], l.Title)
	}
	for _, note := range order {
		switch {
		case note == "":
		case len(order) == 1:
			out = append(out, text(note))
		default:
			out = append(out, "*"+text(strings.Join(of[note], "; "))+"*: "+text(note))
		}
	}
	return out
}

// allNotes is the note of all pages, none where they have several.
func allNotes(pages []Summary) []string {
	var all []Listed
	for _, p := range pages {
		all = append(all, p.Listed...)
	}
	if slices.ContainsFunc(all, func(l Listed) bool { return l.Note != all[0].Note }) {
		return nil
	}
	return notes(all)
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
		n, _ := count([]Summary{p}, anyStatement)
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
				outcome(s.Outcome) + level(s.Level) + model(s.Model) + here(s.Here)})
		}
	}
	if rows == nil {
		return ""
	}
	return grid([]string{"Where", "Statement", "Here"}, 3, rows)
}

// needed is a table of what would decide the statements that need something, "" without any.
func needed(pages []Summary) string {
	counts := map[[2]string]int{}
	for _, p := range pages {
		for _, r := range p.Listed {
			for _, s := range r.Statements {
				if s.Outcome.Needing() {
					counts[[2]string{string(s.Outcome), s.By}]++
				}
			}
		}
	}
	var rows [][]string
	byName := func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }
	for _, k := range slices.SortedFunc(maps.Keys(counts), byName) {
		rows = append(rows, []string{text(k[0]), text(k[1]), fmt.Sprint(counts[k])})
	}
	if rows == nil {
		return ""
	}
	return grid([]string{"What", "Decided by", "Statements"}, 2, rows)
}

// sources is a table of the result files.
func sources(p page) string {
	var rows [][]string
	for _, l := range p.Listed {
		if l.SHA256 != "" {
			rows = append(rows, []string{code(l.File), fmt.Sprint(l.Bytes), code(l.SHA256)})
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
	rows := lists.Map(m.facts, func(f [2]string) []string { return []string{text(f[0]), text(f[1])} })
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
