package trivet

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trivet.dev/trivet/topology"
)

const editable = `# A comment at the top
name: edit   # and behind a value
defaults: {link: {bandwidth: 1gbit}}
x-fast: &fast {delay: 1ms}
nodes:
  h[1-9]: host
  s[1-2]: switch
links:
  # the hosts
  - s1 -- h[1-4]   # four of them
  - [s2 -- h5, "s2 -- h[6-8]"]
  - s1  --  s2: {delay: 10ms, loss: 0.1%}   # far
  - h1 -- h2:
      # a block
      delay: 5ms   # slow
      queue: 10
  - from: h2
    to: {node: h3, delay: 7ms}   # one way

  - h3 -- h4: *fast
  - h[4-5] -- h9:
      loss: 1%   # lossy
  - h5 -- h6: {}
  - h6 -- h7:
`

// TestSetLink proves that links are changed where they are written: each case has the lines removed
// and added.
func TestSetLink(t *testing.T) {
	for _, c := range []struct{ a, b, change, minus, plus string }{
		{"s1", "s2", "delay=25ms", "  - s1  --  s2: {delay: 10ms, loss: 0.1%}   # far", "  - s1  --  s2: {delay: 25ms, loss: 0.1%}   # far"},
		{"s2", "s1", "queue=5 down", "  - s1  --  s2: {delay: 10ms, loss: 0.1%}   # far", "  - s1  --  s2: {delay: 10ms, loss: 0.1%, queue: 5, down: true}   # far"},
		{"s2", "s1", "mtu=1400", "  - s1  --  s2: {delay: 10ms, loss: 0.1%}   # far", "  - s1  --  s2: {delay: 10ms, loss: 0.1%, mtu: 1400}   # far"},
		{"s1", "s2", "loss=none bandwidth=1gbit up", "  - s1  --  s2: {delay: 10ms, loss: 0.1%}   # far", "  - s1  --  s2: {delay: 10ms, loss: none}   # far"},
		{"s1", "h4", "delay=1ms", "  - s1 -- h[1-4]   # four of them", "  - s1 -- h[1-3]\n  - s1 -- h4: {delay: 1ms}   # four of them"},
		{"s1", "h1", "delay=1ms", "  - s1 -- h[1-4]   # four of them", "  - s1 -- h1: {delay: 1ms}\n  - s1 -- h[2-4]   # four of them"},
		{"s1", "h2", "delay=1ms", "  - s1 -- h[1-4]   # four of them", "  - s1 -- h1\n  - s1 -- h2: {delay: 1ms}\n  - s1 -- h[3-4]   # four of them"},
		{"s2", "h5", "down", `  - [s2 -- h5, "s2 -- h[6-8]"]`, `  - [{s2 -- h5: {down: true}}, "s2 -- h[6-8]"]`},
		{"s2", "h7", "down", `  - [s2 -- h5, "s2 -- h[6-8]"]`, `  - [s2 -- h5, s2 -- h6, {s2 -- h7: {down: true}}, s2 -- h8]`},
		{"h1", "h2", "delay=6ms", "      delay: 5ms   # slow", "      delay: 6ms   # slow"},
		{"h1", "h2", "loss=1%", "      queue: 10", "      queue: 10\n      loss: 1%"},
		{"h2", "h3", "delay=8ms", "  - from: h2\n    to: {node: h3, delay: 7ms}   # one way", "  - from: h2\n    delay: 8ms\n    to: {node: h3, delay: 8ms}   # one way"},
		{"h3", "h4", "delay=2ms", "  - h3 -- h4: *fast", "  - h3 -- h4: {<<: *fast, delay: 2ms}"},
		{"h4", "h9", "delay=2ms", "  - h[4-5] -- h9:", "  - h4 -- h9: {loss: 1%, delay: 2ms}\n  - h5 -- h9:"},
		{"h5", "h9", "delay=2ms", "  - h[4-5] -- h9:\n      loss: 1%   # lossy", "  - h4 -- h9: {loss: 1%}\n  - h5 -- h9:\n      loss: 1%   # lossy\n      delay: 2ms"},
		{"h5", "h6", "delay=2ms", "  - h5 -- h6: {}", "  - h5 -- h6: {delay: 2ms}"},
		{"h6", "h7", "delay=2ms", "  - h6 -- h7:", "  - h6 -- h7: {delay: 2ms}"},
	} {
		change, err := topology.ParseLinkChange(strings.Fields(c.change))
		if err != nil {
			t.Fatal(err)
		}
		for _, lineEnd := range []string{"\n", "\r\n"} {
			text := strings.ReplaceAll(editable, "\n", lineEnd)
			want := strings.ReplaceAll(strings.Replace(editable, c.minus+"\n", c.plus+"\n", 1), "\n", lineEnd)
			got, err := SetLink([]byte(text), c.a, c.b, change)
			if err != nil || string(got) != want {
				t.Errorf("%s -- %s %s: %v\nwant %q\ngot\n%s", c.a, c.b, c.change, err, c.plus, got)
			}
		}
	}
}

// TestSetLinkRefuses proves that what cannot be changed is reported, and nothing is changed by
// guessing.
func TestSetLinkRefuses(t *testing.T) {
	change, _ := topology.ParseLinkChange([]string{"delay=1ms"})
	for text, want := range map[string]string{
		"nodes: {a: host, b: host}\nlinks: [a -- b, b -- a]": "there are 2 links a -- b; change the file by hand",
		"nodes: {a: host, b: host}":                          "there is no link a -- b",
		"nodes: {a: hots}\nlinks: [a -- b]":                  "2:",
		"nodes: {a: host}\nlinks:\n  - a --\n    b":          "line 3: the link a -- b cannot be changed automatically",
	} {
		if _, err := SetLink([]byte(text), "a", "b", change); err == nil || !strings.Contains(err.Error(), want) && want != "2:" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestSetLinkIsApply proves that a changed file reads as the changed topology, whatever the
// topology and the change.
func TestSetLinkIsApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := topologies.Draw(t, "topology")
		data, losses, err := Write(want)
		if err != nil || len(losses) > 0 || len(want.Links) == 0 {
			t.Skip("nothing to change")
		}
		l := rapid.SampledFrom(want.Links).Draw(t, "link")
		change := linkChange(t)
		var ends [2]string
		for i, e := range l.Ends {
			ends[i] = e.Node
			if e.Node == "" {
				ends[i] = e.Interface
			}
		}
		out, err := SetLink(data, ends[0], ends[1], change)
		if err != nil {
			if strings.Contains(err.Error(), " links ") {
				t.Skip("parallel links")
			}
			t.Fatalf("%s\n%s", err, data)
		}
		change.Apply(l)
		got, problems := Read("t.yaml", out)
		if problems.Err() != nil || !reflect.DeepEqual(want, withoutPositions(got)) {
			t.Fatalf("%v\n%s\n%s", problems, data, out)
		}
	})
}

// TestSetFiles proves that files of a node are changed where they are written: a text in lines of
// its own stays one, with the same indentation and what is said beside it, as far as YAML can hold
// it so; and that all else is written on one line.
func TestSetFiles(t *testing.T) {
	const block = `nodes:
  h1:
    host:
      image: x
      files:
        /etc/a: |   # about it
            one

            two
        # about b
        /etc/b: b.conf   # the other
      cpu: 0.5
  h[2-3]: {host: {image: x, files: {/etc/a: a.conf}}}
`
	for _, c := range []struct {
		node        string
		files       []topology.NodeFile
		minus, plus string
	}{
		{"h1", []topology.NodeFile{{Path: "/etc/a", TextFile: topology.TextFile{Text: "three: [\n\n\n\tfour\n"}}, {Path: "/etc/b", TextFile: topology.TextFile{File: "b.conf"}}}, "            one\n\n            two", "            three: [\n\n\n            \tfour"},
		{"h1", []topology.NodeFile{{Path: "/etc/a", TextFile: topology.TextFile{Text: "one\n\ntwo\n"}}, {Path: "/etc/b", TextFile: topology.TextFile{File: "lab.d/h1/etc/b"}}}, "/etc/b: b.conf   #", "/etc/b: lab.d/h1/etc/b   #"},
		{"h1", []topology.NodeFile{{Path: "/etc/a", TextFile: topology.TextFile{Text: " one\n"}}, {Path: "/etc/b", TextFile: topology.TextFile{File: "b.conf"}}}, "|   # about it\n            one\n\n            two", `" one\n"`},
		{"h1", []topology.NodeFile{{Path: "/etc/a", TextFile: topology.TextFile{Text: "one\n\n"}}, {Path: "/etc/b", TextFile: topology.TextFile{File: "b.conf"}}}, "|   # about it\n            one\n\n            two", `"one\n\n"`},
		{"h1", []topology.NodeFile{{Path: "/etc/a", TextFile: topology.TextFile{Text: "one\r\ntwo\u2028\n"}}, {Path: "/etc/b", TextFile: topology.TextFile{File: "b.conf"}}}, "|   # about it\n            one\n\n            two", `"one\x0d\ntwo\u2028\n"`},
		{"h1", []topology.NodeFile{{Path: "/etc/a", TextFile: topology.TextFile{File: "x"}}, {Path: "/etc/b", TextFile: topology.TextFile{File: "b.conf"}}}, "|   # about it\n            one\n\n            two", "x"},
		{"h2", []topology.NodeFile{{Path: "/etc/a", TextFile: topology.TextFile{Text: "x\ny\n"}}}, "  h[2-3]: {host: {image: x, files: {/etc/a: a.conf}}}", "  h2: {host: {image: x, files: {/etc/a: \"x\\ny\\n\"}}}\n  h3: {host: {image: x, files: {/etc/a: a.conf}}}"},
	} {
		got, err := SetNode([]byte(block), c.node, NodeChange{Files: &c.files})
		if want := strings.Replace(block, c.minus, c.plus, 1); err != nil || string(got) != want {
			t.Errorf("%v: %v\nwant\n%s\ngot\n%s", c.files, err, want, got)
		}
	}
}
