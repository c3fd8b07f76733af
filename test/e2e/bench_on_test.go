package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	results "trivet.dev/trivet/bench/result"
)

// inTwoPlaces is an experiment that runs the same here and elsewhere, but for one level.
const inTwoPlaces = `title: Round trips, here and there
topology: linear,2
lab: {pin_nodes: "${pins}"}
factors: {pins: [none, 0]}
probes:
  - ping: {from: h1, to: h2, count: 5, interval: 10ms}
  - ditg: {from: h1, to: h2, time: 200ms, rate: 200, where: {pins: none}}
repetitions: 5
`

// TestBenchOn proves that an experiment of one machine is measured by --on over others, which
// take hosts only, with nothing of it changed; that the cells which need one machine are left out,
// with the reason, in the dry run and in the result; that a program which is missing at one machine
// costs the probe that needs it; that the result says where it was and what the machines are; that
// a comparison and a report put both places side by side, the place being a factor; and that
// nothing is left anywhere.
func TestBenchOn(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h := s.head
	h.file("places.yaml", inTwoPlaces)
	h.file("rack.yaml", "machines:\n  m1: {ssh: root@10.5.0.2, hosts: 2}\n  m2: {ssh: root@10.5.0.3, hosts: 2}\n")
	const why = "pins=0 (5 of 10 runs): isolate and pins are for labs on one machine"
	contains(t, h.run("bench", "run", "places.yaml", "--on", "rack.yaml", "--dry-run").String(), why)
	h.ok("bench", "run", "places.yaml", "--out", "local.jsonl")
	h.ok("bench", "run", "places.yaml", "--on", "rack.yaml")
	if r := h.run("bench", "run", "places.yaml", "--out", "local.jsonl", "--on", "rack.yaml", "--resume"); r.code == 0 || !strings.Contains(r.String(), "--on") {
		t.Errorf("a result goes on in another place: %s", r)
	}

	run, err := results.ReadFile(filepath.Join(h.dir, "places-rack.jsonl"))
	must(t, err)
	if p := run.Header.Environment.Place; p == nil || p.Name() != "rack" || p.Carrier != "vxlan" || p.Machines["m1"].Kernel == "" || p.Machines["m2"].CPU.Online == 0 {
		t.Errorf("the place is %+v", p)
	}
	if l := run.LeftOut(); len(l) != 1 || l[0].What != "pins=0" {
		t.Errorf("left out: %+v", l)
	}
	kinds := map[string]int{}
	for _, s := range run.Counted() {
		if s.Failure != "" {
			t.Errorf("%s: %s", s.Probe, s.Failure)
		} else if u := s.Usage; u == nil || u.Sites["m1"].Seconds == 0 || u.Sites["m2"].Seconds == 0 {
			t.Errorf("%s: the machines were not watched", s.Probe)
		}
		kinds[s.Kind]++
	}
	if kinds["ping"] != 5 || kinds["ditg"] != 5 {
		t.Errorf("measured: %v", kinds)
	}

	out := h.ok("bench", "compare", "local.jsonl", "places-rack.jsonl", "--margin", "rtt=1s", "--metric", "rtt")
	contains(t, out, "joined by VXLAN (rack.yaml)", "equivalent within ±", "Only local has rtt")
	if strings.Contains(out, "Different experiments") || strings.Contains(out, "different machines") {
		t.Errorf("that is what was compared: %s", out)
	}
	h.ok("bench", "report", "local.jsonl", "places-rack.jsonl", "--margin", "rtt=1s", "--out", "report")
	page, err := os.ReadFile(filepath.Join(h.dir, "report", "index.html"))
	must(t, err)
	contains(t, string(page), "Round trips, here and there: local and rack", "equivalent within ±1", "Left out: pins=0 at rack")

	// A program that a machine does not have costs the probe that runs it there, and fails nothing.
	program, err := exec.LookPath("ITGSend")
	must(t, err)
	s.others[1].sh("mount --bind /dev/null " + program)
	r := h.run("bench", "run", "places.yaml", "--on", "rack.yaml", "--repetitions", "1", "--out", "lacking.jsonl")
	s.others[1].sh("umount " + program)
	if r.code != 0 {
		t.Errorf("a program that is missing is a failure: %s", r)
	}
	contains(t, r.String(), "left out: probe ditg", "ITGSend is not installed at m2")
	h.sh("rm -r report *.jsonl")
	s.unchanged(t)
}

// TestRackBench proves, on a gateway and three devices that are virtual machines, that the
// experiments of paper 1 run on a rack as on one machine: directly between two devices on a VLAN of
// their own, and over the gateway's switches; that probes run at devices which are the hosts
// themselves, which are watched meanwhile; that one report has both places side by side, with
// equivalence tests; and that no lab is left.
func TestRackBench(t *testing.T) {
	r, on := newGatewayAndDevices(t)
	third := filepath.Join(r.dir, "figure-3.jsonl")
	r.trivet("bench", "run", experimentFile(t, "1-c3-edge/figure-3.yaml"), "--quick", on, "--out", third)
	throughput, err := results.ReadFile(third)
	must(t, err)
	measured := map[string]int{}
	for _, s := range throughput.Counted() {
		if s.Failure != "" {
			t.Errorf("%s, %s: %s", s.Cell, s.Probe, s.Failure)
		}
		measured[s.Cell]++
	}
	if len(measured) != 6 || measured["way=direct setup=3 pairs"] != 3 || measured["way=emulated setup=3 pairs"] != 3 {
		t.Errorf("measured of figure 3: %v; left out: %+v", measured, throughput.LeftOut())
	}

	file := experimentFile(t, "1-c3-edge/figure-4.yaml")
	local, rack := filepath.Join(r.dir, "local.jsonl"), filepath.Join(r.dir, "rack.jsonl")
	r.trivet("bench", "run", file, "--quick", "--out", local)
	r.trivet("bench", "run", file, "--quick", on, "--out", rack)

	run, err := results.ReadFile(rack)
	must(t, err)
	if p := run.Header.Environment.Place; p == nil || p.Name() != "rack" || p.Carrier != "vlan" || p.Machines["m1"].Kernel == "" {
		t.Errorf("the place is %+v", p)
	}
	cells := map[string]bool{}
	for _, s := range run.Counted() {
		cells[s.Cell] = true
		if s.Failure != "" || s.Usage == nil || s.Usage.Sites["m1"].Seconds == 0 {
			t.Errorf("%s: %s %+v", s.Cell, s.Failure, s.Usage)
		}
	}
	if len(cells) != 4 {
		t.Errorf("cells: %v", cells)
	}
	report := r.trivet("bench", "report", local, rack, "--margin", "rtt=1s", "--text")
	t.Log(report)
	contains(t, report, "local and rack: ", "joined by VLAN (rack.yaml)", "rtt: direct, other node", "rtt: emulated, gateway", "margin ±")
	if _, out := r.do(trivet + " ls; " + r.at(1, "ls -A /run/trivet 2>/dev/null")); strings.Contains(out, "bench-") {
		t.Errorf("a lab is left: %s", out)
	}
}
