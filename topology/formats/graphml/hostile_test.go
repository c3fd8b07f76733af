package graphml

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// TestProblems proves that each error in a file is reported at its line, with what to do.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ what, data, want string }{
		{"an empty file", "", "z.graphml:1:1  there is no graphml element"},
		{"not XML", "emu: 1", "z.graphml:1:7  there is no graphml element"},
		{"another root", "<html/>", "the root element is html, not graphml"},
		{"a cut-off file", string(zoo(node("0", "a", "")))[:550], "unexpected EOF; a GraphML file is XML"},
		{"no nodes", string(zoo("")), "the graph has no nodes"},
		{"no id", string(zoo("<node/>")), "z.graphml:6:8  the node has no id"},
		{"an id twice", string(zoo(node("0", "a", "") + node("0", "b", ""))), `z.graphml:7:14  there is already a node with the id "0", at line 6`},
		{"an edge to nowhere", string(zoo(node("0", "a", "") + edge("0", "9", ""))), `the edge ends at a node "9", which is not in the graph`},
		{"elements that cross", "<graphml><graph></graphml>", "element <graph> closed by </graphml>"},
		{"another encoding", `<?xml version="1.0" encoding="latin1"?><graphml/>`, "the encoding latin1 is not known; a GraphML file is XML in UTF-8"},
		{"invalid UTF-8", string(zoo(node("0", "a\xff", ""))), "invalid UTF-8"},
		{"an unknown entity", string(zoo(node("0", "&uuml;", ""))), "invalid character entity &uuml;"},
		{"an entity bomb", `<!DOCTYPE graphml [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><graphml>&b;</graphml>`, "a DOCTYPE is refused"},
		{"an external entity", `<?xml version="1.0"?><!DOCTYPE graphml [<!ENTITY a SYSTEM "file:///etc/passwd">]><graphml><graph><node id="&a;"/></graph></graphml>`, "a DOCTYPE is refused"},
		{"a late DOCTYPE", `<graphml><!DOCTYPE x><graph/></graphml>`, "a DOCTYPE is refused"},
	} {
		_, problems := Read("z.graphml", []byte(c.data), formats.Options{})
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got\n%v\nwant\n%s", c.what, err, c.want)
		}
	}
}

// TestLeftOut proves that features of GraphML that the Zoo does not use are left out with a
// warning, not misread.
func TestLeftOut(t *testing.T) {
	top, problems := Read("z.graphml", zoo(
		`<node id="0"><port name="p"/><graph><node id="inner"/></graph><data key="d33">a<shape><x>9</x></shape>b</data></node>`+
			`<hyperedge><endpoint node="0"/></hyperedge><data key="nope">x</data></graph><graph><node id="second"/>`), formats.Options{})
	if err := problems.Err(); err != nil || len(top.Nodes) != 2 || top.Nodes[0].Name != "ab" {
		t.Fatalf("%v, %v", err, top)
	}
	for _, w := range []string{"a graph within a node is left out", "a hyperedge element is left out", "only the first graph"} {
		if !strings.Contains(problems.Error(), w) {
			t.Errorf("missing %q in\n%v", w, problems)
		}
	}
}

// TestHostile proves that any file makes Read either succeed or report a problem, at a bounded
// cost.
func TestHostile(t *testing.T) {
	var many strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&many, `<node id="%d"><data key="d33">same</data></node>`, i)
	}
	for what, data := range map[string][]byte{
		"deep elements":       []byte("<graphml>" + strings.Repeat("<a>", 3<<20)),
		"deep data":           zoo(`<node id="0"><data key="d33">` + strings.Repeat("<a>", 3<<20)),
		"deep graphs":         zoo(strings.Repeat(`<node id="0"><graph>`, 1<<18)),
		"millions of nodes":   zoo(strings.Repeat("<node/>", 5<<20/7)),
		"an attribute of 10M": zoo(`<node id="` + strings.Repeat("x", 10<<20) + `"/><edge source="x"/>`),
		"zero bytes":          make([]byte, 1<<20),
		"a label of 10 MB":    zoo(node("0", strings.Repeat("é", 5<<20), "") + "<node/>"),
		"one label for many":  zoo(many.String() + "<node/>"),
	} {
		if _, problems := Read("z.graphml", data, formats.Options{}); problems.Err() == nil {
			t.Errorf("%s: no problem", what)
		}
	}
}

// FuzzRead proves that what is read without an error has valid, unique names and links between
// existing nodes: it validates.
func FuzzRead(f *testing.F) {
	data, err := os.ReadFile(example)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:bytes.Index(data, []byte("<node id=\"3\">"))])
	f.Add(zoo(node("0", "Wien", at("48.21", "16.37")) + node("1", "h1", at("50", "14")) + edge("0", "1", `<data key="d36">1e9</data>`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		top, problems := Read("z.graphml", data, formats.Options{})
		if problems.Err() != nil {
			return
		}
		if err := topology.Validate(top).Err(); err != nil {
			t.Fatal(err)
		}
	})
}
