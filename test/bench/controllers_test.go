package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// flowload is what `trivet bench controller --json` prints.
type flowload struct {
	PerSecond  float64 `json:"answers_per_second"`
	PerCPU     float64 `json:"answers_per_cpu_second"`
	Answers    uint64
	Wrong      uint64
	Lost       uint64
	Unheard    int                        `json:"hosts_unheard"`
	Dropped    int                        `json:"switches_dropped"`
	Times      struct{ P50, P99 float64 } `json:"latency_us"`
	Limited    bool                       `json:"generator_was_the_limit"`
	Notes      []string
	Controller struct {
		CPU   float64 `json:"cpu_seconds"`
		Share float64 `json:"cpu_share"`
		RSS   float64 `json:"rss_bytes"`
	}
	Line struct {
		Directions, Crossed, Handshakes int
		AllUp                           float64 `json:"all_up_seconds"`
		AllCrossed                      float64 `json:"all_crossed_seconds"`
		Probes                          float64 `json:"probes_per_second"`
		SteadyCPU                       float64 `json:"steady_cpu_share"`
		Gap                             float64 `json:"longest_gap_seconds"`
	}
}

// generate runs the generator on processor 1.
func generate(t *testing.T, connect string, pid int, args ...string) (r flowload, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"bench", "controller", "--json", "--connect", connect, "--pid", strconv.Itoa(pid)}, args...)...)
	if err := pinned(cmd, 1); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%w: %s", err, stderr.String())
	}
	return r, json.Unmarshal(out, &r)
}

// settings are what each controller is measured in.
var settings = []struct {
	name string
	args []string
}{
	{"1 switch", []string{"--switches", "1", "--hosts", "1000"}},
	{"16 switches", []string{"--switches", "16", "--hosts", "100"}},
	{"1 switch, latency", []string{"--mode", "latency", "--switches", "1", "--hosts", "1000"}},
}

// TestControllers measures Trivet's controller beside others as learning switches: one at a time on
// processor 0, the generator on processor 1, all in turn, as often as -pairs says. Compare the
// answers per CPU-second: they depend least on what else the machine does.
func TestControllers(t *testing.T) {
	load(t)
	results := map[string]map[string][]flowload{} // by setting and controller
	for _, s := range settings {
		results[s.name] = map[string][]flowload{}
	}
	for turn := range *pairs {
		for _, p := range peers {
			t.Run(fmt.Sprintf("%s/%d", p.name, turn+1), func(t *testing.T) {
				if missing := p.needs(); missing != "" {
					t.Skip(missing)
				}
				for _, s := range settings {
					measure(t, p, s.name, s.args, results[s.name])
				}
			})
		}
	}
	for _, s := range settings {
		t.Logf("%s", s.name)
		for _, p := range peers {
			if all := results[s.name][p.name]; len(all) > 0 {
				t.Logf("  %-18s %s", p.name, summary(all, results[s.name][peers[0].name], strings.Contains(s.name, "latency")))
			}
		}
	}
}

// measure starts a controller for one setting. One that cannot be measured is told, not fatal: the
// others are.
func measure(t *testing.T, p peer, setting string, args []string, into map[string][]flowload) {
	t.Run(setting, func(t *testing.T) {
		connect, pid := run(t, p.command)
		r, err := generate(t, connect, pid, slices.Concat([]string{"--duration", "5s"}, patient, args, p.args)...)
		if err != nil {
			t.Fatalf("%s (%s): %v", p.name, p.about, err)
		}
		into[p.name] = append(into[p.name], r)
		for _, n := range r.Notes {
			t.Log("note:", n)
		}
		if r.Wrong+r.Lost > 0 || r.Unheard+r.Dropped > 0 || r.Limited {
			t.Logf("%d answers, %d wrong, %d lost, %d hosts unheard, %d switches dropped, generator was the limit: %v",
				r.Answers, r.Wrong, r.Lost, r.Unheard, r.Dropped, r.Limited)
		}
	})
}

func summary(all, base []flowload, latency bool) string {
	column := func(of []flowload, f func(flowload) float64) (values []float64) {
		for _, r := range of {
			values = append(values, f(r))
		}
		return values
	}
	perCPU := func(r flowload) float64 { return r.PerCPU }
	s := text(column(all, func(r flowload) float64 { return r.PerSecond }), "/s") + "   " + text(column(all, perCPU), "per CPU-s")
	if n := min(len(all), len(base)); n > 0 {
		s += "   " + text(ratios(column(all[:n], perCPU), column(base[:n], perCPU)), "× of "+peers[0].name)
	}
	if latency {
		s += "   p50 " + text(column(all, func(r flowload) float64 { return r.Times.P50 }), "µs") +
			"   p99 " + text(column(all, func(r flowload) float64 { return r.Times.P99 }), "µs")
	}
	return s + "   RSS " + text(column(all, func(r flowload) float64 { return r.Controller.RSS / 1e6 }), "MB")
}

// TestControllersLine measures how controllers find the links of switches in a line, and what
// watching them costs: at most three times, for each takes half a minute.
func TestControllersLine(t *testing.T) {
	load(t)
	for _, switches := range []int{100, 1000} {
		for turn := range min(*pairs, 3) {
			for _, p := range peers {
				if p.line == nil {
					continue
				}
				t.Run(fmt.Sprintf("%d/%s/%d", switches, p.name, turn+1), func(t *testing.T) {
					if missing := p.needs(); missing != "" {
						t.Skip(missing)
					}
					connect, pid := run(t, p.line)
					args := []string{"--mode", "line", "--switches", strconv.Itoa(switches)}
					for i, a := range p.args {
						if a == "--openflow" {
							args = append(args, a, p.args[i+1])
						}
					}
					r, err := generate(t, connect, pid, args...)
					if err != nil {
						t.Fatal(err)
					}
					l := r.Line
					t.Logf("%d of %d up (all after %.2f s); %d of %d directions crossed (all after %.2f s); %.0f probes/s; CPU %.2f s in all, steady %.1f %%; RSS %.0f MB; longest without a probe %.1f s; %d dropped",
						l.Handshakes, switches, l.AllUp, l.Crossed, l.Directions, l.AllCrossed, l.Probes, r.Controller.CPU, 100*l.SteadyCPU, r.Controller.RSS/1e6, l.Gap, r.Dropped)
				})
			}
		}
	}
}
