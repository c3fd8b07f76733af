package draw

import (
	"bytes"
	"fmt"
	"strings"

	"trivet.dev/trivet/topology"
)

// dotShapes are Graphviz's node attributes for each kind.
var dotShapes = map[topology.Kind]string{
	topology.Host:       `shape=box style="rounded,filled" fillcolor="#eef4f8" color="#6b8ba4"`,
	topology.Switch:     `shape=box style=filled fillcolor="#2b6cb0" fontcolor=white`,
	topology.Router:     `shape=ellipse style=filled fillcolor="#c05621" fontcolor=white`,
	topology.Controller: `shape=hexagon style=filled fillcolor="#6b46c1" fontcolor=white`,
	realInterface:       `shape=cds`,
	network:             `shape=box style=rounded`,
	missing:             `shape=box style=dashed color="#d64545"`,
}

// DOT writes a topology in Graphviz's language, for layout by dot, neato and others. Nodes with a
// Place keep it in programs that honour pos (neato -n).
func DOT(t *topology.Topology) []byte {
	var b bytes.Buffer
	g := newGraph(t)
	fmt.Fprintf(&b,
		"graph %s {\n\tgraph [overlap=false]\n\tnode [fontname=\"sans-serif\" fontsize=11 height=0.3]\n\tedge [fontname=\"sans-serif\" fontsize=9 color=\"#7b8794\"]\n", quote(title(t, Options{})))
	for v := range g.vertices {
		vertex := &g.vertices[v]
		fmt.Fprintf(&b, "\tn%d [label=%s %s", v, quote(clean(vertex.name)), dotShapes[vertex.kind])
		if vertex.pinned {
			fmt.Fprintf(&b, ` pos="%s,%s!"`, px(vertex.at.x), px(-vertex.at.y))
		}
		b.WriteString("]\n")
	}
	for i, site := range g.sites {
		fmt.Fprintf(&b, "\tsubgraph cluster_%d {\n\t\tlabel=%s fontname=\"sans-serif\" fontsize=11 color=%q\n\t\t", i,
			quote(clean(site)), siteColour(i))
		for v := range g.vertices {
			if g.siteOf(v) == site {
				fmt.Fprintf(&b, "n%d ", v)
			}
		}
		b.WriteString("\n\t}\n")
	}
	for _, e := range g.edges {
		var attributes []string
		if w := linkWords(e.link); w != "" {
			attributes = append(attributes, "label="+quote(w))
		}
		if e.link.Down {
			attributes = append(attributes, `style=dashed color="#d64545"`)
		}
		fmt.Fprintf(&b, "\tn%d -- n%d", e.ends[0], e.ends[1])
		if len(attributes) > 0 {
			fmt.Fprintf(&b, " [%s]", strings.Join(attributes, " "))
		}
		b.WriteString("\n")
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// quote returns a DOT string that stands for exactly s, without escapes that labels interpret.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
