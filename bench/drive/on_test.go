package drive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/measure/environment"
)

// TestElsewhere proves that of an experiment which is moved to a rack with two devices, what that
// cannot give is left out with its reason, cell by cell, and nothing else: more hosts than devices,
// pins, Mininet, and a probe that listens to controllers; and that one which says itself where it
// is, or of which nothing is left, is refused.
func TestElsewhere(t *testing.T) {
	rack := filepath.Join(t.TempDir(), "rack.yaml")
	if err := os.WriteFile(rack, []byte("gateway: {inner: eth1}\ndevices: {m1: root@10.5.0.2, m2: root@10.5.0.3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const ping = "probes: [ping: {from: h1, to: h2}]"
	read := func(text string) *experiment.Experiment {
		e, problems := experiment.Read("x.yaml", []byte(text), Vocabulary())
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		return e
	}
	check := func(text string) (*experiment.Plan, error) {
		e := read(text)
		if err := e.Move(rack); err != nil {
			return nil, err
		}
		p, problems := e.Plan()
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		return p, Check(p)
	}
	const switches = "datapath: embedded, controller: trivet}\n"
	for text, want := range map[string]string{
		"topology: 'linear,${n}'\nlab: {" + switches + "factors: {n: [2, 4]}\n" + ping:                                           "n=4 (1 of 2 runs): h3: the 2 machines take 2 hosts, which are there already; and so it is with 1 more",
		"topology: linear,2\nlab: {pin_nodes: '${p}', " + switches + "factors: {p: [none, 0]}\n" + ping:                          "p=0 (1 of 2 runs): isolate and pins are for labs on one machine",
		"topology: linear,2\nlab: {target: '${x}', datapath: bridge, controller: none}\nfactors: {x: [local, mininet]}\n" + ping: "x=mininet (1 of 2 runs): Mininet runs on one machine, not on rack.yaml",
		"topology: linear,2\nlab: {" + switches + "probes: [[ping: {from: h1, to: h2}, controller_packets: {time: 1s}]]":         "probe controller_packets (1 of 1 run): controller_packets listens to controllers",
	} {
		p, err := check(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		found := false
		for _, line := range p.MissingText() {
			found = found || strings.HasPrefix(line, "left out: "+want)
		}
		if !found {
			t.Errorf("%s: %q, want %q", text, p.MissingText(), want)
		}
		for i := range p.Cells {
			if o := p.Cells[i].Lab.Options; o["target"] != "mininet" && (o["target"] != "sites" || o["on"] != rack) {
				t.Errorf("%s: %s is at %s, %s", text, p.Cells[i].ID, o["target"], o["on"])
			}
		}
		if e := read(text); e.On != "" {
			t.Errorf("%s is elsewhere without being moved", text)
		}
	}
	for text, want := range map[string]string{
		"topology: linear,4\nlab: {" + switches + ping:                                   "nothing of this experiment can run",
		"topology: linear,2\nlab: {target: sites, on: machines.yaml, " + switches + ping: "leave --on out",
	} {
		if _, err := check(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestProgramsElsewhere proves that a program which one of the machines does not have costs the
// cells whose probes run it there, with the reason, and no others; and that where every cell needs
// it, nothing begins.
func TestProgramsElsewhere(t *testing.T) {
	rack := filepath.Join(t.TempDir(), "rack.yaml")
	if err := os.WriteFile(rack, []byte("gateway: {inner: eth1}\ndevices: {m1: root@10.5.0.2, m2: root@10.5.0.3, m3: root@10.5.0.4}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plan := func(probes string) *experiment.Plan {
		e, problems := experiment.Read("x.yaml", []byte(`
topology: {nodes: {h1: {host: {on: m1}}, h2: {host: {on: m2}}, h3: {host: {on: m3}}, s1: switch}, links: ["s1 -- h[1-3]"]}
lab: {datapath: embedded, controller: trivet}
factors: {to: [h1, h3]}
`+probes), Vocabulary())
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		if err := e.Move(rack); err != nil {
			t.Fatal(err)
		}
		p, problems := e.Plan()
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		return p
	}
	place := &environment.Place{Target: "sites", On: "rack.yaml", Machines: map[string]environment.Record{
		"m1": {}, "m2": {}, "m3": {Missing: []string{"iperf3: it is not installed"}}}}
	places := map[string]*environment.Place{"rack": place}

	p := plan("probes: [iperf3: {from: h2, to: '${to}'}, ping: {from: h2, to: '${to}'}]")
	if err := LeaveOutThere(p, places); err != nil {
		t.Fatal(err)
	}
	want := "left out: probe iperf3 where to=h3 (1 of 2 runs): iperf3: iperf3 is not installed at m3:  install it there"
	if lines := p.MissingText(); len(lines) != 1 || lines[0] != want {
		t.Errorf("%q, want %q", lines, want)
	}
	place.Machines["m2"] = place.Machines["m3"]
	if err := LeaveOutThere(plan("probes: [iperf3: {from: h2, to: '${to}'}]"), places); err == nil {
		t.Error("nothing is left, and that is no error")
	}
}
