package c3edge

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// TestProblems proves that each error in a file is reported where it is, with what to do.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ what, data, want string }{
		{"no emu", "hosts: {}\n", "f.yml:1:1  there is no emu; write emu: with hosts"},
		{"two documents", "emu: {}\n---\nemu: {}\n", "f.yml:2:1  a second document begins here; write one topology a file"},
		{"an empty file", "", "f.yml:1:1  there is no emu"},
		{"an empty emulation", "emu:\n  hosts: {}\n", "the emulation has no nodes"},
		{"bad YAML", "emu:\n  hosts: [\n", "f.yml:2  not YAML: did not find expected node content; close the bracket, or write a value"},
		{"a host twice", "emu:\n  hosts:\n    a: {ip: 1.1}\n    a: {ip: 1.2}\n", "f.yml:4:5  "},
		{"hosts as a list", "emu:\n  hosts:\n    - a\n", `f.yml:3:5  hosts: a list is not a mapping`},
		{"links as a mapping", "emu:\n  hosts: {a: {ip: 1.1}}\n  links: {src: a}\n", "f.yml:3:10  links: a mapping is not a list"},
		{"no address", "emu:\n  hosts:\n    a: {node: b}\n", "f.yml:3:5  host a has no ip; write ip: 1.100/16"},
		{"another prefix", "emu:\n  hosts:\n    a: {ip: 1.100/24}\n", `f.yml:3:13  host a: ip "1.100/24" is not an address of the emulation`},
		{"an address of three bytes", "emu:\n  hosts:\n    a: {ip: 0.1.100}\n", "is not an address of the emulation"},
		{"the network's address", "emu:\n  hosts:\n    a: {ip: 0.0/16}\n", "is not an address of the emulation"},
		{"a template", "emu:\n  hosts:\n    a: {ip: \"{{ x }}\"}\n", `f.yml:3:13  host a: ip: "{{ x }}" is an Ansible template`},
		{"a bad dpid", "emu:\n  switches:\n    s: {dpid: x}\n", `f.yml:3:15  switch s: "x" is not a datapath id`},
		{"a bad controller", "emu:\n  switches:\n    s: {ctrl: \"tcp:127.0.0.1\"}\n", `f.yml:3:15  switch s: "tcp:127.0.0.1" is not a controller's address`},
		{"half a link", "emu:\n  links:\n    - {src: a}\n", "f.yml:3:7  the link is missing an end; write src: bs1 and dest: mobile1"},
		{"a bad delay", "emu:\n  links:\n    - {src: a, dest: b, delay: soon}\n", `f.yml:3:32  link a-b: delay: "soon" is not a time span`},
		{"a bad loss", "emu:\n  links:\n    - {src: a, dest: b, loss: 101}\n", `link a-b: loss: "101%" is not a share`},
		{"a bad bandwidth", "emu:\n  links:\n    - {src: a, dest: b, bw: [1]}\n", "link a-b: bw: a list is not a single value"},
		{"a value by an alias", "x: &x [1]\nemu:\n  hosts:\n    a: {ip: *x}\n", "f.yml:4:13  host a: ip: a list is not a single value"},
		{"an unknown anchor", "emu: *x\n", "f.yml:1  not YAML: unknown anchor 'x'"},
		{"invalid UTF-8", "emu:\n  \xff: 1\n", "f.yml:2:3  this is not text: there is a byte 0xff; a topology file is YAML in UTF-8"},
	} {
		_, problems := Read("f.yml", []byte(c.data), formats.Options{})
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got\n%v\nwant\n%s", c.what, err, c.want)
		}
	}
}

// TestHostile proves that any file makes Read either succeed or report a problem, at a bounded
// cost.
func TestHostile(t *testing.T) {
	bomb := "a0: &a0 [x, x]\n"
	for i := range 40 {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	for what, data := range map[string]string{
		"deep brackets":   "emu: " + strings.Repeat("[", 1<<20-100),
		"deep mappings":   "emu: " + strings.Repeat("{a: ", 1<<18),
		"deep dashes":     "emu:\n" + strings.Repeat("- ", 1<<19-100) + "x\n",
		"deep indents":    "emu:\n" + stairs(900),
		"a line of 10 MB": "emu: {hosts: {" + strings.Repeat("a: {ip: 1.1}, ", 10<<20/14) + "}}",
		"zero bytes":      string(make([]byte, 1<<19)),
		"a circle":        "emu: &a *a\n",
	} {
		if _, problems := Read("f.yml", []byte(data), formats.Options{}); problems.Err() == nil {
			t.Errorf("%s: no problem", what)
		}
	}
	// Aliases of aliases are not expanded exponentially.
	top, problems := Read("f.yml", []byte(bomb+"emu: {hosts: {a: {ip: 1.1}}}\n"), formats.Options{})
	if problems.Err() != nil || len(top.Nodes) != 1 || !strings.Contains(problems.Error(), `"a40" is too large to be kept`) {
		t.Errorf("aliases: %v", problems)
	}
	// Nor are keys that come from aliases, if there are many of both.
	var many strings.Builder
	many.WriteString("x: &x {ip: 1.1")
	for i := range 2000 {
		fmt.Fprintf(&many, ", k%d: 1", i)
	}
	many.WriteString("}\nemu:\n  hosts:\n")
	for i := range 2000 {
		fmt.Fprintf(&many, "    h%d: *x\n", i)
	}
	_, problems = Read("f.yml", []byte(many.String()), formats.Options{})
	if err := problems.Err(); err == nil || !strings.Contains(err.Error(), "this expands to more than 1000000 values; use fewer aliases") {
		t.Errorf("keys of aliases: %.500v", err)
	}
	data, err := os.ReadFile("testdata/full.yml")
	if err != nil {
		t.Fatal(err)
	}
	for end := range len(data) {
		Read("f.yml", data[:end], formats.Options{}) // must return
	}
}

func stairs(steps int) string {
	var b strings.Builder
	for i := range steps {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i+1))
	}
	return b.String()
}

// FuzzRead proves that what is read without an error can be written, and that the written file
// reads as the same network.
func FuzzRead(f *testing.F) {
	for _, file := range []string{"testdata/full.yml", "../../../examples/c3-edge.yml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("emu:\n  switches: {0}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		top, problems := Read("f.yml", data, formats.Options{})
		if problems.Err() != nil || topology.Validate(top).Err() != nil {
			return
		}
		first, losses, err := Write(top)
		if err != nil {
			t.Fatalf("%v\n%s", err, first)
		}
		back, problems := Read("f.yml", first, formats.Options{})
		if problems.Err() != nil {
			t.Fatal(problems.Err())
		}
		for i, n := range top.Nodes { // the file fixes what Resolve would assign
			if n.DPID == 0 && i < len(back.Nodes) {
				n.DPID = back.Nodes[i].DPID
			}
		}
		if len(losses) == 0 {
			if changes := topology.Diff(top, back); len(changes) > 0 {
				t.Fatal("changed, but nothing is reported lost: ", changes)
			}
		}
		second, _, err := Write(back)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("written again, the file is another: %v\n%s\n%s", err, first, second)
		}
	})
}
