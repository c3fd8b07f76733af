package markdown

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/environment"
)

// absolute is a path from the root, of two names at least: "/s" is none. What stands before it
// keeps those of a URL out.
var absolute = regexp.MustCompile(`(^|[\s'"=(,;\[])(/[^\s/'"(),;]+(?:/[^\s/'"(),;]*)+)`)

// withoutPaths removes locations from a text: of an absolute path only the last name stays.
func withoutPaths(s string) string {
	return absolute.ReplaceAllStringFunc(s, func(found string) string {
		at := strings.IndexByte(found, '/')
		return found[:at] + path.Base(found[at:])
	})
}

// signs are those that mean something to Markdown, wherever they stand in a line.
var signs = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "~", `\~`,
	"#", `\#`, "$", `\$`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "@", "&#64;")

// code is a name as it is typed.
func code(s string) string {
	return "`" + strings.NewReplacer("`", "'", "|", "?").Replace(report.Clean(s)) + "`"
}

// first is what means something to Markdown where a line begins with it.
var first = regexp.MustCompile(`^([0-9]*)([-+=]|[.)] )`)

// plain returns text from elsewhere, without what must not be published.
func plain(s string) string { return withoutPaths(strings.TrimSpace(report.Clean(s))) }

// text escapes text from elsewhere for Markdown.
func text(s string) string {
	s = signs.Replace(plain(s))
	return first.ReplaceAllString(s, `$1\$2`)
}

// others matches a reason's list of programs that were running: which ones is private.
var others = regexp.MustCompile(`(other programs used processors): .*`)

func reason(r report.Reason) string {
	return fmt.Sprintf("%s, %s, for example: %s", r.Level, words.Plural(r.Samples, "sample"),
		text(others.ReplaceAllString(r.Text, "$1")))
}

func day(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format("2 January 2006, 15:04 UTC")
}

// days are the first and the last day of some times: "26 to 27 November 2026".
func days(times []time.Time) string {
	times = slices.DeleteFunc(times, time.Time.IsZero)
	if len(times) == 0 {
		return "unknown"
	}
	first, last := slices.MinFunc(times, time.Time.Compare).UTC(), slices.MaxFunc(times, time.Time.Compare).UTC()
	layout, to := "2 January 2006", last.Format("2 January 2006")
	switch {
	case first.Year() < last.Year():
	case first.Month() < last.Month():
		layout = "2 January"
	case first.Day() < last.Day():
		layout = "2"
	default:
		return to
	}
	return first.Format(layout) + " to " + to
}

// command formats a command line for a shell, without the directories of files.
func command(line []string) string {
	var out []string
	for _, w := range line {
		if path.IsAbs(w) { // with spaces in it, perhaps
			w = path.Base(w)
		}
		out = append(out, withoutPaths(w))
	}
	return report.Shell(out)
}

// level is a mark behind a number.
func level(l environment.Level) string {
	if m := report.Mark(l); m != "" {
		return "<sup>" + m + "</sup>"
	}
	return ""
}

// grid formats a table; the first heads columns are names, the others numbers. Cells are Markdown.
func grid(columns []string, heads int, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(columns)
	rule := make([]string, len(columns))
	for i := range rule {
		rule[i] = "---"
		if i >= heads {
			rule[i] = "---:"
		}
	}
	line(rule)
	for _, r := range rows {
		line(r)
	}
	return strings.TrimRight(b.String(), "\n")
}

// cells is a table of a report.
func cells(t report.Table) string {
	columns := lists.Map(t.Columns, text)
	var rows [][]string
	for _, r := range t.Rows {
		var row []string
		for i, c := range r.Cells {
			mark := ""
			if i >= t.Heads && c.Text != "" {
				mark = level(c.Level)
			}
			row = append(row, text(c.Text)+mark)
		}
		rows = append(rows, row)
	}
	return grid(columns, t.Heads, rows)
}

// outcome formats the outcome of a statement, which may be from a file; certain ones stand out.
func outcome(o report.Outcome) string {
	if o == report.Holds || o == report.Fails {
		return "**" + string(o) + "**"
	}
	return text(string(o))
}

// here is what the test of a statement says that is not decided by it.
func here(o report.Outcome) string {
	if o == "" {
		return ""
	}
	return " (the test: " + text(string(o)) + ")"
}

// model marks what models of devices, and not these, gave.
func model(is bool) string {
	if is {
		return ", " + report.ByModel
	}
	return ""
}

func trends(p *report.Paper) string {
	var rows [][]string
	for _, t := range p.Trends {
		said, why := text(t.Text), text(t.Why)
		if t.Against != "" {
			said += ". The paper says elsewhere: " + text(t.Against)
		}
		if t.By != "" {
			why += ". Would decide it: " + text(t.By)
		}
		rows = append(rows, []string{said, outcome(t.Outcome) + level(t.Level) + model(t.Model) + here(t.Here), why, text(t.Theirs)})
	}
	return grid([]string{"Statement", "Here", "Our values", "Theirs"}, 4, rows)
}

func numbers(p *report.Paper) string {
	var rows [][]string
	for _, n := range p.Numbers {
		ours := "not measured"
		if n.Ours != "" {
			ours = text(n.Ours) + level(n.Level)
		}
		rows = append(rows,
			[]string{text(n.Metric), text(n.Where), text(n.Unit), text(n.Theirs), ours, text(n.Interval),
				words.Plural(n.N, "repetition"), text(n.Ratio)})
	}
	return grid([]string{"Metric", "Where", "Unit", "Theirs", "Ours", "95 % interval", "Of", "Ours / theirs"}, 3, rows)
}

// verdicts counts samples: "40 good, 3 bad, 1 failed".
func verdicts(r *report.Report) string {
	out := lists.Map(r.ByLevel(), func(l report.Fidelity) string { return fmt.Sprintf("%d %s", l.Samples, l.Level) })
	if n := r.FailedSamples(); n > 0 {
		out = append(out, fmt.Sprintf("%d failed", n))
	}
	return strings.Join(out, ", ")
}

// missing describes what a result could not show.
func missing(r *report.Report) (out []string) {
	for _, l := range r.LeftOut {
		out = append(out, "Left out: "+l)
	}
	out = append(out, r.Problems...)
	for _, f := range r.Failures {
		out = append(out, fmt.Sprintf("%s of %s failed: %s", words.Plural(len(f.Runs), "sample"), f.Probe, f.Text))
	}
	if r.Paper == nil {
		return out
	}
	var untold []string
	for _, c := range r.Paper.Outcomes() {
		if c.Outcome != report.Holds && c.Outcome != report.Fails {
			untold = append(untold, fmt.Sprintf("%s: %d", c.Outcome, c.Count))
		}
	}
	if len(untold) > 0 {
		out = append(out, "Of the statements, "+strings.Join(untold, "; ")+". Beside each stands why")
	}
	return out
}
