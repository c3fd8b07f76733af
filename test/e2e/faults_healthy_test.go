package e2e

import (
	"encoding/json"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// TestHealthy proves that verify has nothing against labs in which nothing is broken, at any look:
// labs of each kind, as they are brought up, quickly and as a user types it, at rest and beside
// goroutines that spin on every processor. TRIVET_HEALTHY says how many looks (2). It is not
// parallel, so that at rest is at rest.
func TestHealthy(t *testing.T) {
	needFaults(t)
	looks, err := strconv.Atoi(os.Getenv("TRIVET_HEALTHY"))
	if err != nil {
		looks = 2
	}
	labs := map[string]string{}
	for _, l := range faultLabs() {
		labs[l.name] = l.file
	}
	labs["two-sites"], labs["impaired"] = exampleText(t, "two-sites.yaml"), impairedLab
	for _, name := range []string{"bridge", "embedded", "ovs", "ovs-controlled", "shaped", "impaired", "two-sites", "frr", "bird", "routing-nodes"} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(labs[name], "datapath: frr") || strings.Contains(labs[name], "datapath: bird") {
				needDaemons(t)
			}
			m := newMachine(t)
			m.up(m.file(name+".yaml", labs[name]))
			for range looks {
				m.healthy(t, "at rest")
				m.healthy(t, "at rest", "--quick")
			}
			stop := spin()
			defer stop()
			for range looks {
				m.healthy(t, "beside a busy loop on each processor")
				m.healthy(t, "beside a busy loop on each processor", "--quick")
			}
			stop()
			m.ok("down")
		})
	}
}

// impairedLab has links with each impairment.
const impairedLab = `
datapath: bridge
controller: none
nodes: {s1: switch, 'h[1-6]': host}
links:
  - h1 -- s1
  - h2 -- s1: {bandwidth: 10mbit, queue: 40}
  - h3 -- s1: {delay: 15ms, jitter: 3ms}
  - h4 -- s1: {loss: 5%, mtu: 1400}
  - h5 -- s1: {duplicate: 3%, corrupt: 1%}
  - h6 -- s1: {delay: 5ms, reorder: 20%, bandwidth: 20mbit}
`

// exampleText is an example's text without its schedule: what is to happen later is no part of a
// lab at rest.
func exampleText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(example(name))
	must(t, err)
	before, _, _ := strings.Cut(string(text), "\nschedule:")
	return before + "\n"
}

// healthy looks once.
func (m *machine) healthy(t *testing.T, when string, args ...string) {
	t.Helper()
	out := m.run(append([]string{"verify", "--json"}, args...)...)
	var r verify.Result
	if err := json.Unmarshal([]byte(out.out), &r); err != nil {
		t.Errorf("%s verify %s itself failed: %v: %s", when, strings.Join(args, " "), err, out)
		return
	}
	if out.code != exitOf(r) || !r.Holds() { // what cannot be told by a lab's nature, or on a busy machine, is no alarm
		t.Errorf("%s verify %s finds in a lab in which nothing is broken: %q", when, strings.Join(args, " "), r.Says(verify.Wrong))
	}
	t.Logf("%s, %s: %d ok, %d untold, %.1f s", when, strings.Join(args, " "), r.OK, r.Untold, r.Seconds)
}

// spin keeps all processors busy until it is told to stop.
func spin() (stop func()) {
	var done atomic.Bool
	for range runtime.NumCPU() {
		go func() {
			for !done.Load() {
			}
		}()
	}
	return func() { done.Store(true) }
}
