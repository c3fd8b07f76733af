package markdown

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/reporttest"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// write makes the pages in memory.
func write(t *testing.T, note string, results ...Result) map[string]string {
	t.Helper()
	return writeBeside(t, nil, note, results...)
}

func writeBeside(t *testing.T, kept []Summary, note string, results ...Result) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := Write(results, note, kept, func(name string, write func(io.Writer) error) error {
		var b bytes.Buffer
		err := write(&b)
		files[name] = b.String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// elsewhere is a result that says where it was measured, and by whom, wherever it can.
func elsewhere() *report.Report {
	h, samples := reporttest.Header(), reporttest.Samples()
	h.Command = []string{"/home/jane/bin/trivet", "bench", "run", "/home/jane/my paper/figure-16.yaml", "--out=/srv/jane/figure-16.jsonl"}
	h.Environment.Host, h.Environment.CommandLine = "janes-machine", "root=/dev/jane"
	h.Environment.Place = &environment.Place{Target: "sites", On: "rack.yaml", Machines: map[string]environment.Record{"janes-machine": {}}}
	h.LeftOut = []result.LeftOut{{What: "controller=pox", Why: "pox is not installed", Hint: "git clone https://example.org/pox/pox /home/jane/pox", Cells: []string{"x"}}}
	samples[3].Failure = "open /home/jane/secret: permission denied (/home/jane/x,/home/jane/y)"
	samples[5].Verdict = &environment.Verdict{Level: environment.Bad, Reasons: []environment.Reason{{Level: environment.Bad, Code: "pressure", Text: "tasks waited 88 % of the time; other programs used processors: janes-machine 0.9"}}}
	samples[7].Verdict = &environment.Verdict{Level: environment.Doubtful, Reasons: []environment.Reason{{Level: environment.Doubtful, Code: "pressure", Text: "tasks waited 33 % of the time"}}}
	return report.Build("/home/jane/results/2-routing/figure-16.jsonl", &result.Run{Header: h, Samples: samples})
}

var link = regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)

// TestPages proves that results of two directories are two pages, of which the index says what
// became of each statement; that all links lead somewhere; that the pages name the files'
// checksums, the commands and the machine, and say nothing of whose machine it is or where files
// were; and that the same results give the same bytes.
func TestPages(t *testing.T) {
	results := []Result{{Report: elsewhere(), SHA256: "0123abcd", Bytes: 12}, {Report: report.Build("results/3-other/figure-16.jsonl", &result.Run{Header: reporttest.Header(), Samples: reporttest.Samples()})},
		{Report: report.Build("more/3-other/figure-16.jsonl", &result.Run{Header: reporttest.Header(), Samples: reporttest.Samples()})}}
	results[2].Started = results[2].Started.AddDate(0, 0, 1)
	files := write(t, "The machine did *other* work.", results...)
	if again := write(t, "The machine did *other* work.", results...); !maps.Equal(files, again) {
		t.Error("written twice, the pages differ")
	}
	var want []string
	for _, name := range []string{"2-routing/figure-16", "3-other/figure-16", "3-other/figure-16-2"} {
		for _, figure := range []string{"1", "2", "3", "4", "5"} {
			want = append(want, name+"-figure-"+figure+".svg")
		}
	}
	want = append(want, "README.md", "2-routing.md", "2-routing/summary.json", "3-other.md", "3-other/summary.json")
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("the files are %v", got)
	}
	for name, said := range files {
		for _, bad := range []string{"jane", "/home", "/srv"} {
			if strings.Contains(said, bad) {
				t.Errorf("%s says %s: %s", name, bad, said[max(0, strings.Index(said, bad)-100):strings.Index(said, bad)+50])
			}
		}
		for _, m := range link.FindAllStringSubmatch(said, -1) {
			to := path.Join(path.Dir(name), m[1])
			if page, ok := files[to]; !ok || m[2] != "" && !strings.Contains(page, `<a id="`+m[2]+`"></a>`) {
				t.Errorf("%s: the link %s leads nowhere", name, m[0])
			}
		}
	}
	for name, all := range map[string][]string{
		"README.md": {"The machine did \\*other\\* work.", "Of 18 statements, holds: 6; does not hold: 6; cannot tell: 3; not measured: 3.", "| [A paper](2-routing.md) | 1 June 2026 | 1 | 200 | 2 | 2 | 1 | 1 |", "](3-other.md) | 1 to 2 June 2026 | 2 |",
			"[figure 16](3-other.md#figure-16-2) | jitter rises | not measured", "2 usable of 2: Example 9000", "iperf3: iperf 3.12", "--markdown"},
		"2-routing.md": {"trivet bench run figure-16.yaml --out=figure-16.jsonl", "`2-routing/figure-16.jsonl` | 12 | `0123abcd`", "![Throughput](2-routing/figure-16-figure-1.svg)", "**holds**<sup>?</sup>",
			"Left out: controller=pox: pox is not installed (git clone https://example.org/pox/pox pox)", "open secret: permission denied (x,y)", "Of the statements, cannot tell: 1; not measured: 1. Beside each stands why", "- bad, 1 sample, for example: tasks waited 88 % of the time; other programs used processors\n", "- doubtful, 1 sample, for example: tasks waited 33 % of the time\n", "Our values are means of the repetitions", "| hops | datapath |"},
	} {
		for _, text := range all {
			if !strings.Contains(files[name], text) {
				t.Errorf("%s does not say %q:\n%s", name, text, files[name])
			}
		}
	}
}

// TestDays proves that of days in several months and years nothing is left out that tells them.
func TestDays(t *testing.T) {
	last := time.Date(2027, 1, 3, 12, 0, 0, 0, time.UTC)
	for before, want := range map[int]string{0: "3 January 2027", 2: "1 to 3 January 2027", 3: "31 December 2026 to 3 January 2027"} {
		if got := days([]time.Time{last, {}, last.AddDate(0, 0, -before)}); got != want {
			t.Errorf("%d days before: %s", before, got)
		}
	}
	if got := days([]time.Time{last.AddDate(0, 1, 0), last}); got != "3 January to 3 February 2027" {
		t.Error(got)
	}
	if got := days(nil); got != "unknown" {
		t.Error(got)
	}
}

// TestPagesOneByOne proves that pages that are written one after the other have the index of all at
// once; that a page written anew replaces what the index said of it; that each page's note stands
// there where they differ; that nothing is said of a page that is gone; and that what is no summary
// is refused, with the file's name.
func TestPagesOneByOne(t *testing.T) {
	a := Result{Report: elsewhere()}
	b := Result{Report: report.Build("results/3-other/figure-16.jsonl", &result.Run{Header: reporttest.Header(), Samples: reporttest.Samples()})}
	want := write(t, "One *note*.", a, b)[Index]
	dir := t.TempDir()
	publish := func(note string, results ...Result) string {
		t.Helper()
		kept, err := Kept(dir)
		if err != nil {
			t.Fatal(err)
		}
		files := writeBeside(t, kept, note, results...)
		for name, said := range files {
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(said), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		return files[Index]
	}
	publish("An older note.", b)
	if got := publish("One *note*.", a); !strings.Contains(got, "An older note.") || !strings.Contains(got, `One \*note\*.`) || strings.Count(got, "### ") != 2 {
		t.Errorf("of two notes:\n%s", got)
	}
	if got := publish("One *note*.", b); got != want {
		t.Errorf("one by one:\n%s\nat once:\n%s", got, want)
	}
	// A page of two results: one of them is written anew, then the other.
	c := Result{Report: report.Build("results/3-other/table-5.jsonl", &result.Run{Header: reporttest.Header(), Samples: reporttest.Samples()}), SHA256: "45cd", Bytes: 9}
	page := func() string {
		said, err := os.ReadFile(filepath.Join(dir, "3-other.md"))
		if err != nil {
			t.Fatal(err)
		}
		return string(said)
	}
	wanted := write(t, "One *note*.", a, b, c)
	publish("An older note.", c)
	if got := page(); strings.Count(got, "\n## ") != 3 || !strings.Contains(got, "An older note.") || !strings.Contains(got, "One \\*note\\*.") {
		t.Errorf("a page of two results with notes of their own:\n%s", got)
	}
	if got := publish("One *note*.", c); got != wanted[Index] || page() != wanted["3-other.md"] {
		t.Errorf("a page's results one by one:\n%s\nat once:\n%s", page(), wanted["3-other.md"])
	}
	if publish("One *note*.", b); page() != wanted["3-other.md"] {
		t.Errorf("the first result anew:\n%s\nat once:\n%s", page(), wanted["3-other.md"])
	}
	if err := os.WriteFile(filepath.Join(dir, "3-other.md"), []byte("# Another\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Kept(dir); err == nil || !strings.Contains(err.Error(), "3-other.md has no section of figure-16") {
		t.Errorf("a page without its sections: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "3-other.md")); err != nil {
		t.Fatal(err)
	}
	if got := publish("One *note*.", a); strings.Contains(got, "3-other") {
		t.Errorf("a page that is gone:\n%s", got)
	}
	for _, bad := range []string{"{", `{"name": "3-other"}`} {
		file := filepath.Join(dir, "2-routing", SummaryFile)
		if err := os.WriteFile(file, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Kept(dir); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestPageTitle proves that a page of several results keeps its title where one of them is written
// anew that has no paper or words it differently, and takes another where all are.
func TestPageTitle(t *testing.T) {
	a := Result{Report: report.Build("results/3-other/a.jsonl", &result.Run{Header: reporttest.Header(), Samples: reporttest.Samples()})}
	b := Result{Report: report.Build("results/3-other/b.jsonl", &result.Run{Header: reporttest.Header(), Samples: reporttest.Samples()})}
	pages := group([]Result{a, b})
	if err := pages[0].summarize("", nil); err != nil || pages[0].Title != "A paper" {
		t.Fatal(pages[0].Title, err)
	}
	kept := []Summary{pages[0].Summary}
	without, other := *b.Report, *b.Report
	without.Paper, other.Paper = nil, &report.Paper{Source: "The paper, figure 2"}
	for i, r := range []*report.Report{&without, &other} {
		if page := writeBeside(t, kept, "", Result{Report: r})["3-other.md"]; !strings.HasPrefix(page, "# A paper\n") {
			t.Errorf("%d: %.60s", i, page)
		}
	}
	if page := writeBeside(t, kept, "", a, Result{Report: &other})["3-other.md"]; !strings.HasPrefix(page, "# A paper\n") {
		t.Errorf("the first names it: %.60s", page)
	}
	a.Paper = other.Paper
	if page := writeBeside(t, kept, "", a, Result{Report: &other})["3-other.md"]; !strings.HasPrefix(page, "# The paper\n") {
		t.Errorf("all anew: %.60s", page)
	}
}

// TestSections proves that a page is taken apart at its sections, also where a result has the title
// of the list of files, and where the first begins with the page; and that what a summary gives as
// an outcome is text.
func TestSections(t *testing.T) {
	dir := t.TempDir()
	page := "<a id=\"a\"></a>\n\n## The result files\n\nof a\n\n<a id=\"b\"></a>\n\n## B\n\nof b\n\n## The result files\n\nfiles\n"
	hostile := `{"name": "p", "title": "P", "results": [{"name": "a", "title": "A", "where": "A", "statements": [` +
		`{"text": "s", "outcome": "<b>|x", "here": "](http://y)|<i>"}]}, {"name": "b", "title": "B", "where": "B"}]}`
	for name, said := range map[string]string{"p.md": page, "p/" + SummaryFile: hostile} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "p"), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(said), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := Kept(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, b := kept[0].Listed[0].Section, kept[0].Listed[1].Section
	if !strings.HasSuffix(a, "\nof a\n") || !strings.HasPrefix(a, `<a id="a">`) || !strings.HasSuffix(b, "\nof b\n") {
		t.Errorf("%q, %q", a, b)
	}
	if index := writeBeside(t, kept, "")[Index]; !strings.Contains(index, `| s | &lt;b&gt;\|x (the test: \](http://y)\|&lt;i&gt;) |`) {
		t.Error(index)
	}
}

// ours is the HTML that the pages are to have.
var ours = regexp.MustCompile(`<sup>[?!]</sup>|<a id="[A-Za-z0-9_.-]+"></a>`)

var escaped = regexp.MustCompile(`\\.`)

// TestHostile proves that what a result says is text: no HTML comes in, no link, and each line of a
// table has the columns of its head.
func TestHostile(t *testing.T) {
	h, samples := reporttest.HostileResult(reporttest.Hostile + " [a](http://x) | ![b](http://y) `c` **d**")
	for name, said := range write(t, reporttest.Hostile, Result{Report: report.Build("x/y|`[z](http:q).jsonl", &result.Run{Header: h, Samples: samples}), SHA256: "0"}) {
		if path.Ext(name) != ".md" {
			continue
		}
		columns, fenced := 0, false
		for _, line := range strings.Split(said, "\n") {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			if fenced {
				continue
			}
			line = regexp.MustCompile("`[^`]*`").ReplaceAllStringFunc(line, func(s string) string { return strings.Repeat("|", strings.Count(s, "|")) }) // code
			line = ours.ReplaceAllString(escaped.ReplaceAllString(line, ""), "")
			if strings.ContainsRune(strings.TrimPrefix(line, ">"), '<') || strings.Contains(line, "](http") {
				t.Errorf("%s: %s", name, line)
			}
			switch n := strings.Count(line, "|"); {
			case !strings.HasPrefix(line, "|"):
				columns = 0
			case columns == 0:
				columns = n
			case columns != n:
				t.Errorf("%s: a line of %d, not %d columns: %s", name, n, columns, line)
			}
		}
		if fenced {
			t.Errorf("%s ends in code", name)
		}
	}
}

// TestNeeded proves that the index counts statements that need something, and those that the paper
// contradicts, apart from the others, and lists what would decide them; that pages have both, with
// what their tests say; and that pages without such statements say nothing of them.
func TestNeeded(t *testing.T) {
	h := reporttest.Header()
	h.Experiment.Text = strings.Replace(h.Experiment.Text, "  trends:\n", `  trends:
    - {text: devices are slower, metric: rtt, along: hops, at: {datapath: ovs}, is: rises, needs: device}
    - {text: it is stable, metric: throughput, along: hops, at: {datapath: ovs}, is: flat, contradicts: it *falls* in table 2}
`, 1)
	h.Experiment.File = "/home/jane/papers/figure-16.yaml"
	with := write(t, "", Result{Report: report.Build("results/2-routing/figure-16.jsonl", &result.Run{Header: h, Samples: reporttest.Samples()})})
	for name, wants := range map[string][]string{
		"README.md": {"; needs …: 1; contradicts itself: 1; not measured: 1.", `<a id="needs"></a>`, "| needs the device | trivet bench run figure-16.yaml --on rack.yaml, with the device in the list | 1 |",
			"| devices are slower | needs the device<sup>?</sup> (the test: holds)", "*contradicts itself*, where", "| needs … | contradicts itself | not measured |"},
		"2-routing.md": {"| it is stable. The paper says elsewhere: it \\*falls\\* in table 2 | contradicts itself<sup>?</sup> (the test: does not hold)",
			"no device was measured: ", ". Would decide it: trivet bench run figure-16.yaml --on rack.yaml"},
	} {
		for _, want := range wants {
			if !strings.Contains(with[name], want) {
				t.Errorf("%s lacks %q:\n%s", name, want, with[name])
			}
		}
	}
	without := write(t, "", Result{Report: report.Build("results/2-routing/figure-16.jsonl", &result.Run{Header: reporttest.Header(), Samples: reporttest.Samples()})})
	if text := without["README.md"]; strings.Contains(text, "needs") || strings.Contains(text, "contradicts") {
		t.Errorf("without any:\n%s", text)
	}
}

// TestByModel proves that statements which were tested with models of devices are marked on their
// page and in the index, which says of the outcomes how many they are.
func TestByModel(t *testing.T) {
	samples := reporttest.Samples()
	for i := range samples {
		if samples[i].Usage == nil {
			samples[i].Usage = &environment.Usage{Looks: 1}
		}
		samples[i].Usage.Models = map[string]string{"s1": "28us a packet"}
	}
	files := write(t, "", Result{Report: report.Build("results/2-routing/figure-16.jsonl", &result.Run{Header: reporttest.Header(), Samples: samples})})
	for name, want := range map[string]string{"README.md": "not measured: 1. Of these, 5 by a model, and not by the device: holds: 2; does not hold: 2; cannot tell: 1.",
		"2-routing.md": "**holds**<sup>?</sup>, by a model |"} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, files[name])
		}
	}
}
