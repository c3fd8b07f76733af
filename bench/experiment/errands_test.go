package experiment

import (
	"os"
	"path/filepath"
	"testing"
)

// TestErrandsOnMachines proves that an experiment asks about a setting of a stranger's file which
// is harmless in a lab's own network, where its hosts may be machines of a rack; and that it leaves
// such a setting out where commands are not wanted.
func TestErrandsOnMachines(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"lab.mn": `{"version": "2", "hosts": [{"number": "1", "x": "1", "y": "1", "opts": {"hostname": "h1", "nodeNum": 1, "sched": "host", "startCommand": "ip neigh replace 10.42.0.1 lladdr 02:00:00:00:00:09 dev eth0 nud permanent"}}],
			"switches": [], "controllers": [], "links": []}`,
		"rack.yaml":  "gateway: {inner: eth1}\ndevices: {pi: 10.42.0.2}\n",
		"sites.yaml": "machines: {pi: 10.42.0.2}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for lab, want := range map[string]int{"": 0, "target: sites, on: sites.yaml": 0, "target: sites, on: rack.yaml": 1, "target: sites, on: none-such.yaml": 1} {
		for _, refused := range []bool{false, true} {
			topology := "lab.mn"
			if refused {
				topology = "{file: lab.mn, run_commands: false}"
			}
			text := "topology: " + topology + "\nprobes: [up_down]\nlab: {" + lab + "}\n"
			e, problems := Read(filepath.Join(dir, "x.yaml"), []byte(text), Trivets())
			if err := problems.Err(); err != nil {
				t.Fatal(text, err)
			}
			p, problems := e.Plan()
			if err := problems.Err(); err != nil {
				t.Fatal(text, err)
			}
			if !refused {
				if got := p.Asking(); len(got) != want {
					t.Errorf("%q: %v", lab, got)
				}
				continue
			}
			top, _ := p.Cells[0].Lab.source(dir)
			if top == nil {
				t.Fatalf("%q: no topology", lab)
			}
			if left := top.Node("h1").Start == ""; left != (want == 1) || top.Node("h1").Native {
				t.Errorf("%q: the command is %q, native %t", lab, top.Node("h1").Start, top.Node("h1").Native)
			}
		}
	}
}
