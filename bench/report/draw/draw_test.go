package draw_test

import (
	"bytes"
	"encoding/xml"
	"image/png"
	"io"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/draw"
	"trivet.dev/trivet/bench/report/reporttest"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/bench/stats"
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

func build(h result.Header, samples []result.Sample) *report.Report {
	return report.Build("x.jsonl", &result.Run{Header: h, Samples: samples})
}

// TestFigures proves that figures of all kinds become pictures, with their titles, axes, levels and legends.
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

// TestOdd proves that values which are hard to draw are drawn, or left out, but never the end of the program.
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
