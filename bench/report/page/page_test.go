package page_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/page"
	"trivet.dev/trivet/bench/report/reporttest"
	"trivet.dev/trivet/bench/result"
)

// write makes the page of results.
func write(t testing.TB, reports ...*report.Report) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := page.Write(&b, reports...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func build(h result.Header, samples []result.Sample) *report.Report {
	return report.Build(h.Experiment.Name+".jsonl", &result.Run{Header: h, Samples: samples})
}

// scan calls f with every tag of a page as a browser with scripts reads it, and returns its text.
func scan(t testing.TB, data []byte, f func(tag string, attributes map[string]string)) string {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for n := range root.Descendants() {
		switch n.Type {
		case html.ElementNode:
			attributes := map[string]string{}
			for _, a := range n.Attr {
				attributes[a.Key] = a.Val
			}
			f(n.Data, attributes)
		case html.TextNode:
			text.WriteString(n.Data)
		}
	}
	return text.String()
}

// TestPage proves that a page has what it must: a table of contents whose links lead somewhere,
// every figure with its data, verdict and caption, the tables, the paper, failures, the
// environment, the experiment and the command; and nothing from elsewhere.
func TestPage(t *testing.T) {
	r := build(reporttest.Header(), reporttest.Samples())
	data := write(t, r, r)
	ids, links := map[string]bool{}, []string{}
	text := scan(t, data, func(tag string, a map[string]string) {
		if id := a["id"]; id != "" {
			if ids[id] {
				t.Errorf("two elements are %s", id)
			}
			ids[id] = true
		}
		if tag == "a" {
			links = append(links, a["href"])
		}
		if src := a["src"]; src != "" && !strings.HasPrefix(src, "data:image/svg+xml;base64,") {
			t.Errorf("%s is loaded from %s", tag, src)
		}
	})
	for _, l := range links {
		if !strings.HasPrefix(l, "#") || !ids[l[1:]] {
			t.Errorf("%s leads nowhere", l)
		}
	}
	if len(links) < 2*(5+2+3) {
		t.Errorf("only %d links", len(links))
	}
	for _, want := range []string{"2 results", "Throughput while a link is down", "9 to 10 repetitions each", "12 of 100 samples are not good", "For example: CPU 99.6 %", "Our values are means of the repetitions", "Kendall's τ",
		"unable to connect to server <refused>", "trivet bench run figure-16.yaml --out 'my results.jsonl'", "net.core.rmem_max", "212992", "repetitions: 10", "A paper, figure 16.", "Read off the figure."} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
}

// compare is the page of a comparison of two levels in a result.
func compare(t testing.TB, h result.Header, samples []result.Sample, factor string, levels [2]string, metric string) []byte {
	t.Helper()
	run := &result.Run{Header: h, Samples: samples}
	c, err := report.Compare(report.CompareOptions{A: run, Names: levels, Factor: factor, Metric: metric, Margins: report.Margins{"": {Share: 0.05}}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := page.WriteComparison(&b, c, report.Build("result.jsonl", run)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestComparison proves that the page of a comparison has for each metric its figure, averages and
// tests with the verdicts and the conclusion in words, what there is to say of the machine, and
// links that lead somewhere.
func TestComparison(t *testing.T) {
	data := compare(t, reporttest.Header(), reporttest.Samples(), "datapath", [2]string{"ovs", "embedded"}, "")
	ids, links, figures := map[string]bool{}, []string{}, 0
	text := scan(t, data, func(tag string, a map[string]string) {
		if id := a["id"]; id != "" {
			if ids[id] {
				t.Errorf("two elements are %s", id)
			}
			ids[id] = true
		}
		if tag == "a" {
			links = append(links, a["href"])
		}
		if tag == "figure" {
			figures++
		}
	})
	for _, l := range links {
		if !strings.HasPrefix(l, "#") || !ids[l[1:]] {
			t.Errorf("%s leads nowhere", l)
		}
	}
	if figures != 3 || len(links) < 3+2 {
		t.Errorf("%d figures, %d links", figures, len(links))
	}
	for _, want := range []string{"ovs and embedded", "15 comparisons: ", "Wilcoxon: p", "paired t: p", "TOST: p", "rank-biserial", "throughput [Gbit/s]", "ovs var", "ovs is higher by 291.7", "good, doubtful",
		"12 of 100 samples are not good", "net.core.rmem_max", "The tests disagree"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
}

// TestFigureData proves that the data of a figure in the page are those of the figure.
func TestFigureData(t *testing.T) {
	r := build(reporttest.Header(), reporttest.Samples())
	text := string(write(t, r))
	_, rest, ok := strings.Cut(text, `id="r-0-figure-1-data">`)
	if !ok {
		t.Fatal("there are no data of figure 1")
	}
	var f report.Figure
	if err := json.Unmarshal([]byte(rest[:strings.Index(rest, "</script>")]), &f); err != nil {
		t.Fatal(err)
	}
	want := r.Figures[0]
	if f.Title != want.Title || len(f.Series) != 3 || !f.Series[2].Paper || f.Series[1].Points[4].Y != want.Series[1].Points[4].Y || f.X.Label != "hops" {
		t.Errorf("%+v", f)
	}
}

// shape is the elements and the names of attributes of a page, each once.
func shape(t testing.TB, data []byte) (out []string) {
	scan(t, data, func(tag string, a map[string]string) {
		for key := range a {
			out = append(out, tag+" "+key)
		}
		out = append(out, tag)
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// FuzzPage proves that texts of a result are text in the page, whatever they hold: they bring in no
// element, no attribute and no script.
func FuzzPage(f *testing.F) {
	harmless := shape(f, write(f, build(reporttest.HostileResult("harmless"))))
	h, samples := reporttest.HostileResult("harmless")
	compared := shape(f, compare(f, h, samples, "datapath", [2]string{"embedded", "ovs"}, "loss"))
	for _, s := range []string{reporttest.Hostile, "javascript:alert(1)", "a\" onclick=\"x", "<!--", "<script>", "\u2028", "\\u003c/script>", "'+alert(1)+'", "a: [b", "x\nreport: 5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		data := write(t, build(reporttest.HostileResult(text)))
		scripts := 0
		scan(t, data, func(tag string, a map[string]string) {
			if tag == "script" && a["type"] == "" {
				scripts++
			}
			if href, ok := a["href"]; ok && !strings.HasPrefix(href, "#") {
				t.Fatalf("a link leads to %q", href)
			}
		})
		if scripts != 1 {
			t.Fatalf("%d scripts", scripts)
		}
		for _, s := range shape(t, data) {
			if _, known := slices.BinarySearch(harmless, s); !known && !slices.Contains([]string{"sup", "code", "em", "ul", "pre", "p role"}, s) {
				t.Fatalf("%q came in with %q", s, text)
			}
		}
		h, samples := reporttest.HostileResult(text)
		for _, s := range shape(t, compare(t, h, samples, "datapath", [2]string{"embedded", "ovs"}, "loss")) {
			if _, known := slices.BinarySearch(compared, s); !known && !slices.Contains([]string{"sup", "code", "em", "ul", "pre", "p role"}, s) {
				t.Fatalf("%q came into the comparison with %q", s, text)
			}
		}
	})
}

// FuzzReport proves that a result file, whatever is in it, becomes a report or is refused, in all
// forms; in the page its data stay what they are.
func FuzzReport(f *testing.F) {
	header := `{"record":"header","schema":1,"experiment":{"name":"x","runs":9,"text":"report: {figures: [{metric: m, x: a, kind: line, scale: log-log}, {metric: m, kind: time}, {metric: m, kind: cdf}, {metric: m, kind: box}], tables: [{metric: m, rows: a, columns: b, gap: [x, y]}]}\npaper: {numbers: [{metric: m, value: 0, levels: {a: 1}}], trends: [{metric: m, along: a, is: rises}, {metric: m, is: below, than: 1}]}","factors":[{"name":"a","levels":["1","2"]},{"name":"b","levels":["x","y"]}]}}` + "\n"
	f.Add([]byte(header + `{"record":"sample","run":1,"factors":{"a":1,"b":"x"},"probe":"p","measurements":[{"metric":"m","unit":"s","values":[1,2],"at":[0,1]}],"events":[{"at":1,"what":"x"}]}` + "\n" +
		`{"record":"sample","run":2,"factors":{"a":2,"b":"y"},"probe":"p","measurements":[{"metric":"m","unit":"ms","values":[-1e300,0,5e-324],"at":[0]}],"usage":{"busy":null}}` + "\n"))
	f.Add([]byte(header + `{"record":"sample","run":1,"factors":{"a":[1],"b":null},"probe":"p","measurements":[{"metric":"m","unit":"1","values":[1e99],"count":5,"of":3},{"metric":"m","unit":"1","values":[0],"of":-3}]}` + "\n"))
	f.Add([]byte(header + `{"record":"sample","run":1,"factors":{"a":"1e400"},"measurements":[{"metric":"m","unit":"s","values":[1e100,-1e100,1e-100]}],"verdict":{"level":"?"}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		run, err := result.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		r := report.Build("x.jsonl", run)
		write(t, r)
		var b strings.Builder
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		for i := range r.Tables {
			if err := r.Tables[i].LaTeX(&b); err != nil {
				t.Fatal(err)
			}
		}
		for _, factor := range run.Header.Experiment.Factors {
			if len(factor.Levels) > 1 {
				if c, err := report.Compare(report.CompareOptions{A: run, Names: [2]string{factor.Levels[0], factor.Levels[1]}, Factor: factor.Name}); err == nil {
					_, err := json.Marshal(c)
					if err := errors.Join(err, c.WriteText(&b), c.LaTeX(&b), c.CSV(&b), page.WriteComparison(&b, c, r)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}
