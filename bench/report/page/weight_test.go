package page_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report/draw"
	"trivet.dev/trivet/bench/report/reporttest"
	"trivet.dev/trivet/bench/result"
)

// TestWeight proves that a page of very many values, and each picture, stay small enough to be
// loaded: eight levels, 20 runs of 5,000 values each as a distribution and over time, of which the
// highest value is still there.
func TestWeight(t *testing.T) {
	h := reporttest.Header()
	h.Experiment.Factors = []result.Factor{{Name: "rate", Levels: []string{"1", "2", "3", "4", "5", "6", "7", "8"}}}
	h.Experiment.Text = "report: {figures: [{metric: delay, kind: cdf, series: rate}, {metric: delay, kind: time, series: rate, unit: s}, {metric: delay, x: rate, kind: box}, {metric: delay, x: rate}]}"
	var samples []result.Sample
	for run := 1; run <= 160; run++ {
		m := result.Measurement{Metric: "delay", Unit: "s"}
		for i := range 5000 {
			m.At, m.Values = append(m.At, float64(i)*0.0012345678), append(m.Values, 1/float64(7+(i*run)%4999))
		}
		if run == 77 {
			m.Values[2500] = 1234.5
		}
		samples = append(samples, result.Sample{Run: run, Cell: fmt.Sprint(run % 8), Factors: map[string]any{"rate": float64(1 + run%8)}, Repetition: 1 + run/8, Probe: "udp", Kind: "packets", Measurements: []result.Measurement{m}})
	}
	r := build(h, samples)
	data := write(t, r)
	if len(r.Figures) != 4 || len(data) > 700_000 {
		t.Errorf("%d figures, a page of %d bytes", len(r.Figures), len(data))
	}
	if many := write(t, r, r, r, r); bytes.Count(many, []byte("<noscript><img")) < 8 || len(many) > 2_500_000 {
		t.Errorf("four of them: %d pictures for readers without scripts, %d bytes", bytes.Count(many, []byte("<noscript><img")), len(many))
	}
	if !bytes.Contains(data, []byte("1234.5")) {
		t.Error("the highest value is not in the page")
	}
	for i := range r.Figures {
		var b bytes.Buffer
		if err := draw.SVG(&b, &r.Figures[i]); err != nil || b.Len() > 100_000 {
			t.Errorf("%s: %d bytes, %v", r.Figures[i].Title, b.Len(), err)
		}
	}
}

// zeros are samples in which nothing was lost.
func zeros() (result.Header, []result.Sample) {
	h := reporttest.Header()
	h.Experiment.Text = "report: {figures: [{metric: loss, x: hops, series: datapath, unit: '%'}, {metric: loss, x: hops, series: datapath, kind: bar}, {metric: late, x: hops, series: datapath}, {metric: late, kind: cdf, series: datapath}, {metric: rtt, x: hops}]}"
	samples := reporttest.Samples()
	for i := range samples {
		if samples[i].Probe == "ping" {
			samples[i].Measurements = append(samples[i].Measurements, result.Measurement{Metric: "late", Unit: "s", Values: []float64{0, 0}})
		}
	}
	return h, samples
}

// TestZero proves that a figure in which all values are 0 says so, in words and in the picture, and
// has a line at 0; and that others do not.
func TestZero(t *testing.T) {
	r := build(zeros())
	for i, f := range r.Figures {
		var b bytes.Buffer
		if err := draw.SVG(&b, &f); err != nil {
			t.Fatal(err)
		}
		noted := strings.Contains(strings.Join(f.Notes, " "), "All values are 0.")
		drawn := strings.Contains(b.String(), "all values are 0")
		if want := i < 4; f.Zero != want || noted != want || drawn != want {
			t.Errorf("%s %s: zero %v, noted %v, drawn %v", f.Title, f.Kind, f.Zero, noted, drawn)
		}
	}
	b := open(t, write(t, r), 1200, 900)
	b.until("document.querySelectorAll('.plot > svg').length == 5")
	for selector, want := range map[string]float64{"text.zero": 4, "#r-0-figure-1 path.curve": 2, "#r-0-figure-2 rect.bar": 10, "#r-0-figure-5 text.zero": 0} {
		if got := b.ask(fmt.Sprintf("document.querySelectorAll(%q).length", selector)); got != want {
			t.Errorf("%s: %v, want %v", selector, got, want)
		}
	}
	// Each bar of 0 has a height, and lies on the axis, as does the line of a figure without
	// intervals.
	if got := b.ask("[...document.querySelectorAll('#r-0-figure-2 rect.bar')].every(e => e.getBBox().height > 0)"); got != true {
		t.Error("bars of 0 have no height")
	}
	if got := b.ask("(() => { const at = document.querySelector('#r-0-figure-3 path.curve').getBBox().y, axis = document.querySelector('#r-0-figure-3 .frame-line').getBBox().y; return Math.abs(at - axis) < 1; })()"); got != true {
		t.Error("the line of 0 is not on the axis")
	}
}
