package report_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/reporttest"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

func run(h result.Header, samples []result.Sample) *result.Run {
	return &result.Run{Header: h, Samples: samples}
}

func margins(t *testing.T, texts ...string) report.Margins {
	t.Helper()
	m, err := report.ParseMargins(texts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCompare proves that two levels are compared by pairs, cell by cell, and what is concluded in
// words.
func TestCompare(t *testing.T) {
	samples := reporttest.Samples()
	c, err := report.Compare(report.CompareOptions{A: run(reporttest.Header(), samples), Names: [2]string{"ovs", "embedded"}, Factor: "datapath", Margins: margins(t, "5%", "loss=2pp")})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Rows) != 15 {
		t.Fatalf("%d rows", len(c.Rows))
	}
	for _, r := range c.Rows {
		if !r.Paired {
			t.Errorf("%s %s is not compared by pairs", r.Metric, r.Levels)
		}
		want := map[string]stats.Conclusion{"throughput": stats.Different, "rtt": stats.Different, "loss": stats.Equivalent}[r.Metric]
		if r.Metric == "throughput" && r.Levels[0] == "2" {
			want = stats.Undecided // there is an outlier
		}
		if r.Conclusion != want {
			t.Errorf("%s %s: %s, want %s: %s", r.Metric, r.Levels, r.Conclusion, want, r.Words)
		}
	}
	rtt := c.Rows[5]
	if want := meanRTT(samples, "ovs", 2) - meanRTT(samples, "embedded", 2); math.Abs(rtt.Difference/want-1) > 1e-9 || rtt.Unit != "s" {
		t.Errorf("the gap is %v %s, want %v s", rtt.Difference, rtt.Unit, want)
	}
	if !strings.Contains(rtt.Words, "ovs is higher by 58.57 µs") || !strings.Contains(rtt.Words, "more than the margin") {
		t.Error(rtt.Words)
	}
	if n := c.Rows[1].A.N; n != 9 {
		t.Errorf("the failed run takes its pair with it: %d pairs", n)
	}
	if _, err := json.Marshal(c); err != nil {
		t.Error(err)
	}
}

// TestPairsInRandomOrder proves that runs which were made one after another are compared as pairs
// in whatever order the pairs were: at random, all repetitions are in one block.
func TestPairsInRandomOrder(t *testing.T) {
	samples := reporttest.Samples()
	for i := range samples {
		samples[i].Block = 1
	}
	c, err := report.Compare(report.CompareOptions{A: run(reporttest.Header(), samples), Names: [2]string{"ovs", "embedded"}, Factor: "datapath"})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Rows {
		if !r.Paired || r.A.N < 9 {
			t.Errorf("%s %s: %d repetitions, by pairs: %v", r.Metric, r.Levels, r.A.N, r.Paired)
		}
	}
}

// TestCompareResults proves that two results are compared where both have values, also of other
// units, and that the rest and what else differs between them is said.
func TestCompareResults(t *testing.T) {
	h, a := one(map[[2]string][]float64{{"1", "a"}: around(10), {"2", "a"}: around(10), {"3", "a"}: around(10)})
	_, b := one(map[[2]string][]float64{{"1", "a"}: around(10010), {"2", "a"}: around(14000), {"1", "b"}: around(1)})
	for i := range b {
		b[i].Measurements[0].Unit = "ms"
	}
	other := h
	h.Environment.Tools, h.Environment.Sysctls = map[string]string{"iperf3": "3.12", "ovs": "3.1", "here": "1"}, map[string]string{"net.core.rmem_max": "1"}
	other.Environment.Kernel, other.Environment.Memory.Total, other.Environment.CPU.Governors = "9.9", 8<<30, []string{"performance"}
	other.Environment.Tools, other.Environment.Sysctls = map[string]string{"iperf3": "3.18", "ovs": "3.1"}, map[string]string{"net.core.rmem_max": "2"}
	c, err := report.Compare(report.CompareOptions{A: run(h, a), B: run(other, b), Names: [2]string{"one", "other"}, Margins: margins(t, "5%")})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Rows) != 2 || c.Rows[0].Conclusion != stats.Equivalent || c.Rows[1].Conclusion != stats.Different || c.Rows[0].Paired {
		t.Fatalf("%+v", c.Rows)
	}
	if !strings.Contains(c.Rows[1].Words, "one is lower by 4 s") {
		t.Error(c.Rows[1].Words)
	}
	notes := strings.Join(c.Notes, "\n")
	var said strings.Builder
	if err := c.WriteText(&said); err != nil || strings.Index(said.String(), "Different kernel") > strings.Index(said.String(), "In short") {
		t.Errorf("what differs is not said first: %v, %s", err, said.String())
	}
	for _, want := range []string{"Different kernel: unknown and 9.9.\n", "Different memory: 0 GiB and 8 GiB.", "Different frequency and sleep of processors: unknown and performance.", "Different programs: iperf3 (3.12 and 3.18).", "Different settings of the kernel: net.core.rmem_max (1 and 2).", "Only one has m: x 3, a.", "Only other has m: x 1, b."} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in %q", want, notes)
		}
	}
}

// TestUndecided proves that what does not suffice is said with what would: too few, too much
// spread, no margin, chance among many.
func TestUndecided(t *testing.T) {
	wild := []float64{5, 15, 9, 12, 7, 10}
	other := []float64{14, 6, 10, 9, 12, 8}
	for _, c := range []struct {
		a, b   []float64
		margin []string
		words  string
	}{
		{around(10)[:3], around(10)[:3], []string{"5%"}, "too few: 3 repetitions"},
		{wild, other, []string{"5%"}, "take about"},
		{wild, []float64{9, 17, 13, 15, 10, 14}, []string{"1%"}, "take about 17 repetitions"}, // 17 show that they differ by more; that they are the same is not to be shown
		{wild, other, nil, "State a --margin"},
		{[]float64{3, 3, 3, 3, 3}, []float64{3, 3, 3, 3, 3}, []string{"5%"}, "all values of both are 3 s"},
		{[]float64{3}, []float64{4}, nil, "single values"},
	} {
		h, samples := one(map[[2]string][]float64{{"1", "a"}: c.a, {"1", "b"}: c.b})
		h.Experiment.Factors[1].Levels = []string{"a", "b"}
		got, err := report.Compare(report.CompareOptions{A: run(h, samples), Names: [2]string{"a", "b"}, Factor: "who", Margins: margins(t, c.margin...)})
		if err != nil {
			t.Fatal(err)
		}
		if r := got.Rows[0]; r.Conclusion != stats.Undecided || !strings.Contains(r.Words, c.words) {
			t.Errorf("%v and %v: %s: %s", c.a, c.b, r.Conclusion, r.Words)
		}
	}
}

// TestWithoutSpread proves what is concluded where no repetition differs: of shares by all packets,
// of other values by what they are, and of few repetitions, which may differ from those that were
// not made, nothing, unless no packet was lost, or every one.
func TestWithoutSpread(t *testing.T) {
	for _, c := range []struct {
		n          int
		a, b       int // of 1000; of both 0: the values
		x, y       float64
		margin     []string
		conclusion stats.Conclusion
		words      string
	}{
		{1, 4, 5, 0, 0, []string{"2pp"}, stats.Undecided, "0.4000 % and 0.5000 % are single values"},
		{4, 4, 5, 0, 0, []string{"2pp"}, stats.Undecided, "16 of 4000 and 20 of 4000"},
		{5, 4, 5, 0, 0, []string{"2pp"}, stats.Equivalent, "less than 2 %"},
		{1, 0, 0, 0, 0, []string{"2pp"}, stats.Equivalent, "0 of 1000 and 0 of 1000"},
		{10, 0, 1000, 0, 0, nil, stats.Different, "differ: a is lower by 100 % [99.95, 100], which is 100 %; 0 of 10000 and 10000 of 10000"},
		{10, 1000, 0, 0, 0, []string{"2pp"}, stats.Different, "that is more than the margin"},
		{10, 30, 10, 0, 0, []string{"2pp"}, stats.Different, "whether that is more than the margin of 2 % is open"},
		{4, 0, 1000, 0, 0, nil, stats.Undecided, "cannot tell"},
		{10, 4, 4, 0, 0, nil, stats.Undecided, "cannot tell"},
		{5, 0, 0, 6, 4, nil, stats.Different, "differ: a is higher by 2 s, which is 50 %; all values are 6 s and 4 s"},
		{5, 0, 0, 6, 4, []string{"1s"}, stats.Different, "that is more than the margin"},
		{5, 0, 0, 6, 4, []string{"3s"}, stats.Undecided, "all values are 6 s and 4 s"},
		{4, 0, 0, 6, 4, nil, stats.Undecided, "all values are 6 s and 4 s"},
		{5, 0, 0, 4, 4, nil, stats.Undecided, "all values of both are 4 s"},
	} {
		h, samples := one(map[[2]string][]float64{{"1", "a"}: slices.Repeat([]float64{c.x}, c.n), {"1", "b"}: slices.Repeat([]float64{c.y}, c.n)})
		h.Experiment.Factors[1].Levels = []string{"a", "b"}
		for i, s := range samples {
			if c.x == 0 {
				samples[i].Measurements = []result.Measurement{result.Share("loss", map[any]int{"a": c.a, "b": c.b}[s.Factors["who"]], 1000)}
			}
		}
		got, err := report.Compare(report.CompareOptions{A: run(h, samples), Names: [2]string{"a", "b"}, Factor: "who", Margins: margins(t, c.margin...)})
		if err != nil {
			t.Fatal(err)
		}
		if r := got.Rows[0]; r.Conclusion != c.conclusion || !strings.Contains(r.Words, c.words) {
			t.Errorf("%d times %d and %d, %v and %v: %s: %s", c.n, c.a, c.b, c.x, c.y, r.Conclusion, r.Words)
		}
		var all strings.Builder
		if err := got.WriteText(&all); err != nil || got.CSV(&all) != nil {
			t.Error(err)
		}
	}
}

// TestTooFew proves that of a comparison in which nothing has enough repetitions, as after --quick,
// it is said once why nothing is decided and what to do, and not in each row; and that where some
// have enough it is said of those that do not.
func TestTooFew(t *testing.T) {
	compare := func(values map[[2]string][]float64, command ...string) *report.Comparison {
		h, samples := one(values)
		h.Experiment.Factors[1].Levels, h.Experiment.File, h.Command = []string{"a", "b"}, "x.yaml", command
		c, err := report.Compare(report.CompareOptions{A: run(h, samples), Names: [2]string{"a", "b"}, Factor: "who"})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	quick := compare(map[[2]string][]float64{{"1", "a"}: {3}, {"1", "b"}: {4}, {"2", "a"}: {5}, {"2", "b"}: {7}}, "trivet", "bench", "run", "--quick")
	if len(quick.Notes) != 1 || !strings.Contains(quick.Notes[0], "measured once (--quick)") || !strings.Contains(quick.Notes[0], "trivet bench run x.yaml --repetitions 5") {
		t.Errorf("%q", quick.Notes)
	}
	for _, r := range quick.Rows {
		if strings.Contains(r.Words, "take at least") {
			t.Error(r.Words)
		}
	}
	some := compare(map[[2]string][]float64{{"1", "a"}: {3}, {"1", "b"}: {4}, {"2", "a"}: around(10), {"2", "b"}: around(10)})
	if len(some.Notes) != 0 || !strings.Contains(some.Rows[0].Words, "take at least 5 of each") {
		t.Errorf("%q, %s", some.Notes, some.Rows[0].Words)
	}
}

// TestUserSpace proves that a report and a comparison say where Open vSwitch forwarded in user
// space.
func TestUserSpace(t *testing.T) {
	h := reporttest.Header()
	for where, want := range map[string]int{"in user space: this kernel has no module for it": 1, "in the kernel": 0} {
		h.Environment.Tools = map[string]string{environment.OVSForwards: where}
		samples := reporttest.Samples()
		for i := range samples {
			if samples[i].Factors["datapath"] == "ovs" {
				samples[i].Usage = &environment.Usage{Cgroups: []environment.CgroupUsage{{Name: "ovs"}}}
			}
		}
		r := run(h, samples)
		for factor, names := range map[string][2]string{"datapath": {"ovs", "embedded"}, "hops": {"2", "4"}} {
			c, err := report.Compare(report.CompareOptions{A: r, Names: names, Factor: factor})
			of := map[string]int{"datapath": 1, "hops": 2}[factor] // of one side, and of both
			if err != nil || strings.Count(strings.Join(c.Notes, " "), "forwarded in user space") != want*of {
				t.Errorf("%s, %s: %q, %v", where, factor, c.Notes, err)
			}
		}
		if notes := report.Build("x", r).Notes; len(notes) != want {
			t.Errorf("%s: %q", where, notes)
		}
	}
}

// TestEmulated proves that a comparison of figures by emulated processors with figures by others
// says so, and of which side, and that one of equals does not.
func TestEmulated(t *testing.T) {
	for _, c := range []struct {
		how  [2]map[string]string // of ovs and embedded
		want string
	}{
		{[2]map[string]string{{"h1": "kvm"}, {"h1": "kvm"}}, ""},
		{[2]map[string]string{{"h1": environment.Emulated}, {"h1": environment.Emulated}}, ""},
		{[2]map[string]string{{"h1": environment.Emulated, "r1": environment.Emulated}, {"h1": "kvm"}}, "ovs: QEMU emulated the processors of h1, r1: what goes through them is slower by far than by KVM."},
		{[2]map[string]string{{}, {"h1": environment.Emulated}}, "embedded: QEMU emulated the processors of h1: "},
	} {
		samples := reporttest.Samples()
		for i := range samples {
			side := 0
			if samples[i].Factors["datapath"] == "embedded" {
				side = 1
			}
			samples[i].Usage = &environment.Usage{Accelerators: c.how[side]}
		}
		compared, err := report.Compare(report.CompareOptions{A: run(reporttest.Header(), samples), Names: [2]string{"ovs", "embedded"}, Factor: "datapath"})
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Join(compared.Notes, "\n")
		if strings.Contains(said, "emulated") != (c.want != "") || !strings.Contains(said, c.want) {
			t.Errorf("%v: want %q, got %q", c.how, c.want, said)
		}
	}
}

// TestModelled proves that a comparison says for which slow devices nodes stood, on which side, and
// of each node whether it did so in all runs.
func TestModelled(t *testing.T) {
	samples := reporttest.Samples()
	some := false
	for i := range samples {
		s := &samples[i]
		s.Usage = &environment.Usage{Models: map[string]string{"s1": "small", "s2": "small", "h1": "wifi"}}
		if s.Factors["datapath"] == "embedded" {
			s.Usage.Models = nil
		} else if !some {
			some = true
			s.Usage.Models = map[string]string{"s1": "small", "s2": "large"}
		}
	}
	compared, err := report.Compare(report.CompareOptions{A: run(reporttest.Header(), samples), Names: [2]string{"ovs", "embedded"}, Factor: "datapath"})
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(compared.Notes, "\n")
	for _, want := range []string{
		"ovs: A model, no device: s1 stands for small.",
		"ovs: A model, no device: s2 stands for small in some of the runs.",
		"ovs: A model, no device: s2 stands for large in some of the runs.",
		"ovs: A model, no device: h1 stands for wifi in some of the runs.",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("want %q, got %q", want, said)
		}
	}
	if strings.Contains(said, "embedded: A model") {
		t.Error(said)
	}
}

// TestHolm proves that one difference in a hundred comparisons that alone would count may be taken
// for chance.
func TestHolm(t *testing.T) {
	h := result.Header{Experiment: result.Experiment{Factors: []result.Factor{{Name: "cell"}, {Name: "who", Levels: []string{"a", "b"}}}}}
	var samples []result.Sample
	for cell := range 30 {
		for i, v := range around(10) {
			w := around(10)[(i+3)%10]
			if cell == 4 {
				w += 0.07 // p is about 0.02
			}
			for who, v := range map[string]float64{"a": v, "b": w} {
				samples = append(samples, result.Sample{Run: len(samples) + 1, Factors: map[string]any{"cell": float64(cell), "who": who}, Probe: "p", Kind: "p",
					Measurements: []result.Measurement{{Metric: "m", Unit: "s", Values: []float64{v}}}})
			}
		}
	}
	c, err := report.Compare(report.CompareOptions{A: run(h, samples), Names: [2]string{"a", "b"}, Factor: "who"})
	if err != nil {
		t.Fatal(err)
	}
	r := c.Rows[4]
	if r.T.P > 0.05 || r.Conclusion != stats.Undecided || !strings.Contains(r.Words, "among 30 comparisons it may be chance") {
		t.Errorf("p = %v, by Holm %v: %s", r.T.P, r.Adjusted, r.Words)
	}
}

// TestCompareRefused proves that what cannot be compared is refused with what there is.
func TestCompareRefused(t *testing.T) {
	a := run(reporttest.Header(), reporttest.Samples())
	for _, c := range []struct {
		o    report.CompareOptions
		want string
	}{
		{report.CompareOptions{A: a, Factor: "datapth", Names: [2]string{"x", "y"}}, "did you mean datapath?"},
		{report.CompareOptions{A: a, Factor: "datapath", Names: [2]string{"ovs", "y"}}, "it has embedded, ovs"},
		{report.CompareOptions{A: a, Factor: "datapath", Names: [2]string{"ovs", "ovs"}}, "the same: name two"},
		{report.CompareOptions{A: a, Factor: "datapath", Names: [2]string{"ovs", "embedded"}, Metric: "jitter"}, "nothing of jitter to compare"},
		{report.CompareOptions{A: a, Factor: "datapath", Names: [2]string{"ovs", "embedded"}, Each: "avg"}, "choose one of mean, median"},
		{report.CompareOptions{A: a, Factor: "datapath", Names: [2]string{"ovs", "embedded"}, Margins: report.Margins{"rt": {Share: 0.05}}}, "--margin rt=…: there is nothing to compare with it"},
		{report.CompareOptions{A: a, Factor: "datapath", Names: [2]string{"ovs", "embedded"}, Metric: "rtt", Margins: report.Margins{"rtt": {Value: 2, Unit: "1"}}}, "it is in 1, and what is compared is in s"},
		{report.CompareOptions{A: a, B: run(result.Header{}, nil), Names: [2]string{"a", "b"}}, "b nothing"},
	} {
		if _, err := report.Compare(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	for _, text := range []string{"", "5", "x%", "-5%", "0ms", "rtt=", "1e999ms", "nan%"} {
		if _, err := report.ParseMargins([]string{text}); err == nil {
			t.Errorf("--margin %q was taken", text)
		}
	}
	if _, err := report.ParseMargins([]string{"5%", "3%"}); err == nil {
		t.Error("two margins for the same were taken")
	}
}
