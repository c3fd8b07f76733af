package report_test

import (
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/reporttest"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// at is a result of the test's experiment at a place, where round trips take longer by so much.
func at(place environment.Place, longer float64) *result.Run {
	h, samples := reporttest.Header(), reporttest.Samples()
	h.Environment.Place = &place
	for i := range samples {
		for j, m := range samples[i].Measurements {
			if m.Metric != "rtt" {
				continue
			}
			values := make([]float64, len(m.Values))
			for k, v := range m.Values {
				values[k] = v + longer
			}
			samples[i].Measurements[j].Values = values
		}
	}
	return run(h, samples)
}

// TestSideBySide proves that results of one experiment in two places become one report in which the
// place is a factor of each figure and table, with a comparison that finds equivalent what is
// within the margin, and different what is beyond; that what was left out at one place is named
// beside the figures; that what is compared is not said to be different experiments; and that
// results of the same place, of another experiment, or of an unknown place are left as they are.
func TestSideBySide(t *testing.T) {
	local, rack := at(environment.Place{Target: "local"}, 0), at(environment.Place{Target: "sites", On: "rack.yaml", Carrier: "vlan"}, 3e-6)
	rack.Header.Experiment.Plan = "another"
	rack.Header.LeftOut = []result.LeftOut{{What: "datapath=ovs", Why: "it has none", Cells: []string{"hops=2 datapath=ovs"}}}
	side := func(margin string, runs ...*result.Run) []*report.Report {
		t.Helper()
		reports, of, err := report.SideBySide(runs, []string{"results/4-campus/a.jsonl", "b.jsonl"}, nil, margins(t, margin))
		if err != nil || len(of) != len(reports) {
			t.Fatal(len(reports), len(of), err)
		}
		return reports
	}
	reports := side("rtt=100us", local, rack)
	if len(reports) != 1 || strings.Join(reports[0].Places, " ") != "local rack" || len(reports[0].Compared) != 1 {
		t.Fatalf("%+v", reports)
	}
	r := reports[0]
	if r.Path != "results/4-campus/figure-16-local-rack" {
		t.Errorf("it is at %s", r.Path)
	}
	if n := len(r.Factors); r.Factors[n-1].Name != "place" || len(r.Factors[n-1].Levels) != 2 {
		t.Errorf("factors: %+v", r.Factors)
	}
	for _, f := range r.Figures {
		if !strings.Contains(f.Legend, "place") {
			t.Errorf("%s: series are %q", f.Title, f.Legend)
		}
	}
	if notes := strings.Join(r.Figures[0].Notes, " "); !strings.Contains(notes, "Left out: datapath=ovs at rack, as it has none.") {
		t.Errorf("beside the figure: %s", notes)
	}
	c := r.Compared[0]
	if notes := strings.Join(c.Notes, " "); !strings.Contains(notes, "The place is what differs") || strings.Contains(notes, "Different experiments") {
		t.Errorf("notes: %s", notes)
	}
	found := 0
	for _, row := range c.Rows {
		if row.Metric == "rtt" {
			found++
			if row.Conclusion != stats.Equivalent {
				t.Errorf("%s: %s: %s", row.Levels, row.Conclusion, row.Words)
			}
		}
	}
	if found == 0 {
		t.Error("nothing was compared")
	}
	for _, row := range side("rtt=1us", local, at(environment.Place{Target: "sites", On: "rack.yaml"}, 1))[0].Compared[0].Rows {
		if row.Metric == "rtt" && row.Conclusion != stats.Different {
			t.Errorf("a second more: %s", row.Words)
		}
	}
	other, unknown := at(environment.Place{Target: "sites", On: "rack.yaml"}, 0), at(environment.Place{}, 0)
	other.Header.Experiment.Text += "# another\n"
	unknown.Header.Environment.Place = nil
	for what, second := range map[string]*result.Run{"the same place": at(environment.Place{Target: "local"}, 0), "another experiment": other, "an unknown place": unknown} {
		if reports := side("5%", local, second); len(reports) != 0 {
			t.Errorf("%s: %+v", what, reports)
		}
	}
}

// TestSideBySideSums proves that what a figure sums over some probes is compared as that sum, and
// that other probes of the same metric are not in it.
func TestSideBySideSums(t *testing.T) {
	const text = "report: {figures: [{metric: throughput, each: sum, where: {probe: [a, b]}}]}\n"
	at := func(place environment.Place, each float64) *result.Run {
		r := &result.Run{Header: result.Header{Experiment: result.Experiment{Name: "x", Text: text, Runs: 3}, Environment: environment.Record{Place: &place}}}
		for n := range 3 {
			for _, probe := range []string{"a", "b", "other"} {
				r.Samples = append(r.Samples, result.Sample{Run: n + 1, Cell: "all", Repetition: n + 1, Probe: probe, Kind: "iperf3",
					Measurements: []result.Measurement{{Metric: "throughput", Unit: "bit/s", Values: []float64{each + float64(n)}, Labels: map[string]string{"from": probe}}}})
			}
		}
		return r
	}
	reports, _, err := report.SideBySide([]*result.Run{at(environment.Place{Target: "local"}, 100), at(environment.Place{Target: "sites", On: "rack.yaml"}, 50)}, []string{"a", "b"}, nil, nil)
	if err != nil || len(reports) != 1 || len(reports[0].Compared) != 1 {
		t.Fatal(reports, err)
	}
	rows := reports[0].Compared[0].Rows
	if len(rows) != 1 || rows[0].A.Mean != 202 || rows[0].B.Mean != 102 {
		t.Errorf("%+v", rows)
	}
}

// TestSideBySideByRound proves that by round the repetitions of a cell in one round are one at each
// place, also where places stand side by side.
func TestSideBySideByRound(t *testing.T) {
	at := func(place environment.Place) *result.Run {
		r := &result.Run{ByRound: true, Header: result.Header{Environment: environment.Record{Place: &place},
			Experiment: result.Experiment{Name: "x", Text: "report: {tables: [{metric: rtt, values: [mean, n]}]}\n", Runs: 6, Rounds: 3, Every: 60}}}
		for n := range 6 {
			r.Samples = append(r.Samples, result.Sample{Run: n + 1, Cell: "all", Repetition: n + 1, Round: n/2 + 1, Probe: "ping", Kind: "ping",
				Measurements: []result.Measurement{{Metric: "rtt", Unit: "s", Values: []float64{float64(n)}}}})
		}
		return r
	}
	reports, _, err := report.SideBySide([]*result.Run{at(environment.Place{Target: "local"}), at(environment.Place{Target: "sites", On: "rack.yaml"})}, []string{"a", "b"}, nil, nil)
	if err != nil || len(reports) != 1 {
		t.Fatal(reports, err)
	}
	if got := rows(reports[0].Tables[0]); !slices.Equal(got, []string{"local 2.500 3", "rack 2.500 3"}) {
		t.Errorf("%q", got)
	}
	if n := reports[0].Compared[0].Rows[0].A.N; n != 3 {
		t.Errorf("compared are %d repetitions", n)
	}
}
