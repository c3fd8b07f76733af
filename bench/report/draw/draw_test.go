package draw_test

import (
	"bytes"
	"encoding/xml"
	"image/png"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/draw"
	"trivet.dev/trivet/bench/report/reporttest"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// checkPNG draws a figure as PNG. (That takes long: where both are drawn alike, SVG will do.)
func checkPNG(t *testing.T, f *report.Figure) {
	t.Helper()
	var b bytes.Buffer
	if err := draw.PNG(&b, f); err != nil {
		t.Fatal(err)
	}
	image, err := png.Decode(&b)
	if err != nil || image.Bounds().Dx() < 1000 || image.Bounds().Dy() < 600 {
		t.Errorf("%v, %v", image.Bounds(), err)
	}
}

// check draws a figure as SVG, and returns its elements and its text.
func check(t *testing.T, f *report.Figure) (map[string]int, string) {
	t.Helper()
	var drawing bytes.Buffer
	if err := draw.SVG(&drawing, f); err != nil {
		t.Fatal(err)
	}
	elements, text := map[string]int{}, ""
	d := xml.NewDecoder(&drawing)
	for {
		token, err := d.Token()
		if err == io.EOF {
			return elements, text
		}
		if err != nil {
			t.Fatalf("SVG: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			elements[e.Name.Local]++
		case xml.CharData:
			text += string(e)
		}
	}
}

// TestFonts proves that SVG names fonts of the same width that everybody has.
func TestFonts(t *testing.T) {
	r := build(reporttest.Header(), reporttest.Samples()[:20])
	var b bytes.Buffer
	if err := draw.SVG(&b, &r.Figures[0]); err != nil || strings.Count(b.String(), "font-family") == 0 || strings.Count(b.String(), "font-family") != strings.Count(b.String(), ",Arial,") {
		t.Errorf("%v, %.600s", err, b.String())
	}
}

func build(h result.Header, samples []result.Sample) *report.Report {
	return report.Build("x.jsonl", &result.Run{Header: h, Samples: samples})
}

// TestFigures proves that figures of all kinds become pictures, with their titles, axes, levels and
// legends.
func TestFigures(t *testing.T) {
	r := build(reporttest.Header(), reporttest.Samples())
	for i, words := range [][]string{
		{"Throughput", "throughput [Gbit/s]", "hops", "10", "embedded", "ovs (paper)"}, {"side by side", "ovs (paper)"}, {"rtt [ms]", "0.2"},
		{"share of values", "0.8", "ovs"}, {"time [s]", "s2 -- s3 down", "s2 -- s3 up"},
	} {
		checkPNG(t, &r.Figures[i])
		elements, text := check(t, &r.Figures[i])
		if elements["path"] < 10 {
			t.Errorf("figure %d has %d lines", i+1, elements["path"])
		}
		if strings.Contains(text, "-0") {
			t.Errorf("figure %d begins at minus zero: %q", i+1, text)
		}
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("figure %d lacks %q: %q", i+1, w, text)
			}
		}
	}
}

// TestHostile proves that texts of others are text in an SVG.
func TestHostile(t *testing.T) {
	plain, _ := check(t, &build(reporttest.HostileResult("harmless")).Figures[0])
	r := build(reporttest.HostileResult(reporttest.Hostile))
	for i := range r.Figures {
		elements, _ := check(t, &r.Figures[i])
		for e := range elements {
			if plain[e] == 0 {
				t.Errorf("figure %d has an element %s", i+1, e)
			}
		}
	}
}

// TestOdd proves that values which are hard to draw are drawn, or left out, but never the end of
// the program.
func TestOdd(t *testing.T) {
	none := stats.None
	point := func(x, y float64) report.Point {
		return report.Point{X: x, Y: y, Low: none, High: none, Name: "n", Box: &report.BoxPlot{Low: y, Q1: y, Median: y, Q3: y, High: y, Out: []float64{y * 2}}}
	}
	for name, points := range map[string][]report.Point{
		"one": {point(1, 1)}, "zero": {point(0, 0)}, "huge": {point(1, 1e100), point(2, -1e100)}, "tiny": {point(1, 1e-100), point(2, 2e-100)},
		"same": {point(1, 5), point(1, 5)}, "negative": {point(1, -5), point(2, -6)}, "many places": {point(-1e100, 1), point(1e100, 2)},
	} {
		for _, kind := range []string{"line", "bar", "box"} {
			for _, log := range []bool{false, true} {
				f := report.Figure{Title: name, Kind: kind, Series: []report.Series{{Name: "s", Points: points}}, X: report.Axis{Label: "x", Log: log}, Y: report.Axis{Label: "y", Log: log}}
				if kind != "line" {
					f.X.Categories = []string{"a", "b"}
				}
				check(t, &f)
			}
		}
	}
	for _, kind := range []string{"line", "bar", "box", "cdf", "time"} {
		check(t, &report.Figure{Kind: kind})
		check(t, &report.Figure{Kind: kind, Series: []report.Series{{Traces: []report.Trace{{X: []float64{1}, Y: []float64{1e100}}}}}, Events: []report.Event{{At: 1e9, What: "x"}}})
	}
}

var pathData = regexp.MustCompile(`(?s)<path d="([^"]*)"(.*?)/>`)

// strokes are the letters of all paths of a figure, and which are filled: how it is drawn, wherever
// that is.
func strokes(t *testing.T, f *report.Figure) string {
	t.Helper()
	var b bytes.Buffer
	if err := draw.SVG(&b, f); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range pathData.FindAllStringSubmatch(b.String(), -1) {
		out = append(out, strings.Map(func(r rune) rune {
			if r >= 'A' && r <= 'Z' {
				return r
			}
			return -1
		}, m[1])+map[bool]string{true: "-", false: "#"}[strings.Contains(m[2], "fill:none")])
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestPoints proves that a good point, a doubtful one and one of a paper are drawn unlike each
// other, for each series of ours.
func TestPoints(t *testing.T) {
	for n := range 8 {
		figure := func(level environment.Level, paper bool) *report.Figure {
			f := &report.Figure{Kind: "line"}
			for i := range n + 1 {
				f.Series = append(f.Series, report.Series{Name: strconv.Itoa(i), Paper: i == n && paper,
					Points: []report.Point{{X: 1, Y: 1, Low: stats.None, High: stats.None, Level: environment.Good}, {X: 2, Y: 2, Low: stats.None, High: stats.None, Level: environment.Good}}})
			}
			f.Series[n].Points[0].Level, f.Series[n].Points[1].Level = level, level
			return f
		}
		good, doubtful, paper := strokes(t, figure(environment.Good, false)), strokes(t, figure(environment.Doubtful, false)), strokes(t, figure("", true))
		if good == doubtful || good == paper || doubtful == paper {
			t.Errorf("series %d: good %v, doubtful and paper look alike:\n%s\n%s\n%s", n, good == doubtful, good, doubtful, paper)
		}
	}
}

// TestBase proves that bars on a logarithmic axis begin, with the axis, at a power of ten below the
// least of them.
func TestBase(t *testing.T) {
	for least, want := range map[float64]string{0.03: "0.01", 0.1: "0.01", 0.0999: "0.01"} {
		f := &report.Figure{Kind: "bar", X: report.Axis{Categories: []string{"a", "b"}}, Y: report.Axis{Log: true}, Series: []report.Series{{Name: "s",
			Points: []report.Point{{X: 0, Y: least, Low: stats.None, High: stats.None}, {X: 1, Y: 3, Low: stats.None, High: stats.None}}}}}
		if _, text := check(t, f); !strings.Contains(text, want) {
			t.Errorf("the axis of bars from %v up has no %s: %q", least, want, text)
		}
	}
}

var titleAt = regexp.MustCompile(`<text x="([^"]*)"[^>]*>a long title`)

// TestRoom proves that a long title beside a wide legend is not cut, and that names of categories
// are slanted if they would overlap, and only then.
func TestRoom(t *testing.T) {
	for name, slanted := range map[string]bool{"ovs": false, "ovs balanced": true} {
		f := &report.Figure{Kind: "bar", Title: "a long title" + strings.Repeat(" of words", 9)}
		s := report.Series{Name: strings.Repeat("wide ", 5)}
		for i := range 7 {
			f.X.Categories = append(f.X.Categories, name)
			s.Points = append(s.Points, report.Point{X: float64(i), Y: 1, Low: stats.None, High: stats.None})
		}
		f.Series = []report.Series{s}
		var b bytes.Buffer
		if err := draw.SVG(&b, f); err != nil {
			t.Fatal(err)
		}
		if at := titleAt.FindStringSubmatch(b.String()); at == nil || strings.HasPrefix(at[1], "-") {
			t.Errorf("the title begins at %q", at)
		}
		if strings.Contains(b.String(), "rotate(30") != slanted {
			t.Errorf("names %q are slanted: %v", name, !slanted)
		}
	}
}
