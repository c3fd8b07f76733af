// Package page writes reports as one self-contained HTML page: no network, no other files.
// Everything from results is treated as text, never as HTML or script; a Content-Security-Policy
// limits what the page may load and run as well.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/draw"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/measure/environment"
)

//go:embed page.html
var markup string

//go:embed page.css
var style string

//go:embed scale.js
var scaleScript string

//go:embed plot.js
var plotScript string

//go:embed act.js
var actScript string

// maxStills limits the bytes of static pictures in the page, for readers without scripts; beyond
// that they have the data below each figure.
const maxStills = 500_000

// view is the template's data.
type view struct {
	Title      string
	Comparison *report.Comparison // of what is in Reports; nil on a page of reports
	Reports    []*report.Report
	Several    bool
	Policy     string
	Style      template.CSS
	Script     template.JS
	Version    string
}

// page is parsed on first use: the program starts on each device of a rack.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"clean": report.Clean, "day": day, "command": report.Shell, "badge": badge,
		"still": func(report.Figure) template.URL { return "" }, "environment": facts, "id": id, "join": strings.Join,
		"runs": runs, "mark": report.Mark, "isBad": func(l environment.Level) bool { return l == environment.Bad },
		"after": after, "tableName": tableName,
		"place": func(it any, parts ...any) placed { return placed{id(parts...), it} }, "limited": limited,
		"more": func(n, most int) int { return n - most },
	}).Parse(markup))
})

// Write writes the page of one or more reports.
func Write(to io.Writer, reports ...*report.Report) error {
	v := view{Title: reports[0].Title, Reports: reports}
	if len(reports) > 1 {
		v.Title = fmt.Sprintf("%d results", len(reports))
	}
	return v.write(to)
}

// WriteComparison writes the page of a comparison, with the fidelity and methods of the reports
// that are compared.
func WriteComparison(to io.Writer, c *report.Comparison, reports ...*report.Report) error {
	v := view{Title: report.Clean(c.Names[0] + " and " + c.Names[1]), Comparison: c, Reports: reports}
	return v.write(to)
}

func (v view) write(to io.Writer) error {
	script := "\"use strict\";\n(() => {\n" + scaleScript + plotScript + actScript + "})();\n"
	v.Several, v.Style, v.Script, v.Version = len(v.Reports) > 1, template.CSS(style), template.JS(script),
		version.Version
	v.Policy = fmt.Sprintf("default-src 'none'; img-src data:; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'", hash(style), hash(script))
	t, err := page().Clone()
	if err != nil {
		return err
	}
	var b bytes.Buffer // all or nothing
	if err := t.Funcs(template.FuncMap{"still": stills()}).Execute(&b, v); err != nil {
		return err
	}
	_, err = to.Write(b.Bytes())
	return err
}

// hash is how a policy names a script or a style.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func day(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format("2 January 2006, 15:04 UTC")
}

// badge returns the class and the sign of a level; without a level: doubtful.
func badge(l environment.Level) map[string]string {
	switch l {
	case environment.Good:
		return map[string]string{"class": "good", "sign": "●", "word": "good"}
	case environment.Bad:
		return map[string]string{"class": "bad", "sign": "■", "word": "bad"}
	}
	return map[string]string{"class": "doubtful", "sign": "▲", "word": "doubtful"}
}

// after is what stands behind the first word, which a badge says.
func after(words string) string {
	if _, rest, ok := strings.Cut(words, ": "); ok {
		return rest
	}
	return words
}

// tableName is a table's title in a list that has figures as well.
func tableName(title string) string {
	if strings.HasPrefix(title, "Table ") {
		return title
	}
	return "Table: " + title
}

// placed is something with its id in the page.
type placed struct {
	ID string
	It any
}

// id returns an id that is unique in the page.
func id(parts ...any) string {
	return strings.ReplaceAll(strings.TrimSpace(fmt.Sprintln(parts...)), " ", "-")
}

// stills returns a function, for one page, that returns the picture of a figure as a URL; "": there
// is none, or no room.
func stills() func(report.Figure) template.URL {
	room := maxStills
	return func(f report.Figure) template.URL {
		var b bytes.Buffer
		if err := draw.SVG(&b, &f); err != nil || b.Len() > room {
			return ""
		}
		room -= b.Len()
		return template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(b.Bytes()))
	}
}

func runs(list []int) string {
	var words []string
	for i, r := range list {
		if i == 20 {
			return strings.Join(words, ", ") + fmt.Sprintf(" and %d more", len(list)-i)
		}
		words = append(words, fmt.Sprint(r))
	}
	return strings.Join(words, ", ")
}

// limited returns the first elements of a list.
func limited(list []string, most int) []string { return list[:min(len(list), most)] }

// fact is a line of the environment.
type fact struct{ Name, Value string }

// facts returns all fields of an environment's record that are set.
func facts(r environment.Record) []fact {
	data, err := json.Marshal(r)
	var fields any
	if err != nil || json.Unmarshal(data, &fields) != nil {
		return nil
	}
	var out []fact
	flatten(&out, "", fields)
	return out
}
