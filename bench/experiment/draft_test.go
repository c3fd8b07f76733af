package experiment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

var trivetDefaults = topology.Defaults{Datapath: topology.Embedded, Controller: "trivet"}

// TestDraftOfEachProbe proves that an experiment is written for every probe that there is, with all
// that the probe cannot do without, and can be run.
func TestDraftOfEachProbe(t *testing.T) {
	for _, k := range Trivets().Probes {
		d := Draft{File: "x.yaml", Topology: "line", Vary: []string{"switches=2,3"}, Probes: []string{k.Name}, Repetitions: 3}
		text, err := d.Write(Trivets(), trivetDefaults)
		if err != nil {
			t.Errorf("%s: %v", k.Name, err)
			continue
		}
		e, problems := Read("x.yaml", []byte(text), Trivets())
		if problems.Err() != nil {
			t.Fatal(problems)
		}
		p, problems := e.Plan()
		if problems.Err() != nil || len(p.Runs) != 6 || p.Cells[1].Lab.Generate != "line,3" || p.Cells[0].Groups[0][0].Kind != k.Name {
			t.Errorf("%s: %v\n%s", k.Name, problems, text)
		}
	}
}

// TestDraftPlaces proves that what is varied goes where its name belongs, and that probes measure
// between the first host and the last that is there in each cell.
func TestDraftPlaces(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "lab.yaml")
	if err := os.WriteFile(file, []byte("nodes: {s1: switch, left: host, right: host}\nlinks: [s1 -- left, s1 -- right]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		topology, vary, probe string
		want                  []string
	}{
		{"linear", "switches=2,4", "ping", []string{`"linear,${switches}"`, `{from: h1, to: "h${switches}"}`, "switches: [2, 4]"}},
		{"tree,2", "fanout=2,3", "ping", []string{`"tree,2,${fanout}"`, "{from: h1, to: h4}"}},
		{"tree", "depth=1,2", "ping", []string{`"tree,${depth}"`, "{from: h1, to: h2}"}},
		{"line,2", "datapath=embedded,bridge", "ping", []string{`lab: {datapath: "${datapath}"}`}},
		{"line,2", "delay=1ms,5ms", "ping", []string{`links: {delay: "${delay}"}`, "[1ms, 5ms]"}},
		{"line,2", "size=64,512", "packets rate=500", []string{`packets: {from: h1, to: h2, rate: 500, size: "${size}"}`}},
		{"line,2", "time=1s,2s", "iperf3", []string{"for_time: [1s, 2s]", `time: "${for_time}"`}},
		{"line,${n}", "n=1,2", "iperf3 time=3s", []string{`"line,${n}"`, "{from: h1, to: h2, time: 3s}"}},
		{"line", "", "ping", []string{"topology: \"line,4\"", "ping: {from: h1, to: h2}"}},
		{"lab.yaml", "", "ping", []string{"topology: lab.yaml", "{from: left, to: right}"}},
		{"ring,4", "", "convergence", []string{`- "at 3s: s2 -- s1 down"`}},
	} {
		d := Draft{File: filepath.Join(dir, "x.yaml"), Topology: c.topology, Probes: []string{c.probe}, Repetitions: 2}
		if c.vary != "" {
			d.Vary = []string{c.vary}
		}
		text, err := d.Write(Trivets(), trivetDefaults)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s %s: there is no %s in\n%s", c.topology, c.vary, want, text)
			}
		}
	}
}

// TestDraftErrors proves that what cannot be an experiment is refused with what to write instead.
func TestDraftErrors(t *testing.T) {
	for _, c := range []struct{ topology, vary, probe, want string }{
		{"line,2", "", "pnig", "did you mean ping"},
		{"line,2", "", "ping cuont=3", "did you mean count"},
		{"line,2", "szie=1,2", "packets", "did you mean size"},
		{"line,2", "switches", "ping", "names no levels"},
		{"line,2", "switches=2,x", "ping", "it is not clear what switches is"},
		{"tree,2", "switches=2,4", "ping", "it is not clear what switches is"},
		{"linear,1", "", "ping", "has 1 host, and a probe needs two"},
		{"line,1", "", "convergence", "there is none between switches or routers"},
		{"nowhere.yaml", "", "ping", "nowhere.yaml"},
		{"line,2", "size=64,many", "packets", "many"},
	} {
		d := Draft{File: "x.yaml", Topology: c.topology, Probes: []string{c.probe}, Repetitions: 2}
		if c.vary != "" {
			d.Vary = []string{c.vary}
		}
		if _, err := d.Write(Trivets(), trivetDefaults); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
