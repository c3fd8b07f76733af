package drive

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/topology"
)

// TestExact proves that probes of exact rates see what links were asked for: delays that are never
// shorter, a loss within what chance explains, no more than a bandwidth, each flow's packets; and
// that what they count adds up.
func TestExact(t *testing.T) {
	i, probes := bring(t, `
topology:
  nodes: {s1: switch, 'h[1-4]': host}
  links: [h1 -- s1: {delay: 5ms}, h2 -- s1: {delay: 2ms}, h3 -- s1: {loss: 10%}, h4 -- s1: {bandwidth: 10mbit}]
lab: {datapath: bridge, controller: none}
probes:
  - packets: {from: h1, to: h2, time: 1s, rate: 400}
  - packets: {name: lossy, from: h2, to: h3, time: 1s, rate: 2000, size: 18}
  - packets: {name: full, from: h2, to: h4, time: 1s, rate: 1500, size: 1472}
  - flow_setup: {from: h1, to: h2, count: 6, rate: 20}
  - flow_setup: {name: hosts, from: h1, to: h2, count: 6, rate: 20, new: hosts}
  - ditg: {from: h1, to: h2, time: 1s, rate: 200, flows: 2}
`)
	const delay = 7e-3 - 0.2e-3 // each delay line may reckon that it woke up to 0.1 ms after the packet came
	o, v := run(t, i, probes["packets"])
	n := sums(t, o, v)
	if len(v["delay h1 h2"]) != n || slices.Min(v["delay h1 h2"]) < delay || v["delay_min h1 h2"][0] < delay || v["delay_deviation h1 h2"][0] <= 0 || len(v["jitter h1 h2"]) == 0 {
		t.Errorf("packets: %v", v)
	}
	if len(o.Links) != 1 || o.Links[0].AskedDelay != 7*time.Millisecond || o.Links[0].GivenDelay.Seconds() < delay {
		t.Errorf("packets: links %+v", o.Links)
	}
	o, v = run(t, i, probes["lossy"])
	sums(t, o, v)
	loss := o.Measurements[slices.IndexFunc(o.Measurements, func(m result.Measurement) bool { return m.Metric == "loss" })]
	interval, err := stats.Wilson(loss.Count, loss.Of, 0.9999999)
	if err != nil || interval.Low > 0.1 || interval.High < 0.1 {
		t.Errorf("of %d packets %d were lost, asked for 10 %%: %v %v", loss.Of, loss.Count, interval, err)
	}
	o, v = run(t, i, probes["full"])
	sums(t, o, v)
	if got := v["throughput h2 h4"][0] * 1514 / 1472; got > 1.3*10e6 { // a burst may go at once, and what a stalled machine has kept
		t.Errorf("a link of 10 Mbit/s carried %.4g", got)
	}
	for _, name := range []string{"flow_setup", "hosts"} {
		_, v = run(t, i, probes[name])
		if len(v["flow_setup h1 h2"]) != 6 || v["first_loss h1 h2"][0] != 0 || v["following_loss h1 h2"][0] != 0 || slices.Min(v["first_delay h1 h2"]) < delay || slices.Min(v["following_delay h1 h2"]) < delay {
			t.Errorf("%s: %v", name, v)
		}
	}
	needs(t, "ITGSend")
	_, v = run(t, i, probes["ditg"])
	all := v["received h1 h2"] // of both flows together, then of each
	if len(all) != 3 || all[0] == 0 || all[0] != all[1]+all[2] || v["delay_min h1 h2"][0] < delay || v["throughput h1 h2"][0] <= 0 {
		t.Errorf("ditg: %v", v)
	}
}

// sums proves that a stream's packets were received, or lost, or dropped by the receiver, and
// returns how many were received.
func sums(t *testing.T, o experiment.Measured, v map[string][]float64) int {
	t.Helper()
	var sent, received, lost float64
	for _, m := range o.Measurements {
		switch m.Metric {
		case "sent":
			sent = m.Values[0]
		case "received":
			received = m.Values[0]
		case "loss":
			lost = float64(m.Count)
		}
	}
	var dropped uint64
	for _, d := range o.Drops {
		if strings.Contains(d.Where, "receiver") {
			dropped += d.Packets
		}
	}
	if sent == 0 || sent != received+lost+float64(dropped) {
		t.Errorf("%v sent, %v received, %v lost, %d dropped: %v", sent, received, lost, dropped, v)
	}
	return int(received)
}

// TestConvergence proves that an outage is found where a link was down, as long as it was down as
// far as the runner knows that, that packets are counted by TTL, and that nothing is said to be
// lost after the link is up.
func TestConvergence(t *testing.T) {
	s := sampleOf(t, `
topology: linear,2
lab: {datapath: bridge, controller: none}
probes: [convergence: {from: h1, to: h2, time: 2s, interval: 1ms}]
schedule: ["at 500ms: s1 -- s2 down", "at 1200ms: s1 -- s2 up"]
`)
	if s.Failure != "" {
		t.Fatal(s.Failure)
	}
	var details struct {
		Sender packets.Sent `json:"sender"`
	}
	if err := json.Unmarshal(s.Details, &details); err != nil || len(s.Events) != 2 {
		t.Fatalf("%v, %v", err, s.Events)
	}
	values := map[string]float64{}
	for _, m := range s.Measurements {
		if len(m.Values) == 1 {
			values[strings.TrimSpace(m.Metric+" "+m.Labels["number"]+m.Labels["ttl"])] = m.Values[0]
		}
	}
	// Nobody knows when what the sender gave up would have been lost.
	step := 0.002 + details.Sender.Lag.Max + 0.001*float64(details.Sender.GivenUp)
	least, most := 1.2-s.Events[0].At-step, s.Events[1].At-0.5+step
	if got := values["outage 1"]; got < least || got > most {
		t.Errorf("the outage is said to be %v s; the link was down for %v to %v s", got, least, most)
	}
	if values["outage_lost 1"] < 1 || values["ttl 64"] != values["received"] || values["sent"] < values["outage_lost 1"]+values["received"] {
		t.Errorf("%v", values)
	}
}

// sampleOf carries out an experiment of one run and one probe.
func sampleOf(t *testing.T, text string) result.Sample {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it brings up a lab")
	}
	p := planOf(t, text)
	file := filepath.Join(t.TempDir(), "x.jsonl")
	prefix, err := PrefixOf(file)
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := experiment.Start(file, p, false, nil, environment.Record{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r := experiment.Runner{Plan: p, Driver: &Driver{Dir: p.Experiment.Dir(), Prefix: prefix}, Writer: w, Limits: environment.DefaultLimits}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	if _, err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	got, err := result.ReadFile(file)
	if err != nil || len(got.Samples) != 1 {
		t.Fatalf("%v: %d samples", err, len(got.Samples))
	}
	return got.Samples[0]
}

// TestOutageWindows proves that an outage belongs to the event after which it may have begun, as
// far as a packet that was under way and a sender that stalled can tell, and that each event has a
// value, also where nothing was lost.
func TestOutageWindows(t *testing.T) {
	began := time.Unix(1000, 0)
	x := exchange{labels: map[string]string{"from": "h1"}, began: began, got: &packets.Received{}}
	x.got.Delay.Max = 0.05
	at := func(s float64) int64 { return began.UnixNano() + int64(s*1e9) }
	schedule := []experiment.Event{{At: 1e9, What: "down"}, {At: 2e9, What: "up"}, {At: 3e9, What: "down"}}
	var all []packets.Outage
	for _, o := range []struct {
		at, latest float64
		lost       int
		seconds    float64
	}{{0.2, 0.2, 9, 9}, {0.9, 0.97, 400, 0.4}, {1.6, 1.6, 1, 0.001}, {3.5, 3.5, 2, 0.002}} { // at 0.9 the sender stalled
		all = append(all, packets.Outage{At: at(o.at), Latest: at(o.latest), Lost: o.lost, Seconds: o.seconds})
	}
	got := x.outages(schedule, all)
	var longest []float64
	for _, m := range got {
		if m.Metric == "outage" {
			longest = append(longest, m.Values...)
			if m.Labels["event"] == "" || m.Labels["from"] != "h1" {
				t.Errorf("%+v", m.Labels)
			}
		}
	}
	if !slices.Equal(longest, []float64{0.4, 0, 0.002}) {
		t.Errorf("the longest outages are %v", longest)
	}
	gaps := got[len(got)-1]
	if gaps.Metric != "gap" || !slices.Equal(gaps.Values, []float64{9, 0.4, 0.002}) || math.Abs(gaps.At[1]-0.9) > 1e-6 {
		t.Errorf("%+v", gaps)
	}
}

// bare is nodes that have a shell, to which files can be written, and no other programs.
type bare struct{ nodes }

func (bare) run(_ context.Context, _ string, _ []string, file io.Reader, _, _ io.Writer) error {
	if file != nil {
		return nil
	}
	return exit(127)
}

// TestNotInstalled proves that a probe whose program is missing says which, where, and what to do.
func TestNotInstalled(t *testing.T) {
	b := &bed{nodes: bare{}, cell: &experiment.Cell{}, options: experiment.Options{"from": "h1", "to": "h2", "flows": "1", "rate": "10", "size": "64", "time": "1s", "protocol": "udp"},
		topology: &topology.Topology{Nodes: []*topology.Node{{Name: "h2", Loopback: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}}}}
	_, err := dITG(t.Context(), b)
	if err == nil || !strings.Contains(err.Error(), "h2: ITGRecv is not installed") || !strings.Contains(err.Error(), "bootstrap") {
		t.Errorf("without D-ITG: %v", err)
	}
}
