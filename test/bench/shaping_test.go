package bench

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pairUp brings up two hosts behind one Linux bridge; the link of h1 is impaired.
func pairUp(t *testing.T, options string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shaping.yaml")
	topology := fmt.Sprintf("name: shaping\nnodes: {s1: switch, 'h[1-2]': host}\nlinks:\n  - s1 -- h1: {%s}\n  - s1 -- h2\n", options)
	if err := os.WriteFile(file, []byte(topology), 0o644); err != nil {
		t.Fatal(err)
	}
	trivet(t, nil, "up", file, "--datapath", "bridge")
}

type pingResult struct {
	Sent, Received int
	Loss           float64
	RTT            struct{ Min, Median, Mean, Max, SD float64 } `json:"rtt_ms"`
}

// TestDelay compares the median round trip time of idle links with twice their delay.
func TestDelay(t *testing.T) {
	load(t)
	for _, ms := range []int{1, 5, 20, 100} {
		pairUp(t, fmt.Sprintf("delay: %dms", ms))
		var medians []float64
		for range *pairs {
			var r pingResult
			trivet(t, &r, "ping", "h1", "h2", "--count", "100", "--interval", "20ms")
			medians = append(medians, r.RTT.Median)
		}
		trivet(t, nil, "down", "shaping")
		asked := 2 * float64(ms)
		m, low, high := spread(medians)
		allowed := 0.2 + 0.02*asked
		t.Logf("delay %3d ms   RTT asked %5.0f ms   median %.3f ms (%.3f–%.3f)   error %+.3f ms of ±%.2f allowed   %s",
			ms, asked, m, low, high, m-asked, allowed, verdict(math.Abs(m-asked) <= allowed))
	}
}

func verdict(ok bool) string {
	if ok {
		return "within"
	}
	return "OUTSIDE"
}

// TestGoodput compares steady TCP goodput with bandwidth × 1448/1514. The congestion control is
// Reno: BBR leaves a link idle for a fifth of a second every ten, to measure it.
func TestGoodput(t *testing.T) {
	load(t)
	for _, link := range []struct {
		mbit  int
		delay string
	}{{1, ""}, {10, ""}, {100, ""}, {1000, ""}, {100, ", delay: 20ms"}} {
		pairUp(t, fmt.Sprintf("bandwidth: %dmbit%s", link.mbit, link.delay))
		var shares []float64
		for range *pairs {
			var r struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			}
			trivet(t, &r, "iperf", "h1", "h2", "--time", "8", "--omit", "4", "--congestion-control", "reno")
			shares = append(shares, r.BitsPerSecond/(float64(link.mbit)*1e6*1448/1514))
		}
		trivet(t, nil, "down", "shaping")
		m, low, high := spread(shares)
		t.Logf("bandwidth %4d Mbit/s%-14s  goodput / (bandwidth × 1448/1514): %.4f (%.4f–%.4f)   %s", link.mbit, link.delay, m, low, high, verdict(math.Abs(m-1) <= 0.03))
	}
}

// knowEachOther gives the hosts each other's address for good: a question for it that is
// lost would cost a second of pings.
func knowEachOther(t *testing.T) {
	t.Helper()
	for _, pair := range [][2]string{{"h1", "h2"}, {"h2", "h1"}} {
		out, err := exec.Command(binary, "exec", "-n", pair[1], "--", "cat", "/sys/class/net/"+pair[1]+"-eth0/address").Output()
		if err != nil {
			t.Fatal(err)
		}
		neighbour := fmt.Sprintf("ip neigh replace 10.0.0.%s lladdr %s dev %s-eth0 nud permanent", pair[1][1:], strings.TrimSpace(string(out)), pair[0])
		if out, err := exec.Command(binary, "exec", "-n", pair[0], "--", "sh", "-c", neighbour).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// TestLoss compares asked and measured loss, with the 95 % interval of the binomial distribution.
func TestLoss(t *testing.T) {
	load(t)
	for _, percent := range []float64{0.1, 1, 5, 20} {
		pairUp(t, fmt.Sprintf("loss: %g%%", percent))
		knowEachOther(t)
		var sent, lost int
		for range *pairs {
			var r pingResult
			trivet(t, &r, "ping", "h1", "h2", "--count", "2000", "--interval", "0s", "--timeout", "20ms")
			sent, lost = sent+r.Sent, lost+r.Sent-r.Received
		}
		trivet(t, nil, "down", "shaping")
		p := percent / 100
		expected := 1 - (1-p)*(1-p) // there and back
		half := 1.96 * math.Sqrt(expected*(1-expected)/float64(sent))
		measured := float64(lost) / float64(sent)
		t.Logf("loss %5g %% each way   round trip asked %.4f   measured %.4f of %d   95 %% interval ±%.4f   %s",
			percent, expected, measured, sent, half, verdict(math.Abs(measured-expected) <= half))
	}
}
