package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestControllerLoad proves that the controller of a lab is measured beside the switches that it
// has: it answers, rightly, and its own switches go on.
func TestControllerLoad(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	file := m.file("x.yaml", `
topology: linear,2
lab: {datapath: embedded, controller: trivet}
probes:
  - controller_load: {name: many, mode: throughput, switches: 2, hosts: 20, time: 1s}
  - controller_load: {name: one, mode: latency, switches: 1, hosts: 20, time: 1s}
  - ping: {all: true, count: 2, interval: 10ms}
`)
	out := filepath.Join(m.dir, "x.jsonl")
	m.ok("bench", "run", file, "--out", out)
	run := m.samples(out)
	if len(run.Samples) != 3 {
		t.Fatalf("%d samples", len(run.Samples))
	}
	for _, s := range run.Samples[:2] {
		if s.Failure != "" {
			t.Fatalf("%s: %s", s.Probe, s.Failure)
		}
		rate, wrong, times := s.Values("answers_rate"), s.Values("wrong"), s.Values("answer_time")
		if len(rate) != 1 || rate[0] <= 0 || wrong[0] != 0 || len(times) != 4 || times[0] <= 0 || times[3] < times[0] || len(s.Values("controller_cpu")) != 1 {
			t.Errorf("%s: %+v", s.Probe, s.Measurements)
		}
	}
	for _, loss := range run.Samples[2].Values("loss") { // a machine whose processors the load has just had may lose one
		if loss > 0.5 {
			t.Errorf("pings are lost when the load has ended: %+v", run.Samples[2].Measurements)
		}
	}
	m.unchanged(before)
}

// TestProbesKilled proves that nothing that a probe has started outlives a run that is killed with
// SIGKILL, be it in the background and in a session of its own: on the machine it ends with the
// run, in nodes with the run or with the lab. The files that a probe had are removed when the run
// is resumed.
func TestProbesKilled(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ITGSend"); err != nil {
		t.Skip("D-ITG is not installed")
	}
	m := newMachine(t)
	before := m.snapshot()
	file := m.file("x.yaml", `
topology: linear,2
lab: {datapath: bridge, controller: none}
probes:
  - - command: {name: here, run: "[ -e over ] || { setsid sleep 10001 & (sleep 10002 &) ; sleep 10003; }; echo 1", metric: x, unit: "1", match: "([0-9])"}
    - command: {name: there, node: h1, run: "[ -e `+m.dir+`/over ] || { sleep 10004 & setsid sleep 10005 & sleep 10006; }; echo 1", metric: x, unit: "1", match: "([0-9])"}
    - ditg: {from: h1, to: h2, rate: 100, time: 10min}
`)
	out := filepath.Join(m.dir, "x.jsonl")
	running := func(of string) (n int) {
		for line := range strings.Lines(m.sh("for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f || true; echo; done 2>/dev/null")) {
			if number, ok := strings.CutPrefix(strings.TrimSpace(line), "sleep "); ok && strings.Contains(of, number) {
				n++
			}
		}
		return n
	}
	files := func() string {
		return strings.TrimSpace(m.sh("ls -d /run/trivet/.scratch-*/*/received /tmp/itg* 2>/dev/null || true"))
	}
	bench := m.command(trivet, "bench", "run", file, "--out", out)
	said := m.startOutput(bench)
	eventually(t, "all probes have started what they start", func() bool {
		return ended(bench) || running("10001 10002 10003 10004 10005 10006") == 6 && files() != ""
	})
	if ended(bench) || strings.Contains(files(), "/tmp/") {
		t.Fatalf("files %q, it said %s", files(), said)
	}
	must(t, bench.Process.Kill())
	wait(t, bench)
	eventually(t, "on the machine all has ended, and what it waits for in nodes", func() bool { return running("10001 10002 10003 10004 10006") == 0 })
	m.sh("touch over")
	again := m.command(trivet, "bench", "run", file, "--out", out, "--resume")
	said = m.startOutput(again)
	eventually(t, "what was left has been taken down", func() bool {
		return ended(again) || strings.Contains(said.String(), "what an earlier run left")
	})
	if n := running("10005"); n > 0 {
		t.Error("a program in the background of a node goes on when its lab is down")
	}
	_ = again.Process.Signal(unix.SIGINT)
	wait(t, again)
	m.unchanged(before)
}

// TestProbesIPv6 proves that an experiment measures over IPv4 and over IPv6 side by side, through
// routers, by the real tools; and that one that asks for IPv6 where there is none is refused before
// it begins.
func TestProbesIPv6(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"iperf3", "traceroute", "ITGSend"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	m := newMachine(t)
	before := m.snapshot()
	const text = `
topology: {generate: "linear,2", nodes: router}
lab: {datapath: kernel, ipv6: MODE}
factors: {ipv6: [false, true]}
order: given
probes:
  - ping: {from: h1, to: h2, count: 3, interval: 10ms, ipv6: "${ipv6}"}
  - traceroute: {from: h1, to: h2, ipv6: "${ipv6}"}
  - iperf3: {from: h1, to: h2, time: 1s, protocol: udp, bitrate: 1mbit, ipv6: "${ipv6}"}
  - packets: {from: h1, to: h2, time: 200ms, rate: 100, ipv6: "${ipv6}"}
  - convergence: {from: h1, to: h2, time: 200ms, interval: 10ms, ipv6: "${ipv6}"}
  - flow_setup: {from: h1, to: h2, count: 5, rate: 20, ipv6: "${ipv6}"}
  - ditg: {from: h1, to: h2, time: 500ms, rate: 100, ipv6: "${ipv6}"}
`
	file, out := m.file("x.yaml", strings.Replace(text, "MODE", "assigned", 1)), filepath.Join(m.dir, "x.jsonl")
	m.ok("bench", "run", file, "--out", out)
	samples := m.samples(out).Counted()
	if len(samples) != 14 {
		t.Fatalf("%d samples", len(samples))
	}
	for _, s := range samples {
		v6, loss := s.Factors["ipv6"] == true, append(s.Values("loss"), s.Values("first_loss")...)
		if s.Failure != "" || s.Probe != "traceroute" && (len(loss) != 1 || loss[0] != 0) {
			t.Errorf("%s, %s: %q, loss %v", s.Cell, s.Probe, s.Failure, loss)
		}
		if s.Probe == "traceroute" {
			if hops := s.Values("hops"); len(hops) != 1 || hops[0] != 3 {
				t.Errorf("%s: %v hops", s.Cell, hops)
			}
			for _, one := range s.Measurements {
				if a := one.Labels["address"]; a != "" && strings.Contains(a, ":") != v6 {
					t.Errorf("%s: the way leads over %s", s.Cell, a)
				}
			}
		}
	}
	refused := m.want(1, "bench", "run", m.file("y.yaml", strings.Replace(text, "MODE", "off", 1)), "--dry-run")
	contains(t, refused.err, "h1 has no IPv6 address, as the lab assigns none; write lab: {ipv6: assigned}")
	m.unchanged(before)
}
