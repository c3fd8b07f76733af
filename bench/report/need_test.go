package report_test

import (
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// TestNeeds proves that a statement about what was not there is neither shown nor refuted, with
// what its test says and the command that would decide it; that it is judged where the result says
// that it was there; that a statement without values needs it all the same; and that no model, no
// other device of the lab's rack, and no sample of the other side stands for a device.
func TestNeeds(t *testing.T) {
	// As recorded over a rack whose hosts are Raspberry Pis: a device runs nothing that would be
	// watched, so that it is no site.
	rack := environment.Record{Place: &environment.Place{Target: "sites", On: "rack.yaml", Carrier: "vlan",
		Machines: map[string]environment.Record{"pi1": {}, "pi2": {}}}}
	wrt := map[string]string{"s1": "openwrt"}
	for _, c := range []struct {
		needs string
		env   environment.Record
		model bool // whom the statement is about was measured with one
		// What both sides were measured with, and what only the other was.
		devices, others map[string]string
		want            report.Outcome
		by              string
	}{
		{"smt", environment.Record{CPU: environment.CPU{SMT: "notsupported"}}, false, nil, nil, "needs SMT", "at a machine whose cores have several threads"},
		{"smt", environment.Record{CPU: environment.CPU{SMT: "off"}}, false, nil, nil, report.Fails, ""},
		{"{processors: 4}", environment.Record{CPU: environment.CPU{Usable: 3}}, false, nil, nil, "needs 4 processors", "at a machine with 4 processors"},
		{"{processors: 4}", environment.Record{CPU: environment.CPU{Usable: 4}}, false, nil, nil, report.Fails, ""},
		{"device", environment.Record{}, false, nil, nil, "needs the device", "trivet bench run 'a b.yaml' --on rack.yaml, "},
		{"device", rack, false, nil, nil, "needs the device", "--on rack.yaml"},
		{"device", rack, false, nil, wrt, "needs the device", "--on rack.yaml"},
		{"device", rack, true, wrt, wrt, "needs the device", "--on rack.yaml"},
		{"device", rack, false, wrt, wrt, report.Fails, ""},
		{"device", rack, false, wrt, nil, report.Fails, ""},
	} {
		h, samples := hopsOf(8, map[string]func(float64) float64{"a": line(3, 1), "b": line(3, 40)})
		for i := range samples {
			samples[i].Usage = &environment.Usage{Looks: 1, Devices: c.others, Sites: map[string]environment.SiteUsage{"pi1": {}, "pi2": {}}}
			if samples[i].Factors["who"] == "b" {
				samples[i].Usage.Devices = c.devices
				if c.model {
					samples[i].Usage.Models = map[string]string{"s1": "slow"}
				}
			}
		}
		h.Environment, h.Experiment.File = c.env, "a b.yaml"
		h.Experiment.Text = "paper: {trends: [{metric: m, needs: " + c.needs +
			", at: {who: b, hops: 10}, is: times, factor: 1, than: {who: a}, within: 1%}, {metric: m, needs: " + c.needs + ", at: {who: z}, along: hops, is: rises}]}"
		r := build(t, h, samples)
		got, none := r.Paper.Trends[0], r.Paper.Trends[1]
		lacks := c.want.Needing()
		if got.Outcome != c.want || (got.Here == report.Fails) != lacks || !strings.Contains(got.By, c.by) || (got.By != "") != lacks || got.Model != c.model || none.Model || lacks && !strings.Contains(got.Why, " times [") {
			t.Errorf("%+v: %+v", c, got)
		}
		// Of the second nothing was measured, so that there is no device for it either.
		if want := c.want; lacks && none.Outcome != want || !lacks && c.needs != "device" && none.Outcome != report.NotMeasured {
			t.Errorf("%+v: without values %+v", c, none)
		}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil || lacks && !strings.Contains(b.String(), "would decide it: trivet bench run") || strings.Contains(b.String(), " (by a model) ") != c.model {
			t.Errorf("%+v: %v\n%s", c, err, b.String())
		}
	}
}

// TestNeedsLoad proves that a statement about a load is judged where most samples of both sides had
// it, and needs a faster machine where senders were behind in most of them, on either side; and
// that a sender a little behind, or anything else that is bad, is no such need.
func TestNeedsLoad(t *testing.T) {
	behind := environment.Reason{Level: environment.Bad, Code: result.Behind, Text: "the sender in h1 sent 8 packets/s, not 10"}
	little := environment.Reason{Level: environment.Doubtful, Code: result.Behind, Text: "the sender in h1 sent 9.5 packets/s, not 10"}
	other := environment.Reason{Level: environment.Bad, Code: "cpu", Text: "CPU 99 %"}
	for _, c := range []struct {
		reason environment.Reason
		a, b   int // of ten repetitions of each side
		want   report.Outcome
	}{
		{behind, 0, 10, report.Fails}, {behind, 1, 10, "needs a faster machine"}, {behind, 10, 1, "needs a faster machine"}, {behind, 0, 0, report.Fails},
		{little, 10, 10, report.Fails}, {other, 10, 10, report.Fails},
	} {
		h, samples := hopsOf(10, map[string]func(float64) float64{"a": line(3, 1), "b": line(3, 40)})
		had := map[any]int{}
		for i := range samples {
			s := &samples[i]
			s.Usage = &environment.Usage{Looks: 1}
			if s.Factors["hops"] != 10.0 {
				continue
			}
			who := s.Factors["who"]
			if had[who]++; had[who] <= map[any]int{"a": c.a, "b": c.b}[who] {
				s.Verdict = &environment.Verdict{Level: c.reason.Level, Reasons: []environment.Reason{c.reason}}
			}
		}
		h.Experiment.File = "a b.yaml"
		h.Experiment.Text = "paper: {trends: [{metric: m, needs: load, at: {who: b, hops: 10}, is: times, factor: 1, than: {who: a}, within: 1%}]}"
		got := build(t, h, samples).Paper.Trends[0]
		if got.Outcome != c.want || c.want.Needing() && (!strings.Contains(got.Why, "in most samples a sender sent less than nine tenths") || got.By != "trivet bench run 'a b.yaml', at a machine whose processors can send it") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestNeedsBesideMininet proves that what would decide a statement about devices beside Mininet is
// not --on, which leaves Mininet out, but a file that says where the devices are; whether labs say
// their target by the level's name or by a key of it; and that of devices alone --on does.
func TestNeedsBesideMininet(t *testing.T) {
	const inFile = "trivet bench run 'a b.yaml', with target: sites and on: rack.yaml for the device's level of who in the file, as --on leaves a out, with the device in the list"
	const on = "trivet bench run 'a b.yaml' --on rack.yaml, with the device in the list"
	for _, c := range []struct{ lab, factors, trend, want string }{
		{`{target: "${who.target}"}`, "{a: {target: mininet}, b: {target: local}}", "at: {who: b, hops: 10}, is: times, factor: 1, than: {who: a}", inFile},
		{`{target: "${who.target}"}`, "{a: {target: mininet}, b: {target: local}}", "along: hops, is: rises", inFile},
		{`{target: "${who.target}"}`, "{a: {target: mininet}, b: {target: local}}", "at: {who: b}, along: hops, is: rises", on},
		{`{target: "${who.target}"}`, "{a: {target: local}, b: {target: local}}", "at: {who: b, hops: 10}, is: above, than: {who: a}", on},
		{"{datapath: ovs}", "{a: {target: mininet}, b: {target: local}}", "at: {who: b, hops: 10}, is: above, than: {who: a}", on},
		{`{target: "${who}"}`, "[mininet, local]", "at: {who: local, hops: 10}, is: above, than: {who: mininet}", strings.Replace(inFile, "leaves a", "leaves mininet", 1)},
	} {
		h, samples := hopsOf(8, map[string]func(float64) float64{"a": line(3, 1), "b": line(3, 40)})
		h.Experiment.File = "a b.yaml"
		h.Experiment.Text = "lab: " + c.lab + "\nfactors: {hops: [0], who: " + c.factors + "}\npaper: {trends: [{metric: m, needs: device, " + c.trend + "}]}"
		if got := build(t, h, samples).Paper.Trends[0]; got.By != c.want {
			t.Errorf("%+v: %s", c, got.By)
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
