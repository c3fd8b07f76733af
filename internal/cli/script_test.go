package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEndFlags proves where Trivet's own flags end and a program's arguments begin, and that
// nothing changes for other files.
func TestEndFlags(t *testing.T) {
	for line, want := range map[string]string{
		"up net.py 2":                                "up net.py -- 2",
		"up net.py --bw 10 --name x":                 "up net.py -- --bw 10 --name x",
		"up --name x net.py --topo a,1 3 --datapath": "up --name x net.py --topo a,1 -- 3 --datapath",
		"up net.py --json -n 3":                      "up net.py --json -- -n 3",
		"up net.py --name=x --wait 3s":               "up net.py --name=x --wait 3s",
		"up net.py --help":                           "up net.py --help",
		"up net.py -h":                               "up net.py -h",
		"up net.py -- --name x":                      "up net.py -- --name x",
		"--lab x apply net.py 2 --dry-run":           "--lab x apply net.py -- 2 --dry-run",
		"up ring,4 --nodes router":                   "up ring,4 --nodes router",
		"up net.yaml 2 --wrong":                      "up net.yaml 2 --wrong",
		"convert net.py net.yaml 2 --fan 3":          "convert net.py net.yaml -- 2 --fan 3",
		"convert net.py --to trivet out":             "convert net.py --to trivet out",
		"graph net.py -o net.svg 4":                  "graph net.py -o net.svg -- 4",
		"validate a.py 2 b.py --fan 3":               "validate a.py 2 b.py -- --fan 3",
		"exec h1 python3 x.py --bw":                  "exec h1 python3 x.py --bw",
	} {
		root := (&app{out: os.Stdout, err: os.Stderr}).root()
		if got := endFlags(root, strings.Fields(line)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s\ngot  %s\nwant %s", line, strings.Join(got, " "), want)
		}
	}
}

// TestScriptArguments proves that a program gets its arguments from every command that reads files,
// and that other files take none.
func TestScriptArguments(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "net.py")
	program := `import argparse
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo
p = argparse.ArgumentParser()
p.add_argument('k', type=int)
p.add_argument('--extra', type=int, default=0)
a, _ = p.parse_known_args()
Mininet(SingleSwitchTopo(a.k + a.extra)).start()
`
	if err := os.WriteFile(file, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out.yaml")
	for line, want := range map[string]string{
		"validate FILE 3 --extra 1":          "5 nodes",
		"validate FILE 3 FILE 4":             "4 nodes, 3 links", // the last argument is a second file
		"inspect FILE 3 --extra 1":           "5 nodes",
		"convert FILE OUT 2 --extra 5":       "8 nodes",
		"graph FILE 2":                       "s1: h[1-2]",
		"validate FILE --name x 2":           "3 nodes",
		"validate FILE 2 --extra 1 --name x": "the script gets --name",
		"validate FILE":                      "the following arguments are required: k",
		"validate OUT 3":                     "no generator \"3\"",
	} {
		var buffer bytes.Buffer
		root := (&app{out: &buffer, err: &buffer}).root()
		line = strings.ReplaceAll(strings.ReplaceAll(line, "FILE", file), "OUT", out)
		root.SetArgs(endFlags(root, strings.Fields(line)))
		err := root.Execute()
		if err != nil {
			buffer.WriteString(err.Error())
		}
		if !strings.Contains(buffer.String(), want) {
			t.Errorf("%s: %v\n%s\nwant %s", line, err, buffer.String(), want)
		}
	}
}

// TestConvertValidates proves that a topology that is not valid, or would not be in the target
// format, is not converted, and that the command then fails.
func TestConvertValidates(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "net.yaml"), filepath.Join(dir, "net.mn")
	if err := os.WriteFile(file, []byte("nodes: {h1: host, s1: switch}\nlinks: [s1 -- h1, s1 -- h9]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	root := (&app{out: os.Stdout, err: os.Stderr}).root()
	root.SetArgs([]string{"convert", file, out})
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "there is no node h9") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("it was written all the same")
	}
}

// TestConvertElsewhere proves that a file that is written into another directory names the same
// directories of the machine.
func TestConvertElsewhere(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{"lab/lab.conf": "a[0]=A\na[volume]=/srv|/mnt\n", "lab/a/x": "", "out/none": ""} {
		file = filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for out, want := range map[string]string{"lab/lab.yaml": "/hostlab/a: a:ro", "out/lab.yaml": "/hostlab/a: ../lab/a:ro"} {
		out = filepath.Join(dir, out)
		root := (&app{out: io.Discard, err: io.Discard}).root()
		root.SetArgs([]string{"convert", filepath.Join(dir, "lab"), out})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out)
		if err != nil || !strings.Contains(string(text), want) || !strings.Contains(string(text), "/mnt: /srv:ro") {
			t.Errorf("%s: %v, want %s:\n%s", out, err, want, text)
		}
	}
}

// TestConvertTexts proves that a file in the directory above names the files with texts of nodes
// where they are, and that one in a directory beside has the texts themselves, and that what cannot
// be there is said to be lost; both are valid.
func TestConvertTexts(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{"lab/lab.yaml": `nodes:
  h1: {host: {config: {nft: h1.nft}, files: {/etc/a: a.conf, /etc/b: b.conf, /etc/none: none}, image: alpine}}
  v1: {host: {vm: {image: /i.qcow2, user_data: v1.yaml}}}
`, "lab/h1.nft": "table inet x {\n}\n", "lab/v1.yaml": "#cloud-config\nx: 1\n", "lab/a.conf": "as it is\n", "lab/b.conf": "no end", "lab/none": "", "out/x": ""} {
		file = filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for out, c := range map[string]struct{ has, lost []string }{
		"up.yaml":     {has: []string{"lab/h1.nft", "lab/v1.yaml", "lab/a.conf", "lab/b.conf", "lab/none"}},
		"out/to.yaml": {[]string{"table inet x {", "#cloud-config", "as it is", "no end"}, []string{"files: /etc/b (that the last", "files: /etc/none (none)"}},
	} {
		var said strings.Builder
		root := (&app{out: &said, err: io.Discard}).root()
		root.SetArgs([]string{"convert", filepath.Join(dir, "lab/lab.yaml"), filepath.Join(dir, out)})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, out))
		for _, want := range c.has {
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s: %v, want %s:\n%s", out, err, want, text)
			}
		}
		for _, want := range c.lost {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%s: it says %s, not %s", out, said.String(), want)
			}
		}
		if n := strings.Count(said.String(), "lost "); n != len(c.lost) {
			t.Errorf("%s: %d are lost: %s", out, n, said.String())
		}
		root.SetArgs([]string{"validate", filepath.Join(dir, out)})
		if err := root.Execute(); err != nil {
			t.Errorf("%s: %v: %s", out, err, said.String())
		}
	}
}
