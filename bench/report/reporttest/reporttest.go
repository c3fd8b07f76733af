// Package reporttest makes results for the tests of reports: what they say is known.
package reporttest

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// Text is an experiment with all kinds of figures, and a paper to compare with.
const Text = `title: Throughput, delay and loss over hops
topology: linear,${hops}
lab: {datapath: "${datapath}"}
factors:
  hops: [2, 4, 6, 8, 10]
  datapath: [embedded, ovs]
probes:
  - iperf3: {name: tcp, from: h1, to: h2}
  - ping: {from: h1, to: h2}
repetitions: 10
paired: datapath
report:
  figures:
    - {title: Throughput, metric: throughput, x: hops, series: datapath, unit: Gbit/s}
    - {title: Throughput side by side, metric: throughput, x: hops, series: datapath, kind: bar, y: median}
    - {title: Round trip times, metric: rtt, x: hops, series: datapath, kind: box, unit: ms, scale: log}
    - {title: Distribution of round trip times over 10 hops, metric: rtt, series: datapath, kind: cdf, where: {hops: 10}, unit: ms}
    - {title: Throughput while a link is down, metric: throughput, series: datapath, kind: time, where: {hops: 4}, unit: Gbit/s}
  tables:
    - {title: Latency, metric: rtt, rows: datapath, columns: hops, values: [mean, deviation, variance], gap: [ovs, embedded], unit: ms}
    - {title: Throughput, metric: throughput, rows: [hops, datapath]}
paper:
  source: A paper, figure 16
  note: Read off the figure.
  numbers:
    - {metric: throughput, unit: Gbit/s, levels: {datapath: ovs}, along: hops, values: {2: 14.5, 4: 13, 6: 12, 8: 11.5, 10: 11}}
    - {metric: rtt, unit: ms, levels: {datapath: ovs, hops: 2}, value: 0.2, within: 20%}
    - {metric: rtt, unit: ms, levels: {datapath: hardware, hops: 2}, value: 0.1}
  trends:
    - {text: throughput of Open vSwitch falls with hops, metric: throughput, along: hops, at: {datapath: ovs}, is: falls}
    - {text: throughput of the embedded datapath does not depend on hops, metric: throughput, along: hops, at: {datapath: embedded}, is: flat, within: 10%}
    - {text: round trip times fall with hops, metric: rtt, along: hops, at: {datapath: ovs}, is: falls}
    - {text: the embedded datapath is faster at any number of hops, metric: throughput, at: {datapath: embedded}, is: above, than: {datapath: ovs}, along: hops}
    - {text: less than 1 % is lost, metric: loss, is: below, than: 1, unit: "%"}
    - {text: jitter rises, metric: jitter, along: hops, is: rises}
`

// Header is that of Text.
func Header() result.Header {
	return result.Header{
		Experiment: result.Experiment{Name: "figure-16", Title: "Throughput, delay and loss over hops",
			File: "figure-16.yaml", Text: Text, Plan: "abc", Runs: 100,
			Factors: []result.Factor{{Name: "hops", Levels: []string{"2", "4", "6", "8", "10"}},
				{Name: "datapath", Levels: []string{"embedded", "ovs"}}}},
		Seed: 7, Command: []string{"trivet", "bench", "run", "figure-16.yaml", "--out",
			"my results.jsonl"}, Started: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC),
		Environment: environment.Record{Time: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC), Trivet: "0.3", Go: "go1.26",
			System: "Debian GNU/Linux 12", Kernel: "6.1.0",
			Machine: "x86_64", Virtualisation: "kvm", CPU: environment.CPU{Model: "Example 9000", Online: 2, Cores: 2,
				Usable: 2},
			Sysctls: map[string]string{"net.core.rmem_max": "212992"},
			Tools:   map[string]string{"iperf3": "iperf 3.12"}},
	}
}

// Samples are those of Text: ten repetitions of each cell, Open vSwitch slower by hop, the embedded
// datapath not. One run failed, one value is an outlier, some samples are doubtful, and one is bad.
// At 4 hops a link goes down and comes back.
func Samples() (out []result.Sample) {
	rng := rand.New(rand.NewPCG(1, 2))
	run := 0
	for repetition := 1; repetition <= 10; repetition++ {
		for _, hops := range []float64{2, 4, 6, 8, 10} {
			for _, datapath := range []string{"embedded", "ovs"} {
				run++
				one := result.Sample{Run: run, Cell: fmt.Sprintf("hops=%v datapath=%s", hops, datapath),
					Factors: map[string]any{"hops": hops, "datapath": datapath},
					Block:   repetition, Pair: fmt.Sprintf("hops=%v",
						hops), Repetition: repetition, Started: time.Date(2026, 6, 1, 12, run, 0, 0,
						time.UTC), Seconds: 10,
					Verdict: verdict(run)}
				out = append(out, tcp(one, rng, hops, datapath), ping(one, rng, hops, datapath))
			}
		}
	}
	return out
}

func verdict(run int) *environment.Verdict {
	v := environment.Verdict{Level: environment.Good}
	switch {
	case run == 17:
		v = environment.Verdict{Level: environment.Bad,
			Reasons: []environment.Reason{{Level: environment.Bad, Code: "cpu",
				Text: "CPU 99.6 %: the figure may be the processors', not the network's"}}}
	case run%10 == 0:
		v = environment.Verdict{Level: environment.Doubtful,
			Reasons: []environment.Reason{{Level: environment.Doubtful, Code: "steal",
				Text: "the host of this virtual machine took 3.1 % of the processors' time"}}}
	}
	return &v
}

func tcp(s result.Sample, rng *rand.Rand, hops float64, datapath string) result.Sample {
	s.Probe, s.Kind = "tcp", "iperf3"
	if s.Run == 33 {
		s.Failure = "iperf3 ended with: unable to connect to server <refused>"
		return s
	}
	base := 16e9 + rng.NormFloat64()*0.3e9
	if datapath == "ovs" {
		base -= 0.4e9 * hops
	}
	if s.Run == 42 {
		base *= 0.6
	}
	m := result.Measurement{Metric: "throughput", Unit: "bit/s"}
	for i := range 20 {
		at, v := float64(i)/2, base*(1+0.01*rng.NormFloat64())
		if hops == 4 && at >= 4 && at < 6 {
			v = base * 0.05
		}
		m.At, m.Values = append(m.At, at), append(m.Values, v)
	}
	if hops == 4 {
		s.Events = []result.Event{{At: 4.01, What: "s2 -- s3 down"}, {At: 6.02, What: "s2 -- s3 up"}}
	}
	s.Measurements = []result.Measurement{m}
	return s
}

func ping(s result.Sample, rng *rand.Rand, hops float64, datapath string) result.Sample {
	s.Probe, s.Kind = "ping", "ping"
	base := 60e-6
	if datapath == "ovs" {
		base += 25e-6 * hops
	}
	m := result.Measurement{Metric: "rtt", Unit: "s"}
	for range 20 {
		m.Values = append(m.Values, base*(0.9+0.2*rng.Float64()+0.15*rng.ExpFloat64()))
	}
	s.Measurements = []result.Measurement{m, result.Share("loss", 0, 20)}
	return s
}

// Write writes a result file of Header and some samples, and returns its path.
func Write(t testing.TB, h result.Header, samples []result.Sample) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), h.Experiment.Name+".jsonl")
	w, err := result.Create(path, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(samples...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
