package trivet

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// bombs are files, small or large, that expand to far too much, or are not topologies at all.
func bombs() map[string]string {
	var laughs strings.Builder
	laughs.WriteString("x-a0: &a0 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&laughs, "x-a%d: &a%d [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10))
	}
	options := "{host: {cores: [" + strings.Repeat("1, ", 100_000) + "]}}"
	return map[string]string{
		"aliases in aliases":    laughs.String() + "nodes: {h1: host}",
		"a range too long":      "nodes:\n  h[1-999999999]: host",
		"numbers too long":      "nodes:\n  h[1-99999999999999999999999]: host",
		"ranges times ranges":   "nodes:\n  h[1-10000]x[1-10000]x[1-10000]: host",
		"many long ranges":      "nodes:\n  h[1-600000]: host\n  g[1-600000]: host\n",
		"long lists on ranges":  "nodes:\n  h[1-100000]: " + options,
		"links of long ranges":  "nodes: {h1: host}\nlinks:\n  - a -- b[1-900000]\n  - a -- b[1-900000]",
		"chains of long ranges": "nodes: {h1: host}\nlinks:\n  - " + strings.Repeat("b[1-900000] -- ", 1000) + "c",
		"a long line":           "name: " + strings.Repeat("x", 15<<20),
		"a long key":            strings.Repeat("x", 15<<20) + ": 1",
		"a long text":           "name: \"" + strings.Repeat("x\\n", 5<<20),
		"a long wrong value":    "subnet: " + strings.Repeat("x", 15<<20) + "\nnodes: {h1: host}",
	}
}

// TestBombs proves that files that expand to too much are refused with a short message, without
// using memory in proportion. (That this takes seconds at most shows in the time that the test
// takes; it contains no clock.)
func TestBombs(t *testing.T) {
	for name, text := range bombs() {
		t.Run(name, func(t *testing.T) {
			_, problems := Read("t.yaml", []byte(text))
			if problems.Err() == nil {
				t.Fatal("was accepted")
			}
			if message := problems[0].String(); len(message) > 400 {
				t.Errorf("the message has %d bytes: %.200s…", len(message), message)
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			if m.Sys > 3<<30 {
				t.Errorf("needs %d MiB", m.Sys>>20)
			}
			runtime.GC()
		})
	}
}

// TestMany proves that as many nodes and links as allowed can be read.
func TestMany(t *testing.T) {
	got, problems := Read("t.yaml", []byte("nodes:\n  s1: switch\n  h[1-300000]: host\nlinks:\n  - s1 -- h[1-300000]\n"))
	if len(problems) > 0 || len(got.Nodes) != 300_001 || len(got.Links) != 300_000 {
		t.Fatal(problems)
	}
}

// FuzzRead proves that no file makes the reader panic, and that what it accepts can be written and
// read again. An edit of such a file gives the changed topology (SetLink checks that) or an error.
func FuzzRead(f *testing.F) {
	for _, text := range bombs() {
		if len(text) < 10_000 {
			f.Add([]byte(text))
		}
	}
	for _, text := range examples(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newReader("t.yaml", data, limits{items: 100, work: 10_000})
		first := r.t
		if r.problems.Err() != nil {
			return
		}
		if len(first.Links) > 0 {
			delay := topology.Duration(1000)
			ends := first.Links[len(first.Links)-1].Ends
			_, _ = SetLink(data, ends[0].Node, ends[1].Node, topology.LinkChange{Delay: &delay})
		}
		text, losses, err := Write(first)
		if err != nil || len(losses) > 0 {
			return
		}
		second, problems := Read("t.yaml", text)
		if problems.Err() != nil {
			t.Fatalf("%s\n%s", problems, text)
		}
		if a, b := asText(withoutPositions(first)), asText(withoutPositions(second)); a != b {
			t.Fatalf("%s\n%s\n%s", text, a, b)
		}
	})
}
