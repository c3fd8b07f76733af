package bench

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// truth carries out an experiment on a pair of hosts behind one switch, of which the link of h1 is
// impaired, and returns its samples.
func truth(t *testing.T, link, datapath, probes string, repetitions int, flags ...string) []result.Sample {
	t.Helper()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "truth.yaml"), filepath.Join(dir, "truth.jsonl")
	text := fmt.Sprintf("topology:\n  nodes: {s1: switch, 'h[1-2]': host}\n  links: [h1 -- s1: {%s}, h2 -- s1]\nlab: {datapath: %s, ipv6: assigned}\nrepetitions: %d\nprobes:\n%s",
		link, datapath, repetitions, probes)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	trivet(t, nil, append([]string{"bench", "run", file, "--out", out}, flags...)...)
	run, err := result.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	verdicts, reasons := map[environment.Level]int{}, map[string]int{}
	for _, s := range run.Samples {
		if s.Failure != "" {
			t.Logf("%s: %s failed: %s", link, s.Probe, s.Failure)
		}
		if s.Verdict != nil {
			verdicts[s.Verdict.Level]++
			for _, r := range s.Verdict.Reasons {
				reasons[r.Code]++
			}
		}
	}
	t.Logf("%s: %d good, %d doubtful, %d bad: %v", cmp.Or(link, datapath), verdicts[environment.Good], verdicts[environment.Doubtful], verdicts[environment.Bad], reasons)
	return run.Counted()
}

// figures are a metric of all samples of a probe, each by one number: the median of its values.
func figures(samples []result.Sample, probe, metric string) (out []float64) {
	for _, s := range samples {
		if v := s.Values(metric); s.Probe == probe && s.Failure == "" && len(v) > 0 {
			m, _, _ := spread(v)
			out = append(out, m)
		}
	}
	return out
}

// deviations are the standard deviations of a metric within each sample of a probe.
func deviations(samples []result.Sample, probe, metric string) (out []float64) {
	for _, s := range samples {
		if of, err := stats.Summarize(s.Values(metric), stats.Options{Resamples: 1000}); s.Probe == probe && s.Failure == "" && err == nil {
			out = append(out, float64(of.Deviation))
		}
	}
	return out
}

// grid is a table in Markdown: what was asked for, and a column a probe.
type grid struct {
	strings.Builder
	columns int
}

func newGrid(columns ...string) *grid {
	g := &grid{columns: len(columns) - 1}
	g.row(columns[0], columns[1:]...)
	g.WriteString("|" + strings.Repeat(" --- |", len(columns)) + "\n")
	return g
}

func (g *grid) row(name string, cells ...string) {
	fmt.Fprintf(g, "| %s |", name)
	for i := range g.columns {
		cell := ""
		if i < len(cells) {
			cell = cells[i]
		}
		fmt.Fprintf(g, " %s |", cell)
	}
	g.WriteString("\n")
}

// print prints it by itself, ready to be pasted.
func (g *grid) print(title string) { fmt.Printf("\n%s\n\n%s\n", title, g) }

// off is how far figures are from what was asked for: "+0.017 (+0.006 to +0.021)".
func off(values []float64, asked, unit float64) string {
	if len(values) == 0 {
		return ""
	}
	m, low, high := spread(values)
	return signed("%+.3f (%+.3f to %+.3f)", (m-asked)/unit, (low-asked)/unit, (high-asked)/unit)
}

// share is the same as a share of what was asked for, in percent.
func share(values []float64, asked float64) string {
	if len(values) == 0 {
		return ""
	}
	m, low, high := spread(values)
	return signed("%+.1f %% (%+.1f to %+.1f)", 100*(m/asked-1), 100*(low/asked-1), 100*(high/asked-1))
}

// signed writes numbers with the sign that is as wide as a plus.
func signed(format string, numbers ...any) string {
	return strings.ReplaceAll(fmt.Sprintf(format, numbers...), "-", "−")
}

func plain(values []float64, unit float64, digits int) string {
	if len(values) == 0 {
		return ""
	}
	m, low, high := spread(values)
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, m/unit, digits, low/unit, digits, high/unit)
}

// TestProbeTruth prints the error and the spread of each probe on links with a given delay, jitter,
// loss and bandwidth: Trivet's own beside ping, iperf3 and D-ITG, one after the other on the same
// link in the same run. With -pairs 3 it takes about seven minutes, half a minute more for each
// stream of UDP that iperf3 does not get to begin.
func TestProbeTruth(t *testing.T) {
	load(t)
	t.Run("delay", truthOfDelay)
	t.Run("jitter", truthOfJitter)
	t.Run("loss", truthOfLoss)
	t.Run("rate", truthOfRate)
}

const ms = 1e-3

func truthOfDelay(t *testing.T) {
	oneWay := newGrid("one way: errors in ms", "`packets`", "`packets`, IPv6", "`ditg`", "`flow_setup`")
	round := newGrid("round trip: errors in ms", "`ping` (median)", "`ping`, IPv6 (median)", "ping of iputils (mean)")
	for _, delay := range []float64{1, 5, 20} {
		s := truth(t, fmt.Sprintf("delay: %gms", delay), "bridge", `
  - ping: {from: h1, to: h2, count: 100, interval: 10ms}
  - ping: {name: ping6, from: h1, to: h2, count: 100, interval: 10ms, ipv6: true}
  - command: {name: iputils, node: h1, run: ping -n -c 100 -i 0.01 10.0.0.2, metric: rtt, unit: ms, match: "= [0-9.]+/([0-9.]+)/"} # single times it rounds
  - packets: {from: h1, to: h2, time: 2s, rate: 500}
  - packets: {name: packets6, from: h1, to: h2, time: 1s, rate: 500, ipv6: true}
  - ditg: {from: h1, to: h2, time: 2s, rate: 500}
  - flow_setup: {from: h1, to: h2, count: 20, rate: 20}
`, *pairs)
		asked, link := delay*ms, fmt.Sprintf("delay %g ms: ", delay)
		row := func(what, of, ofDITG, ofFlows string, asked float64) {
			oneWay.row(link+what, off(figures(s, "packets", of), asked, ms), off(figures(s, "packets6", of), asked, ms), off(figures(s, "ditg", ofDITG), asked, ms),
				off(figures(s, "flow_setup", ofFlows), asked, ms))
		}
		row("median (D-ITG: mean)", "delay", "delay_mean", "following_delay", asked)
		row("least", "delay_min", "delay_min", "", asked)
		row("deviation, of which there should be none", "delay_deviation", "delay_deviation", "", 0)
		oneWay.row(link+"500 packets/s, sent", plain(figures(s, "packets", "sent_rate"), 1, 1), plain(figures(s, "packets6", "sent_rate"), 1, 1), plain(figures(s, "ditg", "sent_rate"), 1, 1))
		iputils := figures(s, "iputils", "rtt")
		for i := range iputils {
			iputils[i] *= ms
		}
		round.row(fmt.Sprintf("delay %g ms there and back", delay), off(figures(s, "ping", "rtt"), 2*asked, ms), off(figures(s, "ping6", "rtt"), 2*asked, ms), off(iputils, 2*asked, ms))
	}
	oneWay.print("Delays")
	round.print("Round trips")
}

// truthOfJitter sends so seldom that no packet waits for the one before it: nobody overtakes on
// Trivet's delay line.
func truthOfJitter(t *testing.T) {
	const sigma = 2 * ms
	s := truth(t, "delay: 20ms, jitter: 2ms", "bridge", `
  - packets: {from: h1, to: h2, time: 4s, rate: 100}
  - packets: {name: packets6, from: h1, to: h2, time: 4s, rate: 100, ipv6: true}
  - ditg: {from: h1, to: h2, time: 4s, rate: 100}
  - iperf3: {from: h1, to: h2, time: 4s, protocol: udp, length: 1000, bitrate: 800kbit}
  - ping: {from: h1, to: h2, count: 200, interval: 20ms}
`, *pairs)
	g := newGrid("normal jitter of 2 ms: errors in %", "`packets`", "`packets`, IPv6", "`ditg`", "`iperf3`", "`ping`")
	g.row("deviation: 2 ms; of round trips 2.83 ms", share(figures(s, "packets", "delay_deviation"), sigma), share(figures(s, "packets6", "delay_deviation"), sigma),
		share(figures(s, "ditg", "delay_deviation"), sigma), "", share(deviations(s, "ping", "rtt"), sigma*math.Sqrt2))
	const meanD = sigma * 2 / 1.7724538509055159 // of the difference of two normal numbers: 2σ/√π
	g.row("mean of \\|D\\|: 2.26 ms", share(figures(s, "packets", "delay_difference"), meanD), share(figures(s, "packets6", "delay_difference"), meanD), share(figures(s, "ditg", "delay_difference"), meanD))
	g.row("jitter of RFC 3550: about 2.26 ms", share(figures(s, "packets", "jitter"), meanD), share(figures(s, "packets6", "jitter"), meanD), "", share(figures(s, "iperf3", "jitter"), meanD))
	g.print("Jitter")
}

func truthOfLoss(t *testing.T) {
	g := newGrid("lost, with the interval of 95 % that chance explains", "`packets`", "`packets`, IPv6", "`ditg`", "`iperf3`", "`ping` (there and back)")
	for _, percent := range []float64{1, 5} {
		s := truth(t, fmt.Sprintf("loss: %g%%", percent), "bridge", `
  - ping: {from: h1, to: h2, count: 2000, interval: 1ms}
  - packets: {from: h1, to: h2, time: 3s, rate: 4000}
  - packets: {name: packets6, from: h1, to: h2, time: 2s, rate: 4000, ipv6: true}
  - ditg: {from: h1, to: h2, time: 3s, rate: 2000}
  - iperf3: {from: h1, to: h2, time: 3s, protocol: udp, bitrate: 20mbit, length: 1250}
`, *pairs)
		asked := percent / 100
		back := 1 - (1-asked)*(1-asked)
		g.row(fmt.Sprintf("loss %g %% (there and back %.2f %%)", percent, 100*back), lossOf(s, "packets", asked), lossOf(s, "packets6", asked), lossOf(s, "ditg", asked), lossOf(s, "iperf3", asked), lossOf(s, "ping", back))
	}
	g.print("Losses")
}

// lossOf is the loss of all repetitions together, with the interval that chance explains; a mark
// where what was asked for is outside of it.
func lossOf(samples []result.Sample, probe string, asked float64) string {
	lost, of := 0, 0
	for _, s := range samples {
		for _, m := range s.Measurements {
			if s.Probe == probe && m.Metric == "loss" && s.Failure == "" {
				lost, of = lost+m.Count, of+m.Of
			}
		}
	}
	interval, err := stats.Wilson(lost, of, 0.95)
	if err != nil {
		return ""
	}
	outside := ""
	if asked < interval.Low || asked > interval.High {
		outside = ", outside"
	}
	return fmt.Sprintf("%.3f %% of %d (%.3f–%.3f%s)", 100*float64(lost)/float64(of), of, 100*interval.Low, 100*interval.High, outside)
}

func truthOfRate(t *testing.T) {
	g := newGrid("errors in % of the payload that fits", "`packets`", "`packets`, IPv6", "`ditg`", "`iperf3` UDP", "`iperf3` TCP", "`iperf3` TCP, IPv6")
	for _, mbit := range []float64{10, 100} {
		rate := 1.5 * mbit * 1e6 / 8 / 1514 // packets of full frames: half as many again as the link carries
		s := truth(t, fmt.Sprintf("bandwidth: %gmbit", mbit), "bridge", fmt.Sprintf(`
  - packets: {from: h1, to: h2, time: 3s, rate: %.0[1]f, size: 1472}
  - packets: {name: packets6, from: h1, to: h2, time: 2s, rate: %.0[1]f, size: 1452, ipv6: true}
  - ditg: {from: h1, to: h2, time: 3s, rate: %.0[1]f, size: 1472}
  - iperf3: {name: udp, from: h1, to: h2, time: 3s, protocol: udp, bitrate: %.0[2]fmbit, length: 1472}
  - iperf3: {name: tcp, from: h1, to: h2, time: 3s, congestion: reno}
  - iperf3: {name: tcp6, from: h1, to: h2, time: 3s, congestion: reno, ipv6: true}
`, rate, 1.5*mbit), *pairs)
		var cells []string
		for _, p := range []struct {
			name    string
			payload float64 // of a full frame
		}{{"packets", 1472}, {"packets6", 1452}, {"ditg", 1472}, {"udp", 1472}, {"tcp", 1448}, {"tcp6", 1428}} {
			cells = append(cells, share(figures(s, p.name, "throughput"), mbit*1e6*p.payload/1514))
		}
		g.row(fmt.Sprintf("bandwidth %g Mbit/s", mbit), cells...)
		g.row(fmt.Sprintf("%.0f packets/s, sent", rate), plain(figures(s, "packets", "sent_rate"), 1, 0), plain(figures(s, "packets6", "sent_rate"), 1, 0), plain(figures(s, "ditg", "sent_rate"), 1, 0))
	}
	g.print("Rates")
}

// TestPacketRates prints what rates the generator holds on this machine over a lab's Linux bridge
// and over embedded switches, with the smallest frames, and what is lost. With -pairs 3 it takes
// about two minutes.
func TestPacketRates(t *testing.T) {
	load(t)
	g := newGrid("datapath, packets/s asked for", "sent", "of it", "lost", "delay, µs")
	for _, datapath := range []string{"bridge", "embedded"} {
		for _, rate := range []float64{1e3, 10e3, 100e3, 300e3, 1e6} {
			s := truth(t, "", datapath, fmt.Sprintf("  - packets: {from: h1, to: h2, time: 1500ms, rate: %.0f, size: 18}\n", rate), *pairs)
			given := figures(s, "packets", "sent_rate")
			if len(given) == 0 {
				continue
			}
			m, _, _ := spread(given)
			g.row(fmt.Sprintf("`%s`, %.0f", datapath, rate), plain(given, 1, 0), fmt.Sprintf("%.1f %%", 100*m/rate), plain(figures(s, "packets", "loss"), 0.01, 3)+" %",
				plain(figures(s, "packets", "delay"), 1e-6, 1))
		}
	}
	g.print("Packet rates, frames of 64 bytes")
}

// TestWatchCost prints what watching the machine costs: the same experiment with and without, in
// turn, and the ratio of each pair. With -pairs 3 there are nine pairs, in about two minutes.
func TestWatchCost(t *testing.T) {
	load(t)
	const probes = `
  - packets: {from: h1, to: h2, time: 1500ms, rate: 10000}
  - ping: {from: h1, to: h2, count: 100, interval: 10ms}
  - iperf3: {from: h1, to: h2, time: 2s}
`
	metrics := [][3]string{{"packets", "delay", "one-way delay, median"}, {"packets", "delay_mean", "one-way delay, mean"}, {"packets", "sent_rate", "packets/s sent, of 10,000"},
		{"ping", "rtt", "round trip, median"}, {"iperf3", "throughput", "throughput of TCP"}}
	all := map[[3]string][]float64{}
	for i := range 3 * *pairs {
		got := [2][]result.Sample{}
		for turn := range 2 {
			watched := (turn + i) % 2
			var flags []string
			if watched == 0 {
				flags = []string{"--unwatched"}
			}
			got[watched] = truth(t, "", "bridge", probes, 1, flags...)
		}
		for _, m := range metrics {
			with, without := figures(got[1], m[0], m[1]), figures(got[0], m[0], m[1])
			if len(with) == 1 && len(without) == 1 && without[0] != 0 {
				all[m] = append(all[m], with[0]/without[0])
			}
		}
	}
	g := newGrid("watched ÷ not watched", "median of the pairs, with its 95 % interval", "pairs")
	for _, m := range metrics {
		if len(all[m]) > 1 {
			g.row("`"+m[0]+"`: "+m[2], interval(all[m]), fmt.Sprint(len(all[m])))
		}
	}
	g.print("The cost of watching")
}
