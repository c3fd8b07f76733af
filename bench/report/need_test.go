package report_test

import (
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/measure/environment"
)

// TestNeeds proves that a statement about what was not there is neither shown nor refuted, with
// what its test says and the command that would decide it; that it is judged where the result says
// that it was there; that a statement without values needs it all the same; and that no model, and
// no virtual machine, stands for a device.
func TestNeeds(t *testing.T) {
	rack := func(virtual string) *environment.Place {
		return &environment.Place{Target: "sites", On: "rack.yaml",
			Machines: map[string]environment.Record{"m1": {Virtualisation: virtual}}}
	}
	for _, c := range []struct {
		needs string
		env   environment.Record
		model bool // whom the statement is about was measured with one
		want  report.Outcome
		by    string
	}{
		{"smt", environment.Record{CPU: environment.CPU{SMT: "notsupported"}}, false, "needs SMT", "at a machine whose cores have several threads"},
		{"smt", environment.Record{CPU: environment.CPU{SMT: "off"}}, false, report.Fails, ""},
		{"{processors: 4}", environment.Record{CPU: environment.CPU{Usable: 3}}, false, "needs 4 processors", "at a machine with 4 processors"},
		{"{processors: 4}", environment.Record{CPU: environment.CPU{Usable: 4}}, false, report.Fails, ""},
		{"device", environment.Record{}, false, "needs the device", "trivet bench run 'a b.yaml' --on rack.yaml, "},
		{"device", environment.Record{Place: rack("kvm")}, false, "needs the device", "--on rack.yaml"},
		{"device", environment.Record{Place: rack("")}, true, "needs the device", "--on rack.yaml"},
		{"device", environment.Record{Place: rack("")}, false, report.Fails, ""},
		{"device", environment.Record{Places: map[string]*environment.Place{"r": rack("")}}, false, report.Fails, ""},
	} {
		h, samples := hopsOf(8, map[string]func(float64) float64{"a": line(3, 1), "b": line(3, 40)})
		for i := range samples {
			samples[i].Usage = &environment.Usage{Looks: 1, Sites: map[string]environment.SiteUsage{"m1": {}}}
			if c.model && samples[i].Factors["who"] == "b" {
				samples[i].Usage.Models = map[string]string{"s1": "slow"}
			}
		}
		h.Environment, h.Experiment.File = c.env, "a b.yaml"
		h.Experiment.Text = "paper: {trends: [{metric: m, needs: " + c.needs +
			", at: {who: b, hops: 10}, is: times, factor: 1, than: {who: a}, within: 1%}, {metric: m, needs: " + c.needs + ", at: {who: z}, along: hops, is: rises}]}"
		r := build(t, h, samples)
		got, none := r.Paper.Trends[0], r.Paper.Trends[1]
		lacks := c.want.Needing()
		if got.Outcome != c.want || (got.Here == report.Fails) != lacks || !strings.Contains(got.By, c.by) || (got.By != "") != lacks || lacks && !strings.Contains(got.Why, " times [") {
			t.Errorf("%+v: %+v", c, got)
		}
		// Of the second nothing was measured, so that there is no device for it either.
		if want := c.want; lacks && none.Outcome != want || !lacks && c.needs != "device" && none.Outcome != report.NotMeasured {
			t.Errorf("%+v: without values %+v", c, none)
		}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil || lacks && !strings.Contains(b.String(), "would decide it: trivet bench run") {
			t.Errorf("%+v: %v\n%s", c, err, b.String())
		}
	}
}

// TestContradicts proves that a statement against which the paper says the opposite is said to
// contradict it, with what its test says beside it, whether or not it can be tested here; and that
// it is counted apart, and keeps no experiment going that goes on until all is decided.
func TestContradicts(t *testing.T) {
	h, samples := hopsOf(8, map[string]func(float64) float64{"a": line(3, 1), "b": line(3, 40)})
	h.Experiment.Text = `paper:
  trends:
    - {text: it rises, metric: m, at: {who: a}, along: hops, is: rises, contradicts: it falls}
    - {text: it falls, metric: m, at: {who: a}, along: hops, is: falls, contradicts: it rises}
    - {text: it is flat, metric: m, at: {who: a}, along: hops, is: flat, needs: device, contradicts: it rises}
    - {text: of nothing, metric: m, at: {who: z}, along: hops, is: flat, contradicts: it rises}
    - {text: b rises, metric: m, at: {who: b}, along: hops, is: rises}
`
	r := build(t, h, samples)
	for i, here := range []report.Outcome{report.Holds, report.Fails, report.Fails, report.NotMeasured} {
		if got := r.Paper.Trends[i]; got.Outcome != report.Contradicts || got.Here != here || got.Against == "" {
			t.Errorf("%+v, want %s", got, here)
		}
	}
	counts := r.Paper.Outcomes()
	if len(counts) != 2 || counts[0] != (report.Counted{Outcome: report.Holds, Count: 1}) || counts[1] != (report.Counted{Outcome: report.Contradicts, Count: 4}) {
		t.Errorf("counted as %v", counts)
	}
	for _, j := range r.Judged() {
		if j.Open {
			t.Errorf("%+v keeps it going", j)
		}
	}
}
