package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/bench/stats"
)

// truth carries out an experiment on a pair of hosts behind one switch, of which the link of h1 is impaired, and returns its samples.
func truth(t *testing.T, link, datapath, probes string, flags ...string) []result.Sample {
	t.Helper()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "truth.yaml"), filepath.Join(dir, "truth.jsonl")
	text := fmt.Sprintf("topology:\n  nodes: {s1: switch, 'h[1-2]': host}\n  links: [h1 -- s1: {%s}, h2 -- s1]\nlab: {datapath: %s}\nrepetitions: %d\nprobes:\n%s",
		link, datapath, *pairs, probes)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	trivet(t, nil, append([]string{"bench", "run", file, "--out", out}, flags...)...)
	run, err := result.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range run.Samples {
		if s.Failure != "" {
			t.Logf("%s failed: %s", s.Probe, s.Failure)
		}
	}
	return run.Counted()
}

// figures are a metric of all samples of a probe, each by one number: the median of its values.
func figures(samples []result.Sample, probe, metric string) (out []float64) {
	for _, s := range samples {
		if v := s.Values(metric); s.Probe == probe && len(v) > 0 {
			m, _, _ := spread(v)
			out = append(out, m)
		}
	}
	return out
}

// row prints how far figures are from what was asked for.
func row(t *testing.T, link, probe, what string, asked float64, values []float64, unit float64, name string) {
	t.Helper()
	if len(values) == 0 {
		t.Logf("%-18s %-10s %-28s nothing was measured", link, probe, what)
		return
	}
	m, low, high := spread(values)
	t.Logf("%-18s %-10s %-28s asked %8.3f   median %8.3f (%.3f–%.3f) %s   error %+.3f %s, %+.2f %%", link, probe, what, asked/unit, m/unit, low/unit, high/unit, name,
		(m-asked)/unit, name, 100*(m/asked-1))
}

// TestProbeTruth prints the error and the spread of each probe on links with a given delay, loss and bandwidth: Trivet's own beside ping, iperf3 and
// D-ITG, one after the other on the same link in the same run.
func TestProbeTruth(t *testing.T) {
	load(t)
	t.Run("delay", truthOfDelay)
	t.Run("loss", truthOfLoss)
	t.Run("rate", truthOfRate)
}

func truthOfDelay(t *testing.T) {
	for _, ms := range []float64{1, 5, 20} {
		s := truth(t, fmt.Sprintf("delay: %gms", ms), "bridge", `
  - ping: {from: h1, to: h2, count: 100, interval: 20ms}
  - packets: {from: h1, to: h2, time: 2s, rate: 500}
  - ditg: {from: h1, to: h2, time: 2s, rate: 500}
  - flow_setup: {from: h1, to: h2, count: 20, rate: 20}
`)
		link, asked := fmt.Sprintf("delay %g ms", ms), ms/1e3
		row(t, link, "ping", "rtt, median", 2*asked, figures(s, "ping", "rtt"), 1e-3, "ms")
		row(t, link, "packets", "delay, median", asked, figures(s, "packets", "delay"), 1e-3, "ms")
		row(t, link, "packets", "delay_min", asked, figures(s, "packets", "delay_min"), 1e-3, "ms")
		row(t, link, "ditg", "delay_mean", asked, figures(s, "ditg", "delay_mean"), 1e-3, "ms")
		row(t, link, "ditg", "delay_min", asked, figures(s, "ditg", "delay_min"), 1e-3, "ms")
		row(t, link, "flow_setup", "following_delay, median", asked, figures(s, "flow_setup", "following_delay"), 1e-3, "ms")
		for _, p := range []string{"packets", "ditg"} {
			if d := figures(s, p, "delay_deviation"); len(d) > 0 {
				m, low, high := spread(d)
				t.Logf("%-18s %-10s %-28s %.3f (%.3f–%.3f) ms of a link without jitter", link, p, "delay_deviation", 1e3*m, 1e3*low, 1e3*high)
			}
			row(t, link, p, "sent_rate", 500, figures(s, p, "sent_rate"), 1, "packets/s")
		}
	}
}

func truthOfLoss(t *testing.T) {
	for _, percent := range []float64{1, 5} {
		s := truth(t, fmt.Sprintf("loss: %g%%", percent), "bridge", `
  - ping: {from: h1, to: h2, count: 2000, interval: 1ms}
  - packets: {from: h1, to: h2, time: 5s, rate: 2000}
  - ditg: {from: h1, to: h2, time: 5s, rate: 2000}
  - iperf3: {from: h1, to: h2, time: 5s, protocol: udp, bitrate: 20mbit, length: 1250}
`)
		for _, p := range []string{"ping", "packets", "ditg", "iperf3"} {
			asked := percent / 100
			if p == "ping" {
				asked = 1 - (1-asked)*(1-asked) // there and back
			}
			lossRow(t, fmt.Sprintf("loss %g %%", percent), p, asked, s)
		}
	}
}

// lossRow prints all repetitions together, with the interval that chance explains.
func lossRow(t *testing.T, link, probe string, asked float64, samples []result.Sample) {
	lost, of := 0, 0
	for _, s := range samples {
		for _, m := range s.Measurements {
			if s.Probe == probe && m.Metric == "loss" {
				lost, of = lost+m.Count, of+m.Of
			}
		}
	}
	interval, err := stats.Wilson(lost, of, 0.95)
	if err != nil {
		t.Logf("%-18s %-10s %s", link, probe, err)
		return
	}
	t.Logf("%-18s %-10s %-28s asked %7.3f %%   %d of %d: %.3f %%, 95 %% interval %.3f–%.3f %%   %s", link, probe, "loss", 100*asked, lost, of, 100*float64(lost)/float64(of),
		100*interval.Low, 100*interval.High, verdict(interval.Low <= asked && asked <= interval.High))
}

func truthOfRate(t *testing.T) {
	for _, mbit := range []float64{10, 100} {
		rate := 1.5 * mbit * 1e6 / 8 / 1514 // packets of full frames: half as many again as the link carries
		s := truth(t, fmt.Sprintf("bandwidth: %gmbit", mbit), "bridge", fmt.Sprintf(`
  - packets: {from: h1, to: h2, time: 5s, rate: %.0f, size: 1472}
  - ditg: {from: h1, to: h2, time: 5s, rate: %.0f, size: 1472}
  - iperf3: {name: udp, from: h1, to: h2, time: 5s, protocol: udp, bitrate: %.0fmbit, length: 1472}
  - iperf3: {name: tcp, from: h1, to: h2, time: 5s}
`, rate, rate, 1.5*mbit))
		for _, p := range []struct {
			name    string
			payload float64 // of a full frame
		}{{"packets", 1472}, {"ditg", 1472}, {"udp", 1472}, {"tcp", 1448}} {
			row(t, fmt.Sprintf("bandwidth %g Mbit/s", mbit), p.name, "throughput", mbit*1e6*p.payload/1514, figures(s, p.name, "throughput"), 1e6, "Mbit/s")
		}
	}
}

// TestPacketRates prints what rates the generator holds on this machine over a lab's Linux bridge and over embedded switches, with the smallest frames, and
// what is lost.
func TestPacketRates(t *testing.T) {
	load(t)
	for _, datapath := range []string{"bridge", "embedded"} {
		for _, rate := range []float64{1e3, 10e3, 100e3, 300e3, 1e6} {
			s := truth(t, "", datapath, fmt.Sprintf("  - packets: {from: h1, to: h2, time: 3s, rate: %.0f, size: 18}\n", rate))
			given := figures(s, "packets", "sent_rate")
			if len(given) == 0 {
				continue
			}
			m, low, high := spread(given)
			loss, _, _ := spread(figures(s, "packets", "loss"))
			delay, _, _ := spread(figures(s, "packets", "delay"))
			t.Logf("%-9s %8.0f packets/s asked   sent %8.0f (%.0f–%.0f)   %5.1f %% of it   lost %.3f %%   delay %.1f µs", datapath, rate, m, low, high, 100*m/rate, 100*loss, 1e6*delay)
		}
	}
}

// TestWatchCost prints what watching the machine costs: the same experiment with and without, in turn, and the ratio of each pair.
func TestWatchCost(t *testing.T) {
	load(t)
	const probes = "  - packets: {from: h1, to: h2, time: 3s, rate: 10000}\n  - iperf3: {from: h1, to: h2, time: 3s}\n"
	metrics := [][2]string{{"packets", "delay"}, {"packets", "delay_max"}, {"packets", "sent_rate"}, {"iperf3", "throughput"}}
	all := map[[2]string][]float64{}
	n := *pairs
	defer func() { *pairs = n }()
	*pairs = 1
	for i := range n {
		got := [2][]result.Sample{}
		for turn := range 2 {
			watched := (turn + i) % 2
			var flags []string
			if watched == 0 {
				flags = []string{"--unwatched"}
			}
			got[watched] = truth(t, "", "bridge", probes, flags...)
		}
		for _, m := range metrics {
			with, without := figures(got[1], m[0], m[1]), figures(got[0], m[0], m[1])
			if len(with) == 1 && len(without) == 1 && without[0] != 0 {
				all[m] = append(all[m], with[0]/without[0])
			}
		}
	}
	for _, m := range metrics {
		if len(all[m]) == 0 {
			continue
		}
		t.Logf("%s: watched against not: %s", strings.Join(m[:], " "), text(all[m], "times"))
	}
}
