package definition

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestRead proves that every key ends up where it belongs.
func TestRead(t *testing.T) {
	d, problems := Read("a.yaml", []byte(`
factors: {hops: [2, 4], datapath: [ovs, embedded]}
report:
  figures:
    - {title: T, metric: rtt, probe: p, each: p95, of: values, unit: ms, where: {hops: [2, 4], datapath: ovs}, kind: box, x: hops, series: [datapath], y: median, scale: log-log}
  tables:
    - {metric: rtt, rows: datapath, columns: [hops], values: [mean, n], gap: [ovs, embedded]}
  compare: [{factor: datapath, margin: 5%}, {title: C, note: N, factor: hops, margin: {rtt: 0.2ms, loss: 0.1pp}}]
paper:
  source: S
  note: N
  numbers:
    - {metric: rtt, unit: ms, levels: {datapath: ovs}, value: 0.73, within: 20%, y: median}
    - {metric: rtt, levels: {datapath: ovs}, along: hops, values: {2: 1, 4: 2.5}}
    - {metric: rtt, levels: {datapath: [ovs, embedded]}, apart: datapath, spread: variance, over: hops, value: 3}
  trends:
    - {text: X, metric: rtt, at: {datapath: ovs}, along: hops, is: falls}
    - {metric: rtt, is: above, than: {datapath: ovs}, within: 0.1}
    - {metric: rtt, is: below, than: 3, unit: ms}
    - {metric: rtt, is: times, factor: 2, than: {datapath: ovs}, along: hops, of: slope, needs: kvm}
    - {metric: rtt, is: linear, along: hops, of: curvature}
    - {metric: rtt, is: flat, along: hops, needs: {processors: 4}}
    - {text: X, metric: rtt, is: flat, along: hops, needs: device, contradicts: Y}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	ovs := Level{"datapath", []string{"ovs"}}
	three := 3.0
	want := &Definition{
		Figures: []Figure{{Source: Source{Title: "T", Metric: "rtt", Probe: "p", Each: "p95", Of: "values", Unit: "ms", Where: Condition{{"hops", []string{"2", "4"}}, ovs}},
			Kind: Box, X: "hops", Series: []string{"datapath"}, Y: Median, Scale: LogLog}},
		Tables: []Table{{Source: Source{Metric: "rtt"}, Rows: []string{"datapath"}, Columns: []string{"hops"}, Values: []string{"mean", "n"}, Gap: []string{"ovs", "embedded"}}},
		Compares: []Compare{{Factor: "datapath", Margins: map[string]Margin{"": {Share: 0.05}}},
			{Title: "C", Note: "N", Factor: "hops", Margins: map[string]Margin{"rtt": {Value: 0.2, Unit: "ms"}, "loss": {Value: 0.1, Unit: "%"}}}},
		Paper: &Paper{Source: "S", Note: "N", Numbers: []Number{
			{Source: Source{Metric: "rtt", Unit: "ms", Where: Condition{ovs}}, Y: Median, Value: 0.73, Within: 0.2},
			{Source: Source{Metric: "rtt", Where: Condition{ovs, {"hops", []string{"2"}}}}, Value: 1},
			{Source: Source{Metric: "rtt", Where: Condition{ovs, {"hops", []string{"4"}}}}, Value: 2.5},
		}, Spreads: []Spread{
			{Number{Source: Source{Metric: "rtt", Where: Condition{ovs}}, Value: 3}, Variance, "hops"},
			{Number{Source: Source{Metric: "rtt", Where: Condition{{"datapath", []string{"embedded"}}}}, Value: 3}, Variance, "hops"},
		}, Trends: []Trend{
			{Source: Source{Metric: "rtt", Where: Condition{ovs}}, Text: "X", Is: Falls, Along: "hops", Within: 0.05},
			{Source: Source{Metric: "rtt"}, Is: Above, Than: Condition{ovs}, Within: 0.1},
			{Source: Source{Metric: "rtt", Unit: "ms"}, Is: Below, Limit: &three},
			{Source: Source{Metric: "rtt", Of: Slope}, Is: Times, Factor: 2, Than: Condition{ovs}, Along: "hops", Within: 0.2, Needs: Need{What: KVM}},
			{Source: Source{Metric: "rtt", Of: Curvature}, Is: Linear, Along: "hops", Within: 0.1},
			{Source: Source{Metric: "rtt"}, Is: Flat, Along: "hops", Within: 0.05, Needs: Need{Processors, 4}},
			{Source: Source{Metric: "rtt"}, Text: "X", Is: Flat, Along: "hops", Within: 0.05, Needs: Need{What: Device}, Contradicts: "Y"},
		}},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("read\n%+v\nwant\n%+v", d, want)
	}
}

// TestProblems proves that each mistake is found, where it is and with what to do; and that what is
// right beside it is read.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"report: [1]", "a.yaml:1:9  report takes keys"},
		{"report: {figure: []}", "a.yaml:1:10  figure: no such key of report; did you mean figures?"},
		{"report:\n  figures:\n    - {title: x}", "a.yaml:3:7  a figure needs a metric"},
		{"report: {figures: [{metric: m, kind: pie}]}", `"pie": is not known here; choose one of line, bar, box, cdf, time`},
		{"factors: {hops: [1]}\nreport: {figures: [{metric: m, x: hopps}]}", "2:35  warning: hopps: is not a factor; it may be a label of the measurements; did you mean hops?"},
		{"report: {tables: [{metric: m, rows: [a, b], gap: [x, y]}]}", "gap: takes two levels of the one dimension in rows"},
		{"report: {tables: [{metric: m, values: [mean, avg]}]}", `"avg": is not known here`},
		{"report: {compare: {margin: 5%}}", "a.yaml:1:19  a comparison is of the levels of a factor; write compare: {factor: place, margin: 5%}"},
		{"factors: {place: [a, b]}\nreport: {compare: {factor: plaice}}", "plaice: is not a factor; did you mean place?"},
		{"factors: {place: [a, b]}\nreport: {compare: {factor: place, margin: {rtt: 5}}}", "5: is not a margin; write margin: 5%, or margin: {rtt: 0.2ms, loss: 0.1pp}"},
		{"factors: {place: [a, b]}\nreport: {compare: {factor: place, margin: [5%]}}", "text is expected here"},
		{"paper: {numbers: [{metric: m}]}", "a number has a value, or values along a factor"},
		{"paper: {numbers: [{metric: m, value: high}]}", `a number is expected here, not "high"`},
		{"paper: {numbers: [{metric: m, value: 1, within: much}]}", "a percentage is expected"},
		{"paper: {numbers: [{metric: m, value: 1, spread: deviation}]}", "a deviation is over the levels of a factor, or of a label; write over: switch"},
		{"paper: {numbers: [{metric: m, value: 1, over: switch}]}", "over: belongs to spread; write spread: deviation, over: switch"},
		{"paper: {numbers: [{metric: m, value: 1, spread: range, over: switch}]}", `"range": is not known here; choose deviation or variance`},
		{"paper: {numbers: [{metric: m, value: 1, spread: variance, over: switch, within: 5%}]}", "is shown beside ours, and not judged; leave within, y and of out"},
		{"paper: {numbers: [{metric: m, value: 1, levels: {a: b}, apart: c}]}", "c: levels: has none of it; write levels: {c: [A, B]}, apart: c"},
		{"paper: {trends: [{metric: m, along: x}]}", "a trend falls, rises, is flat, linear, above, below, steeper than or so many times another"},
		{"paper: {trends: [{metric: m, is: times, than: {x: 1}}]}", "how many times what?"},
		{"paper: {trends: [{metric: m, is: times, factor: 2, than: 7}]}", "how many times what?"},
		{"paper: {trends: [{metric: m, is: above, factor: 2, than: 7}]}", "factor belongs to is: times"},
		{"paper: {trends: [{metric: m, is: steeper, along: x, than: 7}]}", "steeper along what, than what?"},
		{"paper: {trends: [{metric: m, is: steeper, than: {x: 1}}]}", "steeper along what, than what?"},
		{"paper: {trends: [{metric: m, is: rises, along: x, of: slope}]}", "slopes are so many times, above or below others; write is: times, is: above or is: below"},
		{"paper: {trends: [{metric: m, is: steeper, along: x, than: {y: 1}, of: slope}]}", "steeper is of slopes already, those of logarithms; leave of out"},
		{"paper: {trends: [{metric: m, is: times, factor: 2, than: {y: 1}, of: slope}]}", "the slope along which factor?; write along: hops"},
		{"paper: {trends: [{metric: m, is: times, factor: 2, along: x, of: slope}]}", "how many times what?"},
		{"paper: {trends: [{metric: m, is: times, along: x, than: {y: 1}, of: slope}]}", "how many times what?"},
		{"paper: {trends: [{metric: m, is: above, along: x, of: slope}]}", "is above what?"},
		{"paper: {trends: [{metric: m, is: above, along: x, at: {x: 2}, than: {y: 1}, of: slope}]}", "a slope takes at least 2 levels of x; leave x out of at"},
		{"paper: {trends: [{metric: m, is: above, along: x, than: {y: 1, x: [1, 2]}, of: slope}]}", "both slopes are along the same levels of x; leave x out of than"},
		{"paper: {trends: [{metric: m, is: flat, along: x, of: curvature}]}", "curvature is what is linear is tested by; write is: linear, of: curvature"},
		{"paper: {trends: [{metric: m, is: linear, along: x, at: {x: [1, 2]}, of: curvature}]}", "a curvature takes at least 3 levels of x"},
		{"paper: {trends: [{metric: m, is: linear, of: curvature}]}", "the curvature along which factor?"},
		{"paper: {trends: [{metric: m, is: linear, along: x, of: slopes}]}", `"slopes": is not known here; did you mean slope?`},
		{"report: {figures: [{metric: m, of: slope}]}", `"slope": is not known here; choose repetitions or values`},
		{"paper: {trends: [{metric: m, is: falls, along: x, needs: root}]}", `"root": is not known here; write kvm, smt, device, load or {processors: 4}`},
		{"paper: {trends: [{metric: m, is: falls, along: x, needs: [kvm, smt]}]}", "is not known here; write kvm, smt, device, load or {processors: 4}"},
		{"paper: {trends: [{metric: m, is: falls, along: x, needs: {processors: 1.5}}]}", "a number of processors from 2 to 4096 is expected here; write needs: {processors: 4}"},
		{"paper: {trends: [{metric: m, is: falls, along: x, needs: {cores: 4}}]}", "cores: no such key of needs"},
		{"paper: {trends: [{text: t, metric: m, is: falls, along: x, contradicts: t}]}", "t: contradicts which other sentence of the paper?"},
		{"paper: {trends: [{text: t, metric: m, is: falls, along: x, contradicts: ''}]}", "t: contradicts which other sentence of the paper?"},
		{"paper: {trends: [{metric: m, is: above}]}", "is above what?"},
		{"paper: {trends: [{metric: m, is: flat, along: x, of: values}]}", "tested by repetitions"},
		{"paper: {trends: [{metric: m, is: falls}]}", "falls goes along a factor"},
		{"paper: {numbers: [{metric: m, value: 1, unit: furlong}]}", "furlong: is not converted"},
	} {
		_, problems := Read("a.yaml", []byte(c.text))
		var all []string
		for _, p := range problems {
			all = append(all, p.String())
		}
		if !strings.Contains(strings.Join(all, "\n"), c.want) {
			t.Errorf("%s\ngave %q\nwant %q", c.text, all, c.want)
		}
	}
	d, _ := Read("a.yaml", []byte("report: {figures: [{metric: good}, {kind: pie}]}"))
	if len(d.Figures) != 1 || d.Figures[0].Metric != "good" {
		t.Errorf("what is right was lost: %+v", d)
	}
}

// TestReadFor proves that where it is known what will be measured, a report that speaks of anything
// else is refused before: metrics, probes, axes, levels, labels, units; and that what will be
// there, what the machine is watched for, and a paper's other levels are let pass.
func TestReadFor(t *testing.T) {
	known := Known{Levels: map[string][]string{"hops": {"2", "10"}, "datapath": {"ovs"}}, Probes: map[string]map[string]Measured{
		"ping": {"rtt": {"s", []string{"from", "to"}}, "loss": {"1", nil}}, "tcp": {"throughput": {"bit/s", nil}}}}
	for text, want := range map[string]string{
		"report: {figures: [{metric: rtt, x: hops, series: [datapath, from], unit: ms, where: {hops: [2, 10.0]}}]}": "",
		"report: {tables: [{metric: usage.busy, rows: anything}]}":                                                  "",
		"report: {tables: [{metric: rtt, each: count, unit: \"1\", rows: probe}]}":                                  "",
		"paper: {numbers: [{metric: rtt, unit: ms, levels: {datapath: hardware}, value: 1}]}":                       "",
		"report: {compare: {factor: f, margin: {rtt: 1us, loss: 1pp, throughput: 5%}}}":                             "",
		"report: {compare: {factor: f, margin: {rt: 1us}}}":                                                         "margin: rt is not measured; did you mean rtt?",
		"report: {compare: {factor: f, margin: {rtt: 1mbit}}}":                                                      "margin: rtt is in s, and not in mbit",
		"report: {figures: [{metric: rt}]}":                                                                         "1:29  rt: is not measured by the probes; did you mean rtt?",
		"report: {figures: [{metric: rtt, probe: tcp}]}":                                                            "rtt: is not measured by tcp; choose throughput",
		"report: {figures: [{metric: rtt, probe: pin}]}":                                                            "pin: there is no such probe; did you mean ping?",
		"report: {figures: [{metric: rtt, x: hopps}]}":                                                              "hopps: is neither a factor nor a label of rtt; did you mean hops?",
		"report: {tables: [{metric: loss, rows: from}]}":                                                            "from: is neither a factor nor a label of loss",
		"report: {figures: [{metric: rtt, unit: Mbit/s}]}":                                                          "unit: rtt is in s, which cannot be shown in Mbit/s",
		"report: {figures: [{metric: rtt, where: {hops: 4}}]}":                                                      "4: is not a level of hops; choose 2 or 10",
		"paper: {trends: [{metric: rtt, text: x, is: above, at: {datapath: ovs}, than: {datapath: ovz}}]}":          "ovz: is not a level of datapath",
		"paper: {trends: [{metric: rtt, text: x, is: above, along: hops, than: 7, of: slope}]}":                     "",
		"paper: {trends: [{metric: rtt, text: x, is: above, along: datapath, than: 7, of: slope}]}":                 "datapath: there is no slope along what is not numbers; go along a factor whose levels are numbers",
		"paper: {numbers: [{metric: rtt, levels: {path: x}, value: 1}]}":                                            "path: is neither a factor nor a label",
	} {
		_, problems := ReadFor("a.yaml", []byte("factors: {f: [1]}\n"+text), known)
		got := ""
		if err := problems.Err(); err != nil {
			got = strings.ReplaceAll(err.Error(), "a.yaml:2", "a.yaml:1")
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s\ngave %q\nwant %q", text, got, want)
		}
	}
}

// TestShipped proves that what the experiments of this repository say of their reports is all
// right.
func TestShipped(t *testing.T) {
	files, err := filepath.Glob("../../../experiments/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no experiments: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, problems := Read(file, data); problems.Err() != nil {
			t.Error(problems.Err())
		}
	}
}

// TestUnits proves conversions against figures worked out by hand, and that what measures different
// things is not converted.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     float64
	}{{"s", "ms", 1000}, {"us", "s", 1e-6}, {"bit/s", "KiB/s", 1.0 / 8192}, {"MB/s", "Mbit/s", 8}, {"%", "1", 0.01}, {"B", "MiB", 1.0 / 1048576}, {"furlong", "furlong", 1}} {
		if got, ok := Convert(c.from, c.to); !ok || math.Abs(got/c.want-1) > 1e-12 {
			t.Errorf("%s to %s: %v, %v", c.from, c.to, got, ok)
		}
	}
	for _, c := range [][2]string{{"s", "B"}, {"B", "bit/s"}, {"furlong", "s"}, {"", "s"}} {
		if f, ok := Convert(c[0], c[1]); ok {
			t.Errorf("%s was converted to %s by %v", c[0], c[1], f)
		}
	}
	for unit, typical := range map[string]float64{"ms": 0.0031, "s": 2, "us": 50e-6} {
		if got := Suitable("s", typical); got != unit {
			t.Errorf("%v s are shown in %s", typical, got)
		}
	}
	if got := Suitable("bit/s", 9.4e9); got != "Gbit/s" {
		t.Error(got)
	}
}

// FuzzRead proves that no text, however broken, does more than be refused.
func FuzzRead(f *testing.F) {
	f.Add([]byte("report: {figures: [{metric: m, where: {a: [1, 2]}}]}\npaper: {numbers: [{metric: m, along: a, values: {1: 2}}], trends: [{metric: m, is: flat, along: a}]}"))
	f.Add([]byte("x: &x [*x]\nreport: *x"))
	f.Add([]byte("a: &a {metric: m, value: 1}\npaper: {numbers: [*a, *a, {<<: *a}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, _ := Read("a.yaml", data)
		if len(d.Figures) > maxFigures || d.Paper != nil && len(d.Paper.Numbers) > maxNumbers {
			t.Fatal("more than there may be")
		}
	})
}
