package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/environment"
)

// CSV writes a figure's data.
func (f *Figure) CSV(to io.Writer) error {
	w := csv.NewWriter(to)
	for _, row := range f.Data {
		if err := w.Write(row); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// Mark is what stands behind a number that is not to be trusted as it is.
func Mark(level environment.Level) string {
	switch level {
	case environment.Doubtful:
		return "?"
	case environment.Bad:
		return "!"
	}
	return ""
}

// Text writes a table for a terminal. Numbers that are doubtful have a question mark, bad ones an
// exclamation mark.
func (t *Table) Text(to io.Writer) error {
	widths := make([]int, len(t.Columns))
	grid := [][]string{t.Columns}
	for _, row := range t.Rows {
		var line []string
		for i, c := range row.Cells {
			text := c.Text
			if i >= t.Heads && text != "" {
				text += Mark(c.Level)
				if Mark(c.Level) == "" {
					text += " " // so that digits stand under digits
				}
			}
			line = append(line, text)
		}
		grid = append(grid, line)
	}
	for _, line := range grid {
		for i, text := range line {
			widths[i] = max(widths[i], runewidth.StringWidth(text))
		}
	}
	var b strings.Builder
	fmt.Fprintln(&b, t.Title)
	for n, line := range grid {
		var cells []string
		for i, text := range line {
			if n == 0 && i >= t.Heads {
				text += " "
			}
			gap := strings.Repeat(" ", max(0, widths[i]-runewidth.StringWidth(text)))
			if i < t.Heads {
				cells = append(cells, text+gap)
			} else {
				cells = append(cells, gap+text)
			}
		}
		fmt.Fprintln(&b, strings.TrimRight("  "+strings.Join(cells, "  "), " "))
	}
	for _, note := range t.Notes {
		fmt.Fprintln(&b, "  "+note)
	}
	if f := t.Fidelity; f.Level != environment.Good {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// String is the verdict in a line: "doubtful: 3 of 40 samples not good (for example: CPU 97 %: …)".
func (f Fidelity) String() string {
	if f.Level == environment.Good {
		return fmt.Sprintf("good: nothing speaks against any of %s", words.Plural(f.Samples, "sample"))
	}
	s := fmt.Sprintf("%s: %d of %s not good", f.Level, f.Suspect, words.Plural(f.Samples, "sample"))
	if len(f.Reasons) > 0 {
		s += " (for example: " + f.Reasons[0].Text
		codes := lists.Set(f.Reasons, func(r Reason) string { return r.Code })
		if more := len(codes) - 1; more > 0 {
			s += fmt.Sprintf("; and %s", words.Plural(more, "other reason"))
		}
		s += ")"
	}
	return s
}

// LaTeX writes a table as a tabular of the package booktabs, in a table with its caption.
func (t *Table) LaTeX(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b,
		"%% needs \\usepackage{booktabs}; in documents of pdfLaTeX before 2018 also \\usepackage[utf8]{inputenc}\n")
	fmt.Fprintf(&b, "\\begin{table}\n  \\centering\n  \\caption{%s}\n  \\begin{tabular}{%s%s}\n    \\toprule\n",
		EscapeLaTeX(t.caption()), strings.Repeat("l", t.Heads), strings.Repeat("r", len(t.Columns)-t.Heads))
	heads := lists.Map(t.Columns, EscapeLaTeX)
	fmt.Fprintf(&b, "    %s \\\\\n    \\midrule\n", strings.Join(heads, " & "))
	for _, row := range t.Rows {
		if row.Rule {
			b.WriteString("    \\addlinespace\n")
		}
		var cells []string
		for i, c := range row.Cells {
			text := EscapeLaTeX(c.Text)
			if n := power.FindStringSubmatch(c.Text); n != nil {
				text = "$" + n[1] + "\\cdot10^{" + strings.TrimPrefix(n[2], "+") + n[3] + "}$"
			}
			if m := Mark(c.Level); m != "" && i >= t.Heads {
				text += "\\textsuperscript{" + m + "}"
			}
			cells = append(cells, text)
		}
		// An empty group: a cell that begins with a bracket would be an argument of the line's end
		// before it.
		fmt.Fprintf(&b, "    {}%s \\\\\n", strings.Join(cells, " & "))
	}
	b.WriteString("    \\bottomrule\n  \\end{tabular}\n\\end{table}\n")
	_, err := io.WriteString(to, b.String())
	return err
}

// power is a number like 2.834e-06.
var power = regexp.MustCompile(`^(-?[0-9.]+)e([+-])0*([0-9]+)$`)

func (t *Table) caption() string {
	words := append([]string{strings.TrimSuffix(t.Title, ".") + "."}, t.Notes...)
	if f := t.Fidelity; f.Level != environment.Good {
		words = append(words, "Marked numbers are not certain: "+f.String()+".")
	}
	return strings.Join(words, " ")
}

// latexSigns are the signs that mean something to LaTeX, or that its usual fonts lack.
var latexSigns = map[rune]string{
	'\\': `\textbackslash{}`, '{': `\{`, '}': `\}`, '$': `\$`, '&': `\&`, '#': `\#`, '%': `\%`, '_': `\_`,
	'~': `\textasciitilde{}`, '^': `\textasciicircum{}`, '<': `\textless{}`, '>': `\textgreater{}`, '|': `\textbar{}`,
	'"': `{\char34}`, '`': `{\char96}`, '\'': `'{}`, '–': `--`, '—': `---`, '−': `$-$`, '…': `\ldots{}`, '±': `$\pm$`,
	'→': `$\rightarrow$`, '≤': `$\leq$`, '≥': `$\geq$`, 'µ': `$\mu$`, 'τ': `$\tau$`, 'δ': `$\delta$`, '×': `$\times$`,
	'\u202f': `\,`, '·': `$\cdot$`,
}

// EscapeLaTeX writes a text so that LaTeX shows it, and does nothing else. What the usual fonts
// lack is a question mark.
func EscapeLaTeX(s string) string {
	var b strings.Builder
	for _, r := range Clean(s) {
		switch escaped, ok := latexSigns[r]; {
		case ok:
			b.WriteString(escaped)
		case r < 0x80, r >= 0xc0 && r <= 0xff && unicode.IsLetter(r) && !strings.ContainsRune("ÐÞðþ", r):
			b.WriteRune(r)
		default:
			b.WriteByte('?')
		}
	}
	return b.String()
}

// by is what stands behind the outcome of a statement.
func (t *Trend) by() string {
	if t.Model {
		return " (" + ByModel + ")"
	}
	return ""
}

// ByModel marks outcomes that are of models of devices, and not of these.
const ByModel = "by a model"

// beside is what stands behind the values of a statement that is not decided by its test.
func (t *Trend) beside() (text string) {
	if t.Here != "" {
		text = "; the test: " + string(t.Here)
	}
	if t.Against != "" {
		text += "; the paper says elsewhere: " + t.Against
	}
	if t.By != "" {
		text += "; would decide it: " + t.By
	}
	return text
}

// WriteText writes a report for a terminal: what it is, its tables, and what a paper's statements
// came to.
func (r *Report) WriteText(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d of %s, %s", r.Title, r.Done, words.Plural(r.Runs, "run"), words.Plural(r.Samples, "sample"))
	for _, level := range []environment.Level{environment.Doubtful, environment.Bad} {
		if n := r.Levels[level]; n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, level)
		}
	}
	if n := r.FailedSamples(); n > 0 {
		fmt.Fprintf(&b, ", %d failed", n)
	}
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(&b, "; left out: %s", strings.Join(r.LeftOut, "; "))
	}
	if r.Wanted > 0 {
		fmt.Fprintf(&b, "; repetitions: %d of the experiment's %d", r.Repetitions, r.Wanted)
	}
	fmt.Fprintln(&b)
	for _, n := range r.Notes {
		fmt.Fprintln(&b, n)
	}
	for i := range r.Tables {
		fmt.Fprintln(&b)
		if err := r.Tables[i].Text(&b); err != nil {
			return err
		}
	}
	if r.Paper != nil && len(r.Paper.Trends) > 0 {
		fmt.Fprintf(&b, "\nBeside the paper. %s\n", r.Paper.Values())
		for _, t := range r.Paper.Trends {
			fmt.Fprintf(&b, "  %-19s %s: %s%s\n", string(t.Outcome)+Mark(t.Level)+t.by(), t.Text, t.Why, t.beside())
		}
	}
	for _, c := range r.Compared {
		fmt.Fprintln(&b)
		if err := c.WriteText(&b); err != nil {
			return err
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}
