package report_test

import (
	"encoding/csv"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/reporttest"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// latency is from tables 1 (Mininet, here b) and 2 (the prototype, a) of paper 4: ten values in ms
// for 64 byte (1) and for 8192 byte (2). Table 3 has their averages and gaps.
var latency = map[[2]string][]float64{
	{"1", "b"}: {2.228, 2.341, 2.221, 2.611, 2.288, 2.581, 2.344, 2.731, 2.444, 2.553},
	{"2", "b"}: {9.149, 9.44, 9.765, 9.432, 9.435, 9.444, 9.123, 9.812, 9.456, 9.112},
	{"1", "a"}: {2.622, 3.211, 2.345, 3.445, 3.467, 3.567, 3.765, 3.541, 3.333, 3.489},
	{"2", "a"}: {10.421, 10.441, 10.822, 10.112, 10.115, 10.001, 10.448, 10.766, 11.011, 10.886},
}

func compareLatency(t *testing.T, change func([]result.Sample)) *report.Comparison {
	t.Helper()
	h, samples := one(latency)
	h.Experiment.Factors = []result.Factor{{Name: "x", Levels: []string{"64", "8192"}}, {Name: "who", Levels: []string{"mininet", "prototype"}}}
	for i := range samples {
		f := samples[i].Factors
		f["x"] = map[any]string{"1": "64", "2": "8192"}[f["x"]]
		f["who"] = map[any]string{"a": "prototype", "b": "mininet"}[f["who"]]
		samples[i].Measurements[0].Values[0] /= 1000
	}
	if change != nil {
		change(samples)
	}
	c, err := report.Compare(report.CompareOptions{A: run(h, samples), Names: [2]string{"prototype", "mininet"}, Factor: "who", Margins: margins(t, "5%")})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// cell is that of a row and a column by their heads.
func cell(t *testing.T, table report.Table, row, column string) report.Cell {
	t.Helper()
	at := slices.Index(table.Columns, column)
	for _, r := range table.Rows {
		if at >= 0 && slices.ContainsFunc(r.Cells[:table.Heads], func(c report.Cell) bool { return c.Text == row }) {
			return r.Cells[at]
		}
	}
	t.Fatalf("no %q and %q in %+v", row, column, table)
	return report.Cell{}
}

// TestComparedTables proves that a comparison of what paper 4 has published has the averages,
// deviations, variances and gaps of its tables 1, 2 and 3, in their form; and that doubt stands
// beside the numbers that it is of, with its reason.
func TestComparedTables(t *testing.T) {
	c := compareLatency(t, func(samples []result.Sample) {
		for i := range samples {
			if samples[i].Factors["who"] == "mininet" && samples[i].Factors["x"] == "8192" {
				samples[i].Verdict = &environment.Verdict{Level: environment.Doubtful, Reasons: []environment.Reason{{Level: environment.Doubtful, Code: "cpu", Text: "CPU 97 %"}}}
			}
		}
	})
	metrics := c.Metrics()
	if len(metrics) != 1 || metrics[0].Values.Title != "m [ms]" {
		t.Fatalf("%+v", metrics)
	}
	values := metrics[0].Values
	for _, want := range []struct {
		row, column string
		published   float64 // with three digits behind the point, or four
	}{
		{"prototype avg", "x 64", 3.2785}, {"prototype dev", "x 64", 0.448}, {"prototype var", "x 64", 0.201},
		{"mininet avg", "x 64", 2.4342}, {"mininet dev", "x 64", 0.177}, {"mininet var", "x 64", 0.031}, {"gap", "x 64", 0.8443},
		{"prototype avg", "x 8192", 10.5023}, {"mininet dev", "x 8192", 0.243}, {"mininet var", "x 8192", 0.059}, {"gap", "x 8192", 1.0855},
	} {
		got := cell(t, values, want.row, want.column)
		v, err := strconv.ParseFloat(got.Text, 64)
		if err != nil || math.Abs(v-want.published) > 0.003 {
			t.Errorf("%s, %s is %s, and was published as %v", want.row, want.column, got.Text, want.published)
		}
	}
	for row, want := range map[string]environment.Level{"mininet avg": environment.Doubtful, "prototype avg": environment.Good, "gap": environment.Doubtful} {
		if got := cell(t, values, row, "x 8192").Level; got != want {
			t.Errorf("%s is %q, want %q", row, got, want)
		}
	}
	if f := values.Fidelity; f.Level != environment.Doubtful || f.Suspect != 10 || f.Samples != 40 || f.Reasons[0].Text != "CPU 97 %" {
		t.Errorf("%+v", f)
	}
	if got := cell(t, metrics[0].Tests, "8192", "fidelity").Text; got != "good, doubtful" {
		t.Errorf("the fidelity is %q", got)
	}
	if s := metrics[0].Figure.Series; len(s) != 2 || s[0].Name != "prototype" || math.Abs(s[0].Points[1].Y-10.5023) > 1e-3 || s[1].Points[1].Level != environment.Doubtful || math.IsNaN(float64(s[0].Points[0].Low)) {
		t.Errorf("%+v", s)
	}
}

// TestComparedTests proves which tests stand in the table: those of two samples, or those of pairs,
// and no column of what was not made.
func TestComparedTests(t *testing.T) {
	unpaired := compareLatency(t, nil).Metrics()[0].Tests
	paired := compareLatency(t, func(samples []result.Sample) {
		for i := range samples {
			samples[i].Block, samples[i].Pair = samples[i].Repetition, samples[i].Factors["x"].(string)
		}
	}).Metrics()[0].Tests
	for _, c := range []struct {
		table     report.Table
		has, lack []string
	}{
		{unpaired, []string{"Welch t: p", "Mann–Whitney: p", "TOST: p", "margin ±", "Cliff's δ"}, []string{"paired t: p", "Wilcoxon: p", "rank-biserial"}},
		{paired, []string{"paired t: p", "Wilcoxon: p", "rank-biserial", "TOST: p"}, []string{"Welch t: p", "Mann–Whitney: p"}},
	} {
		for _, head := range c.has {
			if got := cell(t, c.table, "64", head).Text; got == "" || got == "–" {
				t.Errorf("%s is %q in %v", head, got, c.table.Columns)
			}
		}
		for _, head := range c.lack {
			if slices.Contains(c.table.Columns, head) {
				t.Errorf("%s is in %v", head, c.table.Columns)
			}
		}
	}
	if got := cell(t, paired, "64", "n").Text; got != "10 pairs" {
		t.Errorf("n is %s", got)
	}
	if got := cell(t, paired, "64", "Wilcoxon: p").Text; got != "0.002" {
		t.Errorf("ten pairs of one direction have p = %s, not 2/2¹⁰", got)
	}
}

// TestComparedWarnings proves that what speaks against a conclusion stands below the tests, each
// kind once, with the cells.
func TestComparedWarnings(t *testing.T) {
	h, samples := one(map[[2]string][]float64{{"1", "a"}: {1, 2, 3}, {"1", "b"}: {2, 3, 4}, {"2", "a"}: {1, 2, 3, 4, 90, 5}, {"2", "b"}: {2, 3, 4, 5, 6, 7}})
	h.Experiment.Factors = []result.Factor{{Name: "x", Levels: []string{"1", "2"}}, {Name: "who", Levels: []string{"a", "b"}}}
	c, err := report.Compare(report.CompareOptions{A: run(h, samples), Names: [2]string{"a", "b"}, Factor: "who"})
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(c.Metrics()[0].Tests.Notes, "\n")
	for _, want := range []string{"3 and 3 values are too few", "(x 1)", "There are outliers, 1 of 6 values", "(x 2, a)", "No margin was given"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in %q", want, notes)
		}
	}
}

// TestNoMargin proves that a margin which is a share of nothing is told from one that was not
// given.
func TestNoMargin(t *testing.T) {
	for margin, want := range map[string]string{"5%": "--margin loss=1pp", "rtt=5%": "No margin was given"} {
		c, err := report.Compare(report.CompareOptions{A: run(reporttest.Header(), reporttest.Samples()), Names: [2]string{"ovs", "embedded"}, Factor: "datapath", Margins: margins(t, margin)})
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(c.Metrics()[2].Tests.Notes, " "); !strings.Contains(notes, want) {
			t.Errorf("--margin %s: %q does not say %q", margin, notes, want)
		}
	}
}

// TestComparedCSV proves that the CSV has a line for each row in the metric's own unit with all
// digits, nothing where there is nothing, and columns for the factors of all metrics.
func TestComparedCSV(t *testing.T) {
	c, err := report.Compare(report.CompareOptions{A: run(reporttest.Header(), reporttest.Samples()), Names: [2]string{"ovs", "embedded"}, Factor: "datapath", Margins: margins(t, "throughput=5%")})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := c.CSV(&b); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil || len(lines) != 1+15 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	get := func(line int, column string) string { return lines[line][slices.Index(lines[0], column)] }
	for column, want := range map[string]string{"metric": "throughput", "unit": "bit/s", "factor.hops": "4", "a": "ovs", "a_n": "9", "paired": "true", "mann_whitney_p": "", "wilcoxon_p": "0.00390625", "conclusion": "different"} {
		if got := get(2, column); got != want {
			t.Errorf("%s is %q, want %q", column, got, want)
		}
	}
	if got, err := strconv.ParseFloat(get(2, "gap"), 64); err != nil || got != c.Rows[1].Difference {
		t.Errorf("the gap is %s, not %v", get(2, "gap"), c.Rows[1].Difference)
	}
	if get(6, "margin") != "" || get(2, "margin") == "" {
		t.Errorf("margins are %q of rtt and %q of throughput", get(6, "margin"), get(2, "margin"))
	}
}
