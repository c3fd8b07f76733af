package report_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/stats"
)

// untilOf is the rule of an experiment with these looks.
func untilOf(looks ...int) *result.Until {
	return &result.Until{Rule: result.UntilDecided, Looks: looks, Spending: result.OBrienFleming, Level: 0.05}
}

// slight are ten values around one, and ten that are higher by 1.1 of their standard errors' sum or
// so: alone that is a difference (p = 0.01), at an early look not.
func slight() (low, high []float64) {
	for _, d := range []float64{-0.9, 0.3, 0.8, -0.4, 0, 0.5, -0.2, 0.9, -0.7, -0.3} {
		low, high = append(low, 10+d/10), append(high, 10.075+d/10)
	}
	return low, high
}

// TestSequential proves that each kind of statement is judged by the level of the last look: what
// holds, or does not, by 5 % cannot be told at an early look of many, also where the run was
// interrupted after it, and can at the only one; that nothing is judged where a file does not say
// how it was looked at; and that what is clear is decided early.
func TestSequential(t *testing.T) {
	low, high := slight()
	clear, between := slices.Clone(high), slices.Clone(low)
	for i := range between {
		between[i] += 0.0375
	}
	for i := range clear {
		clear[i] += 5
	}
	wide := []float64{9.2, 10.9, 10.1, 9.5, 10.6, 9.8, 10.3, 9.4, 10.8, 9.9}
	three := map[[2]string][]float64{{"1", "a"}: low, {"2", "a"}: high, {"1", "b"}: wide, {"2", "b"}: clear,
		{"1", "d"}: low, {"2", "d"}: between, {"3", "d"}: high}
	line := map[[2]string][]float64{{"1", "a"}: {1, 1.1, .9, 1, 1.2, .8, 1, 1, 1.1, .9}, {"2", "a"}: {2, 2.1, 1.9, 2, 2.2, 1.8, 2, 2, 2.1, 1.9}, {"3", "a"}: {3, 3.1, 2.9, 3, 3.2, 2.8, 3, 3, 3.1, 2.9},
		{"1", "b"}: {1.04, 1.14, .94, 1, 1.2, .84, 1, 1.04, 1.14, .94}, {"3", "b"}: {2.5, 2.6, 3.2, 2.5, 3.2, 2.4, 3.1, 2.6, 2.7, 2.5}}
	for _, c := range []struct {
		trend  string
		values map[[2]string][]float64
		once   report.Outcome
		early  report.Outcome
	}{
		{"at: {who: a}, along: x, is: rises, within: 0", three, report.Holds, report.CannotTell},
		{"at: {who: a}, along: x, is: falls, within: 0", three, report.Fails, report.CannotTell},
		{"at: {who: a}, along: x, is: rises, within: 1.5%", three, report.Fails, report.CannotTell},
		{"at: {who: a}, along: x, is: flat, within: 1.5%", three, report.Holds, report.CannotTell},
		{"at: {who: a}, along: x, is: flat, within: 0.1%", three, report.Fails, report.CannotTell},
		{"at: {who: b}, along: x, is: flat", three, report.Fails, report.Fails},
		{"at: {who: a, x: 2}, is: above, than: {who: a, x: 1}", three, report.Holds, report.CannotTell},
		{"at: {who: a, x: 2}, is: below, than: {who: a, x: 1}", three, report.Fails, report.CannotTell},
		{"at: {who: b, x: 2}, is: above, than: {who: b, x: 1}", three, report.Holds, report.Holds},
		{"at: {who: a, x: 2}, is: above, than: 10.025, unit: s", three, report.Holds, report.CannotTell},
		{"at: {who: a, x: 2}, is: below, than: 10.025, unit: s", three, report.Fails, report.CannotTell},
		{"at: {who: b, x: 2}, is: above, than: 12, unit: s", three, report.Holds, report.Holds},
		{"at: {who: a, x: 2}, is: times, factor: 1, than: {who: a, x: 1}, within: 1.5%", three, report.Holds, report.CannotTell},
		{"at: {who: a, x: 2}, is: times, factor: 1, than: {who: a, x: 1}, within: 0.1%", three, report.Fails, report.CannotTell},
		{"at: {who: b, x: 2}, is: times, factor: 1, than: {who: b, x: 1}, within: 10%", three, report.Fails, report.Fails},
		{"at: {who: a}, along: x, is: linear, within: 6%", line, report.Holds, report.CannotTell},
		{"at: {who: d}, along: x, is: linear, within: 1000%", three, report.Holds, report.CannotTell},
		{"at: {who: a, x: [1, 3]}, along: x, is: steeper, than: {who: b, x: [1, 3]}", line, report.Holds, report.CannotTell},
	} {
		for what, until := range map[string]*result.Until{"once": nil, "the only look": untilOf(10), "early": untilOf(10, 20, 30, 40, 50), "interrupted": untilOf(9, 18, 27, 36, 45), "before the first": untilOf(20, 40), "unknown": {Rule: result.UntilDecided, Looks: []int{10}, Spending: "mine"}, "nothing": {}} {
			h, samples := one(c.values)
			h.Experiment.Text, h.Experiment.Until = "paper: {trends: [{metric: m, "+c.trend+"}]}", until
			want := c.early
			switch what {
			case "once", "the only look":
				want = c.once
			case "unknown", "nothing":
				want = report.CannotTell
			}
			r := build(t, h, samples)
			got := r.Paper.Trends[0]
			if what == "interrupted" && c.early != report.CannotTell {
				continue
			}
			if got.Outcome != want {
				t.Errorf("%s, %s: %s (%s), want %s", c.trend, what, got.Outcome, got.Why, want)
			}
			if judged := report.Judge(&result.Run{Header: h, Samples: samples}); len(judged.Statements) != 1 || judged.Statements[0].Outcome != string(got.Outcome) || judged.Statements[0].Open != (got.Outcome == report.CannotTell) {
				t.Errorf("%s, %s: a look says %+v, the report %s", c.trend, what, judged.Statements, got.Outcome)
			}
		}
	}
}

// TestSequentialCompared proves the same of rows of comparisons, of one result and of two, where
// the stricter level holds; that the heading of their intervals says of which level they are; and
// of a paper's numbers.
func TestSequentialCompared(t *testing.T) {
	low, high := slight()
	text := "factors: {who: [a, b]}\nreport:\n  compare: {factor: who, margin: 0.2s}\n  tables: [{metric: m}]\npaper: {numbers: [{metric: m, levels: {who: b}, value: 10, within: 1.5%}]}"
	build := func(until *result.Until, margin string) (*report.Report, *result.Run) {
		h, samples := one(map[[2]string][]float64{{"1", "a"}: low, {"1", "b"}: high})
		h.Experiment.Factors[1].Levels = []string{"a", "b"}
		h.Experiment.Text, h.Experiment.Until = strings.ReplaceAll(text, "0.2s", margin), until
		run := &result.Run{Header: h, Samples: samples}
		return report.Build("x", run), run
	}
	for _, c := range []struct {
		until          *result.Until
		margin         string
		want, interval string
		number         report.Outcome
	}{
		{nil, "0.15s", string(stats.Equivalent), "95 % interval", report.Holds},
		{nil, "0.01s", string(stats.Different), "95 % interval", report.Holds},
		{untilOf(10, 20, 30, 40, 50), "0.15s", string(stats.Undecided), "99.999 % interval", report.CannotTell},
		{untilOf(10, 20, 30, 40, 50), "0.01s", string(stats.Undecided), "99.999 % interval", report.CannotTell},
		{&result.Until{Rule: "mine", Looks: []int{10}, Spending: result.OBrienFleming}, "5s", string(stats.Undecided), "", report.CannotTell},
		{untilOf(10, 20, 30, 40, 50), "5s", string(stats.Equivalent), "99.999 % interval", report.CannotTell},
	} {
		r, run := build(c.until, c.margin)
		if len(r.Problems) > 0 {
			t.Fatal(r.Problems)
		}
		table := r.Tables[0]
		if got := table.Rows[0].Cells[6].Text; !strings.HasPrefix(got, c.want) || table.Columns[5] != c.interval && c.until == nil || c.until != nil && table.Columns[5] == "95 % interval" {
			t.Errorf("margin %s: %s, %q; want %s, %s", c.margin, got, table.Columns, c.want, c.interval)
		}
		if got := r.Paper.Numbers[0].Outcome; got != c.number {
			t.Errorf("the number is said to be near: %s, want %s", got, c.number)
		}
		margins, err := report.ParseMargins([]string{c.margin})
		if err != nil {
			t.Fatal(err)
		}
		c1, err := report.Compare(report.CompareOptions{A: run, Names: [2]string{"b", "a"}, Factor: "who", Margins: margins})
		if err != nil || string(c1.Rows[0].Conclusion) != c.want {
			t.Errorf("margin %s: the comparison says %s, want %s (%v)", c.margin, c1.Rows[0].Conclusion, c.want, err)
		}
		if got := c1.Overview().Columns[4]; got != table.Columns[5] {
			t.Errorf("the comparison has a column %s, the report %s", got, table.Columns[5])
		}
		if said := strings.Contains(strings.Join(c1.Notes, " "), " judged"); said != (c.until != nil) {
			t.Errorf("notes %q", c1.Notes)
		}
	}
	_, strict := build(untilOf(10, 20, 30, 40, 50), "1s")
	_, once := build(nil, "1s")
	for _, two := range [][2]*result.Run{{strict, once}, {once, strict}, {once, once}} {
		for i, who := range []string{"b", "a"} { // the same cell with other values
			other := *two[i]
			other.Samples = nil
			for _, s := range two[i].Samples {
				if s.Factors["who"] == who {
					s.Factors = map[string]any{"x": "1", "who": "z"}
					other.Samples = append(other.Samples, s)
				}
			}
			two[i] = &other
		}
		c, err := report.Compare(report.CompareOptions{A: two[0], B: two[1], Names: [2]string{"A", "B"}})
		if err != nil {
			t.Fatal(err)
		}
		want := stats.Undecided
		if two[0].Header.Experiment.Until == nil && two[1].Header.Experiment.Until == nil {
			want = stats.Different
		}
		if got := c.Rows[0].Conclusion; got != want {
			t.Errorf("two results are %s, want %s", got, want)
		}
		if said := strings.Contains(strings.Join(c.Notes, "\n"), ": Sequential: "); said != (want == stats.Undecided) {
			t.Errorf("notes %q", c.Notes)
		}
	}
}

// TestSequentialSaid proves what a report says of how a result was measured, and that it takes a
// result that ended early for whole.
func TestSequentialSaid(t *testing.T) {
	low, high := slight()
	h, samples := one(map[[2]string][]float64{{"1", "a"}: low, {"1", "b"}: high})
	h.Experiment.Until, h.Experiment.Runs, h.Experiment.Repetitions = untilOf(5, 10, 20), 40, 20
	for _, c := range []struct {
		ends string
		done int
		want []string
	}{
		{result.EndsDecided, 20, []string{"20 at most, with looks after 5, 10 and 20.", "It ended as all was decided, after 10 repetitions and 2 looks.", "at the level of the last look, 0.3 %,"}},
		{"", 40, []string{"It has not ended, after 10 repetitions and 2 looks."}},
	} {
		run := &result.Run{Header: h, Samples: samples, Looks: []result.Look{{Repetitions: 5}, {Repetitions: 10, Ends: c.ends}}}
		r := report.Build("x", run)
		notes := strings.Join(r.Notes, "\n")
		for _, want := range c.want {
			if !strings.Contains(notes, want) {
				t.Errorf("%q does not say %q", notes, want)
			}
		}
		if r.Runs != c.done {
			t.Errorf("%d runs were expected, want %d", r.Runs, c.done)
		}
	}
	many := []int{}
	for n := range 21 {
		many = append(many, n+1)
	}
	for _, looks := range [][]int{nil, {10, 5}, {0}, {-1}, many} {
		h.Experiment.Until.Looks = looks
		r := report.Build("x", &result.Run{Header: h, Samples: samples})
		if !strings.Contains(strings.Join(r.Notes, " "), "no statement is judged") {
			t.Errorf("looks after %v: %q", looks, r.Notes)
		}
	}
}

// TestNeeded proves that each kind of statement and row that cannot be told has about how many
// repetitions would tell as a number: more than there are, or five, of the place that takes most;
// and that what is decided has none.
func TestNeeded(t *testing.T) {
	wild := map[[2]string][]float64{{"1", "a"}: {5, 15, 9, 12, 7}, {"2", "a"}: {14, 6, 10, 9, 12}, {"3", "a"}: {11, 8, 13, 6, 15}, {"1", "b"}: {10, 6, 12, 9, 14}, {"2", "b"}: {30, 6, 12, 9, 14}, {"3", "b"}: {10, 7, 12, 10, 30}}
	bent := map[[2]string][]float64{{"1", "a"}: {1, 1.5, .5, 1.2, .8}, {"2", "a"}: {3, 4.2, 1.8, 3.2, 2.8}, {"3", "a"}: {6, 7, 5, 6.6, 5.4}}
	few := map[[2]string][]float64{{"1", "a"}: {10, 10.1}, {"2", "a"}: {12, 12.1}, {"3", "a"}: {12, 13}, {"1", "b"}: {5, 5.1}, {"2", "b"}: {6, 6.1}}
	for _, c := range []struct {
		trend      string
		values     map[[2]string][]float64
		least, top int
	}{
		{"at: {who: a}, along: x, is: rises", wild, 6, 1000},
		{"at: {who: a}, along: x, is: flat", wild, 6, 1000},
		{"at: {who: a}, along: x, is: linear", wild, 6, 1000},
		{"at: {who: a}, along: x, is: linear", bent, 6, 1000},
		{"at: {who: b}, along: x, is: steeper, than: {who: a}", wild, 6, 1000},
		{"at: {who: a}, is: above, than: {who: b}", wild, 6, 1000},
		{"at: {who: a, x: 1}, is: above, than: {who: b}", wild, 6, 1000},
		{"at: {who: a}, is: below, than: 12.5, unit: s", wild, 6, 1000},
		{"at: {who: a, x: 1}, is: times, factor: 1, than: {who: b}, within: 25%", wild, 6, 1000},
		{"at: {who: a}, is: times, factor: 1, than: {who: b}, within: 50%", wild, 6, 1000},
		{"at: {who: a}, along: x, is: rises", few, 5, 5},
		{"at: {who: a}, along: x, is: flat, within: 1%", few, 5, 5},
		{"at: {who: a}, along: x, is: linear", few, 5, 5},
		{"at: {who: a, x: [1, 2]}, along: x, is: steeper, than: {who: b, x: [1, 2]}", few, 5, 5},
		{"at: {who: a, x: [1, 2]}, is: above, than: {who: b}", few, 5, 5},
		{"at: {who: a, x: [1, 2]}, is: times, factor: 1.2, than: {who: b}", few, 5, 5},
		{"at: {who: a}, is: below, than: 10.5, unit: s", few, 5, 5},
		{"at: {who: a}, is: below, than: 100, unit: s", wild, 0, 0},
	} {
		h, samples := one(c.values)
		h.Experiment.Text = "paper: {trends: [{metric: m, " + c.trend + "}]}"
		got := build(t, h, samples).Judged()
		if len(got) != 1 || got[0].Needed < c.least || got[0].Needed > c.top || got[0].Open != (c.top > 0) {
			t.Errorf("%s: %+v, want from %d to %d", c.trend, got, c.least, c.top)
		}
	}
	// 0.1 of 5 places is far harder to tell than 4 of them: the number is of the hardest.
	h, samples := one(map[[2]string][]float64{{"1", "a"}: {10, 14, 12, 8, 6}, {"1", "b"}: {7, 11, 9, 5, 3}, {"2", "a"}: {10, 14, 12, 8, 6}, {"2", "b"}: {9, 13, 11, 7, 5}})
	h.Experiment.Text = "paper: {trends: [{metric: m, at: {who: a}, is: above, than: {who: b}}]}"
	all := build(t, h, samples).Judged()[0].Needed
	h.Experiment.Text = "paper: {trends: [{metric: m, at: {who: a, x: 2}, is: above, than: {who: b}}]}"
	if hardest := build(t, h, samples).Judged()[0].Needed; all != hardest || hardest < 20 {
		t.Errorf("all places take %d, the hardest %d", all, hardest)
	}
}

// TestNeededOfRows proves the same of rows of comparisons: with and without a margin, of too few,
// and of shares of which none varies; and which rows no repetitions can decide.
func TestNeededOfRows(t *testing.T) {
	spread := func(n int) []float64 { return []float64{10, 11, 9, 10.5, 9.5}[:n] }
	for what, c := range map[string]struct {
		a, b       []float64
		share      int // of how many packets none is lost; 0: no share
		margin     string
		least, top int
		open       bool
	}{
		"within the margin":  {spread(5), spread(5), 0, ", margin: 0.8s", 6, 60, true},
		"near the margin":    {[]float64{10.7, 11.7, 9.7, 11.2, 10.2}, spread(5), 0, ", margin: 1s", 6, 200, true},
		"without a margin":   {[]float64{10.7, 11.7, 9.7, 11.2, 10.2}, spread(5), 0, "", 6, 60, true},
		"too few":            {spread(3), spread(3), 0, ", margin: 1s", 5, 5, true},
		"single values":      {spread(1), spread(1), 0, ", margin: 1s", 5, 5, true},
		"shares of none":     {[]float64{0, 0, 0, 0, 0}, []float64{0, 0, 0, 0, 0}, 20, ", margin: 1pp", 6, 60, true},
		"shares, no margin":  {[]float64{0, 0, 0, 0, 0}, []float64{0, 0, 0, 0, 0}, 20, "", 0, 0, false},
		"equal, no spread":   {[]float64{3, 3, 3, 3, 3}, []float64{3, 3, 3, 3, 3}, 0, ", margin: 1s", 0, 0, false},
		"different":          {spread(5), []float64{100, 110, 90, 105, 95}, 0, ", margin: 1s", 0, 0, false},
		"equal, and too few": {[]float64{3, 3}, []float64{3, 3}, 0, ", margin: 1s", 5, 5, true},
	} {
		h, samples := one(map[[2]string][]float64{{"1", "a"}: c.a, {"1", "b"}: c.b})
		for i := range samples {
			if c.share > 0 {
				samples[i].Measurements = []result.Measurement{result.Share("m", 0, c.share)}
			}
		}
		h.Experiment.Factors[1].Levels = []string{"a", "b"}
		h.Experiment.Text = "factors: {who: [a, b]}\nreport: {compare: {factor: who" + c.margin + "}, tables: [{metric: m}]}"
		r := report.Build("x", &result.Run{Header: h, Samples: samples})
		got := r.Judged()
		if len(got) != 1 || got[0].Needed < c.least || got[0].Needed > c.top || got[0].Open != c.open {
			t.Errorf("%s: %+v, want from %d to %d (%v)", what, got, c.least, c.top, r.Problems)
		}
	}
}

// TestSequentialErrors proves by drawing that statements which are not so hold, or their opposite
// does, in at most about 5 % of experiments that go on until they do, by the statements as they are
// judged, and that judged at 5 % at each look they do in far more.
func TestSequentialErrors(t *testing.T) {
	const most, experiments = 20, 200
	rng := rand.New(rand.NewPCG(11, 5))
	text := "paper: {trends: [{metric: m, at: {who: a, x: 1}, is: above, than: {who: b, x: 1}}, {metric: m, at: {who: a}, along: x, is: rises, within: 0}]}"
	found := map[string][]float64{"naive": make([]float64, 2), "sequential": make([]float64, 2)}
	for range experiments {
		values := map[[2]string][]float64{}
		for _, k := range [][2]string{{"1", "a"}, {"2", "a"}, {"1", "b"}} {
			for range most {
				values[k] = append(values[k], 10+rng.NormFloat64())
			}
		}
		h, samples := one(values)
		h.Experiment.Text = text
		for how, until := range map[string]*result.Until{"naive": nil, "sequential": untilOf(6, 8, 10, 12, 14, 16, 18, 20)} {
			h.Experiment.Until = until
			seen := make([]bool, 2)
			for n := 6; n <= most; n += 2 {
				some := slices.DeleteFunc(slices.Clone(samples), func(s result.Sample) bool { return s.Repetition > n })
				for i, s := range report.Judge(&result.Run{Header: h, Samples: some}).Statements {
					seen[i] = seen[i] || !s.Open
				}
			}
			for i, is := range seen {
				if is {
					found[how][i] += 1.0 / experiments
				}
			}
		}
	}
	t.Log(found)
	// Both sides count here: above at 5 % each, rises at 5 % together.
	for i, rate := range []float64{0.10, 0.05} {
		if got := found["sequential"][i]; got > rate+3*math.Sqrt(rate*(1-rate)/experiments) {
			t.Errorf("statement %d is decided in %.3f of experiments, want %.2f", i+1, got, rate)
		}
		if naive := found["naive"][i]; naive < 2*rate {
			t.Errorf("judged at 5 %% each time, statement %d is decided in only %.3f", i+1, naive)
		}
	}
}
