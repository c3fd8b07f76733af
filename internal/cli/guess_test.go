package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrongKind proves that a command that got a file of another kind, or a generator, says what it
// is and names the command for it, and does nothing.
func TestWrongKind(t *testing.T) {
	t.Chdir(t.TempDir())
	for file, text := range map[string]string{
		"lab.mn":     `{"hosts": [], "switches": [], "links": [], "controllers": []}`,
		"lab.yaml":   "nodes: {h1: host, h2: host}\nlinks: [h1 -- h2]\n",
		"flow.yaml":  "{nodes: {h1: host, h2: host}, links: [h1 -- h2]}\n",
		"ce.yml":     "emu: {}\n",
		"exp.yaml":   "title: x\ntopology: line,2\nprobes: [ping]\n",
		"rack.yaml":  "machines: {a: {address: 10.0.0.1}}\n",
		"x.clab.yml": "name: x\ntopology:\n  nodes: {a: {kind: linux}}\n",
		"custom.py":  "topos = {'mytopo': None}\n",
		"s.sh":       "#!/bin/sh\necho no\n",
		"data":       `{"a": 1}`,
		"k/lab.conf": "r1[0]=A\n",
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"run lab.mn":                "lab.mn is a topology (MiniEdit .mn):  sudo trivet up lab.mn",
		"run lab.yaml":              "lab.yaml is a topology:  sudo trivet up lab.yaml",
		"run flow.yaml":             "flow.yaml is a topology:",
		"run tree,2":                "tree,2 is a generator:  sudo trivet up tree,2",
		"run exp.yaml":              "exp.yaml is an experiment:  sudo trivet bench run exp.yaml",
		"run s.sh":                  "s.sh is a program for /bin/sh; run it by itself",
		"run data":                  "data is data (JSON); a topology in JSON ends in .mn",
		"run k":                     "k is a topology (Kathará lab.conf):  sudo trivet up k",
		"run nosuch":                "nosuch: no such file or directory",
		"up exp.yaml":               "exp.yaml is an experiment:  sudo trivet bench run exp.yaml",
		"run x.clab.yml":            "x.clab.yml is a topology (containerlab):  sudo trivet up x.clab.yml",
		"up lab":                    `there is no generator "lab"; did you mean the file lab.yaml?`,
		"validate rack.yaml":        "rack.yaml is a list of machines:  sudo trivet up TOPOLOGY --on rack.yaml",
		"convert exp.yaml o.yaml":   "exp.yaml is an experiment:",
		"graph s.sh":                "s.sh is a program for /bin/sh;",
		"bench run lab.yaml":        "lab.yaml is a topology:  sudo trivet up lab.yaml",
		"bench report exp.yaml":     "exp.yaml is an experiment:",
		"rack check ce.yml":         "ce.yml is a topology:",
		"down lab.yaml":             "lab.yaml is a topology:  sudo trivet up lab.yaml",
		"top minimal":               "minimal is a generator:  sudo trivet up minimal",
		"lab.mn":                    "lab.mn is a topology (MiniEdit .mn):  sudo trivet up lab.mn",
		"up minimal --on lab.yaml":  "--on lab.yaml: that is a topology; --on takes a list of machines",
		"what-is mn tree,2":         "tree,2 is a generator:  sudo trivet mn --topo tree,2",
		"what-is mn custom.py":      "or for what it defines  sudo trivet mn --custom custom.py --topo NAME",
		"up lab.yaml --datapath xy": "--datapath xy: choose one of", // the file is right, and so it is not about the file
	} {
		var said bytes.Buffer
		root := (&app{out: &said, err: &said}).root()
		root.SetArgs(strings.Fields(line))
		if err := root.Execute(); err != nil {
			said.WriteString(err.Error())
		}
		if !strings.Contains(said.String(), want) {
			t.Errorf("%s\ngot  %s\nwant %s", line, said.String(), want)
		}
	}
	if !onlyDefines("custom.py") {
		t.Error("custom.py only defines topologies")
	}
}
