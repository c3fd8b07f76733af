package topology

import (
	"strings"
	"testing"
)

// TestNodeFiles proves that files are given to containers only, at paths that are theirs: not the
// lab's, the kernel's or those of directories of the machine, none in another's place; and that
// what is no text, or too much, is refused.
func TestNodeFiles(t *testing.T) {
	with := func(files ...NodeFile) func(*Node) {
		return func(n *Node) { n.Image, n.Files = "x", files }
	}
	at := func(paths ...string) func(*Node) {
		var files []NodeFile
		for _, p := range paths {
			files = append(files, NodeFile{Path: p, TextFile: TextFile{File: "x"}})
		}
		return with(files...)
	}
	for _, c := range []struct {
		says   string
		change func(*Node)
	}{
		{"", at("/etc/nginx/nginx.conf", "/etc/hosts2", "/etcetera")},
		{"", with(NodeFile{Path: "/x", TextFile: TextFile{File: "empty"}}, NodeFile{Path: "/y", TextFile: TextFile{Text: "a\nb"}})},
		{"host h1: files: they are for containers; this node has the files of its machine; show a file of the machine's there", func(n *Node) { n.Files = []NodeFile{{Path: "/x", TextFile: TextFile{File: "x"}}} }},
		{"host h1: files: they are for containers, and this is a virtual machine", func(n *Node) {
			n.Guest, n.Files = &Guest{Image: "x"}, []NodeFile{{Path: "/x", TextFile: TextFile{File: "x"}}}
		}},
		{`files: "etc/x" cannot be a file of the node`, at("etc/x")},
		{`files: "/etc/../x" cannot be`, at("/etc/../x")},
		{`files: "/etc/" cannot be`, at("/etc/")},
		{`files: "/" cannot be`, at("/")},
		{`cannot be a file of the node`, at("/a\x00b")},
		{`cannot be a file of the node`, at("/a\x1b[2J")},
		{`cannot be a file of the node`, at("/" + strings.Repeat("a", 5000))},
		{"files: /x is there twice", at("/x", "/x")},
		{"files: /x and /x/y cannot both be files", at("/x", "/x/y")},
		{"files: /x/y and /x cannot both be files", at("/x/y", "/x")},
		{"files: /etc/hosts is not the node's own", at("/etc/hosts")},
		{"files: /.trivet/wait is not the node's own", at("/.trivet/wait")},
		{"files: /proc/1/mem is not the node's own: /proc is", at("/proc/1/mem")},
		{"files: /etc/x/y and /etc/x/ of dirs are in each other's place", func(n *Node) {
			at("/etc/x/y")(n)
			n.Dirs = []PrivateDir{{Path: "/etc/x/"}}
		}},
		{"/tmp/y and /tmp of dirs are in each other's place", func(n *Node) { at("/tmp/y")(n); n.Dirs = []PrivateDir{{Path: "/tmp"}} }},
		{"/tmp/y/z of dirs are in each other's place", func(n *Node) { at("/tmp/y")(n); n.Dirs = []PrivateDir{{Path: "/tmp/y/z"}} }},
		{`files: /x: "../x" cannot be its file`, with(NodeFile{Path: "/x", TextFile: TextFile{File: "../x"}})},
		{`files: /x: "/etc/shadow" cannot be its file`, with(NodeFile{Path: "/x", TextFile: TextFile{File: "/etc/shadow"}})},
		{`files: /x: "" cannot be its file`, with(NodeFile{Path: "/x"})},
		{"files: /x: x is not text", with(NodeFile{Path: "/x", TextFile: TextFile{File: "x", Text: "\xff"}})},
		{"files: /x: x is not text", with(NodeFile{Path: "/x", TextFile: TextFile{File: "x", Text: "a\x00"}})},
		{"files: /x: x has more than 1 MiB", with(NodeFile{Path: "/x", TextFile: TextFile{File: "x", Text: strings.Repeat("a", MaxConfigFile+1)}})},
		{"files: there are 65, and a node can be given 64", with(make([]NodeFile, MaxNodeFiles+1)...)},
	} {
		top := &Topology{}
		c.change(top.AddNode(Host, "h1"))
		got := ""
		if err := Validate(top).Err(); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.says) || c.says == "" && got != "" {
			t.Errorf("want %q, got %q", c.says, got)
		}
	}
}

// TestNodeFilesDiffer proves that a file differs by its text and its permissions, and by nothing
// else, and that what is shown of that is not the text; that root's putting it there is told, and
// that a refused container has none.
func TestNodeFilesDiffer(t *testing.T) {
	top := &Topology{}
	n := top.AddNode(Host, "h1")
	n.Image, n.Files = "x", []NodeFile{{Path: "/etc/x", TextFile: TextFile{File: "a", Text: "secret\n"}, Mode: 0o600}}
	for what, change := range map[string]func(*NodeFile){
		"":      func(f *NodeFile) { f.File = "elsewhere" },
		"text":  func(f *NodeFile) { f.Text = "other\n" },
		"mode":  func(f *NodeFile) { f.Mode = 0o644 },
		"empty": func(f *NodeFile) { f.Text = "" },
	} {
		other := top.Clone()
		change(&other.Nodes[0].Files[0])
		changes := Diff(top, other)
		if (len(changes) == 1) != (what != "") {
			t.Errorf("another %s: %v", what, changes)
		}
		for _, c := range changes {
			if len(c.Fields) != 1 || c.Fields[0].Name != "files./etc/x" || strings.Contains(c.String(), "secret") {
				t.Errorf("another %s: %s", what, c)
			}
		}
	}
	errands := top.Errands(nil)
	if len(errands) != 2 || errands[0].Kind != ErrandFile || errands[0].What != "a as /etc/x" || errands[0].IsCommand() {
		t.Errorf("errands are %v", errands)
	}
	kept := top.Clone()
	if kept.Refuse(errands[:1], nil); len(kept.Nodes[0].Files) > 0 || !kept.Nodes[0].Contained() {
		t.Errorf("without its file the node is %+v", kept.Nodes[0])
	}
	kept = top.Clone()
	if kept.Refuse(errands[1:], nil); len(kept.Nodes[0].Files) > 0 || Validate(kept).Err() != nil {
		t.Errorf("without its container the node is %+v", kept.Nodes[0])
	}
}
